"""The rules of `movement`, compiled by numba: play the events of a region, deliver each version where it is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf, tiered
from taskflow.lowering.boxes import intersect, is_empty, overlaps, same
from taskflow.lowering.combine import combine
from taskflow.lowering.gathers import gather_together
from taskflow.lowering.life import ADDS, READS, UPDATES, Lives, RegionLife, load
from taskflow.lowering.line import Line, end_near, first_near, line_of
from taskflow.lowering.moves import (
    add_arg,
    add_copy,
    add_row,
    copy_in_rounds,
    exchange_together,
    name_copies,
)
from taskflow.lowering.needs import (
    cut_out,
    gather_needs,
    make_instances,
    missing,
    needs_of,
    turns_of,
)
from taskflow.lowering.ordinals import number_feeds, number_moves, ordinals_of
from taskflow.lowering.passing import is_passed_on, pass_on
from taskflow.lowering.pieces import HeldPieces, giver_of, pieces_of
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.sorting import sort_first
from taskflow.lowering.state import (
    FEED,
    WRITE,
    State,
    clear,
    find_instance,
    hold,
    lay_out,
    note_read,
    note_write,
    state_in,
)
from taskflow.lowering.tiles import Points, by_number
from taskflow.machine.equal import Equals, in_order

DONE, NO_MEMORY, NO_STATE, NOBODY = range(4)  # how playing a region ends; see `play_region`


class World(NamedTuple):
    """What does not change from region to region.

    Attributes:
        lives, table: of all regions, of all points.
        points_of: number of the points of every operator.
        used_ptr, used: the devices of every job, which fetch what it makes and is fetched.
        equals: see `MachineModel.equals`.
        few_sums, few_gathers, few_exchanges, has_relays, doors, is_queued, room_bytes, piece_bytes: see `State`.
    """

    lives: Lives
    table: PointTable
    points_of: Any
    used_ptr: Any
    used: Any
    equals: Equals
    few_sums: int
    few_gathers: int
    few_exchanges: int
    has_relays: int
    doors: int
    is_queued: int
    room_bytes: int
    piece_bytes: int


class Played(NamedTuple):
    """A region whose events have been played.

    Attributes:
        end: DONE; NO_MEMORY: it takes `number` int64s; NO_STATE: more `room` is needed; NOBODY: who needs need
            `number` cannot be served.
        order: the devices, by the numbers that they have in the state and the points; see `rename`.
        fetch: the numbers of those who fetch the region.
        version_row: the first row of every version.
        homes: the needs that are homes.
    """

    end: int
    number: int
    state: State
    life: RegionLife
    points: Points
    order: Any
    fetch: Any
    version_row: Any
    homes: Any


@tiered
def move(region: int, world: Any, memory: Any, room: int) -> Any:
    """Play the events of a region; the state is left in `memory`.

    Args:
        world: `World` as a plain tuple, of plain tuples.
        others: see `play_region`.

    Returns:
        `end` and `number` of `Played`, the first row of every version, the instance of every point of every event, the
        homes among the needs, and the instances of the homes and of those who fetch.
    """
    w = world_of(world)
    x = play_region(region, w, memory, room, False)
    instances = np.empty(0, np.int64)
    if x.end == DONE:
        instances = homes_and_fetches(x)
        rename(x)
    return x.end, x.number, x.version_row, x.points.instance, x.homes, instances


@inner
def world_of(plain: Any) -> World:
    """A world of plain tuples."""
    lives, table, points_of, used_ptr, used, equals = plain[:6]
    return World(
        Lives(*lives), PointTable(*table), points_of, used_ptr, used, Equals(*equals), *plain[6:]
    )


@inner
def play_region(region: int, world: World, memory: Any, room: int, is_brief: bool) -> Played:
    """Play the events of a region.

    Devices are numbered anew, as its points and then those who fetch it name them (see `machine.equal`), so whatever
    is decided by a number is decided alike where equal devices have other names.

    Args:
        memory, room: for the state; how many times the usual number of rows it has room for.
        is_brief: leave out edges that streams imply, and names; where a device has several points of an operator,
            rows are not issued in the order in which they are found, and nothing is left out.
    """
    life, points = load(region, world.lives, world.points_of, world.table)
    ordinal = ordinals_of(points.device, life.event_ptr, len(world.equals.host))
    has_parts = len(ordinal) > 0 and ordinal.max() > 0
    fetch = world.used[:0]
    if life.is_fetched:
        fetch = world.used[world.used_ptr[life.job] : world.used_ptr[life.job + 1]]
    none = np.empty(0, np.int64)
    order = named_by(points, fetch, world)
    fetch = number_anew(points, fetch, order, len(world.equals.host))
    size = room * (64 + 4 * (len(points.device) + len(fetch)))
    versions = max(len(life.producer), life.gathers)
    taken = lay_out(memory, size, len(life.whole), len(order), versions)
    s = state_in(memory)
    if taken > len(memory):
        return Played(NO_MEMORY, taken, s, life, points, order, fetch, none, none)
    clear(s, memory, len(life.whole), world.equals.host[order], world.equals.kind[order])
    s.few_sums = world.few_sums
    s.few_gathers = world.few_gathers
    s.few_exchanges = world.few_exchanges
    s.has_relays = world.has_relays
    s.doors = world.doors
    s.is_queued = world.is_queued
    s.room_bytes = world.room_bytes
    s.piece_bytes = world.piece_bytes
    s.is_brief = is_brief and not has_parts
    s.itemsize = life.itemsize
    s.is_scalar = life.is_scalar
    version_row, homes = play(s, life, points, fetch, ordinal if has_parts else ordinal[:0])
    end = NO_STATE if s.is_full else NOBODY if s.lost else DONE
    return Played(end, s.lost - 1, s, life, points, order, fetch, version_row, homes)


@inner
def named_by(points: Points, fetch: Any, world: World) -> Any:
    """The devices that have to do with a region, in order; of one with which none has, the first that is used."""
    names = np.concatenate((points.device, fetch))
    of = world.equals
    return in_order(names if len(names) else world.used[:1], (of.host, of.host_kind, of.kind))


@inner
def number_anew(points: Points, fetch: Any, order: Any, devices: int) -> Any:
    """Devices have their places in `order` as numbers; those who fetch, with these numbers."""
    number = np.full(devices, -1, np.int64)
    number[order] = np.arange(len(order))
    for k in range(len(points.device)):
        points.device[k] = number[points.device[k]]
    return number[fetch]


@leaf
def rename(x: Played) -> None:
    """Devices have the numbers of the machine again, where rows, instances and points name them."""
    s = x.state
    for k in range(s.rows):
        s.row[k].source = x.order[s.row[k].source]
        s.row[k].device = x.order[s.row[k].device]
    for k in range(s.instances):
        s.instance[k].device = x.order[s.instance[k].device]
    for k in range(len(x.points.device)):
        x.points.device[k] = x.order[x.points.device[k]]


@inner
def play(s: State, life: RegionLife, points: Points, fetch: Any, ordinal: Any) -> tuple[Any, Any]:
    """Play the events of a region; the first row of every version, and the needs that are homes.

    `ordinal`: of all points; empty: every one is 0.
    """
    version_row = np.zeros(len(life.producer) + 1, np.int64)
    turn = turns_of(life, points, ordinal)
    homes = gather_needs(s, life, points, fetch, turn)
    make_instances(s, life, points, np.arange(0 if len(turn) else s.needs))
    origin = 0
    held = s.held[:0].copy()
    held_box = s.held_box[:0].copy()
    for version in range(len(life.producer)):
        s.version = version
        s.issuer = life.ops + version
        s.first = s.rows
        s.held_boxes = 0
        first_edge = s.edges
        for k in range(s.instances):
            s.instance[k].first_held = -1
        is_passed = is_passed_on(life, version)
        if not s.is_full and is_passed:
            pass_on(s, held, held_box)
        elif not s.is_full:
            begin_version(s, life, points, homes)
            origin = version
            if is_passed_on(life, version + 1):
                held = s.held[: s.held_boxes].copy()
                held_box = s.held_box[: s.held_boxes].copy()
        if not s.is_full and len(turn):
            take_turns(s, life, points, turn, ordinal)
        elif not s.is_full:
            deliver(s, life.whole, is_passed)
        version_row[version + 1] = s.rows
        if s.is_full:
            break
        if len(ordinal) and life.producer[origin] >= 0:
            number_moves(s, life, first_edge, ordinal, origin, version_row)
        elif len(ordinal):
            number_feeds(s, life, points, ordinal)
        if len(turn):  # all have read it
            break
        if not s.is_brief:
            name_copies(s, life.whole, s.first)
        for e in range(len(life.event)):
            if life.event[e].version == version and not (
                life.event[e].role == ADDS and life.is_partial[e]
            ):
                consume(s, life, e, points, turn, version)
    return version_row, homes


@inner
def take_turns(s: State, life: RegionLife, points: Points, turn: Any, ordinal: Any) -> None:
    """Deliver what was made to the readers of one turn after the other, in instances of their own."""
    held = s.held_boxes
    last = s.device["last_value"].copy()
    version = s.version
    for k in range(life.gathers):
        first = s.rows
        least = ordinal.max()
        s.version = k
        s.held_boxes = held
        for device in range(s.devices):  # instances of the turn before are none of this one
            s.device[device].last_value = last[device]
            s.device[device].found = -1
            if last[device] < 0:
                s.device[device].first_value = -1
            else:
                s.instance[last[device]].next = -1
        make_instances(s, life, points, needs_of(s, k))
        if s.is_full:
            return
        deliver(s, life.whole, False)
        for e in range(len(life.event)):
            if e != life.producer[0]:
                consume(s, life, e, points, turn, k)
                for point in range(life.event_ptr[e], life.event_ptr[e + 1]):
                    least = min(least, ordinal[point]) if turn[point] == k else least
        for row in range(first, s.rows):
            s.row[row].ordinal = least
        name_copies(s, life.whole, first)
    s.version = version


@inner
def begin_version(s: State, life: RegionLife, points: Points, homes: Any) -> None:
    """Make a version valid somewhere: an event makes it, or it is kept from the step before, or fed."""
    e = life.producer[s.version]
    if e >= 0 and life.is_partial[e]:
        combine(s, life, e, points)
    elif e >= 0:
        produce(s, life, e, points)
    elif life.is_persistent:
        for k in homes:
            device = s.need[k].device
            hold(s, device, find_instance(s, device, s.need_box[k]), s.need_box[k])
    else:
        feed(s)


@leaf
def produce(s: State, life: RegionLife, e: int, p: Points) -> None:
    """The points of an event make their boxes valid; one that updates them was noted as their last reader already."""
    is_new = life.event[e].role != UPDATES and life.event[e].role != ADDS
    for point in range(life.event_ptr[e], life.event_ptr[e + 1]):
        k = find_instance(s, p.device[point], p.box[point])
        if is_new:
            p.instance[point] = k
            note_write(s, k, p.box[point], life.event[e].issuer, point - life.event_ptr[e])
        hold(s, p.device[point], k, p.box[point])


@leaf
def feed(s: State) -> None:
    """Every instance is filled from the caller's feed."""
    for device in range(s.devices):
        k = s.device[device].first_value
        while k >= 0:
            add_arg(s, k, s.instance_box[k], WRITE)
            add_row(s, FEED, device, device)
            hold(s, device, k, s.instance_box[k])
            k = s.instance[k].next


