"""The columns of a pool: rows of points and of fragments, packed; see `pool`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, records

# Columns that grow together; compiled code gives the number of those with too little room.
ROW, FITS = 0, -2  # `seconds` and so on; there is room in all
GROWING = (
    ("seconds", "streams", "ordinal", "issued", "within_ptr"),
    ("within",),
    ("version",),
    ("run_ptr",),
    ("run",),
    ("fragment", "bytes"),
    ("pending",),
    ("arg",),
)
ROOM = 1 << 16  # rows and dependences, to begin with
SHORT = 64  # times as short are columns of which a fragment has one

# How far each of them is filled.
FILLED = records(
    [(name, np.int64) for name in ("rows", "within", "versions", "run_ptrs", "runs")]
    + [(name, np.int64) for name in ("fragments", "pending", "args")]
)
# Its first row, how many rows, and how many ordinals these have.
ROWS = records([("first", np.int64), ("count", np.int64), ("parts", np.int64)])
# Its first row, how many rows, its first of `version` and of `run_ptr`.
FRAGMENT_PARTS = records([(name, np.int64) for name in ("row", "rows", "version", "run_ptr")])
# `count` rows of an issuer, from `row` on, each `step` from the last, wait for as many rows of `issuer`, from `awaited`
# on, each `awaited_step` from the last; see `laying.await_ends`.
RUN_OF_EDGES = records(
    [(name, np.int32) for name in ("row", "issuer", "awaited", "step", "awaited_step", "count")]
)
# A collective whose seconds and streams are still open: its row, name, bytes of an element and of all, and `args`
# arguments, each of `width` numbers, from number `first` of `arg` on.
SOURCE, TARGET, SCRATCH = range(3)  # what an argument of a collective is
ARG_NUMBERS = 3  # of each, in front of its box
OPEN_COLLECTIVE = records(
    [(name, np.int64) for name in ("row", "name", "itemsize", "bytes", "first", "args", "width")]
)


class Packed(NamedTuple):
    """The columns, each with room for more.

    Those that are long are short numbers: memory that is touched for the first time is what they cost.

    Attributes:
        filled: one FILLED.
        seconds, streams, ordinal, within_ptr: of every row; the number of the set of its streams
            (`streams.StreamSets`); see `lowering.ordinals`; the rows of the same version that it waits for are
            `within[within_ptr[row] : within_ptr[row + 1]]`.
        issued: the rows of an operator or version in the order of their ordinals, counted from its first.
        version: ROWS of every version of every fragment.
        run_ptr, run: per issuer of every fragment RUN_OF_EDGES: for what its rows wait.
        fragment: FRAGMENT_PARTS.
        bytes: (fragments, devices) that its instances take.
        pending: OPEN_COLLECTIVE.
        arg: arguments of these: device, instance, `SOURCE`, `TARGET` or `SCRATCH`, and box.
    """

    filled: Array
    seconds: Array
    streams: Array
    ordinal: Array
    issued: Array
    within_ptr: Array
    within: Array
    version: Array
    run_ptr: Array
    run: Array
    fragment: Array
    bytes: Array
    pending: Array
    arg: Array


def empty(devices: int) -> Packed:
    """Columns with room for a little."""
    short = max(ROOM // SHORT, 1)
    return Packed(
        filled=np.zeros(1, FILLED),
        seconds=np.zeros(ROOM),
        streams=np.zeros(ROOM, np.int32),
        ordinal=np.zeros(ROOM, np.int32),
        issued=np.zeros(ROOM, np.int32),
        within_ptr=np.zeros(ROOM, np.int32),
        within=np.zeros(ROOM, np.int32),
        version=np.zeros(short, ROWS),
        run_ptr=np.zeros(short, np.int64),
        run=np.zeros(ROOM, RUN_OF_EDGES),
        fragment=np.zeros(short, FRAGMENT_PARTS),
        bytes=np.zeros((short, devices), np.int64),
        pending=np.zeros(short, OPEN_COLLECTIVE),
        arg=np.zeros(short, np.int64),
    )
