"""The life of a region: which operators touch it, in program order, and what each does.

`Lives` has those of all regions, whatever the configurations; `RegionLife` one of them, `load` with the points of all
its events.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, record, spread
from taskflow.core.compiling import inner, leaf
from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.lowering.boxes import put
from taskflow.lowering.pointtable import PointTable
from taskflow.lowering.tiles import Points


class Role(IntEnum):
    """What an operator does with a region."""

    READS = 0
    UPDATES = 1
    WRITES = 2
    ADDS = 3  # to what is there; where several points do, they make parts
    SUMS = 4  # writes, and its kernel can add: the parts of a device share one instance
    PASSES = (
        5  # reads; a version begins that is what it read, brought to later readers when they come
    )


EVENT = record("issuer", "argument", "role", "version", "made")
REGION = record("itemsize", "is_persistent", "is_fetched", "is_scalar", "gathers", "job")


@dataclass(frozen=True, eq=False)
class Life:
    """The events of a region in program order, whatever the configurations.

    Attributes:
        region: whose life it is.
        ops: the operators that touch it, by number; operator k of these is issuer k in a `Fragment`.
        event: records of the issuer, the argument, the `Role`, the version that is read, or -1, and the number of the
            argument among the made terms, or -1.
        producer: per version the event that makes it, or -1: fed, or kept from the step before.
        gathers: see `Operator`, of the one that makes it.
    """

    region: LogicalRegion
    ops: tuple[int, ...]
    event: Array
    producer: Array
    gathers: int = 1

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """What a fragment depends on besides the points of the operators.

        Which argument a region is says what of it a point touches: of a scalar, all.
        """
        event = self.event
        if not self.region.ndim:
            event = event.copy()
            event["argument"] = 0
        return (
            self.region.shape,
            self.region.itemsize,
            self.region.is_persistent,
            self.gathers,
            event.tobytes(),
        )


class Lives(NamedTuple):
    """The lives of all regions of a graph, one after the other; see `Life`.

    Attributes:
        region: records of the itemsize, whether it is persistent, fetched, a scalar, `gathers` of a `Life`, and
            the number of the job whose devices fetch it.
        whole_ptr, whole: the box of all points: 0 and the extent of every dimension; a scalar has one dimension.
        op_ptr, op: the operators that touch it.
        event_ptr, event, producer_ptr, producer: see `Life`.
    """

    region: Any
    whole_ptr: Any
    whole: Any
    op_ptr: Any
    op: Any
    event_ptr: Any
    event: Any
    producer_ptr: Any
    producer: Any


def tabulate(
    operators: Sequence[Operator], regions: Sequence[LogicalRegion], fetched: Collection[int]
) -> Lives:
    """The lives of all regions; `fetched`: those that all devices of the job that makes them fetch whole."""
    gathers = {r.name: op.gathers for op in operators if op.gathers > 1 for r in op.outputs}
    job = _jobs_of_regions(operators)
    flags = [
        (
            r.itemsize,
            r.is_persistent,
            k in fetched,
            not r.ndim,
            gathers.get(r.name, 1),
            job.get(r.name, 0),
        )
        for k, r in enumerate(regions)
    ]
    extents = np.array([extent for r in regions for extent in r.shape or (1,)], np.int64)
    touch = _touches(operators, regions)
    event_ptr = pointers(np.bincount(touch[:, 0], minlength=len(regions)))
    op_ptr, op, issuer = _issuers(touch[:, :2], len(regions))
    version, producer_ptr, producer = _versions(touch, event_ptr)
    return Lives(
        np.array(flags, REGION),
        pointers([2 * max(r.ndim, 1) for r in regions]),
        np.stack([np.zeros_like(extents), extents], axis=1).reshape(-1),
        op_ptr,
        op,
        event_ptr,
        np.stack([issuer, touch[:, 2], touch[:, 3], version, touch[:, 4]], axis=1)
        .view(EVENT)
        .reshape(-1),
        producer_ptr,
        producer,
    )


def ops_of_jobs(operators: Sequence[Operator]) -> list[Array]:
    """The operators of every job (see `graph.beside`), by number: those that inputs reach, then all others.

    So devices stand in the order in which samples lie on them, and not parts of weights that are cast before.
    """
    jobs: dict[str, tuple[list[int], list[int]]] = {}
    made = set[str]()
    from_inputs = set[str]()
    for number, op in enumerate(operators):
        outputs = [region.name for region in op.outputs]
        is_from_inputs = any(
            r.name in from_inputs or not (r.is_persistent or r.name in made) for r in op.inputs
        )
        made.update(outputs)
        from_inputs.update(outputs if is_from_inputs else ())
        jobs.setdefault(op.job, ([], []))[not is_from_inputs].append(number)
    return [np.array(ops + others, np.int64) for ops, others in jobs.values()]


def _jobs_of_regions(operators: Sequence[Operator]) -> dict[str, int]:
    """Region -> the number of the job that makes it; of what no operator makes, of the first that reads it."""
    jobs: dict[str, int] = {}
    for job, ops in enumerate(ops_of_jobs(operators)):
        for op in ops.tolist():
            jobs |= dict.fromkeys((r.name for r in operators[op].outputs), job)
            for region in operators[op].inputs:
                jobs.setdefault(region.name, job)
    return jobs


def lives(regions: Sequence[LogicalRegion], table: Lives) -> list[Life]:
    """The lives in a table, one by one."""
    parts = (
        (table.op_ptr, table.op),
        (table.event_ptr, table.event),
        (table.producer_ptr, table.producer),
    )
    columns = ([column[a:b] for a, b in pairwise(ptr.tolist())] for ptr, column in parts)
    gathers = table.region["gathers"].tolist()
    return [
        Life(r, tuple(ops.tolist()), *rest)
        for r, ops, *rest in zip(regions, *columns, gathers, strict=True)
    ]


def _touches(operators: Sequence[Operator], regions: Sequence[LogicalRegion]) -> Array:
    """(n, 5) region, operator, argument, role and made term of every event, by region, in program order."""
    number = {r.name: k for k, r in enumerate(regions)}
    region = np.array([number[r.name] for op in operators for r in op.args], np.int64)
    inputs, args = (
        np.array([(len(op.inputs), len(op.args)) for op in operators], np.int64).reshape(-1, 2).T
    )
    first = np.cumsum(args) - args
    op = np.repeat(np.arange(len(args)), args)
    arg = spread(np.zeros_like(args), args)
    writes = np.array(
        [Role.SUMS if op.kernel.accumulates else Role.WRITES for op in operators], np.int64
    )
    role = np.where(arg < inputs[op], Role.READS, writes[op])
    made = np.where(arg < inputs[op], -1, arg - inputs[op])
    for k, operator in zip(first.tolist(), operators, strict=True):
        role[[k + at for at in operator.writes]] = Role.UPDATES
        role[[k + at for at in operator.passes]] = Role.PASSES
        role[[k + at for at in operator.adds]] = Role.ADDS
        made[[k + at for at in operator.adds]] = [
            operator.bound.made.index(at) for at in operator.adds
        ]
    return np.stack([region, op, arg, role, made], axis=1)[np.argsort(region, kind="stable")]


def _issuers(touch: Array, regions: int) -> tuple[Array, Array, Array]:
    """Where the operators of every region begin, the operators, and the issuer of every event."""
    region, op = touch.T
    is_new = np.ones(len(touch), np.bool_)
    is_new[1:] = np.any(np.diff(touch, axis=0) != 0, axis=1)
    ptr = pointers(np.bincount(region[is_new], minlength=regions))
    return ptr, op[is_new], np.cumsum(is_new) - 1 - ptr[region]


def _versions(touch: Array, event_ptr: Array) -> tuple[Array, Array, Array]:
    """The version that every event reads, or -1; where the versions of every region begin, and who makes each."""
    region = touch[:, 0]
    role = touch[:, 3]
    count = np.diff(event_ptr)
    makes = role != Role.READS
    begins = np.isin(role, (Role.WRITES, Role.SUMS))
    is_given = np.ones(len(count), np.int64)  # there is a version that no event makes
    is_given[count > 0] = ~begins[event_ptr[:-1][count > 0]]
    total = np.concatenate([[0], np.cumsum(makes)])
    before = total[:-1] - total[event_ptr[region]] + is_given[region]
    ptr = pointers(is_given + total[event_ptr[1:]] - total[event_ptr[:-1]])
    producer = np.full(ptr[-1], -1, np.int64)
    producer[(ptr[region] + before)[makes]] = (np.arange(len(touch)) - event_ptr[region])[makes]
    return np.where(begins, -1, before - 1), ptr, producer


# -- with points, compiled by numba ------------------------------------------------------------------------------------

READS, UPDATES, ADDS, SUMS, PASSES = np.array(
    [Role.READS, Role.UPDATES, Role.ADDS, Role.SUMS, Role.PASSES]
)


class RegionLife(NamedTuple):
    """The life of one region.

    Attributes:
        whole: the box of all its points.
        ops: how many operators touch it; they are issuers 0, 1, ..., version v is issuer `ops + v`.
        event, producer: see `Life`.
        event_ptr: the first point of every event.
        is_partial: of every event, whether its points leave partial results, or read them as they are.
        itemsize, is_persistent, is_fetched, is_scalar, gathers, job: of the region.
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
    gathers: int
    job: int


