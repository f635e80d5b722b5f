"""Sections: rows that the threads of a device compute side by side without waiting for each other in between.

Takes successive points of a device in issue order; gives sections of them, and for every point its parts. Threads meet
before a section and after it. Within one, whatever a thread reads or overwrites was touched in the section by itself
alone, or is only read: so the parts of successive points that split the same samples form one section, as if each
thread were a device with a data-parallel strategy. A meeting costs far more than a point's hand-over: threads that end
at the same time want the interpreter's lock at the same time, and who has to wait for it is put to sleep.

A section begins with each way to divide its first point in turn, and takes in the points after it as long as one of
their ways keeps threads apart and costs less than a meeting more than their best. The way that saves most is taken.

Rejected: the way that is best for each point alone. The steps of a recurrent layer then split gates and samples in
turn, and meet twice a step.

The first thread is the one that replays the program: its part of a point stands where the point's call was. The others
get the calls of their parts as one list each, at the first point of the section, and are waited for in its last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from taskflow.backend import Context
from taskflow.core.columns import Array
from taskflow.core.geometry import Rect
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.parts import for_parts
from taskflow.tasks.task_graph import TaskGraph, access
from taskflow.tasks.threads.crew import Call, Crew
from taskflow.tasks.threads.division import MEETING_SECONDS, Option, Part, options

MakeContext = Callable[
    [int, Part, int], Context
]  # of a row, a part of it and the number of a thread
Use = tuple[int, Rect, bool]  # thread, box, whether it is written


@dataclass(frozen=True)
class Section:
    """Successive rows, and the parts of each: one a thread, or the point as a whole for the first thread."""

    rows: Sequence[int]
    parts: Sequence[Sequence[Part]]


def sections(
    task_graph: TaskGraph, rows: Sequence[int], count: int, memory: PlannedBytes
) -> list[Section]:
    """Successive points of a device in sections for `count` threads.

    Args:
        task_graph: the graph.
        rows: the points.
        count: threads.
        memory: where the instances lie.
    """
    left = [(row, options(task_graph, row, count)) for row in rows]
    made = list[Section]()
    while left:
        trials = [_extend(left, first, Uses(task_graph, memory)) for first in left[0][1]]
        _, chosen = max(
            trials, key=lambda trial: trial[0]
        )  # of equals the first, whose first point is fastest
        made.append(
            Section([row for row, _ in left[: len(chosen)]], [option.parts for option in chosen])
        )
        left = left[len(chosen) :]
    return made


def _extend(
    points: Sequence[tuple[int, Sequence[Option]]], first: Option, uses: Uses
) -> tuple[float, list[Option]]:
    """The section that begins with the first point computed so: the seconds that it saves, and an option a point."""
    (row, others), *after = points
    chosen = [first]
    is_divided = len(first.parts) > 1
    uses.add(row, first.parts)
    saved = _lone_seconds(others) - first.seconds - MEETING_SECONDS * is_divided
    for row, others in after:
        lone = _lone_seconds(others)
        most = lone + MEETING_SECONDS if is_divided else lone
        near = [o for o in others if o.seconds <= most and (is_divided or len(o.parts) == 1)]
        # a thread alone meets nobody
        option = next((o for o in near if not is_divided or not uses.meet(row, o.parts)), None)
        if option is None:
            break
        if is_divided:
            uses.add(row, option.parts)
        chosen.append(option)
        saved += lone - option.seconds
    return saved, chosen


def _lone_seconds(others: Sequence[Option]) -> float:
    return min(option.lone_seconds for option in others)


# -- what threads touch ------------------------------------------------------------------------------------------------


class PlannedBytes:
    """The bytes of the instances of a task graph, by its memory plan."""

    def __init__(self, graph: TaskGraph, plan: MemoryPlan) -> None:
        self._graph = graph
        self._plan = plan
        self._sharing: dict[int, list[int]] = {}
        self._spans: dict[tuple[int, Rect], tuple[int, int]] = {}

    def sharing(self, instance: int) -> list[int]:
        """The other instances that lie, in part, in the same bytes."""
        if instance not in self._sharing:
            is_shared = self._plan.share_bytes(
                self._graph, instance, np.arange(len(self._plan.offset))
            )
            self._sharing[instance] = [
                k for k in np.flatnonzero(is_shared).tolist() if k != instance
            ]
        return self._sharing[instance]

    def span(self, instance: int, rect: Rect) -> tuple[int, int]:
        """The first byte of a box of an instance, and the one after its last."""
        if (instance, rect) not in self._spans:
            self._spans[instance, rect] = self._span(instance, rect)
        return self._spans[instance, rect]

    def _span(self, instance: int, rect: Rect) -> tuple[int, int]:
        region = int(self._graph.instance_region[instance])
        whole = self._graph.instance_rect(instance)
        first = last = 0
        shape = whole.shape
        for d in self._graph.order(region):
            first = first * shape[d] + rect.lo[d] - whole.lo[d]
            last = last * shape[d] + rect.hi[d] - 1 - whole.lo[d]
        begin = int(self._plan.offset[instance])
        size = self._graph.regions[region].itemsize
        return begin + first * size, begin + (last + 1) * size


class Uses:
    """Which thread touched which box of which instance in a section."""

    def __init__(self, task_graph: TaskGraph, memory: PlannedBytes) -> None:
        self.task_graph = task_graph
        self.memory = memory
        self.by_instance: dict[int, set[Use]] = {}

    def add(self, row: int, parts: Sequence[Part]) -> None:
        """Note what the parts of a row touch."""
        for instance, use in self._of(row, parts):
            self.by_instance.setdefault(instance, set()).add(use)

    def meet(self, row: int, parts: Sequence[Part]) -> bool:
        """Whether a part of a row touches what another thread touched, and one of them writes it."""
        return any(
            self._is_met(instance, other, use)
            for instance, use in self._of(row, parts)
            for other in (instance, *self.memory.sharing(instance))
            if other in self.by_instance
        )

    def _of(self, row: int, parts: Sequence[Part]) -> Iterator[tuple[int, Use]]:
        args = self.task_graph.args(row)
        _, writes = access([privilege for _, _, privilege in args])
        for thread, part in enumerate(parts):
            for (instance, _, _), rect, is_written in zip(args, part.rects, writes, strict=True):
                if instance >= 0 and not rect.is_empty:
                    yield instance, (thread, rect, is_written)

    def _is_met(self, instance: int, other: int, use: Use) -> bool:
        thread, rect, writes = use
        others = [
            r
            for t, r, is_written in self.by_instance[other]
            if t != thread and (writes or is_written)
        ]
        if instance == other:
            return any(rect.overlaps(r) for r in others)
        begin, end = self.memory.span(instance, rect)
        spans = [self.memory.span(other, r) for r in others]
        return any(begin < other_end and other_begin < end for other_begin, other_end in spans)


# -- what threads do ---------------------------------------------------------------------------------------------------


def section_calls(
    task_graph: TaskGraph,
    section: Section,
    views: Mapping[int, Sequence[Array]],
    context: MakeContext,
    crew: Crew,
) -> list[Call]:
    """What the first thread does for every point of a section; `views` are those of every row, see `part_calls`."""
    mine = list[Call]()
    others = [list[Call]() for _ in range(crew.size - 1)]
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
    task_graph: TaskGraph,
    row: int,
    parts: Sequence[Part],
    views: Sequence[Array],
    context: MakeContext,
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
    launch = task_graph.launches[int(task_graph.launch[row])]
    privileges = [privilege for _, _, privilege in args]
    is_read, is_written = access(privileges)
    calls: list[Call] = []
    for thread, part in enumerate(parts):
        inside = [_inside(v, a, b) for v, a, (_, b, _) in zip(views, part.rects, args, strict=True)]
        kernel = for_parts(launch.kernel, launch, privileges).for_dtypes(
            inside, is_read, is_written
        )
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
