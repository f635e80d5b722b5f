"""Options: the ways to compute one point on the threads of its device, and what each takes.

Takes a row of a task graph; a point is whole or divided by its pattern (`division`). The seconds are those of the
device's peak rates, not measured ones: they decide how points are divided, and that must be the same from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskflow.tasks.task_graph import TaskGraph, access
from taskflow.tasks.threads.division import Division, Part, divisions

# What it takes to hand parts to other threads and to wait for them: 30 to 130 us were measured.
MEETING_SECONDS = 5e-5


@dataclass(frozen=True)
class Option:
    """One way to compute a point: its parts, one a thread; and what the longest takes at the device's peak rates."""

    parts: Sequence[Part]
    seconds: float

    @property
    def lone_seconds(self) -> float:
        """With a meeting of the threads for this point alone."""
        return self.seconds + MEETING_SECONDS * (len(self.parts) > 1)


def options(task_graph: TaskGraph, row: int, count: int) -> list[Option]:
    """The ways to compute a point on `count` threads, the fastest first; whole is always one."""
    device = task_graph.machine.devices[int(task_graph.device[row])]
    computing = float(task_graph.flops[row] / device.flops_per_second)
    moving = float(task_graph.bytes[row] / device.memory_bandwidth)
    found = [Option([whole_part(task_graph, row)], computing + moving)]
    for way in _ways(task_graph, row, count) if count > 1 else ():
        if _are_apart(task_graph, row, way.parts):
            found.append(Option(way.parts, computing / len(way.parts) + moving * way.share))
    return sorted(found, key=lambda option: option.seconds)


def _ways(task_graph: TaskGraph, row: int, count: int) -> list[Division]:
    launch = task_graph.launches[int(task_graph.launch[row])]
    orders = [task_graph.order(n) for n in launch.args]
    intervals = launch.intervals(int(task_graph.point[row]))
    return divisions(launch.bound, intervals, _is_written(task_graph, row), orders, count)


def whole_part(task_graph: TaskGraph, row: int) -> Part:
    """A point as its only part."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    return Part(launch.intervals(int(task_graph.point[row])), tuple(rect for _, rect, _ in task_graph.args(row)))


def best_alone(task_graph: TaskGraph, row: int, count: int) -> Option:
    """The way that is fastest for a point with nothing before or after it."""
    return min(options(task_graph, row, count), key=lambda option: option.lone_seconds)


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
