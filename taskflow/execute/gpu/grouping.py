"""Grouping: rows of one device whose kernels can run as one, such as the updates of all parameters.

Takes rows with keys; gives groups of rows with equal keys, and the row before which each group is issued. A row waits
for others of its group as long as nothing in between needs it: no row that depends on it, and none that uses memory
which the memory plan hands on after it. So the result is the order of the rows with some of them later: by law 2 the
same numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import Array, TaskGraph

Groups = dict[int, list[list[int]]]


def group_rows(graph: TaskGraph, plan: MemoryPlan, keys: Mapping[int, Hashable]) -> Groups:
    """Groups of two rows or more, by the row before which they are issued; `len(graph)` is the end.

    Args:
        graph: without collectives.
        plan: where its instances lie.
        keys: per row that may be part of a group, what the others of the group have in common with it.
    """
    found: Groups = {}
    waiting: dict[Hashable, _WaitingRows] = {}
    memory = _Memory(graph, plan)
    for row in range(len(graph) + 1):
        used = memory.used_by(row) if waiting and row < len(graph) else None
        for key in [k for k, group in waiting.items() if used is None or group.is_needed(row, graph, memory, used)]:
            group = waiting.pop(key)
            if len(group.rows) > 1:
                found.setdefault(row, []).append(group.rows)
        if row in keys:
            waiting.setdefault(keys[row], _WaitingRows()).add(row, memory.used_by(row))
    return found


class _WaitingRows:
    """Rows that wait, and the instances that they use."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.used = np.zeros(0, np.int64)

    def add(self, row: int, used: Array) -> None:
        self.rows.append(row)
        self.used = np.union1d(self.used, used)

    def is_needed(self, row: int, graph: TaskGraph, memory: _Memory, used: Array) -> bool:
        """Whether `row`, which uses these instances, has to come after the rows of the group."""
        waits = not set(self.rows).isdisjoint(graph.deps(row))
        return waits or memory.overlaps(np.setdiff1d(used, self.used), self.used)


class _Memory:
    """Which instances rows use, and which of them share bytes."""

    def __init__(self, graph: TaskGraph, plan: MemoryPlan) -> None:
        self._graph, self._device = graph, graph.instance_device
        self._begin, self._end = plan.offset, plan.offset + plan.size

    def used_by(self, row: int) -> Array:
        """The instances of a row."""
        found: Array = self._graph.arg_instance[self._graph.arg_ptr[row] : self._graph.arg_ptr[row + 1]]
        return np.unique(found[found >= 0])

    def overlaps(self, some: Array, others: Array) -> bool:
        """Whether one of `some` shares bytes with one of `others`."""
        a, b = some[:, None], others[None, :]
        is_here = self._device[a] == self._device[b]
        return bool(np.any(is_here & (self._begin[a] < self._end[b]) & (self._begin[b] < self._end[a])))
