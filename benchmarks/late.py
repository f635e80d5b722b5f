"""One message of a pipeline arrives 50 ms late: how much of that is hidden where other work is ready.

    python benchmarks/late.py              every message between stages, simulated
    mpirun -n 4 python benchmarks/late.py  some of those that can be hidden, measured on emulated devices

Four stages, eight micro-batches, 25 ms a forward pass, twice that a backward one. Ready: what would be hidden if a
message delayed nobody but its readers (`tests/schedule/late.py`). Three kinds of devices: those that send over links of
their own, those with one stream for all that they receive, and those with one thread, CPUs. GPipe has nothing ready.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from taskflow import Executor, MachineModel, reorder, search_schedule, simulate
from taskflow.schedule import Policy, Schedule, critical_path, one_f_one_b
from taskflow.schedule.orders import Order
from taskflow.tasks.task_graph import TaskGraph

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.schedule.cells import CellCosts, feeds_of  # noqa: E402
from tests.schedule.late import LINKS, STREAMS, THREAD, LateCosts, hidden, messages  # noqa: E402
from tests.schedule.shapes import Shape, v_shape  # noqa: E402

LEAST_SHARE = 0.9
STAGES, PARTS = 4, 8
DEVICES = {"links": LINKS, "one stream": STREAMS, "one thread": THREAD}
AnyOrder = Order | Policy | Schedule


def orders(shape: Shape, unit: float) -> dict[str, AnyOrder]:
    """The orders that are compared; all ranks have the same."""
    comm = MPI.COMM_WORLD
    found = search_schedule(shape.rows, shape.costs(unit), seconds=1.0) if comm.rank == 0 else None
    return {"1F1B": one_f_one_b, "searched": comm.bcast(found), "critical path": critical_path}


def simulated(late: float, unit: float) -> None:
    """Print what is hidden of a delay of each message, on the whole."""
    for device, kind in DEVICES.items():
        shape = v_shape(MachineModel.uniform(STAGES, kind, bandwidth=1e9), PARTS)
        seconds = shape.costs(unit)
        for name, order in orders(shape, unit).items():
            rows = reorder(shape.rows, seconds, order)
            found, ready = (
                hidden(rows, seconds.seconds(rows), late, only).sum() for only in (False, True)
            )
            share = found / ready
            verdict = "ok" if share >= LEAST_SHARE else "MISSED"
            count = len(messages(rows))
            print(
                f"{device:10} {name:13} {count} messages: {found:5.2f} of {ready:5.2f} hidden, {share:.3f}: {verdict}"
            )


def fastest(rows: TaskGraph, shape: Shape, costs: CellCosts, steps: int) -> float:
    """Seconds of the fastest step."""
    feeds = feeds_of(shape.graph)
    with Executor(rows, costs=costs, seed=0, record=True) as step:
        taken = []
        for _ in range(steps):
            step(feeds)
            taken.append(MPI.COMM_WORLD.allreduce(step.timeline.seconds, MPI.MAX))
    return min(taken[1:])


def measured(late: float, unit: float, options: argparse.Namespace) -> None:
    """Print what is hidden of a delay of some messages, of those that can be hidden."""
    shape = v_shape(MachineModel.uniform(STAGES, LINKS, bandwidth=1e9), PARTS)
    for name, order in orders(shape, unit).items():
        rows = reorder(shape.rows, shape.costs(unit), order)
        can = hidden(rows, shape.costs(unit).seconds(rows), late, only_readers=True) > 1 - 1e-9
        chosen = np.array(messages(rows))[can][:: max(1, int(can.sum()) // options.messages)][
            : options.messages
        ]
        on_time = fastest(rows, shape, shape.costs(unit), options.steps)
        for row in chosen.tolist():
            costs = LateCosts(unit, row, late)
            longer = [
                fastest(rows, shape, costs, options.steps) - on_time,
                simulate(rows, costs).seconds,
            ]
            longer[1] -= simulate(rows, shape.costs(unit)).seconds
            share, predicted = (1 - each / late for each in longer)
            if MPI.COMM_WORLD.rank == 0:
                what = f"{rows.name(row)} of micro-batch {rows.ordinal[row]}, {rows.source[row]} -> {rows.device[row]}"
                verdict = "ok" if share >= LEAST_SHARE else "MISSED"
                print(
                    f"{name:13} {what:36} {predicted:.3f} predicted, {share:.3f} measured: {verdict}",
                    flush=True,
                )


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--late-milliseconds", type=float, default=50.0)
    parser.add_argument("--unit-milliseconds", type=float, default=25.0, help="of a forward pass")
    parser.add_argument("--messages", type=int, default=3, help="measured of each order")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    late, unit = options.late_milliseconds * 1e-3, options.unit_milliseconds * 1e-3
    if MPI.COMM_WORLD.size == STAGES:
        measured(late, unit, options)
    else:
        simulated(late, unit)


if __name__ == "__main__":
    main()
