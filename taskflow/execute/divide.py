"""Division of a program: points that follow each other become sections, and their calls those of their parts.

Takes the program of a rank with several threads a device, and its compiler; changes the calls in place. The first
thread is the one that replays the program: its part of a point stands where the point's call was, under the same row.
The others get their parts of a section as lists, at its first point, and are waited for in its last. So the measured
time of a row is that of its first part, and the last row of a section has the waiting, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from taskflow.core.geometry import Rect
from taskflow.execute.program import Compiler, Program
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import TaskGraph
from taskflow.tasks.threads.crew import Crew
from taskflow.tasks.threads.division import Part
from taskflow.tasks.threads.options import Call, part_calls
from taskflow.tasks.threads.sections import Section, sections


def divide_program(compiler: Compiler, program: Program) -> dict[int, Sequence[Part]]:
    """Divide the points of a compiled program over the threads of their devices; the parts of every point."""
    found = dict[int, Sequence[Part]]()
    if compiler.crew.size == 1:
        return found
    where = PlannedBytes(compiler.graph, compiler.plan)
    for first, end in list(_runs(compiler, program)):
        for section in sections(compiler.graph, program.rows[first:end], compiler.crew.size, where):
            found.update(zip(section.rows, section.parts, strict=True))
            program.calls[first : first + len(section.rows)] = _calls(compiler, section)
            first += len(section.rows)
    return found


def _runs(compiler: Compiler, program: Program) -> Iterator[tuple[int, int]]:
    """Where calls of points of one device follow each other: the first, and the one behind the last."""
    key = [
        int(compiler.graph.device[row]) if role == "run" and row in compiler.views else -1
        for row, role in zip(program.rows, program.roles, strict=True)
    ]
    bounds = [0, *(k for k in range(1, len(key)) if key[k] != key[k - 1]), len(key)]
    return ((a, b) for a, b in pairwise(bounds) if a < b and key[a] >= 0)


def _calls(compiler: Compiler, section: Section) -> list[Call]:
    """What the first thread does for every point of a section."""
    graph, crew = compiler.graph, compiler.crew
    mine, others = list[Call](), [list[Call]() for _ in range(crew.size - 1)]
    for row, parts in zip(section.rows, section.parts, strict=True):
        first, *rest = part_calls(graph, row, parts, compiler.views[row], partial(compiler.part_context, row))
        mine.append(first)
        for calls, call in zip(others, rest, strict=False):
            calls.append(partial(_noted, graph, row, call))
    if any(others):
        mine[0] = partial(_begin, crew, others, mine[0])
        mine[-1] = partial(_end, crew, mine[-1])
    return mine


def _begin(crew: Crew, others: Sequence[Sequence[Call]], call: Call) -> None:
    crew.start(others)
    call()


def _end(crew: Crew, call: Call) -> None:
    call()
    crew.finish()


def _noted(graph: TaskGraph, row: int, call: Call) -> None:
    """An error is noticed where threads meet; it says itself where it was."""
    try:
        call()
    except BaseException as error:
        error.add_note(f"in a part of task {graph[row]}, on a thread of its own")
        raise


class PlannedBytes:
    """The bytes of the instances of a task graph, by its memory plan; see `sections.InstanceBytes`."""

    def __init__(self, graph: TaskGraph, plan: MemoryPlan) -> None:
        self._graph, self._plan = graph, plan
        self._sharing: dict[int, list[int]] = {}
        self._spans: dict[tuple[int, Rect], tuple[int, int]] = {}

    def sharing(self, instance: int) -> list[int]:
        """The other instances that lie, in part, in the same bytes."""
        if instance not in self._sharing:
            begin, end = self._plan.offset, self._plan.offset + self._plan.size
            device = self._graph.instance_device
            is_shared = (begin < end[instance]) & (begin[instance] < end) & (device == device[instance])
            self._sharing[instance] = [k for k in np.flatnonzero(is_shared).tolist() if k != instance]
        return self._sharing[instance]

    def span(self, instance: int, rect: Rect) -> tuple[int, int]:
        """The first byte of a box of an instance, and the one after its last."""
        if (instance, rect) not in self._spans:
            self._spans[instance, rect] = self._span(instance, rect)
        return self._spans[instance, rect]

    def _span(self, instance: int, rect: Rect) -> tuple[int, int]:
        region, whole = int(self._graph.instance_region[instance]), self._graph.instance_rect(instance)
        first = last = 0
        shape = whole.shape
        for d in self._graph.order(region):
            first = first * shape[d] + rect.lo[d] - whole.lo[d]
            last = last * shape[d] + rect.hi[d] - 1 - whole.lo[d]
        begin, size = int(self._plan.offset[instance]), self._graph.regions[region].itemsize
        return begin + first * size, begin + (last + 1) * size
