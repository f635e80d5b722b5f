"""Partitions: which point of an operator touches which box of which region, and on which device it runs.

Takes an operator and a ParallelConfig; gives `Points`. The one rule, for forward, backward and update alike: a split
axis in a term tiles it; one that is read but in no output makes partial results; one that is in no term makes replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from taskflow.geometry import Rect, subtract_all
from taskflow.operator import Operator
from taskflow.pattern import Interval
from taskflow.region import LogicalRegion
from taskflow.strategy import ParallelConfig, parts


@dataclass(frozen=True)
class Partition:
    """Colour -> Rect of one region; the colours are the points of an operator."""

    region: LogicalRegion
    rects: tuple[Rect, ...]

    @cached_property
    def is_disjoint(self) -> bool:
        """True when no two different boxes share a point (replicas of one box do not count)."""
        boxes = sorted(set(self.rects), key=lambda r: (r.lo, r.hi))
        return not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[k + 1 :])

    @property
    def is_aliased(self) -> bool:
        """True when two different boxes share a point: a halo, for example."""
        return not self.is_disjoint

    @cached_property
    def is_complete(self) -> bool:
        """True when the boxes cover the region."""
        return not subtract_all(self.region.rect, set(self.rects))


@dataclass(frozen=True)
class Output:
    """How the points make one output: `is_partial` points hold REDUCE, others WRITE their tile.

    `colours[p]` tells points apart whose results for the same tile differ (and must be combined); points with equal
    box and colour are replicas.
    """

    is_partial: bool
    colours: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Points:
    """The points of an operator under one configuration.

    Attributes:
        devices: of every point.
        intervals: per point the interval of every axis, in the order of `operator.extents`.
        args: one Partition per term, inputs then outputs.
        outputs: one Output per output term.
    """

    operator: Operator
    config: ParallelConfig
    devices: tuple[int, ...]
    intervals: tuple[tuple[Interval, ...], ...]
    args: tuple[Partition, ...]
    outputs: tuple[Output, ...]

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def flops(self) -> np.ndarray:
        """Floating point operations of every point."""
        return np.array([self.operator.task_flops(self._named(p)) for p in range(len(self))])

    def _named(self, point: int) -> dict[str, Interval]:
        return dict(zip(self.operator.extents, self.intervals[point], strict=True))


def partition(op: Operator, config: ParallelConfig) -> Points:
    """The points of `op` under `config`, its own or that of the operator it follows.

    Axes of `config` that are not in `op`, that `op` never splits, or that an in-place input lacks, make replicas: one
    point per device, however often the device is named. Points without work (an extent smaller than the degree) are
    dropped.

    Raises:
        ValueError: a group is split in a way that is not contiguous in memory.
    """
    axes = [a for a, d in config.degrees if parts(d) > 1 and _can_split(op, a)]
    bounds = {a: config.bounds(a, op.extents[a]) for a in axes}
    placed: dict[tuple[int, ...], dict[int, None]] = {}
    positions = [k for k, (a, _) in enumerate(config.degrees) if a in bounds]
    for device, colour in zip(config.devices, product(*(range(parts(d)) for _, d in config.degrees)), strict=True):
        placed.setdefault(tuple(colour[k] for k in positions), {})[device] = None
    devices: list[int] = []
    colours: list[tuple[int, ...]] = []
    boxes: list[dict[str, Interval]] = []
    for colour, places in placed.items():
        named = {a: (bounds[a][c], bounds[a][c + 1]) for a, c in zip(axes, colour, strict=True)}
        if any(b <= a for a, b in named.values()):
            continue
        for device in places:
            devices.append(device)
            colours.append(colour)
            boxes.append(named)
    return Points(
        op,
        config,
        tuple(devices),
        tuple(tuple(n.get(a, (0, e)) for a, e in op.extents.items()) for n in boxes),
        tuple(Partition(r, _rects(op, k, boxes)) for k, r in enumerate(op.args)),
        tuple(_output(op, k, axes, colours) for k in range(len(op.outputs))),
    )


def _can_split(op: Operator, axis: str) -> bool:
    return (
        axis in op.extents
        and axis not in op.bound.pattern.fixed
        and all(axis in op.bound.term_axes[k] for k in op.writes)
    )


def _rects(op: Operator, term: int, boxes: Sequence[dict[str, Interval]]) -> tuple[Rect, ...]:
    try:
        return tuple(op.bound.rect(term, named) for named in boxes)
    except ValueError as error:
        raise ValueError(f"operator '{op.name}': {error}") from error


def _output(op: Operator, k: int, axes: Sequence[str], colours: Sequence[tuple[int, ...]]) -> Output:
    reduced = op.bound.reduced_axes(k)
    positions = [i for i, a in enumerate(axes) if a in reduced]
    numbers: dict[tuple[int, ...], int] = {}
    keys = [tuple(c[i] for i in positions) for c in colours]
    return Output(len(set(keys)) > 1, tuple(numbers.setdefault(key, len(numbers)) for key in keys))
