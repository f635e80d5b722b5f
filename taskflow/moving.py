"""The rules of `taskflow.movement`, compiled by numba: producing, combining and delivering the versions of a region."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from taskflow.boxes import covers, intersect, is_empty, overlaps, put, same, split_evenly, subtract, volume
from taskflow.moves import (
    COPY,
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
    find_instance,
    gather_needs,
    hold,
    make_instances,
    needs_of,
    note_read,
    note_write,
)


@numba.njit(cache=True)
def build(
    s: State,
    whole: Any,
    scalar: bool,
    persistent: bool,
    fetch: Any,
    hosts: Any,
    ops: int,
    ev_op: Any,
    ev_ptr: Any,
    ev_role: Any,
    ev_reads: Any,
    ver_producer: Any,
    place: Any,
    box: Any,
    colour: Any,
    partial: Any,
) -> tuple[Any, Any, Any, Any]:
    """Play the events of a region.

    Args:
        s: with all lengths zero.
        whole: (1, dimensions, 2) the region; `scalar`: it has no dimension.
        fetch: devices that fetch it whole; hosts: of every device.
        ops: number of operators that touch it, which are its slots 0, 1, ...; version v is slot `ops + v`.
        ev_op, ev_ptr, ev_role, ev_reads: per event the slot, the first of its points, what it does, the version that
            it reads (or -1). ver_producer: per version the event that makes it (-1: fed or persistent).
        place, box, colour: of the points of all events; partial: per event, whether it leaves partial results.

    Returns:
        instance of every point, first row of every version, home needs, and the code of every version's collective.
    """
    versions = len(ver_producer)
    arg_of, ver_row = np.full(len(place), -1, np.int64), np.zeros(versions + 1, np.int64)
    collective = np.zeros(versions, np.int64)
    homes = gather_needs(s, whole, persistent, fetch, ev_ptr, ev_reads, place, box, versions)
    make_instances(s, versions, ver_producer, ev_ptr, partial, place, box, scalar)
    for v in range(versions):
        if s.n[FULL]:
            break
        slot, first, e = ops + v, s.n[ROWS], ver_producer[v]
        s.n[HELD] = 0
        s.held_first[: s.n[INSTANCES]] = -1
        if e >= 0 and partial[e]:
            combine(s, v, slot, first, ev_op[e], ev_ptr[e], ev_ptr[e + 1], place, box, colour, arg_of, hosts, scalar)
        elif e >= 0:
            for p in range(ev_ptr[e], ev_ptr[e + 1]):
                k = find_instance(s, place[p], box, p)
                if ev_role[e] != UPDATES:  # else it was consumed as the last reader
                    arg_of[p] = k
                    note_write(s, k, box, p, ev_op[e], p - ev_ptr[e])
                hold(s, place[p], k, box, p)
        elif persistent:
            for k in homes:
                hold(s, s.need[k, 0], find_instance(s, s.need[k, 0], s.need_box, k), s.need_box, k)
        else:
            feed(s, slot, first)
        deliver(s, v, slot, first, hosts)
        ver_row[v + 1] = s.n[ROWS]
        collective[v] = classify(s, v, first, whole, len(hosts))
        for e in range(len(ev_op)):
            if ev_reads[e] == v:
                consume(s, ev_op[e], ev_ptr[e], ev_ptr[e + 1], ev_role[e] == UPDATES, place, box, arg_of)
    return arg_of, ver_row, homes, collective


@numba.njit(cache=True)
def feed(s: State, slot: int, first: int) -> None:
    """Every instance is filled from the caller's feed."""
    for device in range(len(s.value_first)):
        k = s.value_first[device]
        while k >= 0:
            add_arg(s, k, s.inst_box, k, WRITE)
            add_row(s, slot, first, FEED, device, device)
            hold(s, device, k, s.inst_box, k)
            k = s.inst_next[k]


@numba.njit(cache=True)
def consume(s: State, slot: int, begin: int, end: int, updates: bool, place: Any, box: Any, arg_of: Any) -> None:
    """The points of an event read, and then perhaps update, their boxes."""
    for p in range(begin, end):
        if not is_empty(box, p):
            arg_of[p] = find_instance(s, place[p], box, p)
            note_read(s, arg_of[p], box, p, slot, p - begin)
    if updates:
        for p in range(begin, end):
            if arg_of[p] >= 0:
                note_write(s, arg_of[p], box, p, slot, p - begin)


# -- partial results -------------------------------------------------------------------------------------------------


