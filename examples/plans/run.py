"""Run plans of one model and compare each with one device: `mpirun -n 4 python examples/plans/run.py --plans zero`.

There are four devices, or as many as a plan says; ranks drive as many each. Without mpirun one process drives them all.
Printed are the seconds of a step, predicted and measured, and the largest difference of a loss or parameter from those
of one device. Predicted is what devices would take that nothing else uses: where there are fewer cores than devices,
which is said, they share them and take longer. `--emulated` ones wait for as long as predicted and need no cores.
"""

import argparse
import os
from functools import cache
from importlib import import_module
from typing import NamedTuple

import model
import numpy as np

import taskflow

PLANS = (
    "data_parallel",
    "zero",
    "tensor_parallel",
    "pipeline",
    "three_d",
    "co_shard",
    "interlaced",
    "three_f_one_b",
)
DEVICES, STEPS = 4, 3
SLOW = taskflow.Device(
    "emulated", flops_per_second=1e9, memory_bandwidth=1e9, overhead_seconds=2e-3
)


class Run(NamedTuple):
    """Losses and parameters after some steps, the median seconds of a step, and the rank that took them."""

    numbers: dict[str, np.ndarray]
    seconds: float
    rank: int


def run(rows: taskflow.TaskGraph, graph: taskflow.Graph, costs: taskflow.CostModel) -> Run:
    """STEPS steps of a plan."""
    with taskflow.Executor(rows, seed=model.SEED, costs=costs) as step:
        losses, seconds = [], []
        for _ in range(STEPS):
            losses.append(step(model.feeds(graph))["loss"])
            seconds.append(step.seconds)
        numbers = {region.name: step.read(region.name) for region in graph.parameters}
        return Run(
            numbers | {"loss": np.array(losses)}, float(np.median(seconds)), step.transport.rank
        )


@cache
def costs_of(devices: int, is_emulated: bool) -> taskflow.CostModel:
    """Of as many devices, slow emulated ones or this machine's."""
    if is_emulated:
        return taskflow.CostModel.analytic(taskflow.MachineModel.uniform(devices, SLOW))
    return taskflow.CostModel.measured(
        taskflow.measure_machine(taskflow.MachineModel.local(devices, "cpu"))
    )


def compare(name: str, is_emulated: bool) -> str:
    """A line about a plan, on rank 0."""
    policy = import_module(name)
    costs = costs_of(getattr(policy, "DEVICES", DEVICES), is_emulated)
    graph, machine = model.build(**policy.MODEL), costs.machine
    _, rows = policy.plan(graph, machine).apply(
        graph, machine, taskflow.CostModel.analytic(machine)
    )
    found = run(rows, graph, costs)
    alone = run(
        taskflow.lower(graph, taskflow.single_device(graph, machine), machine), graph, costs
    )
    difference = max(
        float(np.abs(found.numbers[each] - value).max()) for each, value in alone.numbers.items()
    )
    if found.rank > 0:
        return ""
    predicted = taskflow.simulate(rows, costs)
    devices, cores = len(machine.devices), os.cpu_count() or 1
    shared = "" if is_emulated or devices <= cores else f", {devices} devices on {cores} cores"
    return (
        f"{name:15} {predicted.seconds * 1e3:8.2f} ms predicted, {found.seconds * 1e3:8.2f} ms measured, "
        f"{max(predicted.peak_bytes) / 1e3:3.0f} kB at most on a device, loss {found.numbers['loss'][-1]:.6f}, "
        f"difference {difference:.1e}{shared}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=PLANS)
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    for name in options.plans:
        print(compare(name, options.emulated), end="", flush=True)


if __name__ == "__main__":
    main()
