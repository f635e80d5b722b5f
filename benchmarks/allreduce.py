"""All-reduce by taskflow's rows over shared memory and over messages, beside MPI_Allreduce, in one run.

`mpirun -n 2 python benchmarks/allreduce.py` (or -n 4). The graph is two operators without work: one that leaves partial
sums on every rank and one that reads their sum whole on every rank, so a step is the all-reduce between them.
`pass`: every rank adds 1 to an array of its own. An all-reduce reads and writes as many bytes, at the least.
"""

import argparse
import time

import numpy as np
from mpi4py import MPI

import taskflow


def leave(ctx, x, y):
    """The partial sum is what the memory holds."""


def read(ctx, y, x, z):
    """Touches nothing: only the dependence counts."""


def build(ranks: int, elements: int) -> tuple[taskflow.Graph, taskflow.Strategy]:
    """Partial sums of `elements` float32 on every rank, read whole by every rank."""
    graph = taskflow.Graph()
    x = graph.parameter("x", (ranks,), trainable=False)
    y = graph.launch("partial", "d -> n", [x], kernel=leave, sizes={"n": elements})
    graph.launch("whole", "^n, d -> d", [y, x], kernel=read)
    config = taskflow.ParallelConfig({"d": ranks})
    return graph, taskflow.Strategy({"partial": config, "whole": config})


def main() -> None:
    """Print a table: microseconds and the ratio to MPI_Allreduce."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, nargs="+", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    ranks = comm.size
    sizes = options.megabytes or ([1, 16, 64] if ranks == 2 else [1, 8, 32])
    if comm.rank == 0:
        print(f"{ranks} ranks; microseconds, median of {options.rounds} rounds, slowest rank")
        print(
            f"{'MB':>6s} {'MPI_Allreduce':>14s} {'messages':>10s} {'shared':>10s} {'ratio':>7s} {'pass':>8s}"
        )
    for megabytes in sizes:
        elements = int(megabytes * 2**20) // 4
        graph, strategy = build(ranks, elements)
        task_graph = taskflow.lower(graph, strategy, taskflow.MachineModel.local(ranks))
        buffer = np.ones(elements, np.float32)
        steps = {
            "library": lambda b=buffer: comm.Allreduce(MPI.IN_PLACE, b),
            "pass": lambda b=buffer: np.add(b, 1, out=b),
            "messages": taskflow.Executor(task_graph, transport="messages", record=False),
            "shared": taskflow.Executor(task_graph, transport="shared", record=False),
        }
        repeat = max(6, int(20 / megabytes))
        times = {name: [] for name in steps}
        for step in steps.values():
            step()
        for _ in range(options.rounds):
            for name, step in steps.items():
                buffer[...] = 1
                step()  # the others' data left the caches
                comm.Barrier()
                begin = time.perf_counter()
                for _ in range(repeat):
                    step()
                times[name].append(comm.allreduce((time.perf_counter() - begin) / repeat, MPI.MAX))
        names = "library", "messages", "shared", "pass"
        library, messages, shared, least = (float(np.median(times[n])) * 1e6 for n in names)
        if comm.rank == 0:
            took = f"{megabytes:6g} {library:14.0f} {messages:10.0f} {shared:10.0f}"
            print(f"{took} {shared / library:7.2f} {least:8.0f}", flush=True)


if __name__ == "__main__":
    main()
