"""Ordinals: which part of an operator's work a row belongs to, compiled by numba.

The ordinal of a point is its number among the points of its operator on its device. Where samples are split, it is the
micro-batch. A row that moves what points made has the ordinal of the last point that it waits for, and is issued right
behind it; a feed that of the first point that reads it, and is issued right before it. So what a device does for one
micro-batch stands together, and partial results do not wait for those of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import covers
from taskflow.lowering.life import RegionLife
from taskflow.lowering.state import FEED, State
from taskflow.lowering.tiles import Points, by_number


@inner
def ordinals_of(device: Any, ptr: Any, devices: int) -> Any:
    """The ordinals of points on these devices; those of operator k are numbers `ptr[k]` to `ptr[k + 1]`."""
    ordinals = np.empty(len(device), np.int64)
    count = np.zeros(devices, np.int64)
    for k in range(len(ptr) - 1):
        for point in range(ptr[k], ptr[k + 1]):
            ordinals[point] = count[device[point]]
            count[device[point]] += 1
        for point in range(ptr[k], ptr[k + 1]):
            count[device[point]] = 0
    return ordinals


@leaf
def number_moves(
    s: State, life: RegionLife, first_edge: int, ordinal: Any, origin: int, version_row: Any
) -> None:
    """The ordinals of the rows that move a version which an event makes; `first_edge`: of their dependences.

    `origin`: the version that is passed on, or the version itself; `version_row`: the first row of every one so far.
    """
    event = life.producer[origin]
    maker = life.event[event].issuer
    begin = life.event_ptr[event]
    for e in range(first_edge, s.edges):
        edge = s.edge[e]
        if edge.issuer == s.issuer:
            row = s.row[s.first + edge.index]
            if edge.awaited_issuer == maker:
                row.ordinal = max(row.ordinal, ordinal[begin + edge.awaited_index])
            elif life.ops + origin <= edge.awaited_issuer <= s.issuer:
                first = version_row[edge.awaited_issuer - life.ops]
                row.ordinal = max(row.ordinal, s.row[first + edge.awaited_index].ordinal)


@inner
def number_feeds(s: State, life: RegionLife, points: Points, ordinal: Any) -> None:
    """The ordinals of the rows that fill a version from the caller's feed: its first reader's where that reads it."""
    first = life.ops
    least = np.full(s.rows, -1, np.int64)
    for e in range(len(life.event)):
        if life.event[e].version == s.version:
            first = min(first, life.event[e].issuer)
    for e in range(len(life.event)):
        if life.event[e].version == s.version and life.event[e].issuer == first:
            begin = life.event_ptr[e]
            end = life.event_ptr[e + 1]
            order, ptr = by_number(points.device[begin:end], s.devices)
            for number in range(s.first, s.rows):
                row = s.row[number]
                box = s.arg_box[row.arg_end - 1]
                for i in range(ptr[row.device], ptr[row.device + 1] if row.kind == FEED else 0):
                    at = begin + order[i]
                    if least[number] >= 0 and ordinal[at] >= least[number]:
                        break
                    if covers(box, points.box[at]):
                        least[number] = ordinal[at]
    for number in range(s.first, s.rows):
        s.row[number].ordinal = max(least[number], 0)
