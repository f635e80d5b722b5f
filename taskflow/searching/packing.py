"""Packing points, and what the events of a region cause, into the pool of a search, compiled by numba; see `packed`."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.cost.rates import Rates
from taskflow.lowering.boxes import volume
from taskflow.lowering.moving import DONE, NOBODY, Played, play_region, rename, world_of
from taskflow.lowering.ordinals import ordinals_of
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.state import COLLECTIVE, COPY, FEED, READ, State
from taskflow.searching.packed import ARG, FITS, OPEN, SCRATCH, SOURCE, TARGET, Columns, Packed
from taskflow.tasks.memory import ALIGNMENT

NO_POOL = NOBODY + 1  # a column of the pool has too little room; follows the ends of `moving`
ARG_NUMBERS = len(ARG)


@tiered
def pack_points(
    points: Array,
    store: Columns,
    all_rates: Columns,
    first_set: int,
    pool: Columns,
    extents: Array,
) -> int:
    """Append the rows of the points of some operators; of how many there is room for.

    Args:
        points: (n, 2) number of the points, and of the dtype in which they compute; -1: they go to the memory of
            hosts, -2: they come from there.
        store, all_rates, pool: `PointTable`, `Rates` and `Packed` as plain tuples.
        first_set: the set of the stream in which the first device computes; those of the others follow, then those of
            what goes to hosts and comes from there.
        extents: gets ROWS.
    """
    table, rates, p = PointTable(*store), Rates(*all_rates), Packed(*pool)
    for k in range(len(points)):
        record = table.record[points[k, 0]]
        row = p.filled[0].rows
        whole = np.zeros(2, np.int64)
        if row + record.points > len(p.seconds):
            return k
        for i in range(record.points):
            device = table.device[record.first_device + i]
            at = record.first_model + i
            if points[k, 1] < 0:
                way = -1 - points[k, 1]
                throughput = rates.host_throughput[way, device]
                p.seconds[row + i] = rates.host_latency[way, device] + table.bytes[at] / throughput
                p.streams[row + i] = first_set + (1 + way) * len(rates.overhead) + device
                continue
            p.seconds[row + i] = point_seconds(
                table.flops[at], table.bytes[at], device, points[k, 1], rates
            )
            p.streams[row + i] = first_set + device
        whole[1] = record.points
        devices = table.device[record.first_device : record.first_device + record.points]
        p.ordinal[row : row + record.points] = ordinals_of(devices, whole, len(rates.overhead))
        put_rows(extents[k], record.points, p)
    return len(points)


@leaf
def put_rows(extent: np.record, count: int, p: Packed) -> None:
    """The ROWS of an operator or version, which are the next `count` rows."""
    first = p.filled[0].rows
    extent.first = first
    extent.count = count
    extent.parts = 1
    for row in range(first, first + count):
        extent.parts = max(extent.parts, 1 + p.ordinal[row])
    p.filled[0].rows += count


@leaf
def point_seconds(flops: float, size: int, device: int, dtype: int, rates: Rates) -> float:
    """`AnalyticCosts.task_seconds` of one point, to the last bit."""
    compute = flops / rates.flops[dtype, device]
    memory = size / rates.bandwidth[device]
    both = compute + memory
    ramps = 0.0
    if both > 0.0:
        share = compute / both
        ramps = share * rates.compute_ramp[device] + (1.0 - share) * rates.ramp[device]
    sides = max(compute, memory) + rates.exposed[device] * min(compute, memory)
    return float(rates.overhead[device] + (sides + ramps))


@tiered
def pack_regions(
    regions: Array,
    world: tuple[object, ...],
    memory: Array,
    room: int,
    pool: Columns,
    all_rates: Columns,
) -> tuple[int, int, int]:
    """Play the events of some regions and pack what they cause.

    Args:
        regions: by number.
        pool, all_rates: `Packed` and `Rates` as plain tuples.
        others: see `moving.move`.

    Returns:
        how it ended, at which of the regions, and a number that says more: see `moving.Played`; NO_POOL: a column.
    """
    w, packed, rates = world_of(world), Packed(*pool), Rates(*all_rates)
    for number in range(len(regions)):
        x = play_region(regions[number], w, memory, room, True)
        if x.end != DONE:
            return x.end, number, x.number
        rename(x)
        column = pack(x, packed, rates)
        if column != FITS:
            return NO_POOL, number, column
    return DONE, len(regions), 0


@inner
def pack(x: Played, p: Packed, rates: Rates) -> int:
    """Append a region's fragment: FITS; else nothing is appended, and it is the column that has too little room."""
    s = x.state
    first = first_waiting(x)
    issuers = len(first) - 1
    versions = len(x.version_row) - 1
    column = lacking_column(s, first[issuers], issuers, versions, p)
    if column != FITS:
        return int(column)
    filled = p.filled[0]
    fragment = p.fragment[filled.fragments]
    fragment.first = filled.rows
    fragment.count = s.rows
    fragment.version = filled.versions
    fragment.issuer = filled.issuers
    pack_rows(s, p, rates)
    for v in range(versions):
        put_rows(p.version[filled.versions + v], x.version_row[v + 1] - x.version_row[v], p)
    filled.versions += versions
    pack_edges(s, first, p)
    p.bytes[filled.fragments] = 0
    for k in range(s.instances):
        size = volume(s.instance_box[k]) * s.itemsize
        p.bytes[filled.fragments, s.instance[k].device] += -(-size // ALIGNMENT) * ALIGNMENT
    filled.fragments += 1
    return int(FITS)


@inner
def first_waiting(x: Played) -> Array:
    """Where the rows of every issuer begin among those of all of the region, and how many these are."""
    life = x.life
    ops = x.life.ops
    first = np.zeros(ops + len(x.version_row), np.int64)
    for e in range(len(life.event)):
        first[life.event[e].issuer + 1] = life.event_ptr[e + 1] - life.event_ptr[e]
    for v in range(len(x.version_row) - 1):
        first[ops + v + 1] = x.version_row[v + 1] - x.version_row[v]
    for issuer in range(len(first) - 1):
        first[issuer + 1] += first[issuer]
    return first


@leaf
def lacking_column(s: State, waiting: int, issuers: int, versions: int, p: Packed) -> int:
    """The first of the groups of columns (`packed.GROWING`) that has no room for a region, or FITS.

    As if every row were a collective.
    """
    of = p.filled[0]
    numbers = s.args * (ARG_NUMBERS + s.width)
    rows = of.rows + s.rows
    edges = of.edges + s.edges
    first = rows, of.waiting + waiting + 1, edges, of.versions + versions, of.issuers + issuers
    used = (*first, of.fragments + 1, of.pending + s.rows, of.args + numbers)
    first_room = len(p.seconds), len(p.edge_ptr), len(p.edge), len(p.version), len(p.issuer)
    room = (*first_room, len(p.fragment), len(p.pending), len(p.arg))
    for column in range(len(used)):
        if used[column] > room[column]:
            return column
    return FITS


@inner
def pack_rows(s: State, p: Packed, rates: Rates) -> None:
    """Seconds and streams of the rows."""
    devices = len(rates.overhead)
    begin = 0
    for k in range(s.rows):
        of = s.row[k]
        row = p.filled[0].rows + k
        source = of.source
        device = of.device
        size = of.points * s.itemsize
        p.ordinal[row] = of.ordinal
        if of.kind == COLLECTIVE:
            p.seconds[row] = 0.0
            p.streams[row] = OPEN
            pend(s, k, begin, p)
        elif of.kind == COPY and source != device:
            p.seconds[row] = rates.latency[source, device] + size / rates.throughput[source, device]
            p.streams[row] = source * devices + device
        else:
            ramp = rates.ramp[device] if size > 0 else 0.0
            p.seconds[row] = rates.overhead[device] + size / rates.bandwidth[device] + ramp
            p.streams[row] = device + devices * (devices if of.kind == FEED else device)
        begin = of.arg_end


@leaf
def pend(s: State, k: int, begin: int, p: Packed) -> None:
    """Note the collective in row `k`, with its arguments from `begin` on."""
    filled = p.filled[0]
    end = s.row[k].arg_end
    pending = p.pending[filled.pending]
    at = filled.args
    first = s.arg[begin].instance
    pending.row, pending.name, pending.itemsize = filled.rows + k, s.row[k].collective, s.itemsize
    pending.bytes = s.row[k].points * s.itemsize
    pending.first = at
    pending.args = end - begin
    pending.width = ARG_NUMBERS + s.width
    for a in range(begin, end):
        instance = s.arg[a].instance
        role = SCRATCH if s.instance[instance].is_partial else TARGET
        p.arg[at] = s.instance[instance].device
        p.arg[at + 1] = instance - first
        p.arg[at + 2] = SOURCE if s.arg[a].privilege == READ else role
        for i in range(s.width):
            p.arg[at + ARG_NUMBERS + i] = s.arg_box[a, i]
        at += pending.width
    filled.args = at
    filled.pending += 1


@inner
def pack_edges(s: State, first: Array, p: Packed) -> None:
    """For what all rows wait, by issuer and row; `first`: see `first_waiting`."""
    filled = p.filled[0]
    count = first[-1]
    issuers = len(first) - 1
    ptr = p.edge_ptr[filled.waiting : filled.waiting + count + 1]
    end = filled.edges
    p.issuer[filled.issuers : filled.issuers + issuers] = filled.waiting + first[:issuers]
    ptr[:] = 0
    for e in range(s.edges):
        ptr[first[s.edge[e].issuer] + s.edge[e].index] += 1
    for row in range(count + 1):
        end += ptr[row]
        ptr[row] = end
    for e in range(s.edges):
        row = first[s.edge[e].issuer] + s.edge[e].index
        ptr[row] -= 1
        edge = p.edge[ptr[row]]
        edge.issuer = s.edge[e].awaited_issuer
        edge.index = s.edge[e].awaited_index
    filled.waiting += count + 1
    filled.edges += s.edges
    filled.issuers += issuers
