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

from collections.abc import Sequence
from dataclasses import dataclass

from taskflow.tasks.task_graph import TaskGraph
from taskflow.tasks.threads.division import Part
from taskflow.tasks.threads.options import MEETING_SECONDS, Option, options
from taskflow.tasks.threads.touching import PlannedBytes, Uses


@dataclass(frozen=True)
class Section:
    """Successive rows, and the parts of each: one a thread, or the point as a whole for the first thread."""

    rows: Sequence[int]
    parts: Sequence[Sequence[Part]]


def sections(task_graph: TaskGraph, rows: Sequence[int], count: int, memory: PlannedBytes) -> list[Section]:
    """Successive points of a device in sections for `count` threads.

    Args:
        task_graph: the graph.
        rows: the points.
        count: threads.
        memory: where the instances lie.
    """
    left = [(row, options(task_graph, row, count)) for row in rows]
    found = list[Section]()
    while left:
        trials = [_extend(left, first, Uses(task_graph, memory)) for first in left[0][1]]
        _, chosen = max(trials, key=lambda trial: trial[0])  # of equals the first, whose first point is fastest
        found.append(Section([row for row, _ in left[: len(chosen)]], [option.parts for option in chosen]))
        left = left[len(chosen) :]
    return found


def _extend(points: Sequence[tuple[int, Sequence[Option]]], first: Option, uses: Uses) -> tuple[float, list[Option]]:
    """The section that begins with the first point computed so: the seconds that it saves, and an option a point."""
    (row, others), *after = points
    chosen, is_divided = [first], len(first.parts) > 1
    uses.add(row, first.parts)
    saved = _lone_seconds(others) - first.seconds - MEETING_SECONDS * is_divided
    for row, others in after:
        lone = _lone_seconds(others)
        most = lone + MEETING_SECONDS if is_divided else lone
        near = [o for o in others if o.seconds <= most and (is_divided or len(o.parts) == 1)]
        option = next((o for o in near if not uses.meet(row, o.parts)), None)
        if option is None:
            break
        uses.add(row, option.parts)
        chosen.append(option)
        saved += lone - option.seconds
    return saved, chosen


def _lone_seconds(others: Sequence[Option]) -> float:
    return min(option.lone_seconds for option in others)
