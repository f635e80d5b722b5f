"""The columns of a pool: rows of points and of fragments, packed; see `pool`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record, records

# Columns that grow together; compiled code gives the number of those with too little room.
ROW = 0
FITS = -2  # `seconds` and so on; there is room in all
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
FRAGMENT = record("first", "count", "version", "issuer")
# A row that is awaited: which of the region's issuers issues it, and its number among what that issues.
EDGE = records([("issuer", np.int32), ("index", np.int32)])


class OpenCollective(NamedTuple):
    """A collective whose seconds and streams are still open.

    Attributes:
        row, name: its number and that of its name.
        itemsize, bytes: of an element and of all.
        first, args, width: in `Packed.arg`, where its arguments begin, how many, and of how many numbers each.
    """

    row: int
    name: int
    itemsize: int
    bytes: int
    first: int
    args: int
    width: int


OPEN_COLLECTIVE = record(*OpenCollective._fields)
ARG = "device", "instance", "role"  # numbers of an argument, in front of its box
SOURCE, TARGET, SCRATCH = range(len(ARG))  # its roles


Columns = tuple[Array, ...]  # a record of them as a plain tuple, as compiled functions get it


class Packed(NamedTuple):
    """The columns, each with room for more.

    Those that are long are short numbers: memory that is touched for the first time is what they cost.

    Attributes:
        filled: one FILLED.
        seconds, streams, ordinal: of every row of operators and of versions; the number of the set of its streams
            (`streams.StreamSets`), or OPEN; see `lowering.ordinals`.
        version: ROWS of every version of every fragment.
        fragment: FRAGMENT.
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


# Of the columns that have a number for each row of a strategy, or for each region of it.
OF_ROWS = {
    "seconds": np.float64,
    "streams": np.int32,
    "ordinal": np.int32,
    "edge_ptr": np.int64,
    "edge": EDGE,
    "arg": np.int64,
}
OF_REGIONS = {
    "version": ROWS,
    "issuer": np.int64,
    "fragment": FRAGMENT,
    "pending": OPEN_COLLECTIVE,
}


def empty(regions: int, devices: int) -> Packed:
    """Columns with room for a strategy of so many regions, about."""
    of_rows = {name: np.zeros(regions * devices, dtype) for name, dtype in OF_ROWS.items()}
    of_regions = {name: np.zeros(regions, dtype) for name, dtype in OF_REGIONS.items()}
    sizes = np.zeros((regions, devices), np.int64)
    return Packed(filled=np.zeros(1, FILLED), bytes=sizes, **of_rows, **of_regions)
