"""Fully sharded data parallelism against data parallelism and ZeRO: bytes kept, held and moved on each device.

    python benchmarks/memory_plans_fsdp.py                       counted on rows, no device needed
    mpirun -n 4 python benchmarks/memory_plans_fsdp.py --ranks   the same, executed: measured seconds of a step

An MLP with Adam on four devices. "Kept": parameters and states between steps. "Transient": what a step needs beside
that, with as little memory as will do. "Moved": bytes that a device receives, in units of (p - 1) / p of all weights;
theory: 2 for data parallelism and ZeRO, 3 for what is gathered twice, half of that in half precision.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from mpi4py import MPI

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel, ParallelConfig, Strategy, TaskGraph, lower
from taskflow.tasks.memory import plan_memory

DEVICES = 4


def build(options: argparse.Namespace, dtype: str) -> Graph:
    """Linear layers of one width."""
    graph = Graph()
    h = graph.input("x", (options.samples, options.width))
    for k in range(options.layers):
        h = ops.relu(ops.linear(h, options.width, name=f"fc{k}"), name=f"relu{k}")
    loss = ops.mean_squared_error(
        h, graph.input("t", (options.samples, options.width)), name="loss"
    )
    graph = taskflow.precision(graph, dtype)
    ops.adam(graph.regions[loss.name])
    return graph


def zero(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel, with the updates alone split over all devices."""
    strategy = taskflow.data_parallel(graph, machine)
    names = [op.name for op in graph.operators if op.name.endswith(".adam")]
    strategy.update({name: ParallelConfig({"o": DEVICES}) for name in names})
    return strategy


def plans(options: argparse.Namespace, machine: MachineModel, dtype: str) -> dict[str, TaskGraph]:
    """Name -> rows."""
    plain = build(options, dtype)
    return {
        "data parallel": lower(plain, taskflow.data_parallel(plain, machine), machine),
        "ZeRO-2": lower(plain, zero(plain, machine), machine),
        "FSDP, kept": fsdp(taskflow.homes(plain, again=False), machine),
        "FSDP": fsdp(taskflow.homes(plain), machine),
    }


def fsdp(graph: Graph, machine: MachineModel) -> TaskGraph:
    """Rows of a graph with homes."""
    return lower(graph, taskflow.fully_sharded(graph, machine), machine)


def kept_bytes(rows: TaskGraph) -> int:
    """On the fullest device, between steps."""
    kept = sorted({instance for homes in rows.homes.values() for instance, _ in homes})
    return int(np.bincount(rows.instance_device[kept], rows.instance_bytes()[kept]).max())


def count(name: str, rows: TaskGraph, first: TaskGraph) -> str:
    """A line of figures; `first`: of data parallelism."""
    tight = replace(rows, machine=rows.machine.with_rates(memory_bytes=1))
    whole, kept = kept_bytes(first), kept_bytes(rows)
    transient = int(plan_memory(tight).peak_bytes.max()) - kept
    weights = sum(r.size_bytes for r in rows.regions if r.role == "parameter" and r.ndim > 1)
    unit = weights * (DEVICES - 1) / DEVICES
    moved = rows.bytes_moved / DEVICES / unit
    held = f"kept {kept / 1e6:6.2f} MB, {kept / whole:.4f}; transient {transient / 1e6:6.2f} MB"
    return f"{name:13} {held}; moved {moved:.3f}"


def run(rows: TaskGraph, options: argparse.Namespace) -> float:
    """Seconds of a step, the median of some on the slowest rank."""
    random, taken = np.random.default_rng(0), []
    feeds = {name: random.random((options.samples, options.width), np.float32) for name in "xt"}
    with Executor(rows, seed=0, record=True) as step:
        for _ in range(options.steps):
            step(feeds)
            taken.append(MPI.COMM_WORLD.allreduce(step.timeline.seconds, MPI.MAX))
    return float(np.median(taken[1:]))


def main() -> None:
    """Print a line for each plan."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    machine = MachineModel.local(DEVICES) if options.ranks else MachineModel.uniform(DEVICES)
    for dtype in ("float32", "bfloat16"):
        found = plans(options, machine, dtype)
        for name, rows in found.items():
            seconds = f"; {run(rows, options) * 1e3:.1f} ms" if options.ranks else ""
            if MPI.COMM_WORLD.rank == 0:
                print(f"{dtype:8} {count(name, rows, found['data parallel'])}{seconds}", flush=True)


if __name__ == "__main__":
    main()
