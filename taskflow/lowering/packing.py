"""Packing what the events of a region cause into the pool of a search, compiled by numba; see `searching.pool`.

A row becomes its seconds and a queue: the number of a set of streams. Dependences become runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.cost.model import Rates
from taskflow.lowering.boxes import volume
from taskflow.lowering.moving import DONE, NOBODY, play_region, world_of
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import COLLECTIVE, COPY, FEED, State
from taskflow.lowering.thinning import RowStreams, first_points, is_implied, thin

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
        run_ptr, run: (n, 6) dependences between issuers; see `make_runs`.
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


NO_POOL = 4  # a column of the pool has too little room; follows the ends of `moving`


@njit
def pack_regions(
    regions: Any, world: Any, streams: Any, memory: Any, room: int, pool: Any, all_rates: Any
) -> tuple[int, int, int]:
    """Play the events of some regions and pack what they cause.

    Args:
        regions: by number.
        streams: see `thinning.RowStreams`.
        pool, all_rates: `Packed` and `Rates` as plain tuples.
        others: see `moving.move`.

    Returns:
        how it ended, at which of the regions, and a number that says more: see `moving.Played`; NO_POOL: a column;
        NOBODY: -1, where points of an operator wait for each other.
    """
    w, packed, rates = world_of(world), Packed(*pool), Rates(*all_rates)
    for number in range(len(regions)):
        x = play_region(regions[number], w, memory, room, True)
        if x.end != DONE:
            return x.end, number, x.number
        of_rows = RowStreams(streams, x.life.ops, first_points(x.life), x.points.device, x.version_row)
        column = pack(x.state, of_rows, packed, rates)
        if column != FITS:
            return NO_POOL if column >= 0 else NOBODY, number, column
    return DONE, len(regions), 0


@inner
def pack(s: State, streams: RowStreams, p: Packed, rates: Rates) -> int:
    """Append a region's entry: FITS; else nothing is appended.

    Gives the column that has too little room; or WAITS_FOR_ITSELF: an operator whose points wait for each other.
    """
    ops, version_row = streams.ops, streams.version_row
    for e in range(s.edges):
        if s.edge[e].issuer == s.edge[e].awaited_issuer and s.edge[e].issuer < ops:
            return int(WAITS_FOR_ITSELF)
    keys, bits_of = edge_keys(s, streams)
    keys = thin(s, sort(keys), bits_of[0], bits_of[1], streams)
    versions, rows, issuers = len(version_row) - 1, s.rows, ops + len(version_row) - 1
    collectives = 0
    for k in range(rows):
        collectives += s.row[k].kind == COLLECTIVE
    short = lacking_column(p, rows, collectives, len(keys), versions, issuers)
    if short != FITS:
        return int(short)
    row = p.length[ROW]
    pack_rows(s, p, rates)
    pack_edges(keys, bits_of, ops, issuers, row, version_row, p)
    entry = p.length[ENTRY]
    p.entry[entry, 0], p.entry[entry, 1] = row, rows
    p.entry[entry, 2], p.entry[entry, 3] = p.length[VERSION], p.length[RUN_PTR] - issuers - 1
    for v in range(versions):
        p.version[p.length[VERSION], 0] = row + version_row[v]
        p.version[p.length[VERSION], 1] = version_row[v + 1] - version_row[v]
        p.length[VERSION] += 1
    p.bytes[entry] = 0
    for k in range(s.instances):
        size = volume(s.instance_box[k]) * s.itemsize
        p.bytes[entry, s.instance[k].device] += -(-size // ALIGNMENT) * ALIGNMENT
    p.length[ENTRY] += 1
    return int(FITS)


@leaf
def lacking_column(p: Packed, rows: int, collectives: int, edges: int, versions: int, issuers: int) -> int:
    """A column that has no room for so much more, or FITS."""
    if p.length[ROW] + rows + 1 >= len(p.seconds):
        return ROW
    if p.length[WITHIN] + edges > len(p.within):
        return WITHIN
    if p.length[VERSION] + versions > len(p.version):
        return VERSION
    if p.length[RUN_PTR] + issuers + 1 > len(p.run_ptr):
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
def pack_rows(s: State, p: Packed, rates: Rates) -> None:
    """Seconds and queues of the rows."""
    devices, begin = s.devices, 0
    for k in range(s.rows):
        of, row = s.row[k], p.length[ROW] + k
        source, device, size = of.source, of.device, of.points * s.itemsize
        if of.kind == COLLECTIVE:
            p.seconds[row], p.queue[row] = 0.0, 0
            pend(s, k, begin, size, p)
        elif of.kind == COPY and source != device:
            p.seconds[row] = rates.latency[source, device] + size / rates.throughput[source, device]
            p.queue[row] = source * devices + device
        else:
            ramp = rates.ramp[device] if size > 0 else 0.0
            p.seconds[row] = rates.overhead[device] + size / rates.bandwidth[device] + ramp
            p.queue[row] = devices * devices + device if of.kind == FEED else device * devices + device
        begin = of.arg_end


@inner
def pend(s: State, k: int, begin: int, size: int, p: Packed) -> None:
    """Note the collective in row `k`, of so many bytes, with the devices of its arguments from `begin` on."""
    takes_part, first = np.zeros(s.devices, np.bool_), p.length[MEMBER]
    for a in range(begin, s.row[k].arg_end):
        takes_part[s.instance[s.arg[a].instance].device] = True
    for device in range(s.devices):
        if takes_part[device]:
            p.member[p.length[MEMBER]] = device
            p.length[MEMBER] += 1
    n = p.length[PENDING]
    p.pending[n, 0], p.pending[n, 1], p.pending[n, 2] = p.length[ROW] + k, s.row[k].collective, size
    p.pending[n, 3], p.pending[n, 4] = first, p.length[MEMBER] - first
    p.length[PENDING] += 1


# -- dependences -----------------------------------------------------------------------------------------------------


@inner
def edge_keys(s: State, streams: RowStreams) -> tuple[Any, tuple[int, int]]:
    """Edges as numbers that sort by waiting issuer, awaited issuer, waiting row, awaited row; bits of rows, of issuers.

    Those that streams imply are left out.
    """
    most_row, most_issuer = 0, 0
    for e in range(s.edges):
        most_issuer = max(most_issuer, s.edge[e].issuer, s.edge[e].awaited_issuer)
        most_row = max(most_row, s.edge[e].index, s.edge[e].awaited_index)
    of_row, of_issuer, keys, n = bits(most_row), bits(most_issuer), np.empty(s.edges, np.int64), 0
    for e in range(s.edges):
        if not is_implied(s, e, streams):
            edge = s.edge[e]
            issuers = (edge.issuer << of_issuer) | edge.awaited_issuer
            keys[n] = (((issuers << of_row) | edge.index) << of_row) | edge.awaited_index
            n += 1
    return keys[:n], (of_row, of_issuer)


@leaf
def pack_edges(
    keys: Any, bits_of: tuple[int, int], ops: int, issuers: int, row: int, version_row: Any, p: Packed
) -> None:
    """Dependences of all rows, which are appended: within issuers by row, between issuers as runs.

    A run is (waiting row, awaited slot, awaited row, step of waiting rows, step of awaited rows, number).
    """
    of_row, of_issuer = bits_of
    first, n, ptr = p.length[RUN], p.length[RUN], p.length[RUN_PTR]
    within, done, slot = p.length[WITHIN], row, -1
    p.run_ptr[ptr : ptr + issuers + 1] = first
    for key in keys:
        b, a = key & ((1 << of_row) - 1), (key >> of_row) & ((1 << of_row) - 1)
        o, w = (key >> (2 * of_row)) & ((1 << of_issuer) - 1), key >> (2 * of_row + of_issuer)
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
    for k in range(issuers):
        p.run_ptr[ptr + k + 1] = max(p.run_ptr[ptr + k + 1], p.run_ptr[ptr + k])
    end = row + version_row[-1]
    while done <= end:
        p.within_ptr[done] = within
        done += 1
    p.length[ROW], p.length[WITHIN], p.length[RUN], p.length[RUN_PTR] = end, within, n, ptr + issuers + 1


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
