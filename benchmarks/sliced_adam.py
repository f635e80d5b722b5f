"""Sliced Adam: `mpirun -n 2 python benchmarks/sliced_adam.py`. Real ranks, real NumPy, no emulation.

A weight of 16.8 million float32 parameters whose gradient is summed over the ranks. Whole: all-reduce, then every rank
updates all of it. Sliced: reduce-scatter, each rank updates its part and keeps the moments of that alone, all-gather
(CoCoNet's reordering, ASPLOS 2022; ZeRO-1, SC 2020). It is a configuration of the update operator, no other program.
In pieces: each rank updates its part in so many points, each of which has transfers of its own, and `depth_first`
takes one after the other: the gradients of a piece are summed, its parameters updated and handed on before the next
one's, so what one of them writes the next one reads from the cache (CoCoNet's fusion).

Printed: milliseconds from the last gradient of all ranks to the end of the step on all, medians over steps in turn with
one another, and how many times as fast as all-reduce by messages and whole Adam each is.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import ops
import taskflow

LEAST = {
    "messages": 1.4,
    "shared": 2.0,
}  # times as fast, in pieces, as whole Adam behind an all-reduce by messages
TOLERANCE = 1e-6


def build(ranks: int, width: int) -> taskflow.Graph:
    """A product of one sample a rank: its gradient is quick to make."""
    graph = taskflow.Graph()
    h = ops.linear(graph.input("x", (ranks, width)), width, bias=False, name="fc")
    ops.adam(ops.mean_squared_error(h, graph.input("t", (ranks, width)), name="loss"), lr=1e-3)
    return graph


def seconds_made(timeline: taskflow.Timeline) -> float:
    """When this rank's gradient is made, in seconds from the begin of the step."""
    graph, made = timeline.task_graph, 0.0
    for row in range(len(graph)):
        if (
            graph.name(row) == "fc.dweight"
            and not graph.is_communication[row]
            and graph.launch[row] >= 0
        ):
            made = np.nanmax([made, timeline.end[row]])
    return float(made)


def lowered(graph: taskflow.Graph, pieces: int) -> taskflow.TaskGraph:
    """The update of all of it on every device (0), or of a part on each, in so many pieces."""
    machine = taskflow.MachineModel.local()
    devices, strategy = range(len(machine.devices)), taskflow.data_parallel(graph, machine)
    if not pieces:
        return taskflow.lower(graph, strategy, machine)
    update = next(op for op in graph.operators if op.name.endswith(".adam"))
    owners = tuple(device for device in devices for _ in range(pieces))
    strategy[update.name] = taskflow.ParallelConfig({update.split_axes[0]: len(owners)}, owners)
    costs = taskflow.CostModel.analytic(machine)
    return taskflow.reorder(
        taskflow.lower(graph, strategy, machine), costs, taskflow.schedule.depth_first
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--pieces", type=int, default=64)
    options = parser.parse_args()
    comm, width = MPI.COMM_WORLD, options.width
    graph = build(comm.size, width)
    random = np.random.default_rng(0)
    feeds = {name: random.random((comm.size, width), dtype=np.float32) for name in "xt"}
    steps = {
        (pieces, transport): taskflow.Executor(
            lowered(graph, pieces), transport=transport, record=True
        )
        for pieces in (0, 1, options.pieces)
        for transport in LEAST
    }
    times: dict[tuple[int, str], list[float]] = {key: [] for key in steps}
    for _ in range(options.steps):
        for key, step in steps.items():
            comm.barrier()  # the ranks begin together: so their clocks agree
            step(feeds)
            end, made = (
                comm.allreduce(s, MPI.MAX) for s in (step.seconds, seconds_made(step.timeline))
            )
            times[key].append(end - made)
    weights = {key: step.read("fc.weight") for key, step in steps.items()}
    median = {key: float(np.median(of[2:])) for key, of in times.items()}
    base, holds = (0, "messages"), True
    if not comm.rank:
        print(f"{width * width:,} parameters on {comm.size} ranks")
    for (pieces, transport), found in median.items():
        differs = float(np.abs(weights[pieces, transport] - weights[base]).max())
        ratio = median[base] / found
        holds &= differs <= TOLERANCE and (pieces < 2 or ratio >= LEAST[transport])
        if not comm.rank:
            name = f"sliced, {pieces} pieces" if pieces > 1 else "sliced" if pieces else "whole"
            print(
                f"{name:17s} {transport:8s} {found * 1e3:6.1f} ms {ratio:5.2f}x, weights differ by {differs:.1e}"
            )
    if not comm.rank:
        limits = ", ".join(f"{least}x by {transport}" for transport, least in LEAST.items())
        print(
            f"sliced in pieces at least {limits}, weights equal to {TOLERANCE}:",
            "holds" if holds else "MISSED",
        )
    for step in steps.values():
        step.close()


if __name__ == "__main__":
    main()
