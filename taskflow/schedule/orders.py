"""Order: which row is issued before which.

A decision of its own: takes a task graph and seconds per row, gives a permutation. Streams run in issue order, so the
order decides what overlaps; whatever it is, the numbers are the same (law 2), and one pass over the reordered rows is
the simulation of it.

* program order: as lowered, every movement right behind the operator that made the value.
* first ready: FlexFlow's FIFO (Jia et al., MLSys 2019, Algorithm 1): of all rows whose inputs are done, the one that
  became ready first goes next.
* critical path: list scheduling; of all rows that could start at the same moment, the one with the longest way to the
  end of the step goes first (Graham 1969; Kwok and Ahmad 1999, HLFET).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.tasks.task_graph import Array, TaskGraph

ORDERS = ("program", "first ready", "critical path")


def reorder(task_graph: TaskGraph, costs: CostModel, order: str = "critical path") -> TaskGraph:
    """The same tasks issued in another order.

    Args:
        task_graph: from `lower`.
        costs: seconds of every row.
        order: `program`, `first ready` or `critical path`.

    Raises:
        ValueError: `order` is none of these.
    """
    if order not in ORDERS:
        raise ValueError(f"reorder: order is one of {ORDERS}, not '{order}'")
    if order == "program":
        return task_graph
    seconds = costs.seconds(task_graph)
    find = first_ready if order == "first ready" else critical_path
    return task_graph.reordered(find(task_graph, seconds))


def first_ready(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which their dependences are done; ties by row."""
    return _schedule(task_graph, seconds, lambda row, ready, start: (ready, row))


def critical_path(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by the longest way to the end, then by row."""
    level = bottom_levels(task_graph, seconds)
    return _schedule(task_graph, seconds, lambda row, ready, start: (start, -level[row], row))


def bottom_levels(task_graph: TaskGraph, seconds: Array) -> Array:
    """Seconds of the longest chain of dependences from the start of each row to the end of the step."""
    level = np.array(seconds, float)
    for row in reversed(range(len(task_graph))):
        for before in task_graph.deps(row):
            level[before] = max(level[before], seconds[before] + level[row])
    return level


def _schedule(task_graph: TaskGraph, seconds: Array, key: Callable[[int, float, float], tuple[float, ...]]) -> Array:
    """Issue rows one by one, always the one of least `key(row, ready time, start time)` among those that may be.

    A row's key can only grow while it waits (its streams fill up), so a stale entry is put back with its new key.
    """
    rows = len(task_graph)
    streams = [task_graph.streams_of(row) for row in range(rows)]
    waiting = np.diff(task_graph.dep_ptr).tolist()
    followers: list[list[int]] = [[] for _ in range(rows)]
    for row in range(rows):
        for before in task_graph.deps(row):
            followers[before].append(row)
    ready, free = [0.0] * rows, dict.fromkeys((s for row in streams for s in row), 0.0)

    def keyed(row: int) -> tuple[tuple[float, ...], int]:
        start = max([ready[row], *(free[s] for s in streams[row])])
        return key(row, ready[row], start), row

    heap = [keyed(row) for row in range(rows) if not waiting[row]]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        entry = heapq.heappop(heap)
        current = keyed(entry[1])
        if current > entry:
            heapq.heappush(heap, current)
            continue
        row = entry[1]
        end = max([ready[row], *(free[s] for s in streams[row])]) + float(seconds[row])
        free.update((s, end) for s in streams[row])
        order.append(row)
        for after in followers[row]:
            ready[after] = max(ready[after], end)
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(heap, keyed(after))
    return np.array(order, np.int64)
