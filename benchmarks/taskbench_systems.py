"""The systems that run the same tasks: a serial loop, mpi4py by hand, taskflow, dask and ray.

A system is made from a `Job` and runs all of its tasks at each call `system(iterations)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from taskbench_graph import Cells, Job, System, counted, two_rows, verify

import taskflow


def serial(job: Job) -> System:
    """A Python loop in one process."""
    shape, (_, cells) = job.shape, two_rows(job.shape)

    def run(iterations: int) -> None:
        work = job.work
        for row in range(shape.rows):
            now, before = cells[row % 2], cells[(row - 1) % 2]
            for column in shape.columns(row):
                if job.verifies:
                    verify(shape, row, column, [before[j] for j in shape.reads(row, column)])
                work(now[column], iterations, row, column)

    return run


def replayed(job: Job, transport: str = "auto", record: bool = False) -> System:
    """taskflow: every row is an operator with a point per column; `record`: when each task ends is noted."""
    iterations = np.zeros(1, np.int64)
    graph, strategy = build(job, iterations)
    task_graph = taskflow.lower(graph, strategy, taskflow.MachineModel.local(job.ranks))
    step = taskflow.Executor(task_graph, record=record, transport=transport)

    def run(count: int) -> None:
        iterations[0] = count
        step()

    return run


def build(job: Job, iterations: np.ndarray) -> tuple[taskflow.Graph, taskflow.Strategy]:
    """The graph, whose kernels read the iteration count from `iterations`, and where its tasks run.

    A row is one operator, split into its columns; where its dependences are no windows, an operator per column.
    """
    shape, graph, configs = job.shape, taskflow.Graph(), {}

    def launch(row: int, columns: range, inputs: list[Any], windows: list[taskflow.Window]) -> Any:
        name = f"row{row}_{columns.start}"
        configs[name] = taskflow.ParallelConfig(
            {"w": len(columns)}, [job.place(c) for c in columns]
        )
        return graph.launch(
            name,
            ", ".join(f"r{k} ^c" for k in range(len(inputs))) + " -> w ^c",
            inputs,
            kernel=_kernel(job, iterations, row, columns.start),
            sizes={"w": len(columns), "c": shape.cell},
            windows={f"r{k}": w for k, w in enumerate(windows)},
            dtype="int64",
        )

    windows = [shape.windows(row) for row in range(shape.rows)]
    before: Any = None
    for row, found in enumerate(windows):
        columns = shape.columns(row)
        if None not in windows:
            before = launch(row, columns, [before] * len(found), found)
        else:
            reads = {c: shape.reads(row, c) for c in columns}
            whole = taskflow.Window("w")
            before = {
                c: launch(
                    row, range(c, c + 1), [before[j] for j in reads[c]], [whole] * len(reads[c])
                )
                for c in columns
            }
    return graph, taskflow.Strategy(configs)


def _kernel(job: Job, iterations: np.ndarray, row: int, first: int) -> taskflow.Kernel:
    run, memory = counted(job.work.func), job.work.args[0]

    def task(ctx: Any, *cells: np.ndarray) -> None:
        ctx.call(run, memory, cells[-1], iterations, row, first + ctx.point)

    def verified(ctx: Any, *cells: np.ndarray) -> None:
        verify(job.shape, row, first + ctx.point, [c for c in cells[:-1] if len(c)])
        task(ctx, *cells)

    return taskflow.Kernel(verified if job.verifies else task, is_captured=not job.verifies)


def dask_threads(job: Job) -> System:
    """dask's threaded scheduler, alone on the host."""
    from dask.threaded import get

    def task(row: int, column: int, cells: Cells) -> np.ndarray:
        return job.task(row, column, iterations[0], cells)

    iterations, shape = [0], job.shape
    graph = {
        (row, column): (task, row, column, [(row - 1, j) for j in shape.reads(row, column)])
        for row in range(shape.rows)
        for column in shape.columns(row)
    }

    def run(count: int) -> None:
        iterations[0] = count
        get(graph, list(graph), num_workers=job.ranks)

    return run


def ray_tasks(job: Job) -> System:
    """ray's tasks in as many processes as there are ranks, alone on the host."""
    import ray

    if not ray.is_initialized():
        ray.init(
            num_cpus=job.ranks, include_dashboard=False, log_to_driver=False, logging_level="error"
        )
    task = ray.remote(
        lambda row, column, iterations, *cells: job.task(row, column, iterations, list(cells))
    )

    def run(iterations: int) -> None:
        before: dict[int, Any] = {}
        last: list[Any] = []
        for row in range(job.shape.rows):
            before = {
                c: task.remote(row, c, iterations, *(before[j] for j in job.shape.reads(row, c)))
                for c in job.shape.columns(row)
            }
            last += before.values()
        ray.get(last)

    return run
