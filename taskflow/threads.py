"""Points on the threads of a device: a point that takes long enough is divided over them by its pattern.

Takes a row of a task graph and views of its tiles; gives one call. So a rank with several cores needs no compiled
parallel loops: every kernel that is right under any split is right on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from taskflow.backend import Context, Crew, for_dtypes
from taskflow.backend.crew import HANDOFF_SECONDS
from taskflow.division import Part, divide
from taskflow.geometry import Rect
from taskflow.task import Array, TaskGraph, access

Call = Callable[[], object]
MakeContext = Callable[[Sequence[Rect], Mapping[str, tuple[int, int]], int], Context]


def point_call(task_graph: TaskGraph, row: int, views: Sequence[Array], make_context: MakeContext, crew: Crew) -> Call:
    """The call of a point of a CPU device.

    Args:
        task_graph: the graph.
        row: its row.
        views: of the tiles, as its kernel may use them.
        make_context: from boxes, intervals and the number of a thread.
        crew: the threads that share it.
    """
    rects = tuple(rect for _, rect, _ in task_graph.args(row))
    parts = divided(task_graph, row, crew.size)
    is_read, is_written = access([privilege for _, _, privilege in task_graph.args(row)])
    calls = []
    for thread, part in enumerate(parts):
        inside = [_inside(v, a, b) for v, a, b in zip(views, part.rects, rects, strict=True)]
        context = make_context(part.rects, part.intervals, thread)
        kernel = for_dtypes(task_graph.launches[int(task_graph.launch[row])].kernel, inside, is_read, is_written)
        calls.append(partial(kernel, context, *inside))
    return calls[0] if len(calls) == 1 else partial(crew.run, calls)


def divided(task_graph: TaskGraph, row: int, count: int) -> list[Part]:
    """The parts of a point for so many threads; itself where it is too short, or no split keeps parts apart."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    whole = Part(launch.intervals(int(task_graph.point[row])), tuple(rect for _, rect, _ in task_graph.args(row)))
    if count == 1 or not _is_worth(task_graph, row, count):
        return [whole]
    is_written = _is_written(task_graph, row)
    parts = divide(launch.bound, whole.intervals, is_written, [task_graph.order(n) for n in launch.args], count)
    return parts if _are_apart(task_graph, row, parts) else [whole]


def _is_worth(task_graph: TaskGraph, row: int, count: int) -> bool:
    """Whether threads save twice what it takes to hand them their parts, at the peak rates of the device."""
    device = task_graph.machine.devices[int(task_graph.device[row])]
    seconds = max(task_graph.flops[row] / device.flops_per_second, task_graph.bytes[row] / device.memory_bandwidth)
    return bool(seconds * (1 - 1 / count) > 2 * HANDOFF_SECONDS)


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
