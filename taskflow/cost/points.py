"""Points that have no cost are refused by name."""

from __future__ import annotations

import numpy as np

from taskflow.core.errors import CostError
from taskflow.tasks.task_graph import Array, TaskGraph


def check_costs(task_graph: TaskGraph, rows: Array, seconds: Array) -> None:
    """Refuse points without a cost."""
    for k in np.flatnonzero(~((seconds >= 0) & (seconds < np.inf)))[:1]:
        raise CostError(
            f"costs: {name_of_point(task_graph, int(rows[k]))} has no cost: {seconds[k]} seconds"
        )


def name_of_point(task_graph: TaskGraph, row: int) -> str:
    """How messages call the point of a row."""
    return f"point {task_graph.point[row]} of operator '{task_graph.name(row)}' on device {task_graph.device[row]}"
