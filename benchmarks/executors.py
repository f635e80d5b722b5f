"""What it takes to make an executor: `[mpirun -n 2] python benchmarks/executors.py [--tasks 1000 10000 100000]`.

Tasks are those of a stencil of four columns a rank (`taskbench_graph`), with an empty kernel: one operator and one
compiled call each. Besides, ResNet-101, data parallel over all ranks, whose random weights are a part of what it takes.
Seconds of the wall, medians of several executors.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module

import numpy as np
from mpi4py import MPI
from taskbench_graph import Job, TaskRows, work
from taskbench_systems import build

import taskflow

COMM = MPI.COMM_WORLD


def seconds_of(task_graph: taskflow.TaskGraph, repeat: int) -> float:
    """To make an executor, on the slowest rank."""
    found = []
    for _ in range(repeat):
        COMM.Barrier()
        begin = time.perf_counter()
        executor = taskflow.Executor(task_graph, record=False)
        found.append(COMM.allreduce(time.perf_counter() - begin, MPI.MAX))
        executor.close()
    return float(np.median(found))


def stencil(tasks: int) -> taskflow.TaskGraph:
    """About so many empty tasks a rank."""
    width = 4 * COMM.size
    job = Job(TaskRows("stencil_1d", width, tasks // 4), work("empty", width), COMM.size, False)
    graph, strategy = build(job, np.zeros(1, np.int64))
    return taskflow.lower(graph, strategy, taskflow.MachineModel.local(COMM.size))


def model(name: str) -> taskflow.TaskGraph:
    """A training graph of the examples, data parallel."""
    graph = import_module(f"ops.models.{name}").build(batch=4 * COMM.size)
    machine = taskflow.MachineModel.local(COMM.size)
    return taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--models", nargs="*", default=["resnet101"])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    graphs = [
        (f"stencil, {tasks} tasks", lambda tasks=tasks: stencil(tasks)) for tasks in options.tasks
    ]
    graphs += [(name, lambda name=name: model(name)) for name in options.models]
    for name, make in graphs:
        task_graph = make()
        seconds = seconds_of(task_graph, options.repeat)
        if COMM.rank == 0:
            each = seconds / len(task_graph) * 1e6
            print(
                f"{name:24s}{len(task_graph):9d} rows {seconds:8.3f} s {each:8.1f} us a row",
                flush=True,
            )


if __name__ == "__main__":
    main()
