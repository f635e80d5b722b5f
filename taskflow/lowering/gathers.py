"""Gathers among many devices, compiled by numba: which are one row, and what that row is.

Who lacks a box takes each tile of it from the holder whose turn it is (see `tasks.turns`). Devices that exchange
nothing with each other, not even by way of others, are in different rows; where few of those who are together lack it,
these copy. So of tiles that every host holds, every host gathers its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import intersect, overlaps, put, same, volume
from taskflow.lowering.line import Line, near
from taskflow.lowering.moves import ALL_GATHER, BROADCAST, add_arg, add_collective
from taskflow.lowering.needs import cut_out, missing, needs_of
from taskflow.lowering.pieces import HeldPieces, giver_of, pieces_of
from taskflow.lowering.state import (
    READ,
    READ_WRITE,
    WRITE,
    State,
    find_instance,
    hold,
    note_write,
)
from taskflow.lowering.tiles import by_number, numbered


class Gathering(NamedTuple):
    """Who takes part in bringing a box to all that lack it.

    Attributes:
        lacking: device -> its need, or -1.
        tiles: who holds what.
        is_used: of all that is held, whether some device takes it.
        group: device -> the first of those with which it exchanges something.
        lacks: how many of every group lack the box.
        points: that every group sends.
    """

    lacking: Any
    tiles: HeldPieces
    is_used: Any
    group: Any
    lacks: Any
    points: Any


@inner
def gather_together(s: State, line: Line) -> None:
    """Rows for every box that many devices lack and that others, of the line, hold in tiles, or whole."""
    needs = needs_of(s, s.version)
    if len(needs) <= s.few_gathers or not line.total or lacking_of(s, needs)[1] <= s.few_gathers:
        return
    number, first = numbered(s.need_box[needs])
    order, ptr = by_number(number, len(first))
    for k in range(len(first)):
        if ptr[k + 1] - ptr[k] > s.few_gathers:
            lacking, count = lacking_of(s, needs[order[ptr[k] : ptr[k + 1]]])
            if count > s.few_gathers:
                gather_box(s, needs[first[k]], lacking, line)


@inner
def lacking_of(s: State, needs: Any) -> tuple[Any, int]:
    """Device -> the need that is not valid there, or -1; and how many."""
    lacking = np.full(s.devices, -1, np.int64)
    count = 0
    for need in needs:
        if missing(s, need):
            lacking[s.need[need].device] = need
            count += 1
    return lacking, count


@inner
def gather_box(s: State, need: int, lacking: Any, line: Line) -> None:
    """Rows that bring a box to all that lack it, if others hold it in disjoint tiles and these some or none."""
    tiles = tiles_held(s, need, line)
    if not is_complete(s, need, lacking, tiles):
        return
    x = gathering_of(s, lacking, tiles)
    for group in range(s.devices):
        # those that have it all, in other instances, copy it
        if x.lacks[group] > s.few_gathers and x.points[group]:
            gather_group(s, s.need_box[need], x, group)


@inner
def gather_group(s: State, box: Any, x: Gathering, group: int) -> None:
    """One row that brings a box to all of a group that lack it."""
    begin = s.args
    tiles = x.tiles
    for t in range(len(tiles.box)):
        for i in range(tiles.ptr[t], tiles.ptr[t + 1]):
            if x.is_used[i] and x.group[tiles.device[i]] == group:
                add_arg(s, s.held[tiles.held[i]].instance, tiles.box[t], READ)
    middle = s.args
    for device in range(s.devices):
        if x.lacking[device] >= 0 and x.group[device] == group:
            target = find_instance(s, device, box)
            is_source = False
            for a in range(begin, middle):
                is_source = is_source or s.arg[a].instance == target
            add_arg(s, target, box, READ_WRITE if is_source else WRITE)
    name = BROADCAST if len(tiles.box) == 1 else ALL_GATHER
    if not add_collective(s, begin, middle, name, x.points[group]):
        return
    for device in range(s.devices):
        if x.lacking[device] >= 0 and x.group[device] == group:  # a tile that is there stays
            target = find_instance(s, device, box)
            for i in range(missing(s, x.lacking[device])):
                note_write(s, target, s.work[i], s.issuer, s.rows - 1 - s.first)
            hold(s, device, target, box)


@inner
def gathering_of(s: State, lacking: Any, tiles: HeldPieces) -> Gathering:
    """Who takes which tile from whom."""
    is_used = np.zeros(len(tiles.held), np.bool_)
    group = np.arange(s.devices)
    lacks = np.zeros(s.devices, np.int64)
    points = np.zeros(s.devices, np.int64)
    for device in range(s.devices):
        for t in range(len(tiles.box) if lacking[device] >= 0 else 0):
            giver = giver_of(s, tiles, t, device)
            source = tiles.device[giver]
            is_used[giver] = True
            points[device] += volume(tiles.box[t]) if source != device else 0
            unite(group, source, device)
    for device in range(s.devices):
        group[device] = first_of(group, device)
        lacks[group[device]] += lacking[device] >= 0
        if group[device] != device:
            points[group[device]] += points[device]
    return Gathering(lacking, tiles, is_used, group, lacks, points)


@leaf
def unite(group: Any, one: int, other: int) -> None:
    """Two devices are in one group, and with them their groups."""
    a = first_of(group, one)
    b = first_of(group, other)
    group[max(a, b)] = min(a, b)


@leaf
def first_of(group: Any, device: int) -> int:
    """The first device of a group; the way to it is shorter from then on."""
    while group[device] != device:
        group[device] = group[group[device]]
        device = group[device]
    return device


@inner
def is_complete(s: State, need: int, lacking: Any, tiles: HeldPieces) -> bool:
    """True where the tiles are the needed box, each point once, and every device has some of them or none."""
    total = volume(s.need_box[need])
    held = 0
    left = 1
    put(s.work[0], s.need_box[need])
    for t in range(len(tiles.box)):
        held += volume(tiles.box[t])
        left = cut_out(s, left, tiles.box[t])
    if left or held != total:
        return False
    for device in range(s.devices):
        if lacking[device] >= 0 and own_volume(s, lacking[device], tiles) != total:
            return False
    return True


@inner
def tiles_held(s: State, need: int, line: Line) -> HeldPieces:
    """What is held of a needed box, by equal parts of it; where somebody has all of it, that alone."""
    sources = near(line, s.need_box[need])
    box = np.empty((len(sources), s.width), np.int64)
    held = np.empty(len(sources), np.int64)
    n = 0
    has_whole = False
    for k in sources:
        if overlaps(s.held_box[k], s.need_box[need]):
            intersect(box[n], s.held_box[k], s.need_box[need])
            has_whole = has_whole or same(box[n], s.need_box[need])
            held[n] = k
            n += 1
    if has_whole:
        wholes = 0
        for i in range(n):
            if same(box[i], s.need_box[need]):
                held[wholes] = held[i]
                put(box[wholes], s.need_box[need])
                wholes += 1
        n = wholes
    return pieces_of(s, held[:n], box[:n])


@leaf
def own_volume(s: State, need: int, tiles: HeldPieces) -> int:
    """Points of the tiles that a device holds where it needs them, and of what it lacks."""
    target = find_instance(s, s.need[need].device, s.need_box[need])
    points = 0
    for i in range(missing(s, need)):
        points += volume(s.work[i])
    for t in range(len(tiles.box)):
        for i in range(tiles.ptr[t], tiles.ptr[t + 1]):
            if s.held[tiles.held[i]].instance == target:
                points += volume(tiles.box[t])
                break
    return points
