"""Pipelines against their acceptance: bubbles, a GPT-2 on eight V100, and emulated ranks.

    python benchmarks/pipelines.py                       bubbles, and a GPT-2 of 24 layers, simulated
    mpirun -n 4 python benchmarks/pipelines.py --ranks   measured over predicted seconds of a step

Bubbles: units of time on D devices with N micro-batches, a unit forward and two backward, no communication. "Joint" is
a backward pass in one operator, as textbooks have it; rows send the gradient of a stage's input first. Interleaved and
ZB-V have two stages a device. Two bounds: of one stage a device, and of the V.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
from mpi4py import MPI

from taskflow import (
    CostModel,
    Device,
    Executor,
    MachineModel,
    Strategy,
    TaskGraph,
    lower,
    reorder,
    search_schedule,
    simulate,
    stages,
)
from taskflow.schedule import Policy, gpipe, interleaved, one_f_one_b, program, zb_h1, zb_v
from taskflow.schedule.orders import Order
from taskflow.schedule.schedule import Schedule
from taskflow.simulation.simulate import schedule
from taskflow.tasks.memory import plan_memory

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.schedule.cells import CellCosts, chain, feeds_of  # noqa: E402

SIZES = [*((d, n) for d in (2, 4, 8) for n in (4, 8, 16)), (8, 32)]
MOST_RATIO = 1.05
UNIT_SECONDS = 0.01
AnyOrder = Order | Policy | Schedule


def name_of(order: AnyOrder) -> str:
    """As people call it."""
    return (
        order.name
        if isinstance(order, Policy | Schedule)
        else str(getattr(order, "__name__", order))
    )


def cells(
    devices: int,
    parts: int,
    per_device: int = 1,
    is_joint: bool = False,
    way: Sequence[int] | None = None,
) -> TaskGraph:
    """A cell a stage; stage k is on device `k % devices`, or the k-th of `way`."""
    groups = [(k,) for k in way or [*range(devices)] * per_device]
    count = len(groups)
    graph, machine = chain(count, parts, is_joint=is_joint), MachineModel.uniform(devices)
    plan = stages(
        graph, machine, parts=parts, cuts=[f"cell{k}" for k in range(1, count)], devices=groups
    )
    return lower(graph, plan, machine)


def units(rows: TaskGraph, order: AnyOrder, each: float = 1.0) -> float:
    """The time that a schedule takes, where a part of the work of a stage takes `each`."""
    costs = CellCosts(each, each, each, 2 * each)
    ordered = reorder(rows, costs, order)
    return float(schedule(ordered, costs.seconds(ordered))[2])


def bubbles() -> None:
    """The table of units."""
    print(
        "D  N   joint: GPipe  1F1B  interleaved   rows: GPipe  1F1B  ZB-H1  searched  interleaved  ZB-V   least, of a V"
    )
    for devices, parts in SIZES:
        joint, split = cells(devices, parts, is_joint=True), cells(devices, parts)
        searched = search_schedule(split, CellCosts(), seconds=2.0)
        found = [units(joint, gpipe), units(joint, one_f_one_b)]
        found += [units(cells(devices, parts, 2, True), interleaved, 0.5)]
        found += [units(split, order) for order in (gpipe, one_f_one_b, zb_h1, searched)]
        found += [units(cells(devices, parts, 2), interleaved, 0.5)]
        there = range(devices)
        found += [units(cells(devices, parts, way=[*there, *reversed(there)]), zb_v, 0.5)]
        found += [3 * parts + devices - 1, 3 * parts + (devices - 1) / 2]
        print(f"{devices} {parts:2} " + " ".join(f"{each:9g}" for each in found))


def gpt(parts: int, options: argparse.Namespace) -> None:
    """GPT-2 with 24 layers in 8 stages: seconds of a step, and what micro-batches hold."""
    machine = MachineModel.preset("v100", nodes=1)
    given = {"hidden": options.hidden, "heads": options.heads, "sequence": options.sequence}
    graph = import_module("ops.models.gpt").build(batch=options.samples * parts, layers=24, **given)
    begun = time.perf_counter()
    rows = lower(graph, stages(graph, machine, 8, parts), machine)
    lowered, costs = time.perf_counter() - begun, CostModel.analytic(machine)
    print(
        f"GPT-2, 24 layers, {given}, {parts} x {options.samples} samples, 8 V100: {len(rows)} rows"
    )
    first: tuple[float, float] | None = None
    for order in (program, gpipe, one_f_one_b, zb_h1):
        begun = time.perf_counter()
        ordered = reorder(rows, costs, order)
        plan_memory(ordered)
        seconds = float(schedule(ordered, costs.seconds(ordered))[2])
        taken = time.perf_counter() - begun
        held = transient(ordered).max() / 1e6
        first = first or (seconds, held)
        spent = f"lower {lowered:.2f} s; order, memory plan and pass {taken:.2f} s"
        print(
            f"  {name_of(order):12} {seconds * 1e3:8.1f} ms, {seconds / first[0]:.3f} of program order; transient "
            f"{held:7.0f} MB, {held / first[1]:.3f} of it; {spent}"
        )


def transient(rows: TaskGraph) -> np.ndarray:
    """Bytes of every device beside what it keeps between steps, with as little memory as will do."""
    tight = replace(rows, machine=rows.machine.with_rates(memory_bytes=1))
    kept = np.zeros(len(rows.machine.devices), np.int64)
    size = rows.instance_bytes()
    for homes in rows.homes.values():
        for instance, _ in homes:
            kept[rows.instance_device[instance]] += size[instance]
    return np.asarray(plan_memory(tight).peak_bytes - kept)


def ranks(parts: int, steps: int) -> None:
    """Every order on emulated devices, a rank each: UNIT_SECONDS for a cell's forward pass."""
    comm = MPI.COMM_WORLD
    graph = chain(comm.size, parts)
    device = Device("emulated", flops_per_second=1e12, memory_bandwidth=1e12, overhead_seconds=0.0)
    machine = MachineModel.uniform(comm.size, device, bandwidth=1e9)
    plan: Strategy = stages(
        graph, machine, parts=parts, cuts=[f"cell{k}" for k in range(1, comm.size)]
    )
    rows, feeds = lower(graph, plan, machine), feeds_of(graph)
    costs = CellCosts(UNIT_SECONDS, UNIT_SECONDS, UNIT_SECONDS)
    for order in (
        program,
        gpipe,
        one_f_one_b,
        zb_h1,
        comm.bcast(search_schedule(rows, costs, seconds=1.0)),
    ):
        ordered = reorder(rows, costs, order)
        predicted = simulate(ordered, costs).seconds
        with Executor(ordered, costs=costs, seed=0, record=True) as step:
            taken = []
            for _ in range(steps):
                step(feeds)
                taken.append(comm.allreduce(step.timeline.seconds, MPI.MAX))
        ratio = float(np.median(taken[1:])) / predicted
        if comm.rank == 0:
            verdict = "ok" if 0.95 <= ratio <= MOST_RATIO else "MISSED"
            print(
                f"{comm.size} ranks, {name_of(order):12} {predicted * 1e3:7.1f} ms predicted, x {ratio:.3f}: {verdict}"
            )


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--samples", type=int, default=2, help="of a micro-batch")
    options = parser.parse_args()
    if options.ranks:
        ranks(options.parts, options.steps)
        return
    bubbles()
    for parts in (16, 64):
        gpt(parts, options)


if __name__ == "__main__":
    main()
