"""Partitions: which point of an operator touches which box of which region, and on which device it runs.

Takes an operator and a ParallelConfig; gives `OperatorPoints`. There is one rule, for forward, backward and update
alike: a split axis in a term tiles it; one that is read but in no output makes partial results; one that is in no term
makes replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, tiered
from taskflow.core.geometry import Rect, subtract_all
from taskflow.graph import window as window_rule
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
        colours: (points, made terms) tells points apart whose results for the same tile differ and must be combined;
            points with equal box and colour are replicas. See `BoundPattern.made`.
        partial: (made terms,) whether the points hold REDUCE; else each WRITEs its tile.
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
        """Colours of an output, or of an input that is added to; any other has one."""
        made = self.operator.bound.made
        colours: Array = (
            self.colours[:, made.index(arg)] if arg in made else np.zeros(len(self), np.int64)
        )
        return colours

    def is_partial(self, arg: int) -> bool:
        """True when the points hold partial results of argument `arg`."""
        made = self.operator.bound.made
        return arg in made and bool(self.partial[made.index(arg)])


def partition(op: Operator, config: ParallelConfig) -> OperatorPoints:
    """The points of `op` under `config`, its own or that of the operator it follows.

    Axes of `config` that are not in `op`, that `op` never splits, or that an in-place input lacks, make replicas: one
    point per device, however often the device is named. Points without work (an extent smaller than the degree) are
    dropped.

    Raises:
        ValueError: a group is split in a way that is not contiguous in memory.
    """
    device, spans, boxes, colours, outputs, fault = make_points(
        *cuts(op, config), np.array(config.devices, np.int64), op.bound.table.columns
    )
    if fault >= 0:
        _refuse(op, spans[fault])
    return OperatorPoints(op, config, device, spans, boxes, colours, outputs > 1)


def cuts(op: Operator, config: ParallelConfig) -> tuple[Array, Array, Array]:
    """Axes, numbers of parts and borders, as `make_points` wants them; they depend on the degrees only."""
    numbers = split_numbers(op)
    counts = [parts(degree) for _, degree in config.degrees]
    axes = [numbers.get(axis, -1) if parts(degree) > 1 else -1 for axis, degree in config.degrees]
    bounds = np.zeros((len(axes), max(counts, default=0) + 1), np.int64)
    for j, (axis, _) in enumerate(config.degrees):
        if axes[j] >= 0:
            bounds[j, : counts[j] + 1] = config.bounds(axis, op.extents[axis])
    return np.array(axes, np.int64), np.array(counts, np.int64), bounds


def split_numbers(op: Operator) -> dict[str, int]:
    """The axes along which an operator can be split, with their numbers."""
    return {axis: k for k, axis in enumerate(op.extents) if axis in op.split_axes}


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


# -- compiled ----------------------------------------------------------------------------------------------------------

image = leaf(window_rule.image)
within = leaf(window_rule.within)
table_image = leaf(window_rule.table_image)
BY_RULE = window_rule.BY_RULE


@tiered
def place_points(axis: Any, parts: Any, devices: Any, kept: Any) -> tuple[Any, Any, Any]:
    """Points by colour, then by device: `(device, colour, part of every kept axis)` of each point.

    The points of `devices` are row-major over `parts`. Axes that are not kept (`axis[j]` < 0) make replicas: of each
    colour there is one point per device, however often the device is named.
    """
    colours = 1
    for j in range(len(parts)):
        if axis[j] >= 0:
            colours *= parts[j]
    placed = np.full((colours, len(devices) // max(colours, 1)), -1, np.int64)
    count = np.zeros(colours, np.int64)
    for k in range(len(devices)):
        rest = k
        colour = 0
        weight = 1
        for j in range(len(parts) - 1, -1, -1):
            part = rest % parts[j]
            rest //= parts[j]
            if axis[j] >= 0:
                colour += weight * part
                weight *= parts[j]
        is_new = True
        for i in range(count[colour]):
            is_new = is_new and placed[colour, i] != devices[k]
        if is_new:
            placed[colour, count[colour]] = devices[k]
            count[colour] += 1
    total = count.sum()
    device = np.empty(total, np.int64)
    colour_of = np.empty(total, np.int64)
    part_of = np.empty((total, kept), np.int64)
    n = 0
    for colour in range(colours):
        for i in range(count[colour]):
            device[n] = placed[colour, i]
            colour_of[n] = colour
            rest = colour
            column = kept - 1
            for j in range(len(parts) - 1, -1, -1):
                if axis[j] >= 0:
                    part_of[n, column] = rest % parts[j]
                    rest //= parts[j]
                    column -= 1
            n += 1
    return device, colour_of, part_of


class PatternColumns(NamedTuple):
    """See `taskflow.graph.pattern.PatternTable`."""

    extents: Any
    dim_ptr: Any
    dim_axis: Any
    dim_extent: Any
    window: Any
    images: Any
    reduced: Any


@leaf
def put_boxes(boxes: Any, spans: Any, count: int, of: PatternColumns) -> int:
    """The box of every term for the intervals of every point; the first point at fault, or -1.

    All in one call: passing nine arrays on for every dimension of every point took most of the time.
    """
    window = of.window
    fault = count
    for d in range(len(of.dim_extent)):
        for n in range(count):
            if window[d, 0] > BY_RULE:
                axis = of.dim_axis[of.dim_ptr[d]]
                boxes[n, d, 0], boxes[n, d, 1] = table_image(
                    spans[n, axis, 0], spans[n, axis, 1], of.images, window[d, 1], window[d, 2], window[d, 3]
                )  # fmt: skip
                continue
            if window[d, 0]:
                axis = of.dim_axis[of.dim_ptr[d]]
                boxes[n, d, 0], boxes[n, d, 1] = image(
                    spans[n, axis, 0], spans[n, axis, 1], of.dim_extent[d], window[d, 1], window[d, 2], window[d, 3],
                    window[d, 4], window[d, 5] != 0,
                )  # fmt: skip
                continue
            low = 0
            high = 1
            is_contiguous = True
            for k in range(of.dim_ptr[d], of.dim_ptr[d + 1]):
                axis = of.dim_axis[k]
                low, high, is_contiguous = within(
                    low, high, of.extents[axis], spans[n, axis, 0], spans[n, axis, 1]
                )
                if not is_contiguous:
                    fault = min(fault, n)
            boxes[n, d, 0] = low
            boxes[n, d, 1] = high
    return fault if fault < count else -1


@tiered
def make_points(
    axis: Any,
    parts: Any,
    bounds: Any,
    devices: Any,
    table: tuple[Any, ...],
) -> tuple[Any, Any, Any, Any, Any, int]:
    """The points of an operator.

    Args:
        axis, parts: per axis of the configuration, the operator's axis (-1: makes replicas) and its number of parts.
        bounds: (axes of the configuration, parts + 1) borders of the parts.
        devices: of every point of the configuration, row-major.
        table: `PatternColumns`.

    Returns:
        devices (n,), intervals (n, axes, 2), boxes (n, dimensions of all terms, 2), colours (n, made terms), number of
        colours per made term, and the point at fault (a group that is not contiguous) or -1.
    """
    of = PatternColumns(*table)
    device, _, part_of = place_points(axis, parts, devices, (axis >= 0).sum())
    count = len(device)
    outputs = of.reduced.shape[0]
    intervals = np.empty((count, len(of.extents), 2), np.int64)
    colours = np.zeros((count, outputs), np.int64)
    n = 0
    for p in range(count):
        intervals[n, :, 0] = 0
        intervals[n, :, 1] = of.extents
        is_empty = False
        column = 0
        for j in range(len(axis)):
            if axis[j] >= 0:
                low = bounds[j, part_of[p, column]]
                high = bounds[j, part_of[p, column] + 1]
                intervals[n, axis[j], 0] = low
                intervals[n, axis[j], 1] = high
                is_empty = is_empty or high <= low
                for k in range(outputs):
                    if of.reduced[k, axis[j]]:
                        colours[n, k] = colours[n, k] * parts[j] + part_of[p, column]
                column += 1
        if is_empty:
            colours[n] = 0
            continue
        device[n] = device[p]
        n += 1
    boxes = np.empty((count, len(of.dim_extent), 2), np.int64)
    fault = put_boxes(boxes, intervals, n, of)
    return device[:n], intervals[:n], boxes[:n], colours[:n], number_colours(colours[:n]), fault


@tiered
def number_colours(colours: Any) -> Any:
    """Number the colours of every made term from 0 in order of appearance, in place; how many there are per output."""
    counts = np.zeros(colours.shape[1], np.int64)
    for k in range(colours.shape[1]):
        number = np.full(1 if not len(colours) else colours[:, k].max() + 1, -1, np.int64)
        for p in range(len(colours)):
            if number[colours[p, k]] < 0:
                number[colours[p, k]] = counts[k]
                counts[k] += 1
            colours[p, k] = number[colours[p, k]]
    return counts


@leaf
def volume(spans: Any, p: int) -> float:
    """Number of points in the intervals of point `p`, as a float."""
    points = 1.0
    for axis in range(spans.shape[1]):
        points *= spans[p, axis, 1] - spans[p, axis, 0]
    return points
