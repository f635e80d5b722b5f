"""What rows of one call of a library take: in all what a call of all the bytes takes (see `tasks.calls`).

seconds of rows by themselves -> of rows in calls: the first has the fixed time, the others what more bytes take.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.price import CollectiveCosts
from taskflow.core.columns import Array
from taskflow.tasks.calls import calls_of, groups_of, whole_bytes
from taskflow.tasks.task_graph import COLLECTIVES, TaskGraph


def seconds_of_calls(costs: CollectiveCosts, task_graph: TaskGraph, seconds: Array) -> Array:
    """Seconds of every row, of those that it takes by itself."""
    first, last = calls_of(task_graph)
    rows = np.flatnonzero(first < last)
    taken = seconds.copy()
    if not len(rows):
        return taken
    rows = rows[np.argsort(first[rows], kind="stable")]
    (group, devices) = groups_of(task_graph)
    size = whole_bytes(task_graph)
    for call in np.split(rows, np.flatnonzero(np.diff(first[rows])) + 1):
        prices = costs.prices(devices[group[call[0]]])
        curve = prices.library.curve(COLLECTIVES[int(task_graph.collective[call[0]])])
        assert curve, "a call that the library has not"
        totals = np.cumsum(size[call]).tolist()
        taken[call] = np.diff([curve.at(total) for total in totals], prepend=0.0)
    return taken
