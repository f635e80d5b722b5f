"""Touching: which thread touches which bytes in a section, so that none writes what another reads or writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from taskflow.core.geometry import Rect
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import TaskGraph, access
from taskflow.tasks.threads.division import Part

Use = tuple[int, Rect, bool]  # thread, box, whether it is written


class PlannedBytes:
    """The bytes of the instances of a task graph, by its memory plan."""

    def __init__(self, graph: TaskGraph, plan: MemoryPlan) -> None:
        self._graph, self._plan = graph, plan
        self._sharing: dict[int, list[int]] = {}
        self._spans: dict[tuple[int, Rect], tuple[int, int]] = {}

    def sharing(self, instance: int) -> list[int]:
        """The other instances that lie, in part, in the same bytes."""
        if instance not in self._sharing:
            is_shared = self._plan.share_bytes(self._graph, instance, np.arange(len(self._plan.offset)))
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


class Uses:
    """Which thread touched which box of which instance in a section."""

    def __init__(self, task_graph: TaskGraph, memory: PlannedBytes) -> None:
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
