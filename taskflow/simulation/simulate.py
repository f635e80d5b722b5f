"""Simulation: task graph + costs -> predicted Timeline.

Streams of devices are in-order queues, as CUDA streams are, and the executor obeys the same order. A row starts when
its streams are free and its dependences done, those for memory that it takes over included. Transfers that cross a link
at the same time share it fairly (`simulation.sharing`).

`schedule` is the cheaper rule of a search's walk (`core.start_rule`): one pass over the rows is all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.core.columns import pointers
from taskflow.core.compiling import tiered
from taskflow.core.start_rule import finish_of, latest, occupy, start_of
from taskflow.core.system import give_back_memory
from taskflow.cost.model import CostModel
from taskflow.simulation.representatives import with_alike_loads
from taskflow.simulation.sharing import find_hops, find_tax, find_waits, schedule_fairly
from taskflow.tasks.fair import fair_pass
from taskflow.tasks.memory import needed_bytes, plan_memory, shortage, with_reuse
from taskflow.tasks.streams import count_streams, find_queues
from taskflow.tasks.task_graph import Array, TaskGraph
from taskflow.tasks.timeline import Timeline

MANY = 1 << 19  # rows; what they took until now is given back


def simulate(task_graph: TaskGraph, costs: CostModel) -> Timeline:
    """The predicted Timeline of one step: `.seconds`, `.bytes_moved`, `.peak_bytes`, `.critical_path()`.

    Seconds are those until the last row ends, and what a step takes besides its rows (`MachineModel.step_seconds`).

    Rows of representatives (`lower(devices=orbits)`) give the timeline of these: its seconds, bytes moved, peaks and
    shortage are those of all devices. Orbits are refined, and the rows made anew, where rows that are like each other
    take other seconds or load links otherwise.

    Raises:
        ValueError: these are the rows of some devices alone; or of representatives, and the costs know rows.
    """
    if task_graph.peers is not None:
        return _of_representatives(task_graph, costs)
    task_graph.check_complete("simulate")
    plan = plan_memory(task_graph, is_predicted=True)
    waiting = with_reuse(task_graph, plan)
    seconds = costs.seconds(task_graph)
    start, end, last = schedule_fairly(waiting, seconds, costs.of_calls(task_graph, seconds))
    needed = needed_bytes(task_graph, plan)
    last = last + task_graph.machine.step_seconds
    lacking = shortage(task_graph, plan, needed)
    return Timeline(waiting, start, end, last, needed, lacking, plan.host_bytes)


def _of_representatives(task_graph: TaskGraph, costs: CostModel) -> Timeline:
    if not costs.knows_no_rows:
        raise ValueError(
            "simulate: these are the rows of representatives, the costs know those of all devices"
        )
    if len(task_graph) >= MANY:
        give_back_memory()  # in which they were ordered
    task_graph, loads, table_seconds = with_alike_loads(task_graph, costs)
    peers = task_graph.peers
    assert peers is not None
    plan = plan_memory(task_graph, is_predicted=True)
    waiting = with_reuse(task_graph, plan)
    needed = needed_bytes(task_graph, plan)
    of_all = peers.orbits.representative[peers.orbits.of]
    lacking = shortage(task_graph, plan, needed)
    kept = plan.host_bytes[of_all]
    del plan  # as large as the rows
    taken = costs.of_calls(task_graph, costs.seconds_of_representatives(task_graph, table_seconds))
    start, end = fair_pass(find_waits(waiting), loads, taken, find_tax(waiting))
    seconds = float(end.max(initial=0.0)) + task_graph.machine.step_seconds
    return Timeline(waiting, start, end, seconds, needed[of_all], lacking, kept)


def schedule(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array, float]:
    """Start and end of every row, and the end of all, for the given seconds per row, by the start rule.

    Rows wait for what `task_graph` says: for memory too if it is one of `with_reuse`.
    """
    return walk_pass(task_graph, seconds)()


def walk_pass(task_graph: TaskGraph, seconds: Array) -> Callable[[], tuple[Array, Array, float]]:
    """`schedule` as a call, which may be made again and again."""
    rows, seconds = len(task_graph), np.asarray(seconds, float)
    queues, hops = (
        _by_row(rows, *find_queues(task_graph)),
        _by_row(rows, *find_hops(task_graph, seconds)),
    )

    def run() -> tuple[Array, Array, float]:
        start = np.zeros(rows)
        end = np.zeros(rows)
        free = np.zeros(count_streams(task_graph.machine))
        _one_pass(task_graph.dep_ptr, task_graph.dep_row, *queues, *hops, seconds, start, end, free)
        return start, end, float(max(end.max(initial=0.0), free.max(initial=0.0)))

    return run


def _by_row(rows: int, row: Array, column: Array) -> tuple[Array, Array]:
    """Where the entries of every row begin, and the column in order of rows."""
    return pointers(np.bincount(row, minlength=rows)), column[np.argsort(row, kind="stable")]


@tiered
def _one_pass(
    dep_ptr: Array,
    dep_row: Array,
    queue_ptr: Array,
    queue: Array,
    hop_ptr: Array,
    hop: Array,
    seconds: Array,
    start: Array,
    end: Array,
    free: Array,
) -> None:
    """Fill in start and end of every row; `free[s]` is when stream s is next free.

    Args:
        dep_ptr, dep_row: row k depends on the rows `dep_row[dep_ptr[k] : dep_ptr[k + 1]]`.
        queue_ptr, queue: streams that rows occupy.
        hop_ptr, hop: HOP of the links that they load.
        seconds: of every row.
    """
    for row in range(len(seconds)):
        streams = queue[queue_ptr[row] : queue_ptr[row + 1]]
        done = latest(0.0, end, dep_row[dep_ptr[row] : dep_ptr[row + 1]])
        start[row] = start_of(done, free, streams)
        end[row] = finish_of(start[row], seconds[row], free, hop[hop_ptr[row] : hop_ptr[row + 1]])
        occupy(free, streams, end[row])