@numba.njit(cache=True)
def tiles_of(box: Any, begin: int, end: int) -> tuple[Any, Any]:
    """Points in order of their tiles (equal boxes), and the first point of every tile in that order."""
    count = end - begin
    tile, first, size, tiles = np.empty(count, np.int64), np.empty(count, np.int64), np.zeros(count, np.int64), 0
    for p in range(count):
        t = 0
        while t < tiles and not same(box, begin + first[t], box, begin + p):
            t += 1
        if t == tiles:
            first[t] = p
            tiles += 1
        tile[p] = t
        size[t] += 1
    ptr = np.zeros(tiles + 1, np.int64)
    ptr[1:] = np.cumsum(size[:tiles])
    return begin + np.argsort(tile, kind="mergesort"), ptr


@numba.njit(cache=True)
def colours_of(points: Any, colour: Any, place: Any) -> tuple[Any, Any]:
    """Points of a tile in order of their colours (numbered as they appear), each colour once a device, and the starts."""
    number, colours = np.full(colour.max() + 1, -1, np.int64), 0
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
        ptr[c + 1] = n
        if c + 2 <= colours:
            ptr[c + 1 :] = n
    return kept[:n], ptr


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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
    hosts: Any,
    scalar: bool,
) -> None:
    """Partial results: place them, fold those of one device, then fold each needed box at its owner."""
    order, tile_ptr = tiles_of(box, begin, end)
    tiles = len(tile_ptr) - 1
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        place_partials(s, op, begin, kept, ptr, group, leader, place, box, arg_of, len(hosts))
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        fold_local(s, slot, first, kept, ptr, group, leader, place, box, arg_of)
    capacity = 64
    while not s.n[FULL]:
        if fold_at_owners(s, v, slot, first, order, tile_ptr, place, box, colour, arg_of, hosts, scalar, capacity):
            break
        capacity *= 4


@numba.njit(cache=True)
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
    devices: int,
) -> None:
    """Instances for the partial results of a tile; the first of a device lies where the result will be, if free."""
    groups_at = np.zeros(devices, np.int64)
    for c in leader:
        for i in range(ptr[c], ptr[c + 1]):
            groups_at[place[kept[i]]] += 1
    for g in range(len(leader)):
        for i in range(ptr[leader[g] + 1] - ptr[leader[g]]):
            is_first = True
            for c in range(leader[g], len(group)):
                if group[c] == g:
                    p = kept[ptr[c] + i]
                    k = find_instance(s, place[p], box, p) if is_first and groups_at[place[p]] == 1 else -1
                    arg_of[p] = k if k >= 0 else add_instance(s, place[p], box, p, True)
                    note_write(s, arg_of[p], box, p, op, p - begin)
                    is_first = False


@numba.njit(cache=True)
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
            add_arg(s, arg_of[p], box, p, READ_WRITE)
            for c in range(leader[g], len(group)):
                if group[c] == g:
                    add_arg(s, arg_of[kept[ptr[c] + i]], box, p, READ)
            add_row(s, slot, first, FOLD, place[p], place[p])


@numba.njit(cache=True)
def fold_at_owners(
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
    hosts: Any,
    scalar: bool,
    capacity: int,
) -> bool:
    """Sum each needed box of every tile at its owner; False where more than `capacity` pieces are owned."""
    dims = box.shape[1]
    owner, piece = np.empty(capacity, np.int64), np.empty((capacity, dims, 2), np.int64)
    part_ptr, part_tile = np.zeros(capacity + 1, np.int64), np.empty(capacity, np.int64)
    tiles, owned = len(tile_ptr) - 1, 0
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        if len(leader) > 1:
            before = owned
            owned = find_owners(s, v, kept, ptr, leader, place, box, scalar, len(hosts), owner, piece, owned)
            if owned > capacity:
                return False
            for i in range(before, owned):
                part_tile[i] = t
                part_ptr[i + 1] = part_ptr[i] + len(leader)
    parts = np.empty(part_ptr[owned], np.int64)
    copies, boxes = np.empty((part_ptr[owned], 4), np.int64), np.empty((part_ptr[owned], dims, 2), np.int64)
    copied, i = 0, 0
    for t in range(tiles):
        kept, ptr = colours_of(order[tile_ptr[t] : tile_ptr[t + 1]], colour, place)
        group, leader = groups_of(kept, ptr, place)
        if len(leader) == 1:  # every holder has the whole sum
            for j in range(ptr[0], ptr[1]):
                hold(s, place[kept[j]], arg_of[kept[j]], box, kept[j])
        while i < owned and part_tile[i] == t:
            copied = gather_parts(
                s,
                owner[i],
                piece,
                i,
                kept,
                ptr,
                leader,
                place,
                arg_of,
                parts[part_ptr[i] : part_ptr[i + 1]],
                copies,
                boxes,
                copied,
            )
            i += 1
    copy_in_rounds(s, slot, first, copies[:copied], boxes, hosts)
    for i in range(owned):
        target = find_instance(s, owner[i], piece, i)
        begin, end = part_ptr[i], part_ptr[i + 1]
        if end - begin > 1 or parts[begin] != target:
            add_arg(s, target, piece, i, READ_WRITE if parts[begin] == target else WRITE)
            for j in range(begin, end):
                add_arg(s, parts[j], piece, i, READ)
            add_row(s, slot, first, FOLD, owner[i], owner[i])
        hold(s, owner[i], target, piece, i)
    return True


