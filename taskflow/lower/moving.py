"""The rules of `movement`, compiled by numba: producing, combining and delivering versions of a region."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from taskflow.lower.boxes import inner, intersect, is_empty, overlaps, put, same, volume
from taskflow.lower.collective import gather_together, missing, owners_of, reduce_together
from taskflow.lower.moves import (
    ARGS,
    COPY,
    EDGES,
    FEED,
    FOLD,
    FULL,
    HELD,
    INSTANCES,
    LOST,
    READ,
    READ_WRITE,
    ROWS,
    UPDATES,
    WRITE,
    State,
    add_arg,
    add_instance,
    add_row,
    copy_in_rounds,
    cut_out,
    empty_state,
    find_instance,
    gather_needs,
    hold,
    make_instances,
    needs_of,
    note_read,
    note_write,
)


class Context(NamedTuple):
    """What does not change: hosts of all devices, and what is known of the region."""

    hosts: Any
    scalar: bool  # the region has no dimension
    itemsize: int
    few: int  # so many devices exchange row by row
    small_bytes: int  # a sum of less goes up a tree


@numba.njit(cache=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
def build(
    memory: Any,
    size: int,
    whole: Any,
    scalar: bool,
    persistent: bool,
    itemsize: int,
    few: int,
    small_bytes: int,
    fetch: Any,
    hosts: Any,
    ops: int,
    events: Any,
    producer: Any,
    event_ptr: Any,
    partial: Any,
    place: Any,
    box: Any,
    colour: Any,
) -> Any:
    """Play the events of a region.

    Args:
        memory, size: room for a state, see `moves.words`.
        whole: the box of the region.
        scalar, itemsize, few, small_bytes, hosts: see `Context`.
        fetch: devices that fetch it whole.
        ops: number of operators that touch it, which are its slots 0, 1, ...; version v is slot `ops + v`.
        events: per event slot, argument, what it does, the version that it reads (or -1). producer: per version the
            event that makes it (-1: fed or persistent).
        event_ptr, place, box, colour: points of all events; partial: per event, whether it leaves partial results.

    Returns:
        whether there was too little room, the first need that nobody can serve plus one, and the columns of a Fragment.
    """
    versions, w = len(producer), len(whole)
    s, c = empty_state(memory, size, w, len(hosts), versions), Context(hosts, scalar, itemsize, few, small_bytes)
    arg_of, version_row = np.full(len(place), -1, np.int64), np.zeros(versions + 1, np.int64)
    homes = gather_needs(s, whole, persistent, fetch, event_ptr, events, place, box, versions)
    make_instances(s, versions, producer, event_ptr, partial, place, box)
    for v in range(versions):
        if s.m[FULL]:
            break
        slot, first, e = ops + v, s.m[ROWS], producer[v]
        s.m[HELD] = 0
        for k in range(s.m[INSTANCES]):
            s.m[s.held_first + k] = -1
        if e >= 0:
            begin, end = event_ptr[e], event_ptr[e + 1]
            if partial[e]:
                combine(s, v, slot, first, events[e, 0], begin, end, place, box, colour, arg_of, c)
            else:
                produce(s, events[e, 0], begin, end, events[e, 2] == UPDATES, place, box, arg_of)
        elif persistent:
            for k in homes:
                device, i = s.m[s.need + 3 * k], s.need_box + k * w
                hold(s, device, find_instance(s, device, s.m, i), s.m, i)
        else:
            feed(s, slot, first)
        if s.m[FULL]:
            break
        deliver(s, v, slot, first, c)
        if s.m[FULL]:
            break
        version_row[v + 1] = s.m[ROWS]
        name_copies(s, v, first, whole)
        for e in range(len(events)):
            if events[e, 3] == v:
                consume(s, events[e, 0], event_ptr[e], event_ptr[e + 1], events[e, 2] == UPDATES, place, box, arg_of)
    instances, rows, args = s.m[INSTANCES], s.m[ROWS], s.m[ARGS]
    home, home_box = places_of(s, homes)
    return (
        s.m[FULL],
        s.m[LOST],
        s.m[s.inst_device : s.inst_device + instances].copy(),
        s.m[s.inst_box : s.inst_box + instances * w].copy(),
        s.m[s.inst_partial : s.inst_partial + instances].copy(),
        s.m[s.row : s.row + 6 * rows].copy(),
        s.m[s.arg : s.arg + 2 * args].copy(),
        s.m[s.arg_box : s.arg_box + args * w].copy(),
        version_row,
        arg_of,
        sorted_edges(s),
        home,
        home_box,
        fetched(s, fetch, whole),
    )


@inner
def produce(s: State, slot: int, begin: int, end: int, updates: bool, place: Any, box: Any, arg_of: Any) -> None:
    """The points of an event make their boxes valid; one that updates them was noted as their last reader already."""
    for p in range(begin, end):
        k = find_instance(s, place[p], box, p * s.w)
        if not updates:
            arg_of[p] = k
            note_write(s, k, box, p * s.w, slot, p - begin)
        hold(s, place[p], k, box, p * s.w)


@inner
def feed(s: State, slot: int, first: int) -> None:
    """Every instance is filled from the caller's feed."""
    for device in range(s.devices):
        k = s.m[s.value_first + device]
        while k >= 0:
            add_arg(s, k, s.m, s.inst_box + k * s.w, WRITE)
            add_row(s, slot, first, FEED, device, device)
            hold(s, device, k, s.m, s.inst_box + k * s.w)
            k = s.m[s.inst_next + k]


