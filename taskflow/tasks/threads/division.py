"""Division: a point is split once more by its pattern, for cores that share one memory; and what each way takes.

`divisions` takes a bound pattern and a point's intervals; it gives the intervals and boxes of parts that write disjoint
boxes of every output. So parts may run side by side in place of the point, on views of its tiles, and nothing has to be
combined. `options` takes a row of a task graph. Its seconds are those of the device's peak rates, not measured ones:
they decide how points are divided, and that must be the same from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from taskflow.core.geometry import Rect, balanced_bounds
from taskflow.graph.pattern import BoundPattern
from taskflow.graph.window import Interval
from taskflow.tasks.task_graph import Kind, TaskGraph, access

# What it takes to hand parts to other threads and to wait for them: 30 to 130 us were measured.
MEETING_SECONDS = 5e-5
# Of an element's cost: what is not contiguous in memory is visited more slowly, or copied.
_STRIDED = 1.0


@dataclass(frozen=True)
class Part:
    """A part of a point: its interval of every axis, and its box of every argument."""

    intervals: Mapping[str, Interval]
    rects: tuple[Rect, ...]


@dataclass(frozen=True)
class Division:
    """Parts of a point, and the share of all elements it visits that the busiest of them does."""

    parts: Sequence[Part]
    share: float


@dataclass(frozen=True)
class Option:
    """One way to compute a point: its parts, one a thread; and what the longest takes at the device's peak rates."""

    parts: Sequence[Part]
    seconds: float

    @property
    def lone_seconds(self) -> float:
        """With a meeting of the threads for this point alone."""
        return self.seconds + MEETING_SECONDS * (len(self.parts) > 1)


def divisions(
    bound: BoundPattern,
    intervals: Mapping[str, Interval],
    is_written: Sequence[bool],
    orders: Sequence[Sequence[int]],
    count: int,
) -> list[Division]:
    """The ways to divide a point into up to `count` parts, those with the fewest elements to visit first.

    An element that several parts read counts for each of them, and more where a part is not contiguous. There
    is no way where no axis of all that the point writes can be split.

    Args:
        bound: the pattern.
        intervals: of the point, for every axis.
        is_written: whether the point writes an argument; outputs, and inputs that it updates in place.
        orders: per argument its dimensions as they lie in memory, slowest first.
        count: parts that are wanted.
    """
    whole = _part(bound, intervals)
    all_elements = max(sum(rect.volume for rect in whole.rects), 1)
    ways = [
        _along(bound, axis, intervals, count)
        for axis in _separating_axes(bound, intervals, is_written)
    ]
    shared = [Division(parts, _visits(parts, whole, orders) / all_elements) for parts in ways]
    return sorted(shared, key=lambda division: division.share * len(division.parts))


def _part(bound: BoundPattern, intervals: Mapping[str, Interval]) -> Part:
    return Part(intervals, tuple(bound.rect(k, intervals) for k in range(len(bound.terms))))


def _separating_axes(
    bound: BoundPattern, intervals: Mapping[str, Interval], is_written: Sequence[bool]
) -> list[str]:
    """The axes that may be split, have points to split, and keep parts apart in all that is written."""
    written = [
        {n for dim in term.dims for n in dim}
        for term, writes in zip(bound.terms, is_written)
        if writes
    ]
    return [
        axis
        for axis, (lo, hi) in intervals.items()
        if hi - lo > 1
        and axis not in bound.pattern.fixed
        and written
        and all(axis in names for names in written)  # itself: windows on it overlap
        and _is_leading(bound, axis, intervals)
    ]


def _is_leading(bound: BoundPattern, axis: str, intervals: Mapping[str, Interval]) -> bool:
    """Whether all axes left of it in its groups have one point, so that a part of it is one box."""
    groups = [dim for term in bound.terms for dim in term.dims if len(dim) > 1 and axis in dim]
    left = {name for dim in groups for name in dim[: dim.index(axis)]}
    return all(hi - lo == 1 for lo, hi in (intervals[name] for name in left))


def _along(
    bound: BoundPattern, axis: str, intervals: Mapping[str, Interval], count: int
) -> list[Part]:
    lo, hi = intervals[axis]
    bounds = balanced_bounds(hi - lo, min(count, hi - lo))
    return [_part(bound, {**intervals, axis: (lo + a, lo + b)}) for a, b in pairwise(bounds)]


def _visits(parts: Sequence[Part], whole: Part, orders: Sequence[Sequence[int]]) -> float:
    """Elements that the busiest part visits."""
    return max(
        sum(
            rect.volume * (1 if _is_contiguous(rect, all_of_it, order) else 1 + _STRIDED)
            for rect, all_of_it, order in zip(part.rects, whole.rects, orders, strict=True)
        )
        for part in parts
    )


def _is_contiguous(part: Rect, whole: Rect, order: Sequence[int]) -> bool:
    """Whether a part of a box is contiguous in its memory."""
    split = [k for k, d in enumerate(order) if part.shape[d] != whole.shape[d]]
    return not split or all(part.shape[d] == 1 for d in order[: split[-1]])


# -- rows --------------------------------------------------------------------------------------------------------------


def options(task_graph: TaskGraph, row: int, count: int) -> list[Option]:
    """The ways to compute a point on `count` threads, the fastest first; whole is always one."""
    device = task_graph.machine.devices[int(task_graph.device[row])]
    computing = float(task_graph.flops[row] / device.flops_per_second)
    moving = float(task_graph.bytes[row] / device.memory_bandwidth)
    whole = whole_part(task_graph, row)
    launch = task_graph.launches[int(task_graph.launch[row])]
    ways = [Option([whole], computing + moving)]
    if count > 1:
        orders = [task_graph.order(n) for n in launch.args]
        for way in divisions(
            launch.bound, whole.intervals, _is_written(task_graph, row), orders, count
        ):
            if _are_apart(task_graph, row, way.parts):
                ways.append(Option(way.parts, computing / len(way.parts) + moving * way.share))
    return sorted(ways, key=lambda option: option.seconds)


def may_save(task_graph: TaskGraph, number: int) -> bool:
    """Whether all points of a device take longer than the meeting that a division costs, at its peak rates."""
    device = task_graph.machine.devices[number]
    rows = (task_graph.kind == Kind.POINT) & (task_graph.device == number)
    computing = task_graph.flops[rows].sum() / device.flops_per_second
    moving = task_graph.bytes[rows].sum() / device.memory_bandwidth
    return bool(computing + moving > MEETING_SECONDS)


def whole_part(task_graph: TaskGraph, row: int) -> Part:
    """A point as its only part."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    return Part(
        launch.intervals(int(task_graph.point[row])),
        tuple(rect for _, rect, _ in task_graph.args(row)),
    )


def best_alone(task_graph: TaskGraph, row: int, count: int) -> Option:
    """The way that is fastest for a point with nothing before or after it."""
    return min(options(task_graph, row, count), key=lambda option: option.lone_seconds)


def _are_apart(task_graph: TaskGraph, row: int, parts: Sequence[Part]) -> bool:
    """Whether no part reads what another one overwrites: an argument that lies in an output's memory has its boxes."""
    args = task_graph.args(row)
    is_written = _is_written(task_graph, row)
    for k, (instance, _, _) in enumerate(args):
        homes = [
            j
            for j, (other, _, _) in enumerate(args)
            if is_written[j] and j != k and other == instance >= 0
        ]
        if any(part.rects[j] != part.rects[k] for j in homes for part in parts):
            return False
    return True


def _is_written(task_graph: TaskGraph, row: int) -> list[bool]:
    return access([privilege for _, _, privilege in task_graph.args(row)])[1]