@leaf
def consume(s: State, life: RegionLife, e: int, p: Points, turn: Any, k: int) -> None:
    """The points of an event read, and then perhaps update, their boxes; where they have turns, those of one."""
    begin = life.event_ptr[e]
    end = life.event_ptr[e + 1]
    issuer = life.event[e].issuer
    for point in range(begin, end):
        if not is_empty(p.box[point]) and (not len(turn) or turn[point] == k):
            p.instance[point] = (
                part_for(life, point, (begin, end), p)
                if life.is_partial[e] and life.event[e].role == READS
                else find_instance(s, p.device[point], p.box[point])
            )
            note_read(s, p.instance[point], p.box[point], issuer, point - begin)
    if life.event[e].role == UPDATES or life.event[e].role == ADDS:
        for point in range(begin, end):
            if p.instance[point] >= 0:
                note_write(s, p.instance[point], p.box[point], issuer, point - begin)


@leaf
def part_for(life: RegionLife, reader: int, readers: tuple[int, int], p: Points) -> int:
    """The instance in which the parts of a point's box and device are added up, the first of these parts.

    Where there are as many `readers` as parts these stand in one order, as a rule.
    """
    begin = life.event_ptr[0]
    count = life.event_ptr[1] - life.event_ptr[0]
    place = reader - readers[0] if readers[1] - readers[0] == count else 0
    for k in range(place, place + count):
        point = begin + k % count
        if p.device[point] == p.device[reader] and same(p.box[point], p.box[reader]):
            return int(p.instance[point])
    return -1


