"""Packing what the events of a region cause into the pool of a search, compiled by numba; see `searching.pool`.

A row becomes its seconds and a queue: the number of a set of streams. Dependences become runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.cost.model import Rates
from taskflow.lowering.boxes import volume
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import AT, COLLECTIVE, COPY, EDGES, FEED, INSTANCES, ROWS, State
from taskflow.lowering.thinning import Lanes, is_implied, thin

# Columns of a pool that fill up, as places in `Packed.length`.
ROW, WITHIN, VERSION, RUN_PTR, RUN, ENTRY, PENDING, MEMBER = range(8)
FITS, WAITS_FOR_ITSELF = -2, -1
ALIGNMENT = 64  # of memory.ALIGNMENT


class Packed(NamedTuple):
    """The columns of a pool, each with room for more; `length` says how far they are filled.

    Those that are long are short numbers: memory that is touched for the first time is what they cost.

    Attributes:
        seconds, queue, within_ptr: of every row; the rows of the same version that it waits for are
            `within[within_ptr[row] : within_ptr[row + 1]]`.
        version: (n, 2) first row and number of rows.
        run_ptr, run: (n, 6) dependences between slots; see `make_runs`.
        entry: (n, 4) of every fragment: first row, rows, first of `version`, first of `run_ptr`.
        bytes: (n, devices) that its instances take.
        pending: (n, 5) collectives, whose seconds and queue are still open: row, name, bytes, first of `member` and
            number of devices.
    """

    length: Any
    seconds: Any
    queue: Any
    within_ptr: Any
    within: Any
    version: Any
    run_ptr: Any
    run: Any
    entry: Any
    bytes: Any
    pending: Any
    member: Any


def no_pool() -> Packed:
    """A pool without room."""
    none, short = np.zeros(0, np.int64), np.zeros(0, np.int32)
    pair, six, four, one, five = (none.reshape(0, n) for n in (2, 6, 4, 1, 5))
    of_rows = np.zeros(8, np.int64), np.zeros(0), short, short, short
    return Packed(*of_rows, pair, none, six.astype(np.int32), four, one, five, none)


def no_rates() -> Rates:
    """Rates of no device."""
    return Rates(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))


@inner
def pack(s: State, lanes: Lanes, itemsize: int, p: Packed, rates: Rates) -> Any:
    """Append a region's entry: FITS; else nothing is appended.

    Gives the column that has too little room; or WAITS_FOR_ITSELF: an operator whose points wait for each other.
    """
    ops, version_row = lanes.ops, lanes.version_row
    for e in range(s.m[AT.edge], s.m[AT.edge] + 4 * s.m[EDGES], 4):
        if s.m[e] == s.m[e + 2] and s.m[e] < ops:
            return WAITS_FOR_ITSELF
    keys, places = edge_keys(s, lanes)
    keys = thin(s, sort(keys), places[0], places[1], lanes)
    versions, rows, slots = len(version_row) - 1, s.m[ROWS], ops + len(version_row) - 1
    collectives = 0
    for k in range(rows):
        collectives += s.m[s.m[AT.row] + 6 * k] == COLLECTIVE
    short = lacking_column(p, rows, collectives, len(keys), versions, slots)
    if short != FITS:
        return short
    row = p.length[ROW]
    pack_rows(s, itemsize, p, rates)
    pack_edges(keys, places, ops, slots, row, version_row, p)
    entry = p.length[ENTRY]
    p.entry[entry, 0], p.entry[entry, 1] = row, rows
    p.entry[entry, 2], p.entry[entry, 3] = p.length[VERSION], p.length[RUN_PTR] - slots - 1
    for v in range(versions):
        p.version[p.length[VERSION], 0] = row + version_row[v]
        p.version[p.length[VERSION], 1] = version_row[v + 1] - version_row[v]
        p.length[VERSION] += 1
    p.bytes[entry] = 0
    for k in range(s.m[INSTANCES]):
        size = volume(s.m, s.m[AT.inst_box] + k * s.w, s.w) * itemsize
        p.bytes[entry, s.m[s.m[AT.inst_device] + k]] += -(-size // ALIGNMENT) * ALIGNMENT
    p.length[ENTRY] += 1
    return FITS


@leaf
def lacking_column(p: Packed, rows: int, collectives: int, edges: int, versions: int, slots: int) -> int:
    """A column that has no room for so much more, or FITS."""
    if p.length[ROW] + rows + 1 >= len(p.seconds):
        return ROW
    if p.length[WITHIN] + edges > len(p.within):
        return WITHIN
    if p.length[VERSION] + versions > len(p.version):
        return VERSION
    if p.length[RUN_PTR] + slots + 1 > len(p.run_ptr):
        return RUN_PTR
    if p.length[RUN] + edges > len(p.run):
        return RUN
    if p.length[ENTRY] + 1 > len(p.entry):
        return ENTRY
    if p.length[PENDING] + collectives > len(p.pending):
        return PENDING
    if p.length[MEMBER] + collectives * p.bytes.shape[1] > len(p.member):
        return MEMBER
    return FITS


@inner
def pack_rows(s: State, itemsize: int, p: Packed, rates: Rates) -> None:
    """Seconds and queues of the rows."""
    devices, begin = s.devices, 0
    for k in range(s.m[ROWS]):
        at, row = s.m[AT.row] + 6 * k, p.length[ROW] + k
        kind, source, device, size = s.m[at], s.m[at + 1], s.m[at + 2], s.m[at + 4] * itemsize
        if kind == COLLECTIVE:
            p.seconds[row], p.queue[row] = 0.0, 0
            pend(s, row, begin, s.m[at + 3], s.m[at + 5], size, p)
        elif kind == COPY and source != device:
            p.seconds[row] = rates.latency[source, device] + size / rates.throughput[source, device]
            p.queue[row] = source * devices + device
        else:
            ramp = rates.ramp[device] if size > 0 else 0.0
            p.seconds[row] = rates.overhead[device] + size / rates.bandwidth[device] + ramp
            p.queue[row] = devices * devices + device if kind == FEED else device * devices + device
        begin = s.m[at + 3]


@inner
def pend(s: State, row: int, begin: int, end: int, name: int, size: int, p: Packed) -> None:
    """Note a collective, with the devices of its arguments."""
    takes_part, first = np.zeros(s.devices, np.bool_), p.length[MEMBER]
    for a in range(begin, end):
        takes_part[s.m[s.m[AT.inst_device] + s.m[s.m[AT.arg] + 2 * a]]] = True
    for device in range(s.devices):
        if takes_part[device]:
            p.member[p.length[MEMBER]] = device
            p.length[MEMBER] += 1
    n = p.length[PENDING]
    p.pending[n, 0], p.pending[n, 1], p.pending[n, 2], p.pending[n, 3] = row, name, size, first
    p.pending[n, 4] = p.length[MEMBER] - first
    p.length[PENDING] += 1


# -- dependences -----------------------------------------------------------------------------------------------------


@inner
def edge_keys(s: State, lanes: Lanes) -> tuple[Any, tuple[int, int]]:
    """Edges as numbers that sort by waiting slot, awaited slot, waiting row, awaited row; bits of rows and of slots.

    Those that streams imply are left out.
    """
    most_row, most_slot, count = 0, 0, s.m[EDGES]
    for e in range(s.m[AT.edge], s.m[AT.edge] + 4 * count, 4):
        most_slot = max(most_slot, s.m[e], s.m[e + 2])
        most_row = max(most_row, s.m[e + 1], s.m[e + 3])
    of_row, of_slot, keys = bits(most_row), bits(most_slot), np.empty(count, np.int64)
    n = 0
    for e in range(s.m[AT.edge], s.m[AT.edge] + 4 * count, 4):
        if not is_implied(s, e, lanes):
            slots = (s.m[e] << of_slot) | s.m[e + 2]
            keys[n] = (((slots << of_row) | s.m[e + 1]) << of_row) | s.m[e + 3]
            n += 1
    return keys[:n], (of_row, of_slot)


@leaf
def pack_edges(keys: Any, places: tuple[int, int], ops: int, slots: int, row: int, version_row: Any, p: Packed) -> None:
    """Dependences of all rows, which are appended: within slots by row, between slots as runs.

    A run is (waiting row, awaited slot, awaited row, step of waiting rows, step of awaited rows, number).
    """
    of_row, of_slot = places
    first, n, ptr = p.length[RUN], p.length[RUN], p.length[RUN_PTR]
    within, done, slot = p.length[WITHIN], row, -1
    p.run_ptr[ptr : ptr + slots + 1] = first
    for key in keys:
        b, a = key & ((1 << of_row) - 1), (key >> of_row) & ((1 << of_row) - 1)
        o, w = (key >> (2 * of_row)) & ((1 << of_slot) - 1), key >> (2 * of_row + of_slot)
        if o == w:
            waiting = row + version_row[w - ops] + a
            while done <= waiting:
                p.within_ptr[done] = within
                done += 1
            p.within[within] = b
            within += 1
            continue
        if n > first and slot == w and extend(p.run[n - 1], a, o, b):
            continue
        run = p.run[n]
        run[0], run[1], run[2], run[3], run[4], run[5] = a, o, b, 0, 0, 1
        slot, n = w, n + 1
        p.run_ptr[ptr + w + 1] = n
    for k in range(slots):
        p.run_ptr[ptr + k + 1] = max(p.run_ptr[ptr + k + 1], p.run_ptr[ptr + k])
    end = row + version_row[-1]
    while done <= end:
        p.within_ptr[done] = within
        done += 1
    p.length[ROW], p.length[WITHIN], p.length[RUN], p.length[RUN_PTR] = end, within, n, ptr + slots + 1


@leaf
def extend(run: Any, a: int, o: int, b: int) -> bool:
    """Make the edge from row `a` to row `b` of slot `o` a part of the run, if it is the next in step."""
    if run[1] != o:
        return False
    if run[5] == 1:
        run[3], run[4], run[5] = a - run[0], b - run[2], 2
        return True
    if a == run[0] + run[3] * run[5] and b == run[2] + run[4] * run[5]:
        run[5] += 1
        return True
    return False