@inner
def consume(s: State, slot: int, begin: int, end: int, updates: bool, place: Any, box: Any, arg_of: Any) -> None:
    """The points of an event read, and then perhaps update, their boxes."""
    for p in range(begin, end):
        if not is_empty(box, p * s.w, s.w):
            arg_of[p] = find_instance(s, place[p], box, p * s.w)
            note_read(s, arg_of[p], box, p * s.w, slot, p - begin)
    if updates:
        for p in range(begin, end):
            if arg_of[p] >= 0:
                note_write(s, arg_of[p], box, p * s.w, slot, p - begin)


# -- partial results -------------------------------------------------------------------------------------------------


@inner
def tiles_of(box: Any, begin: int, end: int, w: int) -> tuple[Any, Any]:
    """Points in order of their tiles (equal boxes), and the first point of every tile in that order."""
    count = end - begin
    tile, first, size, tiles = np.empty(count, np.int64), np.empty(count, np.int64), np.zeros(count, np.int64), 0
    for p in range(count):
        t = 0
        while t < tiles and not same(box, (begin + first[t]) * w, box, (begin + p) * w, w):
            t += 1
        if t == tiles:
            first[t] = p
            tiles += 1
        tile[p] = t
        size[t] += 1
    ptr = np.zeros(tiles + 1, np.int64)
    for t in range(tiles):
        ptr[t + 1] = ptr[t] + size[t]
    order = np.argsort(tile, kind="mergesort")
    for i in range(count):
        order[i] += begin
    return order, ptr


@inner
def colours_of(points: Any, colour: Any, place: Any) -> tuple[Any, Any]:
    """Points of a tile by colour, in order of appearance, each colour once a device; and where each begins."""
    most, colours = 0, 0
    for p in points:
        most = max(most, colour[p] + 1)
    number = np.full(most, -1, np.int64)
    local = np.empty(len(points), np.int64)
    for i in range(len(points)):
        c = colour[points[i]]
        if number[c] < 0:
            number[c] = colours
            colours += 1
        local[i] = number[c]
    order = np.argsort(local, kind="mergesort")
    kept, ptr, n = np.empty(len(points), np.int64), np.zeros(colours + 1, np.int64), 0
    for i in order:
        c, is_new = local[i], True
        for j in range(ptr[c], n):
            is_new = is_new and place[kept[j]] != place[points[i]]
        if is_new:
            kept[n] = points[i]
            n += 1
        for after in range(c + 1, colours + 1):
            ptr[after] = n
    return kept[:n], ptr


@inner
def groups_of(kept: Any, ptr: Any, place: Any) -> tuple[Any, Any]:
    """Colours with the same devices are a group: group of every colour, and the first colour of every group."""
    colours = len(ptr) - 1
    group, leader, groups = np.empty(colours, np.int64), np.empty(colours, np.int64), 0
    for c in range(colours):
        found = -1
        for g in range(groups):
            a = leader[g]
            if found < 0 and ptr[a + 1] - ptr[a] == ptr[c + 1] - ptr[c]:
                found = g
                for i in range(ptr[c + 1] - ptr[c]):
                    if place[kept[ptr[a] + i]] != place[kept[ptr[c] + i]]:
                        found = -1
                        break
        if found < 0:
            found = groups
            leader[groups] = c
            groups += 1
        group[c] = found
    return group, leader[:groups]