@inner
def homes_and_fetches(x: Played) -> Any:
    """The instances of needs that are homes, then of the devices that fetch."""
    s = x.state
    homes = x.homes
    fetch = x.fetch
    instances = np.empty(len(homes) + len(fetch), np.int64)
    for i in range(len(homes)):
        instances[i] = find_instance(s, s.need[homes[i]].device, s.need_box[homes[i]])
    for i in range(len(fetch)):
        instances[len(homes) + i] = find_instance(s, fetch[i], x.life.whole)
    return instances


# -- delivering --------------------------------------------------------------------------------------------------------


@inner
def deliver(s: State, whole: Any, is_passed: bool) -> None:
    """Copy into every needed box what is not valid there; what is passed on without waiting for all others."""
    sources = np.arange(s.held_boxes)
    if not is_passed:
        gather_together(s, line_of(sources, s.held_box, s.width))
    s.copies = 0
    needs = lacking_by_device(s)
    if len(needs):
        pieces = pieces_of(s, sources, s.held_box[: len(sources)])
        line = line_of(np.arange(len(pieces.box)), pieces.box, s.width)
        near = np.empty(len(s.held), np.int64)
        spare = np.empty(len(s.held), np.int64)
        for need in needs:
            serve(s, need, pieces, line, near, spare)
    if not is_passed:
        exchange_together(s, whole)
    copy_in_rounds(s)


