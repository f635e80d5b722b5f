"""The events of one region with the points of all of them, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.boxes import put
from taskflow.lowering.life import Lives, Role
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.tiles import Points

UPDATES = np.int64(Role.UPDATES)


class RegionLife(NamedTuple):
    """The life of one region.

    Attributes:
        whole: the box of all its points.
        ops: how many operators touch it; they are issuers 0, 1, ..., version v is issuer `ops + v`.
        event, producer: see `life.Life`.
        event_ptr: the first point of every event.
        is_partial: of every event, whether its points leave partial results.
        itemsize, is_persistent, is_fetched, is_scalar: of the region.
    """

    whole: Any
    ops: int
    event: Any
    producer: Any
    event_ptr: Any
    is_partial: Any
    itemsize: int
    is_persistent: int
    is_fetched: int
    is_scalar: int


@inner
def load(region: int, lives: Lives, points_of: Any, table: PointTable) -> tuple[RegionLife, Points]:
    """The life of a region, and the points of all its events; `points_of`: their number, of every operator."""
    whole = lives.whole[lives.whole_ptr[region] : lives.whole_ptr[region + 1]]
    event = lives.event[lives.event_ptr[region] : lives.event_ptr[region + 1]]
    producer = lives.producer[lives.producer_ptr[region] : lives.producer_ptr[region + 1]]
    ops = lives.op[lives.op_ptr[region] : lives.op_ptr[region + 1]]
    flags, ptr = lives.region[region], np.zeros(len(event) + 1, np.int64)
    for e in range(len(event)):
        ptr[e + 1] = ptr[e] + table.record[points_of[ops[event[e].issuer]]].points
    total, is_partial = ptr[-1], np.zeros(len(event), np.bool_)
    life = RegionLife(
        whole, len(ops), event, producer, ptr, is_partial,
        flags.itemsize, flags.is_persistent, flags.is_fetched, flags.is_scalar,
    )  # fmt: skip
    device, box = np.empty(total, np.int64), np.empty((total, len(whole)), np.int64)
    points = Points(device, box, np.zeros(total, np.int64), np.full(total, -1, np.int64))
    for e in range(len(event)):
        is_partial[e] = load_event(life, e, points_of[ops[event[e].issuer]], table, points)
    return life, points


@leaf
def load_event(life: RegionLife, e: int, number: int, table: PointTable, points: Points) -> bool:
    """Put down the points of one event, of this number; whether it leaves partial results."""
    of, begin, argument = table.record[number], life.event_ptr[e], life.event[e].argument
    output, is_partial = argument - table.term[of.first_term], False
    for i in range(of.points):
        points.device[begin + i] = table.device[of.first_device + i]
    if output >= 0:
        is_partial = table.partial[of.first_partial + output] != 0
        for i in range(of.points):
            points.colour[begin + i] = table.colour[of.first_colour + i * of.outputs + output]
    at = of.first_box + 2 * table.term[of.first_term + 1 + argument]
    for i in range(of.points):
        if life.is_scalar:
            put(points.box[begin + i], life.whole)
        else:
            put(points.box[begin + i], table.box[at + 2 * i * of.dims :])
    return bool(is_partial)
