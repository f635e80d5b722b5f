"""The order by ordinals: each part of split operators goes through all that follows before the next part begins.

What is alive in between is then that of one part: of a micro-batch, of the hidden units or heads (see `orders`).
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.tasks.task_graph import Kind, TaskGraph


def by_ordinal(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the barriers before them in program order, then by the last ordinal that they wait for, then by row."""
    launch = np.where(task_graph.kind == Kind.POINT, task_graph.launch, -1)
    _, which = np.unique(np.stack([launch, task_graph.device]), axis=1, return_inverse=True)
    most = np.zeros(len(task_graph), np.int64)
    np.maximum.at(most, which, task_graph.ordinal)
    is_part = (launch >= 0) & (most[which] > 0)
    barriers, last = barriers_before(
        task_graph.dep_ptr, task_graph.dep_row, task_graph.ordinal, is_part
    )
    rows: Array = np.lexsort((last, barriers))
    return rows


@tiered
def barriers_before(
    ptr: Array, awaited: Array, ordinal: Array, is_part: Array
) -> tuple[Array, Array]:
    """Per row the barriers up to it, and the last ordinal that it waits for since.

    A barrier is one of several parts that waits for a later one. All else goes behind what it waits for: an update that
    is done once a step, say.
    """
    barriers = np.zeros(len(ordinal), np.int64)
    last = ordinal.copy()
    for row in range(len(ordinal)):
        barriers[row] = barriers[row - 1] if row > 0 else 0
        for k in range(ptr[row], ptr[row + 1]):
            before = awaited[k]
            if barriers[before] == barriers[row]:
                last[row] = max(last[row], last[before])
        if is_part[row] and last[row] > ordinal[row]:
            barriers[row], last[row] = barriers[row] + 1, ordinal[row]
    return barriers, last
