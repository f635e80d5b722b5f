"""Dependences that the order of streams implies, compiled by numba: a search has no use for them.

Rows of one stream run in row order, so a row starts after the end of every earlier one of its stream, whatever else it
waits for. An edge between two rows of one stream says nothing; nor does an edge to a row whose stream has a later one
that is awaited, too; nor one that an earlier row of the same stream has. Starts stay the same to the last bit: they are
the largest of some numbers, and the ends that are left out are not larger than others that stay. What is executed keeps
all edges: there, any topological order counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf
from taskflow.lowering.life import RegionLife
from taskflow.lowering.state import COLLECTIVE, COPY, FEED, State

COMPUTING, RECEIVING, HOST, SENDING, WITHIN = range(5)  # rows of `RowStreams.stream`


class RowStreams(NamedTuple):
    """What tells the stream of a row of a region.

    Attributes:
        stream: (5, devices) in which a device computes, receives, copies from the host, sends (-1: in none), and copies
            and folds what it has.
        ops: number of operators that touch the region.
        first: per operator, where its points begin in `device`.
        device: of every point.
        version_row: first row of every version.
    """

    stream: Array
    ops: int
    first: Array
    device: Array
    version_row: Array


@leaf
def stream_of(s: State, issuer: int, index: int, streams: RowStreams) -> int:
    """A stream of a device that the row occupies; -1: a collective occupies those of many, what comes by link none."""
    if issuer < streams.ops:
        point = streams.first[issuer] + index
        return int(streams.stream[COMPUTING, streams.device[point]])
    number = streams.version_row[issuer - streams.ops] + index
    row = s.row[number]
    stream = streams.stream[:, row.device]
    if row.kind == COLLECTIVE:
        return -1
    if row.kind == COPY and row.source != row.device:
        comes_by_link = stream[SENDING] < 0 and stream[RECEIVING] != stream[COMPUTING]
        return -1 if comes_by_link else int(stream[RECEIVING])
    return int(stream[HOST if row.kind == FEED else WITHIN])


@inner
def first_points(life: RegionLife) -> Array:
    """Where the points of every operator begin."""
    first = np.zeros(life.ops, np.int64)
    for e in range(len(life.event)):
        first[life.event[e].issuer] = life.event_ptr[e]
    return first


@leaf
def is_implied(s: State, e: int, streams: RowStreams) -> bool:
    """Whether both rows of an edge occupy the same stream."""
    edge = s.edge[e]
    stream = stream_of(s, edge.issuer, edge.index, streams)
    return bool(
        stream >= 0 and stream == stream_of(s, edge.awaited_issuer, edge.awaited_index, streams)
    )


@leaf
def sending_of(s: State, issuer: int, index: int, streams: RowStreams) -> int:
    """The stream in which a row sends to another device, if there is one; else as `stream_of`."""
    if issuer >= streams.ops:
        number = streams.version_row[issuer - streams.ops] + index
        row = s.row[number]
        if (
            row.kind == COPY
            and row.source != row.device
            and streams.stream[SENDING, row.source] >= 0
        ):
            return int(streams.stream[SENDING, row.source])
    return int(stream_of(s, issuer, index, streams))


@inner
def thin(s: State, keys: Array, of_row: int, of_issuer: int, of_rows: RowStreams) -> Array:
    """Of the sorted edges (see `packing.edge_keys`), those that no other one implies; each once."""
    keys = last_awaited(s, keys, of_row, of_issuer, of_rows)
    row, issuer, streams, kept = (
        (1 << of_row) - 1,
        (1 << of_issuer) - 1,
        of_rows.stream.max() + 1,
        0,
    )
    group = np.full(streams, -1, np.int64)
    known, stream_known = np.empty_like(group), np.empty_like(group)
    for key in keys:
        issuers, waiting, index = key >> (2 * of_row), (key >> of_row) & row, key & row
        stream = stream_of(s, issuers & issuer, index, of_rows)
        own = sending_of(s, issuers >> of_issuer, waiting, of_rows)
        if own >= 0 and stream >= 0:
            if group[own] == issuers and stream_known[own] == stream and known[own] >= index:
                continue
            group[own], stream_known[own], known[own] = issuers, stream, index
        keys[kept] = key
        kept += 1
    return keys[:kept]


@inner
def last_awaited(s: State, keys: Array, of_row: int, of_issuer: int, of_rows: RowStreams) -> Array:
    """Of the sorted edges, those to the last row of a stream that a row awaits; each once."""
    seen, kept = np.full(of_rows.stream.max() + 1, -1, np.int64), len(keys)
    row, issuer = (1 << of_row) - 1, (1 << of_issuer) - 1
    for k in range(len(keys) - 1, -1, -1):
        key = keys[k]
        if kept < len(keys) and key == keys[kept]:
            continue
        stream = stream_of(s, (key >> (2 * of_row)) & issuer, key & row, of_rows)
        if stream >= 0:
            if seen[stream] == key >> of_row:  # the same waiting row and issuers
                continue
            seen[stream] = key >> of_row
        kept -= 1
        keys[kept] = key
    return keys[kept:]