@numba.njit(cache=True)
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
    n = 0
    for c in leader:
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
            scratch = add_instance(s, owner, piece, i, True)
            copies[copied, 0], copies[copied, 1] = place[source], arg_of[source]
            copies[copied, 2], copies[copied, 3] = owner, scratch
            put(boxes, copied, piece, i)
            copied += 1
            parts[n] = scratch
        n += 1
    return copied


@numba.njit(cache=True)
def find_owners(
    s: State,
    v: int,
    kept: Any,
    ptr: Any,
    leader: Any,
    place: Any,
    box: Any,
    scalar: bool,
    devices: int,
    owner: Any,
    piece: Any,
    owned: int,
) -> int:
    """Append which device sums which part of a tile; returns the new length, which may be beyond the capacity.

    The tile is cut at the borders of the needed boxes; a piece that one device needs is summed there, one that several
    need is shared out among them, those first that hold a partial result already.
    """
    tile, needs = kept[0], needs_of(s, v)
    wanted, by = np.empty((len(needs), box.shape[1], 2), np.int64), np.empty(len(needs), np.int64)
    count = 0
    for k in needs:
        if overlaps(s.need_box, k, box, tile):
            intersect(wanted, count, s.need_box, k, box, tile)
            by[count] = s.need[k, 0]
            count += 1
    if not count:
        return owned
    holds = np.zeros(devices, np.bool_)
    for c in leader:
        for i in range(ptr[c], ptr[c + 1]):
            holds[place[kept[i]]] = True
    pieces = cut_at_borders(s, box, tile, wanted[:count])
    cut = np.empty((devices, box.shape[1], 2), np.int64)
    for i in range(len(pieces)):
        needers, able = np.zeros(devices, np.bool_), 0
        for k in range(count):
            if covers(wanted, k, pieces, i):
                needers[by[k]] = True
        for device in range(devices):
            able += needers[device] and holds[device]
        if able:
            needers &= holds
        able = needers.sum()
        if able:
            split_evenly(cut, pieces, i, able, scalar)
        part = 0
        for device in range(devices):
            if needers[device]:
                if not is_empty(cut, part):
                    if owned < len(owner):
                        owner[owned] = device
                        put(piece, owned, cut, part)
                    owned += 1
                part += 1
    return owned


@numba.njit(cache=True)
def cut_at_borders(s: State, box: Any, tile: int, wanted: Any) -> Any:
    """The tile in pieces such that every wanted box is a union of pieces."""
    put(s.work, 0, box, tile)
    count = 1
    for k in range(len(wanted)):
        is_new = True
        for j in range(k):
            is_new = is_new and not same(wanted, j, wanted, k)
        if not is_new:
            continue
        n = 0
        for i in range(count):
            if overlaps(s.work, i, wanted, k):
                if n < len(s.spare):
                    intersect(s.spare, n, s.work, i, wanted, k)
                n += 1
            n = subtract(s.spare, n, s.work, i, wanted, k)
        if n > len(s.spare):
            s.n[FULL] = 1
            return s.work[:0].copy()
        count = n
        for i in range(count):
            put(s.work, i, s.spare, i)
    return s.work[:count].copy()


# -- delivering ------------------------------------------------------------------------------------------------------


@numba.njit(cache=True)
def deliver(s: State, v: int, slot: int, first: int, hosts: Any) -> None:
    """Copy into every needed box what is not valid there."""
    sources, copied = s.n[HELD], 0
    copies, boxes = np.empty((16, 4), np.int64), np.empty((16, s.inst_box.shape[1], 2), np.int64)
    for need in needs_of(s, v):
        device = s.need[need, 0]
        target = find_instance(s, device, s.need_box, need)
        put(s.work, 0, s.need_box, need)
        left, k = 1, s.held_first[target]
        while k >= 0 and left:
            left, k = cut_out(s, left, s.held_box, k), s.held_next[k]
        if not left:
            continue
        for k in by_distance(s, sources, device, hosts):
            if s.held[k, 1] == target:
                continue
            while copied + left > len(copies):
                copies = np.concatenate((copies, np.empty_like(copies)))
                boxes = np.concatenate((boxes, np.empty_like(boxes)))
            copied = copy_from(s, k, device, target, left, copies, boxes, copied)
            left = cut_out(s, left, s.held_box, k)
            if not left:
                break
        if left:
            s.n[LOST] = 1 + need
    copy_in_rounds(s, slot, first, copies[:copied], boxes, hosts)


