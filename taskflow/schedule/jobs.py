"""Orders of jobs beside each other (`taskflow.beside`): one computes while the other waits for what travels."""

from __future__ import annotations

import numpy as np

from taskflow.core.compiling import tiered
from taskflow.graph.phases import Phase
from taskflow.tasks.task_graph import Array, Kind, Launch, TaskGraph

ORDERS_OF_JOBS = "forward_first", "critical_path", "own_path", "crossover"  # which are tried


def crossover(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by turns: each job computes in its own, and updates right before it computes again; what moves goes early.

    So gradients of a job travel in the turns of the others. It is Crossover Synchronization (Luo et al., arXiv
    2103.07974), which gains between steps (`lower(..., repeat=)`). A job that exchanges within a pass, as batch norm
    over all samples does, gets nothing back for the time that it waits there: `critical_path` is for those.

    Two jobs, two steps::

        turn     a 0          b 0          a 1          b 1
        computes a            b            a            b
        updates                            a            b      with gradients of the turn before
    """
    jobs = _numbers(task_graph)
    turn = np.zeros(len(task_graph))
    of_launch = np.array(
        [_turn(n.step / n.pace, jobs[_job(n)], len(jobs), n.phase) for n in task_graph.launches]
    )
    points = task_graph.launch >= 0
    turn[points] = of_launch[task_graph.launch[points]]
    _await(task_graph.dep_ptr, task_graph.dep_row, turn)
    first = np.full(len(task_graph), np.inf)
    np.minimum.at(first, task_graph.dep_row, turn[task_graph.waiting_row])
    turn = np.where(task_graph.kind == Kind.FEED, first, turn)  # until then they need no memory
    return np.argsort(turn, kind="stable")


def _turn(step: float, job: int, jobs: int, phase: Phase) -> float:
    """When a launch has its turn: an update is half a turn before its job computes in the next step."""
    is_late = phase == Phase.UPDATE
    return jobs * (step + is_late) + job + (0.0 if is_late else 0.5)


@tiered
def _await(dep_ptr: Array, dep_row: Array, turn: Array) -> None:
    for row in range(len(turn)):
        for before in dep_row[dep_ptr[row] : dep_ptr[row + 1]]:
            turn[row] = max(turn[row], turn[before])


def jobs_of(task_graph: TaskGraph) -> Array:
    """The number of the job of every row; 0 for what moves a region that several share."""
    jobs = _numbers(task_graph)
    of_region = np.array([jobs.get(r.name.partition("/")[0], 0) for r in task_graph.regions])
    of_launch = np.array([jobs[_job(n)] for n in task_graph.launches])
    of_rows: Array = np.where(
        task_graph.launch >= 0,
        of_launch[task_graph.launch],
        of_region[np.maximum(task_graph.region, 0)],
    )
    return of_rows


def _numbers(task_graph: TaskGraph) -> dict[str, int]:
    """Job -> its number, in the order of the program."""
    return {job: k for k, job in enumerate(dict.fromkeys(map(_job, task_graph.launches)))}


def _job(launch: Launch) -> str:
    """Of the graphs that were joined last, the one whose launch it is."""
    return launch.job.partition("/")[0]
