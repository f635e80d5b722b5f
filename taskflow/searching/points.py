"""Packing the points of operators into the pool of a search, compiled by numba; see `packed`."""

from __future__ import annotations

from typing import NamedTuple

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, njit
from taskflow.cost.model import Rates
from taskflow.lowering.pointtable import PointTable
from taskflow.searching.packed import Packed


class PointRates(NamedTuple):
    """What decides how long points take; see `AnalyticCosts.compute_rates`."""

    flops: Array
    ramp: Array
    moves: Rates


@njit
def pack_points(
    points: Array,
    store: tuple[Array, ...],
    of_points: tuple[Array, ...],
    of_moves: tuple[Array, ...],
    first_set: int,
    pool: tuple[Array, ...],
    found: Array,
) -> int:
    """Append the rows of some operators; of how many there is room for.

    Args:
        points: (n, 2) number of the points, and of the dtype in which they compute.
        store: all points, `PointTable` as a plain tuple.
        of_points, of_moves: `PointRates` but for the last, and that, as plain tuples.
        first_set: the set of the stream in which the first device computes; those of the others follow.
        pool: `Packed` as a plain tuple.
        found: gets ROWS.
    """
    flops, ramp = of_points
    table, rates, p = PointTable(*store), PointRates(flops, ramp, Rates(*of_moves)), Packed(*pool)
    for k in range(len(points)):
        row, count = p.filled[0].rows, table.record[points[k, 0]].points
        if row + count + 1 >= len(p.seconds):
            return k
        put_points(points[k, 0], points[k, 1], table, rates, first_set, p)
        found[k].first, found[k].count = row, count
    return len(points)


@leaf
def put_points(number: int, dtype: int, table: PointTable, rates: PointRates, first_set: int, p: Packed) -> None:
    """Append the rows of points of a number."""
    record, row = table.record[number], p.filled[0].rows
    begin, count, model = record.first_device, record.points, record.first_model
    for i in range(count):
        device = table.device[begin + i]
        p.seconds[row + i] = point_seconds(table.flops[model + i], table.bytes[model + i], device, dtype, rates)
        p.streams[row + i] = first_set + device
        p.within_ptr[row + i + 1] = p.within_ptr[row]
    p.filled[0].rows = row + count


@leaf
def point_seconds(flops: float, size: int, device: int, dtype: int, rates: PointRates) -> float:
    """`AnalyticCosts.task_seconds` of one point, to the last bit."""
    compute, memory = flops / rates.flops[dtype, device], size / rates.moves.bandwidth[device]
    both, ramps = compute + memory, 0.0
    if both > 0.0:
        share = compute / both
        ramps = share * rates.ramp[device] + (1.0 - share) * rates.moves.ramp[device]
    return float(rates.moves.overhead[device] + (max(compute, memory) + ramps))
