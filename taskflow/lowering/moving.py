"""The rules of `movement`, compiled by numba: play the events of regions, and pack what they cause.

There is one entry, `move`, since all that it calls is compiled once for every entry that calls it. It plays one region
after the other; a search has what they cause packed into its pool, lowering reads it out of the state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.cost.model import Rates
from taskflow.lowering.boxes import is_empty, put
from taskflow.lowering.combine import combine
from taskflow.lowering.deliver import deliver, name_copies
from taskflow.lowering.life import Lives
from taskflow.lowering.moves import add_arg, add_row, gather_needs, make_instances
from taskflow.lowering.packing import FITS, Packed, pack
from taskflow.lowering.places import Places
from taskflow.lowering.state import (
    AT,
    BRIEF,
    FEED,
    FIRST,
    FULL,
    HELD,
    INSTANCES,
    LOST,
    ROWS,
    SLOT,
    UPDATES,
    WRITE,
    State,
    clear,
    find_instance,
    hold,
    note_read,
    note_write,
    tables,
    words,
)
from taskflow.lowering.thinning import Lanes, first_points
from taskflow.lowering.tiles import Points

DONE, NO_MEMORY, NO_STATE, NO_POOL, NOBODY = range(5)  # how a call ends; see `move`


class Context(NamedTuple):
    """What does not change: hosts of all devices, and what is known of the region."""

    hosts: Any
    scalar: bool  # the region has no dimension
    itemsize: int
    few: int  # so many devices exchange row by row
    small_bytes: int  # a sum of less goes up a tree


@njit
def move(
    regions: Any,
    points_of: Any,
    used: Any,
    all_lives: Any,
    all_places: Any,
    hosts: Any,
    streams: Any,
    few: int,
    small_bytes: int,
    memory: Any,
    room: int,
    packs: bool,
    pool: Any,
    all_rates: Any,
) -> Any:
    """Play the events of some regions.

    Args:
        regions: by number.
        points_of: number of the points of every operator.
        used: the devices that fetch what is fetched.
        all_lives, all_places, pool, all_rates: `Lives`, `Places`, `Packed` and `Rates` as plain tuples.
        few, small_bytes, hosts: see `Context`.
        streams: see `thinning.Lanes`.
        memory, room: for a state; how many times the usual number of rows.
        packs: pack what they cause; else it is left in `memory`, and there is one region.

    Returns:
        how it ended, at which of the regions, a number that says more, and (unless `packs`): the first row of every
        version, the instance of every point of every event, the homes among the needs, and the instances of the homes
        and of those who fetch.
        DONE: the size of the state; NO_MEMORY: the numbers it takes; NO_STATE: more `room` is needed; NO_POOL: a
        column, see `packing`; NOBODY: the first need that nobody can serve, or -1: points of an operator wait for
        each other.
    """
    lives, places, packed, rates = Lives(*all_lives), Places(*all_places), Packed(*pool), Rates(*all_rates)
    size, none = 0, np.zeros(0, np.int64)
    version_row, arg_of, homes, found = none, none, none, none
    for number in range(len(regions)):
        r = regions[number]
        whole = lives.whole[lives.whole_ptr[r] : lives.whole_ptr[r + 1]]
        events = lives.event[lives.event_ptr[r] : lives.event_ptr[r + 1]]
        producer = lives.producer[lives.producer_ptr[r] : lives.producer_ptr[r + 1]]
        ops = lives.op[lives.op_ptr[r] : lives.op_ptr[r + 1]]
        itemsize, persistent, is_fetched, scalar = lives.region[r, :4]
        fetch = used if is_fetched else used[:0]
        c = Context(hosts, scalar != 0, itemsize, few, small_bytes)
        event_ptr, partial, p = load(events, ops, points_of, places, whole, c)
        size = room * (64 + 4 * (len(p.place) + len(fetch)))
        need = words(size, len(whole), len(hosts), len(producer))
        if need > len(memory):
            return NO_MEMORY, number, need, version_row, arg_of, homes, found
        s = tables(memory, size, len(whole), len(hosts), len(producer))
        clear(s)
        s.m[BRIEF] = packs
        version_row, homes = play(
            s, whole, persistent, fetch, len(ops), events, producer, event_ptr, partial, p, not packs, c
        )
        arg_of = p.arg_of
        if s.m[FULL]:
            return NO_STATE, number, 0, version_row, arg_of, homes, found
        if s.m[LOST]:
            return NOBODY, number, s.m[LOST] - 1, version_row, arg_of, homes, found
        if not packs:
            found = places_of(s, homes, fetch, whole)
            continue
        lanes = Lanes(streams, len(ops), first_points(events, event_ptr, len(ops)), p.place, version_row)
        column = pack(s, lanes, itemsize, packed, rates)
        if column != FITS:
            return NO_POOL if column >= 0 else NOBODY, number, column, version_row, arg_of, homes, found
    return DONE, len(regions), size, version_row, arg_of, homes, found


@inner
def load(events: Any, ops: Any, points_of: Any, places: Places, whole: Any, c: Context) -> tuple[Any, Any, Points]:
    """First point of every event, whether it leaves partial results, and the points of all events."""
    count, w = len(events), len(whole)
    ptr, partial = np.zeros(count + 1, np.int64), np.zeros(count, np.bool_)
    for e in range(count):
        ptr[e + 1] = ptr[e] + places.record[points_of[ops[events[e, 0]]], 1]
    total = ptr[count]
    place, box, colour = np.empty(total, np.int64), np.empty(total * w, np.int64), np.zeros(total, np.int64)
    for e in range(count):
        partial[e] = load_event(
            events, e, points_of[ops[events[e, 0]]], places, whole, c.scalar, ptr[e], place, box, colour
        )
    return ptr, partial, Points(place, box, colour, np.full(total, -1, np.int64))


@leaf
def load_event(
    events: Any, e: int, number: int, places: Places, whole: Any, is_scalar: bool, begin: int, place: Any, box: Any,
    colour: Any,
) -> bool:  # fmt: skip
    """Put the points of one event, of this number, behind `begin`; whether it leaves partial results."""
    record, w, is_partial = places.record[number], len(whole), False
    first, points, dims, outputs, term = record[0], record[1], record[3], record[5], record[7]
    arg, output = events[e, 1], events[e, 1] - places.term[term]
    for i in range(points):
        place[begin + i] = places.place[first + i]
    if output >= 0:
        is_partial = places.partial[record[6] + output] != 0
        for i in range(points):
            colour[begin + i] = places.colour[record[4] + i * outputs + output]
    at = record[2] + 2 * places.term[term + 1 + arg]
    for i in range(points):
        if is_scalar:
            put(box, (begin + i) * w, whole, 0, w)
        else:
            put(box, (begin + i) * w, places.box, at + 2 * i * dims, w)
    return bool(is_partial)


@inner
def play(
    s: State,
    whole: Any,
    persistent: int,
    fetch: Any,
    ops: int,
    events: Any,
    producer: Any,
    event_ptr: Any,
    partial: Any,
    p: Points,
    names: bool,
    c: Context,
) -> tuple[Any, Any]:
    """Play the events of a region; the first row of every version, and the needs that are homes.

    Args:
        whole: the box of the region.
        fetch: devices that fetch it whole.
        ops: number of operators that touch it, which are its slots 0, 1, ...; version v is slot `ops + v`.
        events: per event slot, argument, what it does, the version that it reads (or -1). producer: per version the
            event that makes it (-1: fed or persistent).
        event_ptr, p: points of all events; partial: per event, whether it leaves partial results.
        names: whether copies are named after the collective that they make up.
    """
    versions = len(producer)
    version_row = np.zeros(versions + 1, np.int64)
    homes = gather_needs(s, whole, persistent != 0, fetch, event_ptr, events, p.place, p.box, versions)
    make_instances(s, versions, producer, event_ptr, partial, p.place, p.box)
    for v in range(versions):
        slot, first = ops + v, s.m[ROWS]
        s.m[HELD], s.m[SLOT], s.m[FIRST] = 0, slot, first
        for k in range(s.m[INSTANCES]):
            s.m[s.m[AT.held_first] + k] = -1
        if not s.m[FULL]:
            begin_version(s, v, slot, first, persistent, homes, events, producer[v], event_ptr, partial, p, c)
        if not s.m[FULL]:
            deliver(s, v, slot, first, c)
        if s.m[FULL]:
            break
        version_row[v + 1] = s.m[ROWS]
        if names:
            name_copies(s, v, first, whole)
        for e in range(len(events)):
            if events[e, 3] == v:
                consume(s, events[e, 0], event_ptr[e], event_ptr[e + 1], events[e, 2] == UPDATES, p)
    return version_row, homes


@inner
def begin_version(
    s: State,
    v: int,
    slot: int,
    first: int,
    persistent: int,
    homes: Any,
    events: Any,
    e: int,
    event_ptr: Any,
    partial: Any,
    p: Points,
    c: Context,
) -> None:
    """Make a version valid somewhere: event `e` makes it, or it is kept from the step before, or fed."""
    if e >= 0 and partial[e]:
        combine(s, v, slot, first, events[e, 0], event_ptr[e], event_ptr[e + 1], p, c)
    elif e >= 0:
        produce(s, events[e, 0], event_ptr[e], event_ptr[e + 1], events[e, 2] == UPDATES, p)
    elif persistent:
        for k in homes:
            device, i = s.m[s.m[AT.need] + 3 * k], s.m[AT.need_box] + k * s.w
            hold(s, device, find_instance(s, device, s.m, i), s.m, i)
    else:
        feed(s, slot, first)


@leaf
def produce(s: State, slot: int, begin: int, end: int, updates: bool, p: Points) -> None:
    """The points of an event make their boxes valid; one that updates them was noted as their last reader already."""
    for point in range(begin, end):
        k = find_instance(s, p.place[point], p.box, point * s.w)
        if not updates:
            p.arg_of[point] = k
            note_write(s, k, p.box, point * s.w, slot, point - begin)
        hold(s, p.place[point], k, p.box, point * s.w)


@leaf
def feed(s: State, slot: int, first: int) -> None:
    """Every instance is filled from the caller's feed."""
    for device in range(s.devices):
        k = s.m[s.m[AT.value_first] + device]
        while k >= 0:
            add_arg(s, k, s.m, s.m[AT.inst_box] + k * s.w, WRITE)
            add_row(s, slot, first, FEED, device, device)
            hold(s, device, k, s.m, s.m[AT.inst_box] + k * s.w)
            k = s.m[s.m[AT.inst_next] + k]


@leaf
def consume(s: State, slot: int, begin: int, end: int, updates: bool, p: Points) -> None:
    """The points of an event read, and then perhaps update, their boxes."""
    for point in range(begin, end):
        if not is_empty(p.box, point * s.w, s.w):
            p.arg_of[point] = find_instance(s, p.place[point], p.box, point * s.w)
            note_read(s, p.arg_of[point], p.box, point * s.w, slot, point - begin)
    if updates:
        for point in range(begin, end):
            if p.arg_of[point] >= 0:
                note_write(s, p.arg_of[point], p.box, point * s.w, slot, point - begin)


@inner
def places_of(s: State, homes: Any, fetch: Any, whole: Any) -> Any:
    """The instances of needs that are homes, then of the devices that fetch."""
    found = np.empty(len(homes) + len(fetch), np.int64)
    for i in range(len(homes)):
        found[i] = find_instance(s, s.m[s.m[AT.need] + 3 * homes[i]], s.m, s.m[AT.need_box] + homes[i] * s.w)
    for i in range(len(fetch)):
        found[len(homes) + i] = find_instance(s, fetch[i], whole, 0)
    return found
