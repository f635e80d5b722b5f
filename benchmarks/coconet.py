"""A product and its all-reduce in pieces, on emulated links: `mpirun -n 2 python benchmarks/coconet.py`.

Jangda et al., "Breaking the computation and communication abstraction barrier in distributed machine learning
workloads" (CoCoNet), ASPLOS 2022, splits a product whose partial results are summed, so that the sum of each piece is
under way while the next piece is computed. Here that is a configuration: a split of the inner axis over the devices
makes partial results, one of the samples in pieces on each device makes a sum of each piece, and the order of the
critical path has each sum sent as soon as it can be.

Two emulated devices, a link of 0.5 GB/s each way, a product as long as the transfers of its all-reduce, which takes its
folds longer. Printed: predicted and measured seconds in 1, 4 and 16 pieces, their ratio, and how much of the product,
the shorter of the two, is hidden, predicted and measured: with k pieces at most (k - 1) / k. Hidden is what a step
takes less than the product and the sums of as many pieces one after the other; that pieces also hide folds of a sum
behind its transfers is no part of it.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import ops
import taskflow
from taskflow.simulation.sharing import schedule_fairly

BANDWIDTH = 5e8  # bytes/s of a link
MEMORY = 1e9  # bytes/s of a device's memory: a fold really runs, and must not take longer here than there
INNER = 32  # so that what really runs is over long before the time that it stands for
LEAST_HIDDEN = {4: 0.65, 16: 0.85}  # pieces -> share of the shorter of product and all-reduce
RATIO = (0.95, 1.05)  # measured over predicted
NOISE = 0.03  # by which a measured share may be above its cap


def build(batch: int, width: int) -> taskflow.Graph:
    """A product, and one that reads it whole and takes next to no time."""
    graph = taskflow.Graph()
    h = ops.linear(graph.input("x", (batch, INNER)), width, bias=False, name="product")
    graph.output("y", ops.linear(h, 2, bias=False, name="reader"))
    return graph


def in_pieces(pieces: int, ranks: int) -> taskflow.Strategy:
    """The inner axis over all devices, the samples in so many pieces on each."""
    devices = tuple(range(ranks)) * pieces
    return taskflow.Strategy(
        {
            "product": taskflow.ParallelConfig({"b": pieces, "i": ranks}, devices),
            "reader": taskflow.ParallelConfig({"o": ranks}),
        }
    )


def seconds_of_sums(task_graph: taskflow.TaskGraph, costs: taskflow.CostModel) -> float:
    """Of a step whose product takes no time."""
    seconds = costs.seconds(task_graph)
    for row in np.flatnonzero(task_graph.kind == taskflow.Kind.POINT).tolist():
        if task_graph.name(row) == "product":
            seconds[row] = 0.0
    return float(schedule_fairly(task_graph, seconds)[2])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    comm, batch, width = MPI.COMM_WORLD, options.batch, options.width
    seconds = (
        2 * (comm.size - 1) / comm.size * 4 * batch * width / BANDWIDTH
    )  # of the transfers, and of the product
    rate = 2 * batch * width * INNER / comm.size / seconds
    device = taskflow.Device(
        "emulated", flops_per_second=rate, memory_bandwidth=MEMORY, overhead_seconds=1e-5
    )
    machine = taskflow.MachineModel.uniform(comm.size, device, BANDWIDTH, 1e-5)
    graph, costs = build(batch, width), taskflow.CostModel.analytic(machine)
    feeds = {"x": np.random.default_rng(0).random((batch, INNER), dtype=np.float32)}
    holds = True
    for pieces in (1, *LEAST_HIDDEN):
        task_graph = taskflow.reorder(
            taskflow.lower(graph, in_pieces(pieces, comm.size), machine), costs
        )
        predicted = taskflow.simulate(task_graph, costs).seconds
        sums = seconds_of_sums(task_graph, costs)
        with taskflow.Executor(task_graph, costs=costs) as step:
            step(feeds)
            times = []
            for _ in range(options.steps):
                comm.barrier()
                step(feeds)
                times.append(comm.allreduce(step.seconds, MPI.MAX))
        found = [predicted, float(np.median(times))]
        hidden = [(seconds + sums - taken) / min(seconds, sums) for taken in found]
        if not comm.rank:
            print(
                f"{pieces:3d} pieces: predicted {found[0] * 1e3:7.1f} ms, measured {found[1] * 1e3:7.1f} ms "
                f"({found[1] / found[0]:.3f} of it); hidden: {hidden[0]:.1%}, {hidden[1]:.1%}",
                flush=True,
            )
            holds &= RATIO[0] <= found[1] / found[0] <= RATIO[1]
            holds &= (
                LEAST_HIDDEN.get(pieces, 0.0)
                <= min(hidden)
                <= max(hidden)
                <= (pieces - 1) / pieces + NOISE
            )
    if not comm.rank:
        limits = ", ".join(f"{least:.0%} in {pieces}" for pieces, least in LEAST_HIDDEN.items())
        print(
            f"hidden, at least {limits} pieces; measured/predicted in {RATIO}:",
            "holds" if holds else "MISSED",
        )


if __name__ == "__main__":
    main()
