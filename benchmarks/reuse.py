"""Waits for memory: what they take to plan, and that ranks wait as predicted: `mpirun -n 4 python benchmarks/reuse.py`.

First, on rank 0: seconds of a memory plan, waits included, for task graphs of 40,000 and 80,000 rows. Then plans that
are tight of memory run on emulated devices, one a rank: chains through all devices, one after the other, and an MLP
split by layers, by columns and by samples (as in `overlap.py`). Printed: the simulated step without waits for memory
and with them, the median of the measured ones, and measured / predicted, which may be 1.05.
"""

import argparse
import time

import golden
import numpy as np
from mpi4py import MPI
from overlap import build, plans

import taskflow
from taskflow.simulation.simulate import schedule
from taskflow.tasks.memory import plan_memory

LIMIT_SECONDS, LIMIT_RATIO = 0.1, 1.05


def time_plans() -> None:
    """A line for each task graph: rows, waits and the best of five, in seconds of a core."""
    for model, devices in (("rnnlm", 16), ("moe", 16), ("resnet101", 16)):
        case = golden.Case(model, "random", devices, "p100")
        graph, machine = golden.graph_of(model), golden.machine_of("p100", devices)
        task_graph = taskflow.lower(graph, golden.STRATEGIES[case.strategy](graph, machine), machine)
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


def chains(count: int, machine: taskflow.MachineModel, extent: int) -> tuple[taskflow.Graph, taskflow.Strategy]:
    """`count` inputs that go through all devices."""
    graph, configs = taskflow.Graph(), {}
    for k in range(count):
        h = graph.input(f"x{k}", (extent,), "float32")
        for device in range(len(machine.devices)):
            h = graph.launch(f"h{k}.{device}", "b -> b", [h], kernel=lambda ctx, x, y: np.multiply(x, 2.0, out=y))
            configs[f"h{k}.{device}"] = taskflow.ParallelConfig({}, (device,))
        graph.output(f"y{k}", h)
    return graph, taskflow.Strategy(configs)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--milliseconds", type=float, default=10.0, help="of a task and of a transfer")
    options = parser.parse_args()
    comm, unit = MPI.COMM_WORLD, options.milliseconds * 1e-3
    if comm.rank == 0:
        time_plans()
        print(f"{'plan':30s} {'without':>9s} {'predicted':>9s} {'measured':>9s} {'ratio':>6s}   milliseconds")
    device = taskflow.Device("emulated", flops_per_second=1e15, memory_bandwidth=1e15, overhead_seconds=unit)
    machine = taskflow.MachineModel.uniform(comm.size, device, bandwidth=1e12, latency_seconds=unit)
    cases = {"chains": chains(8, machine, 4096)}
    mlp = build(layers=4, width=64, batch=64)
    cases |= {f"MLP, {name}": (mlp, strategy) for name, strategy in plans(mlp, machine).items()}
    worst = 0.0
    for name, (graph, strategy) in cases.items():
        lowered, costs = taskflow.lower(graph, strategy, machine), taskflow.CostModel.analytic(machine)
        for order in (taskflow.schedule.program, taskflow.schedule.critical_path):
            task_graph = taskflow.reorder(lowered, costs, order)
            without = schedule(task_graph, costs.seconds(task_graph))[2]
            predicted = taskflow.simulate(task_graph, costs).seconds
            measured = comm.bcast(measure(task_graph, costs, options.steps))
            worst = max(worst, measured / predicted)
            if comm.rank == 0:
                figures = " ".join(f"{seconds * 1e3:9.1f}" for seconds in (without, predicted, measured))
                print(f"{name + ', ' + order.__name__:30s} {figures} {measured / predicted:6.3f}", flush=True)
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
