"""Placements of pipelines on emulated ranks, a device each: predicted and measured seconds, and numbers of one device.

    mpirun -n 4 python benchmarks/shapes.py [V M K X NN ZBV]     or -n 8, which leaves out K

The models are those of `tests/schedule/shapes.py` (names of Tessel, Lin et al., HPCA 2024): a unit forward and two
backward a cell (M: three, ZBV: two blocks of one), no time for transfers. In units: what a policy and a search take,
and a bound. Loss and weights of all steps are compared with one device in float64.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from taskflow import (
    Device,
    Executor,
    MachineModel,
    lower,
    reorder,
    search_schedule,
    simulate,
    single_device,
)
from taskflow.graph.graph import Graph
from taskflow.schedule import POLICIES, Policy, Schedule
from taskflow.tasks.task_graph import TaskGraph

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.schedule.cells import CellCosts, feeds_of  # noqa: E402
from tests.schedule.shapes import SHAPES, Shape, shapes_on  # noqa: E402

LEAST_RATIO, MOST_RATIO = 0.95, 1.05
MOST_DIFFERENCE = 1e-10
BY_HAND = {
    "V": "one_f_one_b",
    "M": "interlaced",
    "K": "interlaced",
    "X": "chimera",
    "NN": "interleaved",
    "ZBV": "zb_v",
}
EMULATED = Device(
    "emulated",
    flops_per_second=1e12,
    memory_bandwidth=1e12,
    overhead_seconds=0.0,
    sends_by_link=True,
)
Numbers = dict[str, np.ndarray]


def run(
    rows: TaskGraph, graph: Graph, costs: CellCosts | None, steps: int
) -> tuple[list[float], Numbers]:
    """Seconds of every step, and what they give."""
    comm, feeds = MPI.COMM_WORLD, feeds_of(graph)
    with Executor(rows, costs=costs, seed=0, record=True) as step:
        losses, taken = [], []
        for _ in range(steps):
            losses.append(step(feeds)["loss"])
            taken.append(comm.allreduce(step.timeline.seconds, MPI.MAX))
        return taken, {"loss": np.array(losses)} | {
            name: step.read(name) for name in step.persistent
        }


def alone(graph: Graph, steps: int) -> Numbers:
    """What one device gives."""
    machine = MachineModel.uniform(1)
    return run(lower(graph, single_device(graph, machine), machine), graph, None, steps)[1]


def difference(found: Numbers, expected: Numbers) -> float:
    """The largest of all numbers."""
    return max(float(np.abs(found[name] - value).max()) for name, value in expected.items())


def orders(shape: Shape, name: str, seconds: float) -> list[Policy | Schedule]:
    """A policy, and what rank 0 has searched for."""
    comm = MPI.COMM_WORLD
    found = search_schedule(shape.rows, shape.costs(), seconds=seconds) if comm.rank == 0 else None
    return [POLICIES[BY_HAND[name]], comm.bcast(found)]


def report(
    name: str, shape: Shape, order: Policy | Schedule, options: argparse.Namespace, one: Numbers
) -> None:
    """Run a shape in one order, and print a line."""
    unit = options.unit_milliseconds * 1e-3
    rows = reorder(shape.rows, shape.costs(), order)
    predicted = simulate(rows, shape.costs(unit)).seconds
    taken, numbers = run(rows, shape.graph, shape.costs(unit), options.steps)
    measured, far = float(np.median(taken[1:])), difference(numbers, one)
    ratio = measured / predicted
    is_ok = LEAST_RATIO <= ratio <= MOST_RATIO and far <= MOST_DIFFERENCE
    if MPI.COMM_WORLD.rank == 0:
        print(
            f"{name:4}{order.name:12} {predicted / unit:5.4g} units, bound {shape.bound:3}; {predicted * 1e3:7.1f} ms "
            f"predicted, {measured * 1e3:7.1f} measured, x {ratio:.3f}; {far:.0e} from one device: "
            f"{'ok' if is_ok else 'MISSED'}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)} (default: all)"
    )
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument(
        "--unit-milliseconds", type=float, default=10.0, help="of a cell's forward pass"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each search")
    options = parser.parse_args()
    machine = MachineModel.uniform(MPI.COMM_WORLD.size, EMULATED, bandwidth=1e9)
    known = shapes_on(machine)
    if MPI.COMM_WORLD.rank == 0:
        given = f"{options.parts} micro-batches, units of {options.unit_milliseconds:g} ms"
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"{MPI.COMM_WORLD.size} ranks, {given}; median of {options.steps - 1} steps; {load}")
    for name in options.shapes or known:
        shape = known[name](machine, options.parts)
        one = alone(shape.graph, options.steps)
        for order in orders(shape, name, options.seconds):
            report(name, shape, order, options, one)


if __name__ == "__main__":
    main()