@numba.njit(cache=True)
def by_distance(s: State, sources: int, device: int, hosts: Any) -> Any:
    """Who holds boxes that `device` may copy: what it has itself, then its host; replicas serve different readers."""
    count = len(hosts)
    near, key, n = np.empty(s.n[HELD], np.int64), np.empty(s.n[HELD], np.int64), 0
    for k in range(s.n[HELD]):
        source = s.held[k, 0]
        if k < sources or source == device:
            near[n] = k
            away = 0 if source == device else 1 if hosts[source] == hosts[device] else 2
            key[n] = away * count + (source - device) % count
            n += 1
    return near[np.argsort(key[:n], kind="mergesort")]


@numba.njit(cache=True)
def copy_from(s: State, k: int, device: int, target: int, left: int, copies: Any, boxes: Any, copied: int) -> int:
    """Copies of all pieces in `work[:left]` that `held[k]` has; the new number of copies."""
    for w in range(left):
        if overlaps(s.work, w, s.held_box, k):
            intersect(boxes, copied, s.work, w, s.held_box, k)
            copies[copied, 0], copies[copied, 1] = s.held[k, 0], s.held[k, 1]
            copies[copied, 2], copies[copied, 3] = device, target
            hold(s, device, target, boxes, copied)
            copied += 1
    return copied


# -- what the rows of a version are called ------------------------------------------------------------------------------


@numba.njit(cache=True)
def classify(s: State, v: int, first: int, whole: Any, devices: int) -> int:
    """The collective that the rows since `first` make up, as a place in `task.COLLECTIVES`; for people."""
    from_, to, folds = np.zeros(devices, np.bool_), np.zeros(devices, np.bool_), np.zeros(devices, np.bool_)
    copies, reducing, sent, begin, one_box, lead = 0, 0, 0, 0, True, -1
    for row in range(first, s.n[ROWS]):
        begin = s.row[row - 1, 3] if row else 0
        if s.row[row, 0] == FOLD:
            folds[s.row[row, 2]] = True
            reducing += s.row[row, 3] - begin - 2
        elif s.row[row, 0] == COPY and s.row[row, 1] != s.row[row, 2]:
            copies += 1
            from_[s.row[row, 1]], to[s.row[row, 2]] = True, True
            sent += s.row[row, 4]
            lead = begin if lead < 0 else lead
            one_box = one_box and same(s.arg_box, lead, s.arg_box, begin)
    if not copies:
        return 0
    if folds.any():
        if copies > reducing or (folds.sum() == 1 and to.sum() > 1):
            return 2  # all-reduce
        return 3 if folds.sum() > 1 else 7  # reduce-scatter, reduce
    if from_.sum() == 1:
        return 1 if to.sum() == 1 else 5 if one_box else 10  # copy, broadcast, scatter
    if to.sum() == 1:
        return 9  # gather
    have_all, needed = np.zeros(devices, np.bool_), 0
    for k in needs_of(s, v):
        have_all[s.need[k, 0]] |= same(s.need_box, k, whole, 0)
        needed += volume(s.need_box, k) if to[s.need[k, 0]] else 0
    if not (to & ~have_all).any():
        return 4  # all-gather
    return 8 if sent * 2 < needed else 6  # halo, all-to-all


# -- what is handed out --------------------------------------------------------------------------------------------------


@numba.njit(cache=True)
def instances_of(s: State, device: Any, boxes: Any) -> Any:
    """The instance of every box on its device."""
    found = np.empty(len(device), np.int64)
    for k in range(len(device)):
        found[k] = find_instance(s, device[k], boxes, k)
    return found


@numba.njit(cache=True)
def sorted_edges(edge: Any) -> Any:
    """The edges in order, each once."""
    order = np.arange(len(edge))
    for k in range(3, -1, -1):
        order = order[np.argsort(edge[order, k], kind="mergesort")]
    found, n = np.empty_like(edge), 0
    for i in order:
        is_new = n == 0
        for k in range(4):
            is_new = is_new or edge[i, k] != found[n - 1, k]
        if is_new:
            found[n] = edge[i]
            n += 1
    return found[:n].copy()
