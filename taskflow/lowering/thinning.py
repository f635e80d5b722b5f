"""Dependences that the order of streams implies, compiled by numba: a search has no use for them.

Rows of one stream run in row order, so a row starts after the end of every earlier one of its stream, whatever else it
waits for. An edge between two rows of one stream says nothing; nor does an edge to a row whose stream has a later one
that is awaited, too; nor one that an earlier row of the same stream has. Starts stay the same to the last bit: they are
the largest of some numbers, and the ends that are left out are not larger than others that stay. What is executed keeps
all edges: there, any topological order counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.state import AT, COLLECTIVE, COPY, FEED, State

COMPUTING, RECEIVING, HOST, SENDING = range(4)  # rows of `Lanes.stream`


class Lanes(NamedTuple):
    """What tells the stream of a row of a region.

    Attributes:
        stream: (4, devices) in which a device computes, receives, copies from the host and sends (-1: in none).
        ops: number of operators that touch the region, which are its slots 0, 1, ...; version v is slot `ops + v`.
        first: per operator, where its points begin in `place`.
        place: device of every point.
        version_row: first row of every version.
    """

    stream: Any
    ops: int
    first: Any
    place: Any
    version_row: Any


@leaf
def lane_of(s: State, slot: int, index: int, lanes: Lanes) -> int:
    """A stream that the row occupies; -1: it is a collective, which occupies those of many devices."""
    if slot < lanes.ops:
        return int(lanes.stream[COMPUTING, lanes.place[lanes.first[slot] + index]])
    at = s.m[AT.row] + 6 * (lanes.version_row[slot - lanes.ops] + index)
    if s.m[at] == COLLECTIVE:
        return -1
    return int(lanes.stream[HOST if s.m[at] == FEED else RECEIVING, s.m[at + 2]])


@inner
def first_points(events: Any, event_ptr: Any, ops: int) -> Any:
    """Where the points of every operator begin."""
    first = np.zeros(ops, np.int64)
    for e in range(len(events)):
        first[events[e, 0]] = event_ptr[e]
    return first


@leaf
def is_implied(s: State, e: int, lanes: Lanes) -> bool:
    """Whether both rows of the edge at `m[e]` occupy the same stream."""
    lane = lane_of(s, s.m[e], s.m[e + 1], lanes)
    return bool(lane >= 0 and lane == lane_of(s, s.m[e + 2], s.m[e + 3], lanes))


@leaf
def sending_of(s: State, slot: int, index: int, lanes: Lanes) -> int:
    """The stream in which a row sends to another device, if there is one; else as `lane_of`."""
    if slot >= lanes.ops:
        at = s.m[AT.row] + 6 * (lanes.version_row[slot - lanes.ops] + index)
        if s.m[at] == COPY and s.m[at + 1] != s.m[at + 2] and lanes.stream[SENDING, s.m[at + 1]] >= 0:
            return int(lanes.stream[SENDING, s.m[at + 1]])
    return int(lane_of(s, slot, index, lanes))


@inner
def thin(s: State, keys: Any, of_row: int, of_slot: int, lanes: Lanes) -> Any:
    """Of the sorted edges (see `packing.edge_keys`), those that no other one implies; each once."""
    keys = last_awaited(s, keys, of_row, of_slot, lanes)
    row, slot, streams, kept = (1 << of_row) - 1, (1 << of_slot) - 1, lanes.stream.max() + 1, 0
    group, known, lane_known = np.full(streams, -1, np.int64), np.empty(streams, np.int64), np.empty(streams, np.int64)
    for key in keys:
        slots, waiting, index = key >> (2 * of_row), (key >> of_row) & row, key & row
        lane = lane_of(s, slots & slot, index, lanes)
        own = sending_of(s, slots >> of_slot, waiting, lanes)
        if own >= 0 and lane >= 0:
            if group[own] == slots and lane_known[own] == lane and known[own] >= index:
                continue
            group[own], lane_known[own], known[own] = slots, lane, index
        keys[kept] = key
        kept += 1
    return keys[:kept]


@inner
def last_awaited(s: State, keys: Any, of_row: int, of_slot: int, lanes: Lanes) -> Any:
    """Of the sorted edges, those to the last row of a stream that a row awaits; each once."""
    seen, kept = np.full(lanes.stream.max() + 1, -1, np.int64), len(keys)
    row, slot = (1 << of_row) - 1, (1 << of_slot) - 1
    for k in range(len(keys) - 1, -1, -1):
        key = keys[k]
        if kept < len(keys) and key == keys[kept]:
            continue
        lane = lane_of(s, (key >> (2 * of_row)) & slot, key & row, lanes)
        if lane >= 0:
            if seen[lane] == key >> of_row:  # the same waiting row and slots
                continue
            seen[lane] = key >> of_row
        kept -= 1
        keys[kept] = key
    return keys[kept:]
