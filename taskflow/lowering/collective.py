"""Collectives among many devices, compiled by numba: which sums and gathers are one row, and what that row is.

Among a few devices an all-reduce is no operation of its own: it is what folds at several owners and copies to the
others make up. Among more it is one row, and `exchange` says how it is carried out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import covers, intersect, overlaps, put, same, volume
from taskflow.lowering.moves import add_arg, cut_out, needs_of
from taskflow.lowering.owners import owners_of
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import (
    ARGS,
    AT,
    COLLECTIVE,
    FULL,
    READ,
    READ_WRITE,
    ROWS,
    WRITE,
    State,
    add_instance,
    append,
    find_instance,
    hold,
    note_read,
    note_write,
)
from taskflow.lowering.tiles import Points, Tile, by_number

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE = np.array([2, 3, 4, 5, 7])  # places in task.COLLECTIVES


# -- sums as one row ---------------------------------------------------------------------------------------------------


@inner
def reduce_together(s: State, v: int, slot: int, first: int, of: Tile, p: Points, c: Any) -> bool:
    """The sum of a tile as one row; False where a few devices do it or no such row moves the least."""
    tile, w, box = of.kept[0], s.w, p.box
    needers, is_whole = np.zeros(s.devices, np.bool_), True
    for k in needs_of(s, v):
        if overlaps(s.m, s.m[AT.need_box] + k * w, box, tile * w, w):
            needers[s.m[s.m[AT.need] + 3 * k]] = True
            is_whole = is_whole and covers(s.m, s.m[AT.need_box] + k * w, box, tile * w, w)
    source, count = choose_sources(of, p, needers)
    target, involved = numbers(needers), 0
    for device in range(s.devices):
        involved += needers[device] or source[device] >= 0
    if not count or not len(target) or involved <= c.few:
        return False
    owner, piece = owners_of(s, v, box, tile, source >= 0, c.scalar)
    if not is_whole and has_replica(owner, source, of, p):
        return False
    written, moved = piece, 0
    if is_whole:
        written = repeated(box, tile * w, w, len(target))
        moved = (len(target) - 1) * volume(box, tile * w, w)
        if volume(box, tile * w, w) * c.itemsize <= c.small_bytes:
            owner, piece = owner[:1], written
    else:
        target = owner
    for i in range(len(owner)):
        moved += (count - (source[owner[i]] >= 0)) * volume(piece, i * w, w)
    if len(owner) == 1:
        owner, piece = summing(owner[0], source, count, c.hosts), repeated(piece, 0, w, count)
    code = REDUCE if len(target) == 1 else ALL_REDUCE if is_whole else REDUCE_SCATTER
    add_sum(s, slot, first, code, moved, source, box, tile, target, written, owner, piece)
    return True


@inner
def add_sum(
    s: State,
    slot: int,
    first: int,
    code: int,
    moved: int,
    source: Any,
    box: Any,
    tile: int,
    target: Any,
    written: Any,
    owner: Any,
    piece: Any,
) -> None:
    """The row of a sum: sources by device, targets, and memory for what arrives at every device that adds something."""
    begin = s.m[ARGS]
    for device in range(s.devices):
        if source[device] >= 0:
            add_arg(s, source[device], box, tile * s.w, READ)
    middle = s.m[ARGS]
    scratch = np.empty(len(owner), np.int64)
    for i in range(len(owner)):
        scratch[i] = add_instance(s, owner[i], piece, i * s.w, True)
    for i in range(len(target)):
        k = find_instance(s, target[i], written, i * s.w)
        add_arg(s, k, written, i * s.w, READ_WRITE if source[target[i]] == k else WRITE)
        hold(s, target[i], k, written, i * s.w)
    for i in range(len(owner)):
        add_arg(s, scratch[i], piece, i * s.w, WRITE)
    if add_collective(s, slot, first, begin, middle, code, moved):
        for a in range(middle, s.m[ARGS]):
            note_write(s, s.m[s.m[AT.arg] + 2 * a], s.m, s.m[AT.arg_box] + a * s.w, slot, s.m[ROWS] - 1 - first)


@inner
def numbers(flags: Any) -> Any:
    """Where the flags are set."""
    found, n = np.empty(len(flags), np.int64), 0
    for k in range(len(flags)):
        if flags[k]:
            found[n] = k
            n += 1
    return found[:n]


@inner
def repeated(box: Any, i: int, w: int, count: int) -> Any:
    """A box so many times."""
    found = np.empty(count * w, np.int64)
    for k in range(count):
        put(found, k * w, box, i, w)
    return found


@inner
def choose_sources(tile: Tile, points: Points, needers: Any) -> tuple[Any, int]:
    """Per device the instance of the partial result that it contributes, or -1, and how many; 0 if one gave two.

    Of the devices that hold the same partial result one that needs the sum is chosen.
    """
    source, kept, ptr = np.full(len(needers), -1, np.int64), tile.kept, tile.ptr
    for c in tile.leader:
        pick = -1
        for i in range(ptr[c], ptr[c + 1]):
            if pick < 0 and needers[points.place[kept[i]]]:
                pick = i
        p = kept[ptr[c] if pick < 0 else pick]
        if source[points.place[p]] >= 0:
            return source, 0
        source[points.place[p]] = points.arg_of[p]
    return source, len(tile.leader)


@leaf
def has_replica(owner: Any, source: Any, tile: Tile, p: Points) -> bool:
    """True where an owner that contributes nothing has a replica of a partial result all the same."""
    for device in owner:
        if source[device] < 0:
            for c in tile.leader:
                for i in range(tile.ptr[c], tile.ptr[c + 1]):
                    if p.place[tile.kept[i]] == device:
                        return True
    return False


@inner
def summing(root: int, source: Any, count: int, hosts: Any) -> Any:
    """The devices that add something when a sum goes up a binomial tree; see `exchange.tree_order`."""
    most, devices = 0, len(hosts)
    for host in hosts:
        most = max(most, host + 1)
    key, n = np.empty(count, np.int64), 0
    for device in range(devices):
        if source[device] >= 0 and device != root:
            key[n] = ((hosts[device] - hosts[root]) % most) * devices + (device - root) % devices
            n += 1
    found = np.empty((n + 1) // 2, np.int64)
    key = sort(key[:n])
    for i in range((n + 1) // 2):
        found[i] = root if i == 0 else (root + key[2 * i - 1]) % devices
    return found


# -- gathers as one row ------------------------------------------------------------------------------------------------


@inner
def gather_together(s: State, v: int, slot: int, first: int, sources: int, c: Any) -> None:
    """One row for every box that many devices lack and that others hold in tiles, or whole."""
    needs = needs_of(s, v)
    done, alike = np.zeros(len(needs), np.bool_), np.empty(len(needs), np.int64)
    if len(needs) <= c.few or not sources:
        return
    for i in range(len(needs)):
        if done[i]:
            continue
        count = 0
        for j in range(i, len(needs)):
            if not done[j] and same(
                s.m, s.m[AT.need_box] + needs[j] * s.w, s.m, s.m[AT.need_box] + needs[i] * s.w, s.w
            ):
                done[j] = True
                alike[count] = needs[j]
                count += 1
        if count > c.few:
            lacking, count = lacking_of(s, alike[:count])
            if count > c.few:
                gather_box(s, slot, first, needs[i], lacking, c.hosts, sources)


@inner
def lacking_of(s: State, needs: Any) -> tuple[Any, int]:
    """Device -> the need that is not valid there, or -1; and how many."""
    lacking, count = np.full(s.devices, -1, np.int64), 0
    for need in needs:
        if missing(s, need):
            lacking[s.m[s.m[AT.need] + 3 * need]] = need
            count += 1
    return lacking, count


@leaf
def missing(s: State, need: int) -> int:
    """How many pieces of a needed box are not valid on its device; they are left in `work`."""
    target = find_instance(s, s.m[s.m[AT.need] + 3 * need], s.m, s.m[AT.need_box] + need * s.w)
    if target < 0:
        return 0
    put(s.m, s.m[AT.work], s.m, s.m[AT.need_box] + need * s.w, s.w)
    left, k = 1, s.m[s.m[AT.held_first] + target]
    while k >= 0 and left:
        left, k = cut_out(s, left, s.m, s.m[AT.held_box] + k * s.w), s.m[s.m[AT.held_next] + k]
    return left


@inner
def gather_box(s: State, slot: int, first: int, need: int, lacking: Any, hosts: Any, sources: int) -> None:
    """One row that brings a box to all that lack it, if others hold it in disjoint tiles and these some or none."""
    order, tile_ptr, tile_box = tiles_held(s, need, sources)
    if not is_complete(s, need, lacking, order, tile_ptr, tile_box):
        return
    begin, moved, w = s.m[ARGS], 0, s.w
    for t in range(len(tile_ptr) - 1):
        near, sent = nearest(s, order[tile_ptr[t] : tile_ptr[t + 1]], lacking, hosts)
        moved += sent * volume(tile_box, t * w, w)
        for k in near:
            add_arg(s, s.m[s.m[AT.held] + 2 * k + 1], tile_box, t * w, READ)
    middle = s.m[ARGS]
    for device in range(s.devices):
        if lacking[device] >= 0:
            target, is_source = find_instance(s, device, s.m, s.m[AT.need_box] + need * w), False
            for a in range(begin, middle):
                is_source = is_source or s.m[s.m[AT.arg] + 2 * a] == target
            add_arg(s, target, s.m, s.m[AT.need_box] + need * w, READ_WRITE if is_source else WRITE)
    if not add_collective(s, slot, first, begin, middle, BROADCAST if len(tile_ptr) == 2 else ALL_GATHER, moved):
        return
    for device in range(s.devices):
        if lacking[device] >= 0:  # a tile that is there stays as it is
            target = find_instance(s, device, s.m, s.m[AT.need_box] + need * w)
            for i in range(missing(s, lacking[device])):
                note_write(s, target, s.m, s.m[AT.work] + i * w, slot, s.m[ROWS] - 1 - first)
            hold(s, device, target, s.m, s.m[AT.need_box] + need * w)


@inner
def is_complete(s: State, need: int, lacking: Any, order: Any, tile_ptr: Any, tile_box: Any) -> bool:
    """True where the tiles are the needed box, each point once, and every device has some of them or none."""
    total, held, left, w = volume(s.m, s.m[AT.need_box] + need * s.w, s.w), 0, 1, s.w
    put(s.m, s.m[AT.work], s.m, s.m[AT.need_box] + need * w, w)
    for t in range(len(tile_ptr) - 1):
        held += volume(tile_box, t * w, w)
        left = cut_out(s, left, tile_box, t * w)
    if left or held != total:
        return False
    for device in range(s.devices):
        if lacking[device] >= 0 and own_volume(s, lacking[device], order, tile_ptr, tile_box) != total:
            return False
    return True


@inner
def tiles_held(s: State, need: int, sources: int) -> tuple[Any, Any, Any]:
    """What is held of a needed box, by equal parts of it; where somebody has all of it, that alone."""
    box, tile, count, whole, w = np.empty(sources * s.w, np.int64), np.empty(sources, np.int64), 0, -1, s.w
    which, n = np.empty(sources, np.int64), 0
    for k in range(sources):
        if overlaps(s.m, s.m[AT.held_box] + k * w, s.m, s.m[AT.need_box] + need * w, w):
            intersect(box, count * w, s.m, s.m[AT.held_box] + k * w, s.m, s.m[AT.need_box] + need * w, w)
            t = 0
            while not same(box, t * w, box, count * w, w):
                t += 1
            if t == count:
                whole = t if same(box, t * w, s.m, s.m[AT.need_box] + need * w, w) else whole
                count += 1
            which[n], tile[n] = k, t
            n += 1
    if whole >= 0:
        only = 0
        for i in range(n):
            if tile[i] == whole:
                which[only] = which[i]
                only += 1
        put(box, 0, box, whole * w, w)
        n, count = only, 1
        tile[:n] = 0
    order, ptr = by_number(tile[:n], count)
    return which[order], ptr, box[: count * w]


@leaf
def own_volume(s: State, need: int, order: Any, tile_ptr: Any, tile_box: Any) -> int:
    """Points of the tiles that a device holds where it needs them, and of what it lacks."""
    target, points = find_instance(s, s.m[s.m[AT.need] + 3 * need], s.m, s.m[AT.need_box] + need * s.w), 0
    for i in range(missing(s, need)):
        points += volume(s.m, s.m[AT.work] + i * s.w, s.w)
    for t in range(len(tile_ptr) - 1):
        for i in range(tile_ptr[t], tile_ptr[t + 1]):
            if s.m[s.m[AT.held] + 2 * order[i] + 1] == target:
                points += volume(tile_box, t * s.w, s.w)
                break
    return points


@inner
def nearest(s: State, holders: Any, lacking: Any, hosts: Any) -> tuple[Any, int]:
    """The holders that are the nearest one of some device, by device and instance; how many devices ask another."""
    used, sent, count = np.zeros(len(holders), np.bool_), 0, s.devices
    for device in range(s.devices):
        if lacking[device] < 0:
            continue
        best, least = 0, -1
        for i in range(len(holders) if len(holders) > 1 else 0):
            source = s.m[s.m[AT.held] + 2 * holders[i]]
            key = (hosts[source] != hosts[device]) * count + (source - device) % count
            if least < 0 or key < least:
                best, least = i, key
        used[best] = True
        sent += s.m[s.m[AT.held] + 2 * holders[best]] != device
    found = numbers(used)
    key, place = np.empty(len(found), np.int64), bits(s.size)
    for i in range(len(found)):
        k = holders[found[i]]
        key[i] = ((s.m[s.m[AT.held] + 2 * k] * s.size + s.m[s.m[AT.held] + 2 * k + 1]) << place) + found[i]
    key = sort(key)
    for i in range(len(found)):
        found[i] = holders[key[i] & ((1 << place) - 1)]
    return found, sent


@leaf
def add_collective(s: State, slot: int, first: int, begin: int, middle: int, code: int, moved: int) -> bool:
    """A row with the arguments since `begin`, of which it reads those before `middle`.

    It stands at the first of their devices. What it writes is noted by the caller.
    """
    k = append(s, ROWS, s.size)
    if k < 0 or s.m[FULL]:
        return False
    device = s.devices
    for a in range(begin, s.m[ARGS]):
        if s.m[s.m[AT.arg] + 2 * a] >= 0:
            device = min(device, s.m[s.m[AT.inst_device] + s.m[s.m[AT.arg] + 2 * a]])
    row = s.m[AT.row] + 6 * k
    s.m[row], s.m[row + 1], s.m[row + 2] = COLLECTIVE, device, device
    s.m[row + 3], s.m[row + 4], s.m[row + 5] = s.m[ARGS], moved, code
    for a in range(begin, middle):
        note_read(s, s.m[s.m[AT.arg] + 2 * a], s.m, s.m[AT.arg_box] + a * s.w, slot, k - first)
    return True
