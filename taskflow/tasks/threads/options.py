"""Points on the threads of a device: a point that takes long enough is divided over them by its pattern.

Takes rows of a task graph; says in which ways a point can be divided and what that takes, and gives the calls of its
parts. So a rank with several cores needs no compiled parallel loops: every kernel that is right under any split is
right on any number of threads. Which way is taken, `taskflow.tasks.threads.sections` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from taskflow.backend import Context
from taskflow.core.geometry import Rect
from taskflow.tasks.task_graph import Array, TaskGraph, access
from taskflow.tasks.threads.division import Division, Part, divisions

Call = Callable[[], object]
MakeContext = Callable[[Sequence[Rect], Mapping[str, tuple[int, int]], int], Context]

# What it takes to hand parts to other threads and to wait for them: 30 to 130 us were measured. It is never measured
# where a program runs, since it decides how points are divided, and that must be the same from run to run.
MEETING_SECONDS = 5e-5


@dataclass(frozen=True)
class Choice:
    """One way to compute a point: its parts, one a thread; and what the longest takes at the device's peak rates."""

    parts: Sequence[Part]
    seconds: float

    @property
    def lone_seconds(self) -> float:
        """With a meeting of the threads for this point alone."""
        return self.seconds + MEETING_SECONDS * (len(self.parts) > 1)


def choices(task_graph: TaskGraph, row: int, count: int) -> list[Choice]:
    """The ways to compute a point on `count` threads, the fastest first; whole is always one."""
    device = task_graph.machine.devices[int(task_graph.device[row])]
    computing = float(task_graph.flops[row] / device.flops_per_second)
    moving = float(task_graph.bytes[row] / device.memory_bandwidth)
    found = [Choice([whole_part(task_graph, row)], computing + moving)]
    for way in _ways(task_graph, row, count) if count > 1 else ():
        if _are_apart(task_graph, row, way.parts):
            found.append(Choice(way.parts, computing / len(way.parts) + moving * way.share))
    return sorted(found, key=lambda choice: choice.seconds)


def _ways(task_graph: TaskGraph, row: int, count: int) -> list[Division]:
    launch = task_graph.launches[int(task_graph.launch[row])]
    orders = [task_graph.order(n) for n in launch.args]
    intervals = launch.intervals(int(task_graph.point[row]))
    return divisions(launch.bound, intervals, _is_written(task_graph, row), orders, count)


def whole_part(task_graph: TaskGraph, row: int) -> Part:
    """A point as its only part."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    return Part(launch.intervals(int(task_graph.point[row])), tuple(rect for _, rect, _ in task_graph.args(row)))


def best_alone(task_graph: TaskGraph, row: int, count: int) -> Choice:
    """The way that is fastest for a point with nothing before or after it."""
    return min(choices(task_graph, row, count), key=lambda choice: choice.lone_seconds)


def part_calls(
    task_graph: TaskGraph, row: int, parts: Sequence[Part], views: Sequence[Array], make_context: MakeContext
) -> list[Call]:
    """The calls of the parts of a point of a CPU device.

    Args:
        task_graph: the graph.
        row: its row.
        parts: of the point.
        views: of the tiles, as its kernel may use them.
        make_context: from boxes, intervals and the number of a thread.
    """
    args = task_graph.args(row)
    is_read, is_written = access([privilege for _, _, privilege in args])
    calls: list[Call] = []
    for thread, part in enumerate(parts):
        inside = [_inside(v, a, b) for v, a, (_, b, _) in zip(views, part.rects, args, strict=True)]
        context = make_context(part.rects, part.intervals, thread)
        kernel = task_graph.launches[int(task_graph.launch[row])].kernel.for_dtypes(inside, is_read, is_written)
        calls.append(kernel.call(context, inside))
    return calls


def _are_apart(task_graph: TaskGraph, row: int, parts: Sequence[Part]) -> bool:
    """Whether no part reads what another one overwrites: an argument that lies in an output's memory has its boxes."""
    args, is_written = task_graph.args(row), _is_written(task_graph, row)
    for k, (instance, _, _) in enumerate(args):
        homes = [j for j, (other, _, _) in enumerate(args) if is_written[j] and j != k and other == instance >= 0]
        if any(part.rects[j] != part.rects[k] for j in homes for part in parts):
            return False
    return True


def _is_written(task_graph: TaskGraph, row: int) -> list[bool]:
    return access([privilege for _, _, privilege in task_graph.args(row)])[1]


def _inside(view: Array, rect: Rect, whole: Rect) -> Array:
    """The box `rect` of an array that holds the box `whole`."""
    return view if rect.shape == whole.shape else view[rect.relative_to(whole.lo).slices()]