@inner
def combine(
    s: State,
    v: int,
    slot: int,
    first: int,
    op: int,
    begin: int,
    end: int,
    place: Any,
    box: Any,
    colour: Any,
    arg_of: Any,
    c: Any,
) -> None:
    """Partial results: place them, fold those of one device, then sum each needed box at its owner."""
    order, tile_ptr = tiles_of(box, begin, end, s.w)
    tiles = len(tile_ptr) - 1
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        place_partials(s, op, begin, kept, ptr, group, leader, place, box, arg_of)
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        fold_local(s, slot, first, kept, ptr, group, leader, place, box, arg_of)
    sum_tiles(s, v, slot, first, order, tile_ptr, place, box, colour, arg_of, c)


@inner
def place_partials(
    s: State,
    op: int,
    begin: int,
    kept: Any,
    ptr: Any,
    group: Any,
    leader: Any,
    place: Any,
    box: Any,
    arg_of: Any,
) -> None:
    """Instances for the partial results of a tile; the first of a device lies where the result will be, if free."""
    groups_at = np.zeros(s.devices, np.int64)
    for c in leader:
        for i in range(ptr[c], ptr[c + 1]):
            groups_at[place[kept[i]]] += 1
    for g in range(len(leader)):
        for i in range(ptr[leader[g] + 1] - ptr[leader[g]]):
            is_first = True
            for c in range(leader[g], len(group)):
                if group[c] == g:
                    p = kept[ptr[c] + i]
                    k = find_instance(s, place[p], box, p * s.w) if is_first and groups_at[place[p]] == 1 else -1
                    arg_of[p] = k if k >= 0 else add_instance(s, place[p], box, p * s.w, True)
                    note_write(s, arg_of[p], box, p * s.w, op, p - begin)
                    is_first = False


@inner
def fold_local(
    s: State,
    slot: int,
    first: int,
    kept: Any,
    ptr: Any,
    group: Any,
    leader: Any,
    place: Any,
    box: Any,
    arg_of: Any,
) -> None:
    """Fold the partial results that a device has of one tile into the first of them."""
    for g in range(len(leader)):
        members = 0
        for c in range(leader[g], len(group)):
            members += group[c] == g
        for i in range(ptr[leader[g] + 1] - ptr[leader[g]] if members > 1 else 0):
            p = kept[ptr[leader[g]] + i]
            add_arg(s, arg_of[p], box, p * s.w, READ_WRITE)
            for c in range(leader[g], len(group)):
                if group[c] == g:
                    add_arg(s, arg_of[kept[ptr[c] + i]], box, p * s.w, READ)
            add_row(s, slot, first, FOLD, place[p], place[p])


@inner
def sum_tiles(
    s: State,
    v: int,
    slot: int,
    first: int,
    order: Any,
    tile_ptr: Any,
    place: Any,
    box: Any,
    colour: Any,
    arg_of: Any,
    c: Any,
) -> None:
    """Sum each needed box of every tile, many devices in one row, a few at the owners of its pieces."""
    w, owned, copied, summed = s.w, 0, 0, 0
    owner, piece, part_ptr = np.empty(16, np.int64), np.empty(16 * w, np.int64), np.zeros(17, np.int64)
    parts, copies, boxes = np.empty(64, np.int64), np.empty(4 * 64, np.int64), np.empty(64 * w, np.int64)
    for t in range(len(tile_ptr) - 1):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        _, leader = groups_of(kept, ptr, place)
        if len(leader) == 1:  # every holder has the whole sum
            for i in range(ptr[0], ptr[1]):
                hold(s, place[kept[i]], arg_of[kept[i]], box, kept[i] * s.w)
            continue
        if reduce_together(s, v, slot, first, kept, ptr, leader, place, box, arg_of, c):
            continue
        holds = np.zeros(s.devices, np.bool_)
        for g in leader:
            for i in range(ptr[g], ptr[g + 1]):
                holds[place[kept[i]]] = True
        by, of = owners_of(s, v, box, kept[0], holds, c.scalar)
        while owned + len(by) > len(owner):
            owner, piece = np.concatenate((owner, owner)), np.concatenate((piece, piece))
            part_ptr = np.concatenate((part_ptr, part_ptr))
        while summed + len(by) * len(leader) > len(parts):
            parts = np.concatenate((parts, parts))
        while 4 * (copied + len(by) * len(leader)) > len(copies):
            copies, boxes = np.concatenate((copies, copies)), np.concatenate((boxes, boxes))
        for i in range(len(by)):
            owner[owned] = by[i]
            put(piece, owned * s.w, of, i * s.w, s.w)
            into = parts[summed : summed + len(leader)]
            copied = gather_parts(s, by[i], of, i, kept, ptr, leader, place, arg_of, into, copies, boxes, copied)
            summed += len(leader)
            owned += 1
            part_ptr[owned] = summed
    copy_in_rounds(s, slot, first, copies[: 4 * copied], boxes)
    for i in range(owned):
        target, begin, end = find_instance(s, owner[i], piece, i * s.w), part_ptr[i], part_ptr[i + 1]
        if end - begin > 1 or parts[begin] != target:
            add_arg(s, target, piece, i * s.w, READ_WRITE if parts[begin] == target else WRITE)
            for j in range(begin, end):
                add_arg(s, parts[j], piece, i * s.w, READ)
            add_row(s, slot, first, FOLD, owner[i], owner[i])
        hold(s, owner[i], target, piece, i * s.w)


