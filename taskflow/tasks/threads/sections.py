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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from taskflow.core.geometry import Rect
from taskflow.tasks.task_graph import TaskGraph, access
from taskflow.tasks.threads.division import Part
from taskflow.tasks.threads.options import MEETING_SECONDS, Choice, choices

Use = tuple[int, Rect, bool]  # thread, box, whether it is written


class InstanceBytes(Protocol):
    """Where instances lie in the memory of their device."""

    def sharing(self, instance: int) -> Iterable[int]:
        """The other instances that lie, in part, in the same bytes."""

    def span(self, instance: int, rect: Rect) -> tuple[int, int]:
        """The first byte of a box of an instance, and the one after its last."""


@dataclass(frozen=True)
class Section:
    """Successive rows, and the parts of each: one a thread, or the point as a whole for the first thread."""

    rows: Sequence[int]
    parts: Sequence[Sequence[Part]]


def sections(task_graph: TaskGraph, rows: Sequence[int], count: int, memory: InstanceBytes) -> list[Section]:
    """Successive points of a device in sections for `count` threads.

    Args:
        task_graph: the graph.
        rows: the points.
        count: threads.
        memory: where the instances lie.
    """
    ways, found, first = [choices(task_graph, row, count) for row in rows], list[Section](), 0
    while first < len(rows):
        trials = [_extended(task_graph, rows, ways, first, choice, memory) for choice in ways[first]]
        _, chosen = max(trials, key=lambda trial: trial[0])  # of equals the first, whose first point is fastest
        found.append(Section(rows[first : first + len(chosen)], [choice.parts for choice in chosen]))
        first += len(chosen)
    return found


def _extended(
    task_graph: TaskGraph,
    rows: Sequence[int],
    ways: Sequence[Sequence[Choice]],
    first: int,
    choice: Choice,
    memory: InstanceBytes,
) -> tuple[float, list[Choice]]:
    """The section that begins with this way to compute row number `first`: the seconds that it saves, and the ways."""
    uses, chosen = _Uses(task_graph, memory), [choice]
    uses.add(rows[first], choice.parts)
    is_divided = len(choice.parts) > 1
    saved = _lone_seconds(ways[first]) - choice.seconds - MEETING_SECONDS * is_divided
    for number in range(first + 1, len(rows)):
        lone = _lone_seconds(ways[number])
        most = lone + MEETING_SECONDS if is_divided else lone
        near = [c for c in ways[number] if c.seconds <= most and (is_divided or len(c.parts) == 1)]
        way = next((c for c in near if not uses.meet(rows[number], c.parts)), None)
        if way is None:
            break
        uses.add(rows[number], way.parts)
        chosen.append(way)
        saved += lone - way.seconds
    return saved, chosen


def _lone_seconds(ways: Sequence[Choice]) -> float:
    return min(choice.lone_seconds for choice in ways)


class _Uses:
    """Which thread touched which box of which instance in a section."""

    def __init__(self, task_graph: TaskGraph, memory: InstanceBytes) -> None:
        self.task_graph, self.memory = task_graph, memory
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
            for other in self._near(instance)
        )

    def _near(self, instance: int) -> list[int]:
        return [other for other in (instance, *self.memory.sharing(instance)) if other in self.by_instance]

    def _of(self, row: int, parts: Sequence[Part]) -> Iterator[tuple[int, Use]]:
        args = self.task_graph.args(row)
        _, writes = access([privilege for _, _, privilege in args])
        for thread, part in enumerate(parts):
            for (instance, _, _), rect, is_written in zip(args, part.rects, writes, strict=True):
                if instance >= 0 and not rect.is_empty:
                    yield instance, (thread, rect, is_written)

    def _is_met(self, instance: int, other: int, use: Use) -> bool:
        thread, rect, writes = use
        others = [r for t, r, is_written in self.by_instance[other] if t != thread and (writes or is_written)]
        if instance == other:
            return any(rect.overlaps(r) for r in others)
        begin, end = self.memory.span(instance, rect)
        spans = [self.memory.span(other, r) for r in others]
        return any(begin < other_end and other_begin < end for other_begin, other_end in spans)
