"""Calls: what each thread of a device does in a section.

The first thread is the one that replays the program: its part of a point stands where the point's call was. The others
get the calls of their parts as one list each, at the first point of the section, and are waited for in its last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from taskflow.backend import Context
from taskflow.core.geometry import Rect
from taskflow.tasks.task_graph import Array, TaskGraph, access
from taskflow.tasks.threads.crew import Call, Crew
from taskflow.tasks.threads.division import Part
from taskflow.tasks.threads.sections import Section

MakeContext = Callable[[int, Part, int], Context]  # of a row, a part of it and the number of a thread


def section_calls(
    task_graph: TaskGraph, section: Section, views: Mapping[int, Sequence[Array]], context: MakeContext, crew: Crew
) -> list[Call]:
    """What the first thread does for every point of a section; `views` are those of every row, see `part_calls`."""
    mine, others = list[Call](), [list[Call]() for _ in range(crew.size - 1)]
    for row, parts in zip(section.rows, section.parts, strict=True):
        first, *rest = part_calls(task_graph, row, parts, views[row], context)
        mine.append(first)
        for calls, call in zip(others, rest, strict=False):
            calls.append(partial(_noted, task_graph, row, call))
    if any(others):
        mine[0] = partial(_begin, crew, others, mine[0])
        mine[-1] = partial(_end, crew, mine[-1])
    return mine


def part_calls(
    task_graph: TaskGraph, row: int, parts: Sequence[Part], views: Sequence[Array], context: MakeContext
) -> list[Call]:
    """The calls of the parts of a point of a CPU device.

    Args:
        task_graph: the graph.
        row: its row.
        parts: of the point.
        views: of the tiles, as its kernel may use them.
        context: makes what a kernel sees.
    """
    args = task_graph.args(row)
    is_read, is_written = access([privilege for _, _, privilege in args])
    calls: list[Call] = []
    for thread, part in enumerate(parts):
        inside = [_inside(v, a, b) for v, a, (_, b, _) in zip(views, part.rects, args, strict=True)]
        kernel = task_graph.launches[int(task_graph.launch[row])].kernel.for_dtypes(inside, is_read, is_written)
        calls.append(kernel.call(context(row, part, thread), inside))
    return calls


def _inside(view: Array, rect: Rect, whole: Rect) -> Array:
    """The box `rect` of an array that holds the box `whole`."""
    return view if rect.shape == whole.shape else view[rect.relative_to(whole.lo).slices()]


def _begin(crew: Crew, others: Sequence[Sequence[Call]], call: Call) -> None:
    crew.start(others)
    call()


def _end(crew: Crew, call: Call) -> None:
    call()
    crew.finish()


def _noted(task_graph: TaskGraph, row: int, call: Call) -> None:
    """An error is noticed where threads meet; it says itself where it was."""
    try:
        call()
    except BaseException as error:
        error.add_note(f"in a part of task {task_graph[row]}, on a thread of its own")
        raise