@inner
def load(region: int, lives: Lives, points_of: Any, table: PointTable) -> tuple[RegionLife, Points]:
    """The life of a region, and the points of all its events; `points_of`: their number, of every operator."""
    whole = lives.whole[lives.whole_ptr[region] : lives.whole_ptr[region + 1]]
    event = lives.event[lives.event_ptr[region] : lives.event_ptr[region + 1]]
    producer = lives.producer[lives.producer_ptr[region] : lives.producer_ptr[region + 1]]
    ops = lives.op[lives.op_ptr[region] : lives.op_ptr[region + 1]]
    flags = lives.region[region]
    ptr = np.zeros(len(event) + 1, np.int64)
    for e in range(len(event)):
        ptr[e + 1] = ptr[e] + table.record[points_of[ops[event[e].issuer]]].points
    total = ptr[-1]
    is_partial = np.zeros(len(event), np.bool_)
    life = RegionLife(
        whole, len(ops), event, producer, ptr, is_partial,
        flags.itemsize, flags.is_persistent, flags.is_fetched, flags.is_scalar, flags.gathers,
        flags.job,
    )  # fmt: skip
    device = np.empty(total, np.int64)
    box = np.empty((total, len(whole)), np.int64)
    points = Points(device, box, np.zeros(total, np.int64), np.full(total, -1, np.int64))
    for e in range(len(event)):
        is_partial[e] = load_event(life, e, points_of[ops[event[e].issuer]], table, points)
    return life, points


@leaf
def load_event(life: RegionLife, e: int, number: int, table: PointTable, points: Points) -> bool:
    """Put down the points of one event, of this number; whether they leave partial results, or read them so."""
    of = table.record[number]
    begin = life.event_ptr[e]
    argument = life.event[e].argument
    made = life.event[e].made
    is_partial = of.takes_parts != 0
    for i in range(of.points):
        points.device[begin + i] = table.device[of.first_device + i]
    if made >= 0:
        is_partial = table.partial[of.first_partial + made] != 0
        for i in range(of.points):
            points.colour[begin + i] = table.colour[of.first_colour + i * of.made + made]
    at = of.first_box + 2 * table.term[of.first_term + 1 + argument]
    for i in range(of.points):
        if life.is_scalar:
            put(points.box[begin + i], life.whole)
        else:
            put(points.box[begin + i], table.box[at + 2 * i * of.dims :])
    return bool(is_partial)
