"""Combining partial results of a version, compiled by numba; see `movement` for the rules.

Parts of one device are folded into the first of them, or added to it by the kernel that makes them, if it can. What
is added to a version (`Role.ADDS`) is so in place on the devices of the first part; on others parts begin with zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import put
from taskflow.lowering.collective import reduce_together
from taskflow.lowering.life import ADDS, SUMS, RegionLife
from taskflow.lowering.line import Line, line_of
from taskflow.lowering.moves import add_arg, add_copy, add_row, copy_in_rounds
from taskflow.lowering.needs import needs_of, owners_of
from taskflow.lowering.state import (
    FOLD,
    READ,
    READ_WRITE,
    WRITE,
    State,
    add_instance,
    append,
    find_instance,
    hold,
    note_write,
)
from taskflow.lowering.tiles import Points, Tile, tile_of, tiles_of
from taskflow.tasks.turns import new_turns, whose_turn


@inner
def combine(s: State, life: RegionLife, e: int, p: Points) -> None:
    """Partial results of an event: place them, fold those of one device, then sum each needed box at its owner."""
    order, tile_ptr = tiles_of(p.box, life.event_ptr[e], life.event_ptr[e + 1])
    for t in range(len(tile_ptr) - 1):
        place_partials(s, life, e, tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p), p)
    for t in range(
        len(tile_ptr) - 1 if life.event[e].role != ADDS and life.event[e].role != SUMS else 0
    ):
        fold_local(s, tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p), p)
    s.copies = 0
    s.sums = 0
    s.summands = 0
    needs = line_of(needs_of(s, s.version), s.need_box, s.width)
    for t in range(len(tile_ptr) - 1):
        sum_tile(s, tile_of(order[tile_ptr[t] : tile_ptr[t + 1]], p), p, needs)
    copy_in_rounds(s)
    fold_sums(s)


@inner
def place_partials(s: State, life: RegionLife, e: int, tile: Tile, p: Points) -> None:
    """Instances for the partial results of a tile; the first of a device lies where the result will be, if free.

    Where kernels add, the others lie there, too.
    """
    event = life.event[e]
    begin = life.event_ptr[e]
    ptr = tile.ptr
    groups_at = np.zeros(s.devices, np.int64)
    adds_up = event.role == ADDS or event.role == SUMS
    for c in tile.leader:
        for i in range(ptr[c], ptr[c + 1]):
            groups_at[p.device[tile.kept[i]]] += 1
    for g in range(len(tile.leader)):
        for i in range(ptr[tile.leader[g] + 1] - ptr[tile.leader[g]]):
            first = -1
            c = tile.leader[g]
            while c >= 0:
                point = tile.kept[ptr[c] + i]
                device = p.device[point]
                k = first if adds_up else -1
                if first < 0 and (groups_at[device] == 1 or (event.role == ADDS and g == 0)):
                    k = find_instance(s, device, p.box[point])
                p.instance[point] = k if k >= 0 else add_instance(s, device, p.box[point], True)
                note_write(s, p.instance[point], p.box[point], event.issuer, point - begin)
                first = p.instance[point]
                c = tile.next[c]


@leaf
def fold_local(s: State, tile: Tile, p: Points) -> None:
    """Fold the partial results that a device has of one tile into the first of them, one by one.

    So each is needed no longer than until the next one is there, and they add up in the same order in every schedule.
    """
    ptr = tile.ptr
    for leader in tile.leader:
        c = tile.next[leader]
        while c >= 0:
            for i in range(ptr[c + 1] - ptr[c]):
                first = tile.kept[ptr[leader] + i]
                point = tile.kept[ptr[c] + i]
                add_arg(s, p.instance[first], p.box[first], READ_WRITE)
                add_arg(s, p.instance[first], p.box[first], READ)
                add_arg(s, p.instance[point], p.box[first], READ)
                add_row(s, FOLD, p.device[first], p.device[first])
            c = tile.next[c]


@inner
def sum_tile(s: State, tile: Tile, p: Points, needs: Line) -> None:
    """Sum what is needed of a tile: among many devices in one row, else at the owners of its parts.

    `needs`: of the version.
    """
    kept = tile.kept
    ptr = tile.ptr
    box = p.box[tile.kept[0]]
    if len(tile.leader) == 1:  # every holder has the whole sum
        for i in range(ptr[0], ptr[1]):
            hold(s, p.device[kept[i]], p.instance[kept[i]], p.box[kept[i]])
        return
    if reduce_together(s, tile, p, needs):
        return
    holds = np.zeros(s.devices, np.bool_)
    for c in tile.leader:
        for i in range(ptr[c], ptr[c + 1]):
            holds[p.device[kept[i]]] = True
    owner, owned = owners_of(s, box, holds, needs)
    turns = new_turns(len(kept))
    for i in range(len(owner)):
        add_sum(s, owner[i], owned[i], tile, p, turns)


@inner
def add_sum(s: State, owner: int, box: Any, tile: Tile, p: Points, turns: Any) -> None:
    """A box that its owner sums: the instances, its own first, and the copies of what others have."""
    k = append(s, s.sums, len(s.sum))
    ptr = tile.ptr
    begin = s.summands
    end = begin + len(tile.leader)
    holder = p.device[tile.kept]
    if k < 0 or append(s, end, len(s.summand)) < 0:
        return
    s.sums = k + 1
    s.summands = end
    s.sum[k].device = owner
    s.sum[k].end = end
    put(s.sum_box[k], box)
    for n in range(begin, end):
        c = tile.leader[n - begin]
        giver = whose_turn(s.device["host"], holder, (ptr[c], ptr[c + 1]), owner, turns)
        source = tile.kept[giver]
        if holder[giver] == owner:
            at = begin + (n > begin and s.summand[begin] == find_instance(s, owner, box))
            for j in range(n, at, -1):
                s.summand[j] = s.summand[j - 1]
            s.summand[at] = p.instance[source]
        else:
            s.summand[n] = add_instance(s, owner, box, True)
            copy = add_copy(s, p.device[source], p.instance[source], owner, s.summand[n])
            if copy >= 0:
                put(s.copy_box[copy], box)


@leaf
def fold_sums(s: State) -> None:
    """Rows that fold what has been copied to the owners of sums."""
    begin = 0
    for k in range(s.sums):
        device = s.sum[k].device
        end = s.sum[k].end
        box = s.sum_box[k]
        target = find_instance(s, device, box)
        if end - begin > 1 or s.summand[begin] != target:
            add_arg(s, target, box, READ_WRITE if s.summand[begin] == target else WRITE)
            for j in range(begin, end):
                add_arg(s, s.summand[j], box, READ)
            add_row(s, FOLD, device, device)
        hold(s, device, target, box)
        begin = end