@inner
def gather_parts(
    s: State,
    owner: int,
    piece: Any,
    i: int,
    kept: Any,
    ptr: Any,
    leader: Any,
    place: Any,
    arg_of: Any,
    parts: Any,
    copies: Any,
    boxes: Any,
    copied: int,
) -> int:
    """The instances that the owner of a piece sums, its own first, and the copies of what others have."""
    for n, c in enumerate(leader):
        own, count = -1, ptr[c + 1] - ptr[c]
        for j in range(ptr[c], ptr[c + 1]):
            if place[kept[j]] == owner:
                own = arg_of[kept[j]]
        if own >= 0:
            for j in range(n, 0, -1):
                parts[j] = parts[j - 1]
            parts[0] = own
        else:
            source = kept[ptr[c] + owner % count]
            scratch = add_instance(s, owner, piece, i * s.w, True)
            at = 4 * copied
            copies[at], copies[at + 1], copies[at + 2], copies[at + 3] = place[source], arg_of[source], owner, scratch
            put(boxes, copied * s.w, piece, i * s.w, s.w)
            copied += 1
            parts[n] = scratch
    return copied


# -- delivering ------------------------------------------------------------------------------------------------------


@inner
def deliver(s: State, v: int, slot: int, first: int, c: Any) -> None:
    """Copy into every needed box what is not valid there."""
    sources, copied = s.m[HELD], 0
    gather_together(s, v, slot, first, sources, c)
    copies, boxes = np.empty(4 * 16, np.int64), np.empty(16 * s.w, np.int64)
    for need in needs_of(s, v):
        device = s.m[s.need + 3 * need]
        target, left = find_instance(s, device, s.m, s.need_box + need * s.w), missing(s, need)
        if not left:
            continue
        for k in by_distance(s, sources, device, c.hosts):
            if s.m[s.held + 2 * k + 1] == target:
                continue
            while 4 * (copied + left) > len(copies):
                copies, boxes = np.concatenate((copies, copies)), np.concatenate((boxes, boxes))
            copied = copy_from(s, k, device, target, left, copies, boxes, copied)
            left = cut_out(s, left, s.m, s.held_box + k * s.w)
            if not left:
                break
        if left:
            s.m[LOST] = 1 + need
    copy_in_rounds(s, slot, first, copies[: 4 * copied], boxes)


@inner
def by_distance(s: State, sources: int, device: int, hosts: Any) -> Any:
    """Who holds boxes that `device` may copy: what it has itself, then its host; replicas serve different readers."""
    count = len(hosts)
    near, key, n = np.empty(s.m[HELD], np.int64), np.empty(s.m[HELD], np.int64), 0
    for k in range(s.m[HELD]):
        source = s.m[s.held + 2 * k]
        if k < sources or source == device:
            near[n] = k
            away = 0 if source == device else 1 if hosts[source] == hosts[device] else 2
            key[n] = away * count + (source - device) % count
            n += 1
    return near[np.argsort(key[:n], kind="mergesort")]


@inner
def copy_from(s: State, k: int, device: int, target: int, left: int, copies: Any, boxes: Any, copied: int) -> int:
    """Copies of all pieces in `work[:left]` that `held[k]` has; the new number of copies."""
    for w in range(left):
        if overlaps(s.m, s.work + w * s.w, s.m, s.held_box + k * s.w, s.w):
            intersect(boxes, copied * s.w, s.m, s.work + w * s.w, s.m, s.held_box + k * s.w, s.w)
            at = 4 * copied
            copies[at], copies[at + 1] = s.m[s.held + 2 * k], s.m[s.held + 2 * k + 1]
            copies[at + 2], copies[at + 3] = device, target
            hold(s, device, target, boxes, copied * s.w)
            copied += 1
    return copied


