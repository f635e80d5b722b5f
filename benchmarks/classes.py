"""Lowering and simulating on many equal devices: all rows, and those of one device for each orbit.

`python benchmarks/classes.py` prints, for GPT on so many devices and a few plans, CPU seconds of `lower` (for orbits
with finding these), of the first `simulate` (which prices the collectives) and of the next one, the memory of the
process, and how many rows there are: by orbits, then all rows, each in a process of its own. Both must say the same of
the step. `--orbits` leaves out all rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from importlib import import_module
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import taskflow
from taskflow import CostModel, Graph, MachineModel, Strategy, TaskGraph, Timeline
from taskflow.searching.grids import Grids
from taskflow.strategy.orbits import orbits_of

PLANS = {
    "data parallel": 1,
    "tensor 8 x data": 8,
    "tensor 2 x data": 2,
}  # degree of tensor parallelism
HOST = 8  # devices


def measure(devices: int, layers: int, plan: str, by_orbits: bool) -> dict[str, object]:
    """Seconds, memory, rows, and what is said of the step."""
    graph = import_module("ops.models.gpt").build(batch=devices, layers=layers)
    small = import_module("ops.models.gpt").build(batch=2 * HOST, layers=1)
    near = MachineModel.preset("h100", nodes=2)  # compiles
    step(small, taskflow.data_parallel(small, near), near, by_orbits)
    machine, degree = MachineModel.preset("h100", nodes=devices // HOST), PLANS[plan]
    strategy = taskflow.data_parallel(graph, machine)
    if degree > 1:
        strategy = Grids(graph).strategy(range(devices), degree) or strategy
    rows, timeline, times = step(graph, strategy, machine, by_orbits)
    return {
        "times": times,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "rows": len(rows),
        "said": [timeline.seconds, timeline.peak_bytes.tolist(), rows.bytes_moved],
    }


def step(
    graph: Graph, strategy: Strategy, machine: MachineModel, by_orbits: bool
) -> tuple[TaskGraph, Timeline, list[float]]:
    """The rows, what is predicted of them, and the seconds of `lower` and of two times `simulate`."""
    costs, times = CostModel.analytic(machine), [time.process_time()]
    orbits = orbits_of(graph, strategy, machine) if by_orbits else None
    rows = taskflow.lower(graph, strategy, machine, devices=orbits)
    times.append(time.process_time())
    for _ in range(2):
        timeline = taskflow.simulate(rows, costs)
        times.append(time.process_time())
    return rows, timeline, [b - a for a, b in pairwise(times)]


def main() -> int:
    """0: both say the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=list(PLANS))
    parser.add_argument("--orbits", action="store_true", help="leave out all rows")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        plan, by_orbits = options.one
        print(json.dumps(measure(options.devices[0], options.layers, plan, by_orbits == "1")))
        return 0
    print(f"{'':30} {'lower':>8} {'simulate':>9} {'again':>8} {'GB':>6} {'rows':>9}")
    is_equal = True
    for devices in options.devices:
        for plan in options.plans:
            said = []
            for by_orbits in "1" if options.orbits else "10":
                given = (
                    "--devices",
                    str(devices),
                    "--layers",
                    str(options.layers),
                    "--one",
                    plan,
                    by_orbits,
                )
                found = json.loads(
                    subprocess.check_output([sys.executable, __file__, *given]).splitlines()[-1]
                )
                how = "orbits" if by_orbits == "1" else "all rows"
                times = " ".join(
                    f"{t:{w}.2f}" for t, w in zip(found["times"], (8, 9, 8), strict=True)
                )
                print(
                    f"{devices:5} {plan:15} {how:8} {times} {found['gigabytes']:6.2f} {found['rows']:9}",
                    flush=True,
                )
                said.append(found["said"])
            is_equal &= all(each == said[0] for each in said)
    print("equal" if is_equal else "not equal")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
