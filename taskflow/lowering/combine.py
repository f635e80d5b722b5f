"""Combining partial results of a version, compiled by numba; see `movement` for the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import put
from taskflow.lowering.collective import reduce_together
from taskflow.lowering.moves import add_arg, add_row, copy_in_rounds
from taskflow.lowering.owners import owners_of
from taskflow.lowering.state import FOLD, READ, READ_WRITE, WRITE, State, add_instance, find_instance, hold, note_write
from taskflow.lowering.tiles import Points, Tile, tile_of, tiles_of


@inner
def combine(s: State, v: int, slot: int, first: int, op: int, begin: int, end: int, p: Points, c: Any) -> None:
    """Partial results: place them, fold those of one device, then sum each needed box at its owner."""
    order, tile_ptr = tiles_of(p.box, begin, end, s.w)
    for t in range(len(tile_ptr) - 1):
        place_partials(s, op, begin, tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p), p)
    for t in range(len(tile_ptr) - 1):
        fold_local(s, slot, first, tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p), p)
    sum_tiles(s, v, slot, first, order, tile_ptr, p, c)


@inner
def place_partials(s: State, op: int, begin: int, tile: Tile, p: Points) -> None:
    """Instances for the partial results of a tile; the first of a device lies where the result will be, if free."""
    ptr, groups_at = tile.ptr, np.zeros(s.devices, np.int64)
    for c in tile.leader:
        for i in range(ptr[c], ptr[c + 1]):
            groups_at[p.place[tile.kept[i]]] += 1
    for g in range(len(tile.leader)):
        for i in range(ptr[tile.leader[g] + 1] - ptr[tile.leader[g]]):
            is_first = True
            for c in range(tile.leader[g], len(tile.group)):
                if tile.group[c] == g:
                    point = tile.kept[ptr[c] + i]
                    device, k = p.place[point], -1
                    if is_first and groups_at[device] == 1:
                        k = find_instance(s, device, p.box, point * s.w)
                    p.arg_of[point] = k if k >= 0 else add_instance(s, device, p.box, point * s.w, True)
                    note_write(s, p.arg_of[point], p.box, point * s.w, op, point - begin)
                    is_first = False


@leaf
def fold_local(s: State, slot: int, first: int, tile: Tile, p: Points) -> None:
    """Fold the partial results that a device has of one tile into the first of them."""
    ptr = tile.ptr
    for g in range(len(tile.leader)):
        members = 0
        for c in range(tile.leader[g], len(tile.group)):
            members += tile.group[c] == g
        for i in range(ptr[tile.leader[g] + 1] - ptr[tile.leader[g]] if members > 1 else 0):
            point = tile.kept[ptr[tile.leader[g]] + i]
            add_arg(s, p.arg_of[point], p.box, point * s.w, READ_WRITE)
            for c in range(tile.leader[g], len(tile.group)):
                if tile.group[c] == g:
                    add_arg(s, p.arg_of[tile.kept[ptr[c] + i]], p.box, point * s.w, READ)
            add_row(s, slot, first, FOLD, p.place[point], p.place[point])


@inner
def sum_tiles(s: State, v: int, slot: int, first: int, order: Any, tile_ptr: Any, p: Points, c: Any) -> None:
    """Sum each needed box of every tile, many devices in one row, a few at the owners of its pieces."""
    w, owned, copied, summed = s.w, 0, 0, 0
    owner, piece, part_ptr = np.empty(16, np.int64), np.empty(16 * w, np.int64), np.zeros(17, np.int64)
    parts, copies, boxes = np.empty(64, np.int64), np.empty(4 * 64, np.int64), np.empty(64 * w, np.int64)
    for t in range(len(tile_ptr) - 1):
        tile = tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p)
        kept, ptr, leader = tile.kept, tile.ptr, tile.leader
        if len(leader) == 1:  # every holder has the whole sum
            for i in range(ptr[0], ptr[1]):
                hold(s, p.place[kept[i]], p.arg_of[kept[i]], p.box, kept[i] * s.w)
            continue
        if reduce_together(s, v, slot, first, tile, p, c):
            continue
        holds = np.zeros(s.devices, np.bool_)
        for g in leader:
            for i in range(ptr[g], ptr[g + 1]):
                holds[p.place[kept[i]]] = True
        by, of = owners_of(s, v, p.box, kept[0], holds, c.scalar)
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
            copied = gather_parts(s, by[i], of, i, tile, p, into, copies, boxes, copied)
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


@leaf
def gather_parts(
    s: State, owner: int, piece: Any, i: int, tile: Tile, p: Points, parts: Any, copies: Any, boxes: Any, copied: int
) -> int:
    """The instances that the owner of a piece sums, its own first, and the copies of what others have."""
    kept, ptr = tile.kept, tile.ptr
    for n, c in enumerate(tile.leader):
        own, count = -1, ptr[c + 1] - ptr[c]
        for j in range(ptr[c], ptr[c + 1]):
            if p.place[kept[j]] == owner:
                own = p.arg_of[kept[j]]
        if own >= 0:
            for j in range(n, 0, -1):
                parts[j] = parts[j - 1]
            parts[0] = own
        else:
            source = kept[ptr[c] + owner % count]
            scratch = add_instance(s, owner, piece, i * s.w, True)
            at = 4 * copied
            copies[at], copies[at + 1] = p.place[source], p.arg_of[source]
            copies[at + 2], copies[at + 3] = owner, scratch
            put(boxes, copied * s.w, piece, i * s.w, s.w)
            copied += 1
            parts[n] = scratch
    return copied
