"""Dependence analysis: who must wait for whom, by what they touch.

Takes accesses (instance, box, privilege) in one valid sequential order; gives the read-after-write, write-after-read
and write-after-write dependences between them. Rejected: analysis over regions instead of instances, which would order
writers of two copies of one region for no reason.
"""

from __future__ import annotations

from taskflow.core.geometry import Rect

Ref = tuple[int, int]


class DependenceTracker:
    """Last writers and the readers since, per instance."""

    def __init__(self) -> None:
        self._writers: dict[int, list[tuple[Rect, Ref]]] = {}
        self._readers: dict[int, list[tuple[Rect, Ref]]] = {}
        self.edges: dict[tuple[Ref, Ref], None] = {}

    def read(self, instance: int, rect: Rect, task: Ref) -> None:
        """`task` reads `rect`: it waits for those who wrote any of it."""
        self._wait(task, self._writers.get(instance, ()), rect)
        self._readers.setdefault(instance, []).append((rect, task))

    def write(self, instance: int, rect: Rect, task: Ref) -> None:
        """`task` writes `rect`: it waits for those who read or wrote any of it."""
        writers, readers = self._writers.get(instance, []), self._readers.get(instance, [])
        self._wait(task, readers, rect)
        self._wait(task, writers, rect)
        self._readers[instance] = [(r, t) for r, t in readers if not rect.covers(r)]
        self._writers[instance] = [(r, t) for r, t in writers if not rect.covers(r)] + [(rect, task)]

    def _wait(self, task: Ref, others: list[tuple[Rect, Ref]] | tuple[()], rect: Rect) -> None:
        for r, other in others:
            if other != task and r.overlaps(rect):
                self.edges[task, other] = None
