"""The points of an operator that leave partial results, by tile, colour and group, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner
from taskflow.lowering.boxes import same


class Points(NamedTuple):
    """The points of all events of a region, one after the other: device, box, colour, and instance once it is known."""

    device: Any
    box: Any
    colour: Any
    instance: Any


class Tile(NamedTuple):
    """The points of one tile (equal boxes) by colour: those of colour c are `kept[ptr[c] : ptr[c + 1]]`.

    Colours with the same devices are a group: `group` of every colour, `leader`: the first colour of every group.
    """

    kept: Any
    ptr: Any
    group: Any
    leader: Any


@inner
def by_number(number: Any, numbers: int) -> tuple[Any, Any]:
    """What has these numbers, in order of them, and where each number begins in that order."""
    ptr, order = np.zeros(numbers + 1, np.int64), np.empty(len(number), np.int64)
    for k in number:
        ptr[k + 1] += 1
    for k in range(numbers):
        ptr[k + 1] += ptr[k]
    end = ptr.copy()
    for i in range(len(number)):
        order[end[number[i]]] = i
        end[number[i]] += 1
    return order, ptr


@inner
def tiles_of(box: Any, begin: int, end: int) -> tuple[Any, Any]:
    """Points in order of their tiles (equal boxes), and the first point of every tile in that order."""
    count = end - begin
    tile, first, tiles = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for p in range(count):
        t = 0
        while t < tiles and not same(box[begin + first[t]], box[begin + p]):
            t += 1
        if t == tiles:
            first[t] = p
            tiles += 1
        tile[p] = t
    order, ptr = by_number(tile, tiles)
    return order + begin, ptr


@inner
def tile_of(points: Any, p: Points) -> Tile:
    """The points of a tile by colour, in order of appearance, each colour once a device."""
    most, colours = 0, 0
    for i in points:
        most = max(most, p.colour[i] + 1)
    number, local = np.full(most, -1, np.int64), np.empty(len(points), np.int64)
    for i in range(len(points)):
        c = p.colour[points[i]]
        if number[c] < 0:
            number[c] = colours
            colours += 1
        local[i] = number[c]
    order, all_ptr = by_number(local, colours)
    kept, ptr, n = np.empty(len(points), np.int64), np.zeros(colours + 1, np.int64), 0
    for c in range(colours):
        for i in order[all_ptr[c] : all_ptr[c + 1]]:
            is_new = True
            for j in range(ptr[c], n):
                is_new = is_new and p.device[kept[j]] != p.device[points[i]]
            if is_new:
                kept[n] = points[i]
                n += 1
        ptr[c + 1] = n
    group, leader = groups_of(kept[:n], ptr, p.device)
    return Tile(kept[:n], ptr, group, leader)


@inner
def groups_of(kept: Any, ptr: Any, device: Any) -> tuple[Any, Any]:
    """Group of every colour, and the first colour of every group; see `Tile`."""
    colours = len(ptr) - 1
    group, leader, groups = np.empty(colours, np.int64), np.empty(colours, np.int64), 0
    for c in range(colours):
        found = -1
        for g in range(groups):
            a = leader[g]
            if found < 0 and ptr[a + 1] - ptr[a] == ptr[c + 1] - ptr[c]:
                found = g
                for i in range(ptr[c + 1] - ptr[c]):
                    if device[kept[ptr[a] + i]] != device[kept[ptr[c] + i]]:
                        found = -1
                        break
        if found < 0:
            found = groups
            leader[groups] = c
            groups += 1
        group[c] = found
    return group, leader[:groups]
