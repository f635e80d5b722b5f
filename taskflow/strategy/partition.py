"""Partitions: which point of an operator touches which box of which region, and on which device it runs.

Takes an operator and a ParallelConfig; gives `OperatorPoints`. There is one rule, for forward, backward and update
alike: a split axis in a term tiles it; one that is read but in no output makes partial results; one that is in no term
makes replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import Rect, subtract_all
from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.strategy.strategy import ParallelConfig, parts


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


@dataclass(frozen=True, eq=False)
class OperatorPoints:
    """The points of an operator under one configuration.

    Attributes:
        device: (points,) device of every point.
        spans: (points, axes, 2) interval of every axis, in the order of `operator.extents`.
        boxes: (points, dimensions of all terms, 2) box of every term, inputs then outputs.
        colours: (points, outputs) tells points apart whose results for the same tile differ and must be combined;
            points with equal box and colour are replicas.
        partial: (outputs,) whether the points hold REDUCE; else each WRITEs its tile.
    """

    operator: Operator
    config: ParallelConfig
    device: Array
    spans: Array
    boxes: Array
    colours: Array
    partial: Array

    def __len__(self) -> int:
        return len(self.device)

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Device of every point."""
        return tuple(self.device.tolist())

    @cached_property
    def args(self) -> tuple[Partition, ...]:
        """One Partition per term, inputs then outputs."""
        return tuple(Partition(r, to_rects(self.box(k))) for k, r in enumerate(self.operator.args))

    def box(self, arg: int) -> Array:
        """(points, dimensions, 2) box of argument `arg` of every point."""
        first = self.operator.bound.table.term_ptr
        return self.boxes[:, first[arg] : first[arg + 1]]

    def colours_of(self, arg: int) -> Array:
        """Colours of an output; an input has one."""
        output = arg - len(self.operator.inputs)
        colours: Array = self.colours[:, output] if output >= 0 else np.zeros(len(self), np.int64)
        return colours

    def is_partial(self, arg: int) -> bool:
        """True when argument `arg` is an output of which the points hold partial results."""
        output = arg - len(self.operator.inputs)
        return output >= 0 and bool(self.partial[output])


def partition(op: Operator, config: ParallelConfig) -> OperatorPoints:
    """The points of `op` under `config`, its own or that of the operator it follows.

    Axes of `config` that are not in `op`, that `op` never splits, or that an in-place input lacks, make replicas: one
    point per device, however often the device is named. Points without work (an extent smaller than the degree) are
    dropped.

    Raises:
        ValueError: a group is split in a way that is not contiguous in memory.
    """
    from taskflow.strategy.grid import make_points  # numba: imported on first use

    found = make_points(*cuts(op, config), np.array(config.devices, np.int64), *op.bound.table.columns)
    device, spans, boxes, colours, outputs, fault = found
    if fault >= 0:
        _refuse(op, spans[fault])
    return OperatorPoints(op, config, device, spans, boxes, colours, outputs > 1)


def cuts(op: Operator, config: ParallelConfig) -> tuple[Array, Array, Array]:
    """Axes, numbers of parts and borders, as `grid.make_points` wants them; they depend on the degrees only."""
    numbers = split_numbers(op)
    counts = [parts(d) for _, d in config.degrees]
    axes = [numbers.get(a, -1) if n > 1 else -1 for (a, _), n in zip(config.degrees, counts, strict=True)]
    bounds = np.zeros((len(axes), max(counts, default=0) + 1), np.int64)
    for j, (axis, _) in enumerate(config.degrees):
        if axes[j] >= 0:
            bounds[j, : counts[j] + 1] = config.bounds(axis, op.extents[axis])
    return np.array(axes, np.int64), np.array(counts, np.int64), bounds


def split_numbers(op: Operator) -> dict[str, int]:
    """The axes along which an operator can be split, with their numbers."""
    return {axis: k for k, axis in enumerate(op.extents) if can_split(op, axis)}


def can_split(op: Operator, axis: str) -> bool:
    """Whether an operator can be split along an axis: never along a fixed one, or one that an in-place input lacks."""
    return axis not in op.bound.pattern.fixed and all(axis in op.bound.term_axes[k] for k in op.writes)


def to_rects(boxes: Array) -> tuple[Rect, ...]:
    """Boxes (n, dimensions, 2) as Rects."""
    return tuple(Rect(tuple(lo), tuple(hi)) for lo, hi in boxes.transpose(0, 2, 1).tolist())


def _refuse(op: Operator, spans: Array) -> None:
    """Say what is wrong with a point at fault."""
    named = {a: (int(lo), int(hi)) for a, (lo, hi) in zip(op.extents, spans, strict=True)}
    try:
        for term in range(len(op.args)):
            op.bound.rect(term, named)
    except ValueError as error:
        raise ValueError(f"operator '{op.name}': {error}") from error
