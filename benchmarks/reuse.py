"""Waits for memory: how many plans spare, what plans take to make, and that ranks wait as predicted.

`mpirun -n 4 python benchmarks/reuse.py`; `--models` alone needs no mpirun.

First, on rank 0: models on 4 to 16 P100. Printed are the predicted step with a tight plan, and with the one that is
made where memory is plentiful, both by the step without waits for memory; and the largest peak of a device: of the
tight plan, and by it those of the other one and of all instances side by side.

Then seconds of a memory plan, waits included, for task graphs of 40,000 and 80,000 rows. Then plans run on emulated
devices, one a rank: chains through all devices, one after the other, and an MLP split by layers, by columns and by
samples (as in `overlap.py`). Printed: the simulated step without waits for memory, and with a tight plan, the median of
the measured ones, and measured / predicted, which may be 1.05; and the same with plenty of memory.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import golden
import numpy as np
from mpi4py import MPI
from overlap import build, plans

import taskflow
from taskflow.simulation.simulate import schedule
from taskflow.strategy.rules import sample_axes
from taskflow.tasks.memory import plan_memory
from tests.checking.reuse import tight

LIMIT_SECONDS, LIMIT_RATIO = 0.2, 1.05
LIMIT_FREE = 1.01  # of a step without waits for memory
PARTS = 8  # micro-batches of a pipeline


def pipeline(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Strategy:
    """A stage of layers on each device, which the batch goes through in parts."""
    one_host = taskflow.MachineModel.uniform(len(machine.devices))
    strategy, axes = taskflow.operator_placement(graph, one_host), sample_axes(graph)
    for op in graph.operators:
        if op.name in strategy and axes.get(op.name) in op.split_axes:
            degree, devices = {axes[op.name]: PARTS}, strategy[op.name].devices[:1]
            strategy[op.name] = taskflow.ParallelConfig(degree, devices * PARTS)
    return strategy


RULES = {
    "data": taskflow.data_parallel,
    "tensor": taskflow.model_parallel,
    "hybrid": taskflow.one_weird_trick,
    "pipeline": pipeline,
}


def compare_plans() -> None:
    """A line for each model, strategy and number of devices."""
    print(
        f"{'plan':32s} {'rows':>6s} {'without':>10s} {'tight':>7s} {'free':>7s} {'tight':>10s} {'free':>7s} {'all':>7s}"
    )
    gains, sizes, slowest = list[float](), list[float](), 0.0
    for model in ("alexnet", "inception_v3", "rnntc", "gpt"):
        for devices in (4, 8, 16):
            graph, machine = golden.graph_of(model), golden.machine_of("p100", devices)
            for name, rule in RULES.items():
                task_graph, costs = (
                    taskflow.lower(graph, rule(graph, machine), machine),
                    taskflow.CostModel.analytic(machine),
                )
                if rule is pipeline:
                    task_graph = taskflow.reorder(
                        task_graph, costs, taskflow.schedule.critical_path
                    )
                without = schedule(task_graph, costs.seconds(task_graph))[2]
                least, free = (
                    taskflow.simulate(rows, costs) for rows in (tight(task_graph), task_graph)
                )
                plan = plan_memory(task_graph)
                everything = np.bincount(
                    task_graph.instance_device, plan.size * (plan.last >= 0)
                ).max()
                peak = least.peak_bytes.max()
                gains.append(least.seconds / free.seconds)
                sizes.append(free.peak_bytes.max() / peak)
                slowest = max(slowest, free.seconds / without)
                print(
                    f"{f'{model} on {devices}, {name}':32s} {len(task_graph):6d} {without * 1e3:7.1f} ms "
                    f"{least.seconds / without:7.3f} {free.seconds / without:7.3f} {peak / 2**30:6.2f} GiB "
                    f"{sizes[-1]:7.3f} {everything / peak:7.3f}",
                    flush=True,
                )
    print(
        f"tight / wait-free: step {np.median(gains):.3f} in the median, {max(gains):.3f} at most; "
        f"wait-free / tight: peak {np.median(sizes):.3f} in the median, {max(sizes):.3f} at most; "
        f"wait-free / without at most {slowest:.3f} "
        f"(limit {LIMIT_FREE})",
        flush=True,
    )


def time_plans() -> None:
    """A line for each task graph: rows, waits and the best of five, in seconds of a core."""
    for model, devices in (("rnnlm", 16), ("moe", 16), ("resnet101", 16)):
        case = golden.Case(model, "random", devices, "p100")
        graph, machine = golden.graph_of(model), golden.machine_of("p100", devices)
        task_graph = taskflow.lower(
            graph, golden.STRATEGIES[case.strategy](graph, machine), machine
        )
        seconds = []
        for _ in range(5):
            begin = time.process_time()
            plan = plan_memory(task_graph)
            seconds.append(time.process_time() - begin)
        scaled = min(seconds) * 40_000 / len(task_graph)
        print(
            f"plan of {case}: {len(task_graph)} rows, {len(plan.offset)} instances, {len(plan.reuse_rows)} waits, "
            f"{min(seconds) * 1e3:.0f} ms; {scaled:.3f} s for 40,000 rows (limit {LIMIT_SECONDS})",
            flush=True,
        )


def chains(
    count: int, machine: taskflow.MachineModel, extent: int
) -> tuple[taskflow.Graph, taskflow.Strategy]:
    """`count` inputs that go through all devices."""
    graph, configs = taskflow.Graph(), {}
    for k in range(count):
        h = graph.input(f"x{k}", (extent,), "float32")
        for device in range(len(machine.devices)):
            h = graph.launch(
                f"h{k}.{device}", "b -> b", [h], kernel=lambda ctx, x, y: np.multiply(x, 2.0, out=y)
            )
            configs[f"h{k}.{device}"] = taskflow.ParallelConfig({}, (device,))
        graph.output(f"y{k}", h)
    return graph, taskflow.Strategy(configs)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--models", action="store_true", help="print the first table alone")
    parser.add_argument(
        "--milliseconds", type=float, default=10.0, help="of a task and of a transfer"
    )
    options = parser.parse_args()
    comm, unit = MPI.COMM_WORLD, options.milliseconds * 1e-3
    if comm.rank == 0:
        compare_plans()
        if options.models:
            return
        time_plans()
        print(
            f"{'plan':38s} {'without':>9s} {'predicted':>9s} {'measured':>9s} {'ratio':>6s}   milliseconds"
        )
    device = taskflow.Device(
        "emulated", flops_per_second=1e15, memory_bandwidth=1e15, overhead_seconds=unit
    )
    machine = taskflow.MachineModel.uniform(comm.size, device, bandwidth=1e12, latency_seconds=unit)
    cases = {"chains": chains(8, machine, 4096)}
    mlp = build(layers=4, width=64, batch=64)
    cases |= {f"MLP, {name}": (mlp, strategy) for name, strategy in plans(mlp, machine).items()}
    worst = 0.0
    for name, (graph, strategy) in cases.items():
        lowered, costs = (
            taskflow.lower(graph, strategy, machine),
            taskflow.CostModel.analytic(machine),
        )
        for order in (taskflow.schedule.program, taskflow.schedule.critical_path):
            plentiful = taskflow.reorder(lowered, costs, order)
            without = schedule(plentiful, costs.seconds(plentiful))[2]
            for kind, task_graph in (("tight", tight(plentiful)), ("wait-free", plentiful)):
                predicted = taskflow.simulate(task_graph, costs).seconds
                measured = comm.bcast(measure(task_graph, costs, options.steps))
                worst = max(worst, measured / predicted)
                if comm.rank == 0:
                    figures = " ".join(
                        f"{seconds * 1e3:9.1f}" for seconds in (without, predicted, measured)
                    )
                    print(
                        f"{f'{name}, {order.__name__}, {kind}':38s} {figures} {measured / predicted:6.3f}",
                        flush=True,
                    )
    if comm.rank == 0:
        print(f"worst measured / predicted {worst:.3f} (limit {LIMIT_RATIO})")


def measure(task_graph: taskflow.TaskGraph, costs: taskflow.CostModel, steps: int) -> float:
    """Median seconds of a step: the longest of all ranks."""
    feeds = {r.name: np.zeros(r.shape, r.dtype) for r in task_graph.regions if r.role == "input"}
    with taskflow.Executor(task_graph, costs=costs) as step:
        step(feeds)
        times = []
        for _ in range(steps):
            step(feeds)
            times.append(MPI.COMM_WORLD.allreduce(step.seconds, MPI.MAX))
    return float(np.median(times))


if __name__ == "__main__":
    main()
