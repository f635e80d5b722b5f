"""Packing points, and what the events of a region cause, into the pool of a search, compiled by numba; see `packed`.

A row becomes its seconds and the number of a set of streams. Dependences become runs.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.cost.rates import Rates
from taskflow.lowering.boxes import volume
from taskflow.lowering.moves import arg_begin
from taskflow.lowering.moving import DONE, NOBODY, play_region, rename, world_of
from taskflow.lowering.ordinals import ordinals_of
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import COLLECTIVE, COPY, FEED, READ, State
from taskflow.lowering.tiles import by_number
from taskflow.searching.packed import ARG_NUMBERS, FITS, SCRATCH, SOURCE, TARGET, Packed
from taskflow.searching.thinning import RowStreams, first_points, is_implied, thin

WAITS_FOR_ITSELF = -1
ALIGNMENT = 64  # of memory.ALIGNMENT
NO_POOL = 4  # a column of the pool has too little room; follows the ends of `moving`


@tiered
def pack_points(
    points: Array,
    store: tuple[Array, ...],
    all_rates: tuple[Array, ...],
    first_set: int,
    pool: tuple[Array, ...],
    found: Array,
) -> int:
    """Append the rows of the points of some operators; of how many there is room for.

    Args:
        points: (n, 2) number of the points, and of the dtype in which they compute.
        store, all_rates, pool: `PointTable`, `Rates` and `Packed` as plain tuples.
        first_set: the set of the stream in which the first device computes; those of the others follow.
        found: gets ROWS.
    """
    table, rates, p = PointTable(*store), Rates(*all_rates), Packed(*pool)
    for k in range(len(points)):
        record, row, whole = table.record[points[k, 0]], p.filled[0].rows, np.zeros(2, np.int64)
        if row + record.points + 1 >= len(p.seconds):
            return k
        for i in range(record.points):
            device, at = table.device[record.first_device + i], record.first_model + i
            p.seconds[row + i] = point_seconds(
                table.flops[at], table.bytes[at], device, points[k, 1], rates
            )
            p.streams[row + i] = first_set + device
            p.within_ptr[row + i + 1] = p.within_ptr[row]
        p.filled[0].rows, whole[1] = row + record.points, record.points
        devices = table.device[record.first_device : record.first_device + record.points]
        p.ordinal[row : row + record.points] = ordinals_of(devices, whole, len(rates.overhead))
        put_rows(found[k], row, record.points, p)
    return len(points)


@inner
def put_rows(found: np.record, first: int, count: int, p: Packed) -> None:
    """The ROWS of an operator or version, which are packed, and in which order they are issued."""
    ordinal = p.ordinal[first : first + count]
    found.first, found.count, found.parts = first, count, 1
    if count and ordinal.max() > 0:
        found.parts = ordinal.max() + 1
        p.issued[first : first + count] = by_number(ordinal, found.parts)[0]


@leaf
def point_seconds(flops: float, size: int, device: int, dtype: int, rates: Rates) -> float:
    """`AnalyticCosts.task_seconds` of one point, to the last bit."""
    compute, memory = flops / rates.flops[dtype, device], size / rates.bandwidth[device]
    both, ramps = compute + memory, 0.0
    if both > 0.0:
        share = compute / both
        ramps = share * rates.compute_ramp[device] + (1.0 - share) * rates.ramp[device]
    sides = max(compute, memory) + rates.exposed[device] * min(compute, memory)
    return float(rates.overhead[device] + (sides + ramps))


@tiered
def pack_regions(
    regions: Array,
    world: tuple[object, ...],
    streams: Array,
    memory: Array,
    room: int,
    pool: tuple[Array, ...],
    all_rates: tuple[Array, ...],
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
        rename(x)
        of_rows = RowStreams(
            streams, x.life.ops, first_points(x.life), x.points.device, x.version_row
        )
        column = pack(x.state, of_rows, packed, rates)
        if column != FITS:
            return NO_POOL if column >= 0 else NOBODY, number, column
    return DONE, len(regions), 0


@inner
def pack(s: State, streams: RowStreams, p: Packed, rates: Rates) -> int:
    """Append a region's fragment: FITS; else nothing is appended.

    Gives the column that has too little room; or WAITS_FOR_ITSELF: points of an operator wait for those of another
    device.
    """
    ops, version_row = streams.ops, streams.version_row
    for e in range(s.edges):
        is_own = s.edge[e].issuer == s.edge[e].awaited_issuer and s.edge[e].issuer < ops
        if is_own and not is_implied(
            s, e, streams
        ):  # parts of one device are added up in their order
            return int(WAITS_FOR_ITSELF)
    keys, bits_of = edge_keys(s, streams)
    keys = sort(keys)
    if s.is_brief:
        keys = thin(s, keys, bits_of[0], bits_of[1], streams)
    versions, rows, issuers = len(version_row) - 1, s.rows, ops + len(version_row) - 1
    collectives, numbers = 0, 0
    for k in range(rows):
        if s.row[k].kind == COLLECTIVE:
            collectives += 1
            numbers += (s.row[k].arg_end - arg_begin(s, k)) * (ARG_NUMBERS + s.width)
    short = lacking_column(p, rows, (collectives, numbers), len(keys), versions, issuers, len(keys))
    if short != FITS:
        return int(short)
    row = p.filled[0].rows
    pack_rows(s, p, rates)
    pack_edges(keys, bits_of, ops, issuers, row, version_row, p)
    number = p.filled[0].fragments
    fragment = p.fragment[number]
    fragment.row, fragment.rows = row, rows
    fragment.version, fragment.run_ptr = p.filled[0].versions, p.filled[0].run_ptrs - issuers - 1
    for v in range(versions):
        version = p.version[p.filled[0].versions]
        put_rows(version, row + version_row[v], version_row[v + 1] - version_row[v], p)
        p.filled[0].versions += 1
    p.bytes[number] = 0
    for k in range(s.instances):
        size = volume(s.instance_box[k]) * s.itemsize
        p.bytes[number, s.instance[k].device] += -(-size // ALIGNMENT) * ALIGNMENT
    p.filled[0].fragments += 1
    return int(FITS)


@leaf
def lacking_column(
    p: Packed,
    rows: int,
    pending: tuple[int, int],
    within: int,
    versions: int,
    issuers: int,
    runs: int,
) -> int:
    """The first of the groups of columns (`packed.GROWING`) that has no room for so much more, or FITS."""
    of = p.filled[0]
    first = (
        of.rows + rows + 2,
        of.within + within,
        of.versions + versions,
        of.run_ptrs + issuers + 1,
    )
    last = of.runs + runs, of.fragments + 1, of.pending + pending[0], of.args + pending[1]
    first_room = len(p.seconds), len(p.within), len(p.version), len(p.run_ptr)
    used, room = (
        first + last,
        (*first_room, len(p.run), len(p.fragment), len(p.pending), len(p.arg)),
    )
    for column in range(len(used)):
        if used[column] > room[column]:
            return column
    return FITS


@inner
def pack_rows(s: State, p: Packed, rates: Rates) -> None:
    """Seconds and streams of the rows."""
    devices, begin = len(rates.overhead), 0
    for k in range(s.rows):
        of, row = s.row[k], p.filled[0].rows + k
        source, device, size = of.source, of.device, of.points * s.itemsize
        p.ordinal[row] = of.ordinal
        if of.kind == COLLECTIVE:
            p.seconds[row], p.streams[row] = 0.0, 0
            pend(s, k, begin, p)
        elif of.kind == COPY and source != device:
            p.seconds[row] = rates.latency[source, device] + size / rates.throughput[source, device]
            p.streams[row] = source * devices + device
        else:
            ramp = rates.ramp[device] if size > 0 else 0.0
            p.seconds[row] = rates.overhead[device] + size / rates.bandwidth[device] + ramp
            p.streams[row] = (
                devices * devices + device if of.kind == FEED else device * devices + device
            )
        begin = of.arg_end


@leaf
def pend(s: State, k: int, begin: int, p: Packed) -> None:
    """Note the collective in row `k`, with its arguments from `begin` on."""
    pending, filled = p.pending[p.filled[0].pending], p.filled[0]
    pending.row, pending.name, pending.itemsize = filled.rows + k, s.row[k].collective, s.itemsize
    pending.bytes = s.row[k].points * s.itemsize
    pending.first, at, width, first = (
        filled.args,
        filled.args,
        ARG_NUMBERS + s.width,
        s.arg[begin].instance,
    )
    pending.args, pending.width = s.row[k].arg_end - begin, width
    for a in range(begin, s.row[k].arg_end):
        instance = s.arg[a].instance
        is_source = s.arg[a].privilege == READ
        role = SOURCE if is_source else SCRATCH if s.instance[instance].is_partial else TARGET
        p.arg[at], p.arg[at + 1], p.arg[at + 2] = (
            s.instance[instance].device,
            instance - first,
            role,
        )
        for i in range(s.width):
            p.arg[at + ARG_NUMBERS + i] = s.arg_box[a, i]
        at += width
    filled.args = at
    filled.pending += 1


# -- dependences -----------------------------------------------------------------------------------------------------


@inner
def edge_keys(s: State, streams: RowStreams) -> tuple[Array, tuple[int, int]]:
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
    keys: Array,
    bits_of: tuple[int, int],
    ops: int,
    issuers: int,
    row: int,
    version_row: Array,
    p: Packed,
) -> None:
    """Dependences of all rows, which are appended: within issuers by row, between issuers as runs."""
    of_row, of_issuer = bits_of
    first, n, ptr = p.filled[0].runs, p.filled[0].runs, p.filled[0].run_ptrs
    within, done, last_waiting = p.filled[0].within, row, -1
    p.run_ptr[ptr : ptr + issuers + 1] = first
    for key in keys:
        awaited, index = key & ((1 << of_row) - 1), (key >> of_row) & ((1 << of_row) - 1)
        issuer, waiting = (
            (key >> (2 * of_row)) & ((1 << of_issuer) - 1),
            key >> (2 * of_row + of_issuer),
        )
        if issuer == waiting:
            while done <= row + version_row[waiting - ops] + index:
                p.within_ptr[done] = within
                done += 1
            p.within[within] = awaited
            within += 1
            continue
        if n > first and last_waiting == waiting and extend(p.run[n - 1], index, issuer, awaited):
            continue
        put_run(p.run[n], index, issuer, awaited, 0, 1)
        last_waiting, n = waiting, n + 1
        p.run_ptr[ptr + waiting + 1] = n
    for k in range(issuers):
        p.run_ptr[ptr + k + 1] = max(p.run_ptr[ptr + k + 1], p.run_ptr[ptr + k])
    end = row + version_row[-1]
    while done <= end:
        p.within_ptr[done] = within
        done += 1
    p.filled[0].rows, p.filled[0].within, p.filled[0].runs, p.filled[0].run_ptrs = (
        end,
        within,
        n,
        ptr + issuers + 1,
    )


@leaf
def put_run(
    run: np.record, row: int, issuer: int, awaited: int, awaited_step: int, count: int
) -> None:
    """Row `row` waits for a row of an issuer; with a negative count, for the earliest of some of them."""
    run.row, run.issuer, run.awaited = row, issuer, awaited
    run.step, run.awaited_step, run.count = 0, awaited_step, count


@leaf
def extend(run: np.record, row: int, issuer: int, awaited: int) -> bool:
    """Make the edge from `row` to row `awaited` of an issuer a part of the run, if it is the next in step."""
    if run.issuer != issuer:
        return False
    if run.count == 1:
        run.step, run.awaited_step, run.count = row - run.row, awaited - run.awaited, 2
        return True
    if (
        row == run.row + run.step * run.count
        and awaited == run.awaited + run.awaited_step * run.count
    ):
        run.count += 1
        return True
    return False
