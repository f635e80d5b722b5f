"""Simulation: task graph + costs -> predicted Timeline.

Streams are in-order queues, as CUDA streams are, and the executor obeys the same order. A row starts when its streams
are free and its dependences done, so one pass over the rows is the whole simulation.
"""

from __future__ import annotations

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import STREAMS, Array, TaskGraph
from taskflow.tasks.timeline import Timeline


def simulate(task_graph: TaskGraph, costs: CostModel) -> Timeline:
    """The predicted Timeline of one step: `.seconds`, `.bytes_moved`, `.peak_bytes`, `.critical_path()`."""
    seconds = costs.seconds(task_graph)
    start, end, total = schedule(task_graph, seconds)
    return Timeline(task_graph, start, end, total, plan_memory(task_graph).peak_bytes)


def schedule(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array, float]:
    """Start and end of every row, and the end of the last one, for the given seconds per row."""
    from taskflow.tasks.onepass import one_pass  # numba: imported on first use

    rows = len(task_graph)
    start, end = np.zeros(rows), np.zeros(rows)
    free = np.zeros(STREAMS * len(task_graph.machine.devices) + len(task_graph.machine.links))
    graph, groups = task_graph, task_graph.groups
    columns = graph.dep_ptr, graph.dep_row, graph.streams, groups.ptr, groups.streams
    total = one_pass(*columns, np.asarray(seconds, float), start, end, free)
    return start, end, float(total)
