"""The columns of a pool: rows of points and of fragments, packed; see `pool`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record, records

# Columns that grow together; compiled code gives the number of those with too little room.
ROW, FITS = 0, -2  # `seconds` and so on; there is room in all
GROWING = (
    ("seconds", "streams", "ordinal"),
    ("edge_ptr",),
    ("edge",),
    ("version",),
    ("issuer",),
    ("fragment", "bytes"),
    ("pending",),
    ("arg",),
)
OPEN = -1  # the set of streams of a collective that is not priced yet: it takes nothing

# How far each of them is filled.
FILLED = record("rows", "waiting", "edges", "versions", "issuers", "fragments", "pending", "args")
# Its first row, how many rows, and how many ordinals these have.
ROWS = record("first", "count", "parts")
# Its first row, how many rows, its first of `version` and of `issuer`.
FRAGMENT_PARTS = record("row", "rows", "version", "issuer")
# A row that is awaited: which of the region's issuers issues it, and its number among what that issues.
EDGE = records([("issuer", np.int32), ("index", np.int32)])
# A collective whose seconds and streams are still open: its row, name, bytes of an element and of all, and `args`
# arguments, each of `width` numbers, from number `first` of `arg` on.
OPEN_COLLECTIVE = record("row", "name", "itemsize", "bytes", "first", "args", "width")
ARG = "device", "instance", "role"  # numbers of an argument, in front of its box
SOURCE, TARGET, SCRATCH = range(len(ARG))  # its roles


class Packed(NamedTuple):
    """The columns, each with room for more.

    Those that are long are short numbers: memory that is touched for the first time is what they cost.

    Attributes:
        filled: one FILLED.
        seconds, streams, ordinal: of every row of operators and of versions; the number of the set of its streams
            (`streams.StreamSets`), or OPEN; see `lowering.ordinals`.
        version: ROWS of every version of every fragment.
        fragment: FRAGMENT_PARTS.
        issuer: of every issuer of every fragment, where its rows begin in `edge_ptr`.
        edge_ptr, edge: per row of every issuer of every fragment EDGE: for what it waits through that region.
        bytes: (fragments, devices) that its instances take.
        pending: OPEN_COLLECTIVE.
        arg: arguments of these: ARG, and box.
    """

    filled: Array
    seconds: Array
    streams: Array
    ordinal: Array
    version: Array
    issuer: Array
    edge_ptr: Array
    edge: Array
    fragment: Array
    bytes: Array
    pending: Array
    arg: Array


def empty(operators: int, devices: int) -> Packed:
    """Columns with room for a strategy of so many operators, about."""
    rows = operators * devices
    return Packed(
        filled=np.zeros(1, FILLED),
        seconds=np.zeros(rows),
        streams=np.zeros(rows, np.int32),
        ordinal=np.zeros(rows, np.int32),
        version=np.zeros(operators, ROWS),
        issuer=np.zeros(operators, np.int64),
        edge_ptr=np.zeros(rows, np.int64),
        edge=np.zeros(rows, EDGE),
        fragment=np.zeros(operators, FRAGMENT_PARTS),
        bytes=np.zeros((operators, devices), np.int64),
        pending=np.zeros(operators, OPEN_COLLECTIVE),
        arg=np.zeros(rows, np.int64),
    )