@inner
def lacking_by_device(s: State) -> Any:
    """The needs of the version that lack something, by device."""
    needs = needs_of(s, s.version)
    count = 0
    device = np.empty(len(needs), np.int64)
    for need in needs:
        if missing(s, need):
            needs[count], device[count] = need, s.need[need].device
            count += 1
    return needs[by_number(device[:count], s.devices)[0]]


@leaf
def serve(s: State, need: int, pieces: HeldPieces, line: Line, near: Any, spare: Any) -> None:
    """Copies of what a need lacks, from the nearest; `line`: of the pieces."""
    target = find_instance(s, s.need[need].device, s.need_box[need])
    left = missing(s, need)
    if not left:  # another need of the device has brought it
        return
    count = holders_of(s, need, pieces, line, left, near)
    sort_first(near, count, spare)
    for i in range(count):
        k = near[i] % len(s.held)
        if s.held[k].instance != target:
            copy_from(s, k, s.need[need].device, target, left)
            left = cut_out(s, left, s.held_box[k])
        if not left:
            return
    s.lost = 1 + need


@leaf
def holders_of(s: State, need: int, pieces: HeldPieces, line: Line, left: int, near: Any) -> int:
    """Who has a part of the first boxes in `work`: what the device has elsewhere, then its host, then other hosts.

    Of every piece it is the holder whose turn it is; what has arrived since is for its own device. `near` gets numbers
    to sort: how far away, and which held box.
    """
    device = s.need[need].device
    n = 0
    for i in range(first_near(line, s.need_box[need]), end_near(line, s.need_box[need])):
        t = line.number[line.key[i] % line.total]
        if is_missing(s, left, pieces.box[t]):
            k = pieces.held[giver_of(s, pieces, t, device)]
            near[n] = distance(s, s.held[k].device, device) * len(s.held) + k
            n += 1
    instance = s.device[device].first_value
    while instance >= 0:
        k = s.instance[instance].first_held
        while k >= 0:
            if k >= len(pieces.held) and is_missing(s, left, s.held_box[k]):
                near[n] = k
                n += 1
            k = s.held[k].next
        instance = s.instance[instance].next
    return n


@leaf
def is_missing(s: State, left: int, box: Any) -> bool:
    """Whether some of a box is in the first boxes in `work`."""
    for i in range(left):  # noqa: SIM110 - compiled
        if overlaps(s.work[i], box):
            return True
    return False


@leaf
def distance(s: State, source: int, device: int) -> int:
    """0 on a device, 1 on a host, 2 between hosts."""
    return int(source != device) + int(s.device[source].host != s.device[device].host)


@leaf
def copy_from(s: State, k: int, device: int, target: int, left: int) -> None:
    """Copies of what held box `k` has of the first boxes in `work`."""
    for i in range(left):
        if overlaps(s.work[i], s.held_box[k]):
            copy = add_copy(s, s.held[k].device, s.held[k].instance, device, target)
            if copy < 0:
                return
            intersect(s.copy_box[copy], s.work[i], s.held_box[k])
            hold(s, device, target, s.copy_box[copy])