# -- what the rows of a version are called ---------------------------------------------------------------------------


@inner
def name_copies(s: State, v: int, first: int, whole: Any) -> None:
    """Name the copies since row `first` after the collective that they make up."""
    code = classify(s, v, first, whole)
    for row in range(first, s.m[ROWS]):
        if s.m[s.row + 6 * row] == COPY and s.m[s.row + 6 * row + 1] != s.m[s.row + 6 * row + 2]:
            s.m[s.row + 6 * row + 5] = code


@inner
def classify(s: State, v: int, first: int, whole: Any) -> int:
    """The collective that the rows since `first` make up, as a place in `task.COLLECTIVES`; for people."""
    from_, to, folds = np.zeros(s.devices, np.int64), np.zeros(s.devices, np.int64), np.zeros(s.devices, np.int64)
    copies, reducing, sent, one_box, lead = 0, 0, 0, True, -1
    for k in range(first, s.m[ROWS]):
        row, begin = s.row + 6 * k, s.m[s.row + 6 * (k - 1) + 3] if k else 0
        if s.m[row] == FOLD:
            folds[s.m[row + 2]] = 1
            reducing += s.m[row + 3] - begin - 2
        elif s.m[row] == COPY and s.m[row + 1] != s.m[row + 2]:
            copies += 1
            from_[s.m[row + 1]], to[s.m[row + 2]] = 1, 1
            sent += s.m[row + 4]
            lead = begin if lead < 0 else lead
            one_box = one_box and same(s.m, s.arg_box + lead * s.w, s.m, s.arg_box + begin * s.w, s.w)
    if not copies:
        return 0
    if folds.sum():
        if copies > reducing or (folds.sum() == 1 and to.sum() > 1):
            return 2  # all-reduce
        return 3 if folds.sum() > 1 else 7  # reduce-scatter, reduce
    if from_.sum() == 1:
        return 1 if to.sum() == 1 else 5 if one_box else 10  # copy, broadcast, scatter
    if to.sum() == 1:
        return 9  # gather
    needed = 0
    for k in needs_of(s, v):
        device = s.m[s.need + 3 * k]
        needed += volume(s.m, s.need_box + k * s.w, s.w) if to[device] else 0
    for k in needs_of(s, v):
        if same(s.m, s.need_box + k * s.w, whole, 0, s.w):
            to[s.m[s.need + 3 * k]] = 0
    if not to.sum():
        return 4  # all-gather
    return 8 if sent * 2 < needed else 6  # halo, all-to-all


# -- what is handed out ----------------------------------------------------------------------------------------------


@inner
def places_of(s: State, needs: Any) -> tuple[Any, Any]:
    """Instance and box of every need."""
    found, boxes = np.empty(len(needs), np.int64), np.empty(len(needs) * s.w, np.int64)
    for k in range(len(needs)):
        i = s.need_box + needs[k] * s.w
        found[k] = find_instance(s, s.m[s.need + 3 * needs[k]], s.m, i)
        put(boxes, k * s.w, s.m, i, s.w)
    return found, boxes


@inner
def fetched(s: State, fetch: Any, whole: Any) -> Any:
    """Every device that fetches the region, and its instance."""
    found = np.empty(2 * len(fetch), np.int64)
    for k in range(len(fetch)):
        found[2 * k], found[2 * k + 1] = fetch[k], find_instance(s, fetch[k], whole, 0)
    return found


@inner
def sorted_edges(s: State) -> Any:
    """The edges in order, each once."""
    count = s.m[EDGES]
    span, key = np.ones(5, np.int64), np.zeros(count, np.int64)
    for k in range(3, -1, -1):
        most = 0
        for i in range(count):
            most = max(most, s.m[s.edge + 4 * i + k])
        span[k] = span[k + 1] * (most + 1)
        for i in range(count):
            key[i] += s.m[s.edge + 4 * i + k] * span[k + 1]
    found, n, last = np.empty(4 * count, np.int64), 0, -1
    for i in np.argsort(key, kind="mergesort"):
        if key[i] != last:
            for k in range(4):
                found[4 * n + k] = s.m[s.edge + 4 * i + k]
            last = key[i]
            n += 1
    return found[: 4 * n].copy()
