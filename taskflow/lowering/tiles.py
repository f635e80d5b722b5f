"""The points of an operator that leave partial results, by tile, colour and group, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import hash_of, same


class Points(NamedTuple):
    """The points of all events of a region, one after the other: device, box, colour, and instance once it is known."""

    device: Any
    box: Any
    colour: Any
    instance: Any


class Tile(NamedTuple):
    """The points of one tile (equal boxes) by colour: those of colour c are `kept[ptr[c] : ptr[c + 1]]`.

    Colours with the same devices are a group: `leader` is the first colour of every group, `next` of every colour the
    next one of its group, -1 behind the last.
    """

    kept: Any
    ptr: Any
    next: Any
    leader: Any


@inner
def by_number(number: Any, numbers: int) -> tuple[Any, Any]:
    """What has these numbers, in order of them, and where each number begins in that order."""
    ptr = np.zeros(numbers + 1, np.int64)
    order = np.empty(len(number), np.int64)
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
def numbered(box: Any) -> tuple[Any, Any]:
    """Numbers of boxes, equal for equal ones, and the first box of every number."""
    number = np.empty(len(box), np.int64)
    first = np.empty(len(box), np.int64)
    count = 0
    slot = np.full(2 * len(box) + 1, -1)
    for k in range(len(box)):
        at = hash_of(box[k], 0) % len(slot)
        while slot[at] >= 0 and not same(box[first[slot[at]]], box[k]):
            at = (at + 1) % len(slot)
        if slot[at] < 0:
            slot[at] = count
            first[count] = k
            count += 1
        number[k] = slot[at]
    return number, first[:count]


@inner
def tiles_of(box: Any, begin: int, end: int) -> tuple[Any, Any]:
    """Points in order of their tiles (equal boxes), and the first point of every tile in that order."""
    number, first = numbered(box[begin:end])
    order, ptr = by_number(number, len(first))
    return order + begin, ptr


@inner
def tile_of(points: Any, p: Points) -> Tile:
    """The points of a tile by colour, in order of appearance, each colour once a device."""
    most = 0
    devices = 0
    colours = 0
    for i in points:
        most = max(most, p.colour[i] + 1)
        devices = max(devices, p.device[i] + 1)
    number = np.full(most, -1, np.int64)
    local = np.empty(len(points), np.int64)
    for i in range(len(points)):
        c = p.colour[points[i]]
        if number[c] < 0:
            number[c] = colours
            colours += 1
        local[i] = number[c]
    order, all_ptr = by_number(local, colours)
    kept = np.empty(len(points), np.int64)
    ptr = np.zeros(colours + 1, np.int64)
    n = 0
    latest = np.full(devices, -1, np.int64)  # of every device, the last colour that it has
    for c in range(colours):
        for i in order[all_ptr[c] : all_ptr[c + 1]]:
            device = p.device[points[i]]
            if latest[device] != c:
                latest[device] = c
                kept[n] = points[i]
                n += 1
        ptr[c + 1] = n
    following, leader = groups_of(kept[:n], ptr, p.device, devices)
    return Tile(kept[:n], ptr, following, leader)


@inner
def groups_of(kept: Any, ptr: Any, device: Any, devices: int) -> tuple[Any, Any]:
    """Of every colour the next one of its group, and the first colour of every group; see `Tile`."""
    colours = len(ptr) - 1
    following = np.full(colours, -1, np.int64)
    last = np.empty(colours, np.int64)
    leader = np.empty(colours, np.int64)
    latest = np.full(
        devices, -1, np.int64
    )  # of every device, the last group whose first device it is
    before = np.empty(
        colours, np.int64
    )  # of every group, the one before with the same first device
    groups = 0
    for c in range(colours):
        first = device[kept[ptr[c]]]
        g = latest[first]
        while g >= 0 and not are_same(kept, ptr, device, leader[g], c):
            g = before[g]
        if g >= 0:
            following[last[g]] = last[g] = c
        else:
            leader[groups], last[groups], before[groups] = c, c, latest[first]
            latest[first] = groups
            groups += 1
    return following, leader[:groups]


@leaf
def are_same(kept: Any, ptr: Any, device: Any, a: int, b: int) -> bool:
    """Whether two colours have the same devices, in the same order."""
    count = ptr[a + 1] - ptr[a]
    if ptr[b + 1] - ptr[b] != count:
        return False
    for i in range(count):  # noqa: SIM110 - compiled
        if device[kept[ptr[a] + i]] != device[kept[ptr[b] + i]]:
            return False
    return True
