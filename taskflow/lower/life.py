"""The life of a region: which operators touch it, in program order, and what each does, whatever the configurations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from taskflow.operator import Operator
from taskflow.region import LogicalRegion

Array = np.ndarray[Any, np.dtype[Any]]

READS, UPDATES, WRITES = range(3)


@dataclass(frozen=True, eq=False)
class Life:
    """The events of a region in program order, whatever the configurations.

    Attributes:
        region: whose life it is.
        ops: the operators that touch it, by number; an operator's place here is its slot.
        events: (n, 4) the operator's slot, the argument, READS, UPDATES or WRITES, and the version read, or -1.
        producer: per version the event that makes it, or -1: fed, or kept from the step before.
    """

    region: LogicalRegion
    ops: tuple[int, ...]
    events: Array
    producer: Array

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """What a fragment depends on besides the points of the operators."""
        return self.region.shape, self.region.itemsize, self.region.is_persistent, self.events.tobytes()

    @cached_property
    def touches(self) -> list[tuple[int, int]]:
        """Slot and argument of every event."""
        return [(slot, arg) for slot, arg, _, _ in self.events.tolist()]

    @cached_property
    def whole(self) -> Array:
        """The box of all points: 0 and the extent of every dimension in turn; a scalar has one dimension."""
        return np.array([n for e in self.region.shape or (1,) for n in (0, e)], np.int64)


def lives(operators: Sequence[Operator], regions: Sequence[LogicalRegion]) -> list[Life]:
    """The life of every region."""
    number = {r.name: k for k, r in enumerate(regions)}
    events: list[list[tuple[int, int, int]]] = [[] for _ in regions]
    for k, op in enumerate(operators):
        for arg, region in enumerate(op.args):
            role = WRITES if arg >= len(op.inputs) else UPDATES if arg in op.writes else READS
            events[number[region.name]].append((k, arg, role))
    return [_life(region, touched) for region, touched in zip(regions, events, strict=True)]


def _life(region: LogicalRegion, events: Sequence[tuple[int, int, int]]) -> Life:
    slots: dict[int, int] = {}
    producer: list[int] = []
    rows = []
    for number, (op, arg, role) in enumerate(events):
        if role != WRITES and not producer:
            producer.append(-1)
        slot = slots.setdefault(op, len(slots))
        rows.append((slot, arg, role, -1 if role == WRITES else len(producer) - 1))
        if role != READS:
            producer.append(number)
    columns = np.array(rows, np.int64).reshape(-1, 4), np.array(producer or [-1], np.int64)
    return Life(region, tuple(slots), *columns)


class Lives(NamedTuple):
    """The lives of all regions of a graph, one after the other; see `Life`.

    Attributes:
        region: (regions, 4) itemsize, and whether it is persistent, fetched, a scalar.
        whole_ptr, whole: the box of all points.
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


def flatten(lives: Sequence[Life], fetched: Collection[int]) -> Lives:
    """The lives of a graph as arrays; `fetched`: the regions that all devices in use fetch whole."""
    none = np.zeros(0, np.int64)
    flags = [(r.itemsize, r.is_persistent, k in fetched, not r.ndim) for k, r in enumerate(x.region for x in lives)]
    return Lives(
        np.array(flags, np.int64).reshape(-1, 4),
        *_flat([life.whole for life in lives], none),
        *_flat([np.array(life.ops, np.int64) for life in lives], none),
        *_flat([life.events for life in lives], none.reshape(0, 4)),
        *_flat([life.producer for life in lives], none),
    )


def _flat(parts: Sequence[Array], none: Array) -> tuple[Array, Array]:
    """Where each part begins, and all of them one after the other."""
    return np.array([0, *accumulate(map(len, parts))], np.int64), np.concatenate([none, *parts])
