"""Occupancy: what memory holds over time, by the clock of a timeline rather than by the order of rows.

Takes rows with their start and end, predicted or measured; gives the time that every instance is alive, and the bytes
in use on every device at any time. The arena of a device is at least as large as its bytes in use (`tasks.memory`).
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from taskflow.tasks.task_graph import Array, TaskGraph


def lives(task_graph: TaskGraph, start: Array, end: Array) -> tuple[Array, Array]:
    """Seconds at which the life of every instance begins and ends; NaN where no row that is known here uses it.

    What persists, and what is fetched, lives to the end of the step; what persists, from its begin.
    """
    last = float(np.nanmax(end, initial=0.0))
    begin, finish = np.full((2, len(task_graph.instance_region)), np.nan)
    row = task_graph.arg_row
    used = task_graph.arg_instance >= 0
    instance = task_graph.arg_instance
    np.fmin.at(begin, instance[used], start[row[used]])
    np.fmax.at(finish, instance[used], end[row[used]])
    fetched = [k for places in task_graph.fetches.values() for _, k, _ in places]
    finish[fetched] = np.where(np.isnan(begin[fetched]), np.nan, last)
    kept = [k for k, _ in chain.from_iterable(task_graph.homes.values())]
    begin[kept] = 0.0
    finish[kept] = last
    return begin, finish


def bytes_in_use(task_graph: TaskGraph, begin: Array, finish: Array) -> list[tuple[Array, Array]]:
    """Per device the seconds at which its bytes in use change, ascending, and what they are from then on."""
    size = task_graph.instance_bytes()
    device = task_graph.instance_device
    by_device = []
    for number in range(len(task_graph.machine.devices)):
        here = np.flatnonzero((device == number) & ~np.isnan(begin))
        seconds = np.concatenate([begin[here], finish[here]])
        change = np.concatenate([size[here], -size[here]])
        order = np.lexsort((change, seconds))  # what ends makes room for what begins
        total = np.cumsum(change[order])
        is_last = np.diff(seconds[order], append=np.inf) > 0
        by_device.append((seconds[order][is_last], total[is_last]))
    return by_device
