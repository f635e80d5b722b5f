"""Simulation: task graph + costs -> predicted Timeline.

Streams of devices are in-order queues, as CUDA streams are, and the executor obeys the same order. A row starts when
its streams are free and its dependences done, those for memory that it takes over included. Transfers that cross a link
at the same time share it fairly (`simulation.sharing`).

`schedule` is the cheaper rule of a search's walk: a link is a queue, too, so one pass over the rows is all.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.compiling import inlined, njit
from taskflow.core.start_rule import latest, occupy, start_of
from taskflow.cost.model import CostModel
from taskflow.simulation.sharing import schedule_fairly
from taskflow.tasks.memory import plan_memory, with_reuse
from taskflow.tasks.task_graph import STREAMS, Array, TaskGraph
from taskflow.tasks.timeline import Timeline


def simulate(task_graph: TaskGraph, costs: CostModel) -> Timeline:
    """The predicted Timeline of one step: `.seconds`, `.bytes_moved`, `.peak_bytes`, `.critical_path()`."""
    plan = plan_memory(task_graph)
    waiting = with_reuse(task_graph, plan)
    return Timeline(waiting, *schedule_fairly(waiting, costs.seconds(task_graph)), plan.peak_bytes)


def schedule(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array, float]:
    """Start and end of every row, and the end of the last one, for the given seconds per row, where links are queues.

    Rows wait for what `task_graph` says: for memory too if it is one of `with_reuse`.
    """
    rows = len(task_graph)
    start, end = np.zeros(rows), np.zeros(rows)
    free = np.zeros(STREAMS * len(task_graph.machine.devices) + len(task_graph.machine.links))
    graph, groups = task_graph, task_graph.groups
    columns = graph.dep_ptr, graph.dep_row, graph.streams, groups.ptr, groups.streams
    total = _one_pass(*columns, np.asarray(seconds, float), start, end, free)
    return start, end, float(total)


@njit
def _one_pass(
    dep_ptr: Array,
    dep_row: Array,
    streams: Array,
    group_ptr: Array,
    group_streams: Array,
    seconds: Array,
    start: Array,
    end: Array,
    free: Array,
) -> float:
    """Fill in start and end of every row; `free[s]` is when stream s is next free. Returns the end of the last row.

    Args:
        dep_ptr, dep_row: row k depends on the rows `dep_row[dep_ptr[k] : dep_ptr[k + 1]]`.
        streams: (rows, n) streams that a row occupies, -1 for none. A row of a collective has `-2 - g` first, which
            stands for the streams of group g: `group_streams[group_ptr[g] : group_ptr[g + 1]]`.
        seconds: of every row.
    """
    last = 0.0
    for row in range(len(seconds)):
        group = group_streams[_of_group(streams[row, 0], group_ptr)]
        done = latest(0.0, end, dep_row[dep_ptr[row] : dep_ptr[row + 1]])
        start[row] = start_of(start_of(done, free, streams[row]), free, group)
        end[row] = start[row] + seconds[row]
        occupy(free, streams[row], end[row])
        occupy(free, group, end[row])
        last = max(last, end[row])
    return last


@inlined
def _of_group(stream: int, group_ptr: Array) -> slice:
    """The streams of the group that `stream` stands for; none, if it is a stream itself."""
    return slice(group_ptr[-2 - stream], group_ptr[-1 - stream]) if stream < -1 else slice(0, 0)
