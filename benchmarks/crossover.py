"""Two jobs on one machine, as one task graph, beside one after the other: the pairs of CrossoverScheduler and others.

    python benchmarks/crossover.py [alexnet+alexnet ...]
    taskflow run -n 2 benchmarks/crossover.py measured

By prediction, on two hosts of four P100: data parallel, four steps in a row. Each ratio is to the sum of both jobs,
each in its own best order; no order is below the last column, what the busiest stream has to do. Where less is asked,
a line says so: there a job alone computes nearly all of the time.

Measured: two perceptrons whose gradients travel for as long as they compute, on emulated devices and links.
"""

from __future__ import annotations

import importlib
import sys

import numpy as np

import ops
import taskflow
from taskflow.cli.beside import STEPS, compare
from taskflow.comm.transport import connect

BATCHES = {"alexnet": 512, "resnet101": 64, "inception_v3": 64, "gpt": 16}
# What the best order has to reach, or what no order is below where that is more.
PAIRS = {
    ("alexnet", "alexnet"): 0.88,
    ("gpt", "alexnet"): 0.97,
    ("resnet101", "inception_v3"): 0.94,
    ("alexnet", "resnet101"): 1.0,
    ("gpt", "gpt"): 1.0,
}


def build(name: str) -> taskflow.Graph:
    """A model of `ops.models`, with its training."""
    built = importlib.import_module(f"ops.models.{name}").build(batch=BATCHES[name])
    return built[0] if isinstance(built, tuple) else built


def perceptron() -> taskflow.Graph:
    """Four layers: 50 ms of computing and 50 ms of gradients on `measure`'s devices and links."""
    graph = taskflow.Graph()
    h, t = graph.input("x", (64, 256)), graph.input("t", (64,), "int32")
    for k in range(4):
        h = ops.linear(h, 256, bias=False, name=f"fc{k}")
    ops.sgd(ops.softmax_cross_entropy(h, t, name="loss"), lr=0.01)
    return graph


def measure() -> None:
    """Median seconds of a step, alone and together, over ranks."""
    device = taskflow.Device("emulated", flops_per_second=1e9, memory_bandwidth=1e12)
    machine = taskflow.MachineModel.uniform(2, device, bandwidth=2.1e7)
    costs, transport = taskflow.CostModel.analytic(machine), connect()

    def seconds(graph: taskflow.Graph, order: str) -> float:
        rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine, repeat=STEPS)
        rows = taskflow.reorder(rows, costs, order)
        feeds = {r.name: np.zeros((STEPS, *r.shape), r.dtype) for r in graph.inputs}
        taken = []
        with taskflow.Executor(rows, costs=costs) as step:
            for _ in range(7):
                step(feeds)
                taken.append(max(transport.gather(step.seconds)))
        return float(np.median(taken[2:])) / STEPS

    joined = taskflow.beside({"a": perceptron(), "b": perceptron()})
    orders = "program", "forward_first", "critical_path", "own_path", "crossover"
    alone = {order: 2 * seconds(perceptron(), order) for order in orders}
    together = {order: seconds(joined, order) for order in orders}
    best = min(together, key=together.__getitem__)
    if transport.rank == 0:
        for name, found in (("one after the other", alone), ("together", together)):
            print(f"{name:20}" + ", ".join(f"{o} {s * 1e3:.1f} ms" for o, s in found.items()))
        print(
            f"together, {best}: {together[best] / alone['program']:.3f} of one after the other as lowered, "
            f"{together[best] / min(alone.values()):.3f} of each in its best order"
        )


def main() -> None:
    if sys.argv[1:] == ["measured"]:
        return measure()
    machine = taskflow.MachineModel.preset("p100", nodes=2)
    costs = taskflow.CostModel.analytic(machine)
    for pair, most in PAIRS.items():
        if sys.argv[1:] and "+".join(pair) not in sys.argv[1:]:
            continue
        graphs = {job: build(name) for job, name in zip("ab", pair, strict=True)}
        strategies = {j: taskflow.data_parallel(g, machine) for j, g in graphs.items()}
        alone, together, bound = compare(graphs, strategies, machine, costs)
        total = sum(alone.values())
        ratios = {order: seconds / total for order, seconds in together.items()}
        least, bound = min(ratios.values()), bound / total
        print(
            f"{'+'.join(pair):24} one after the other {total * 1e3:7.1f} ms; "
            + ", ".join(f"{order} {ratio:.3f}" for order, ratio in ratios.items())
            + f"; bound {bound:.3f}; asked {most}: "
            + ("reached" if least <= most else "no order can" if bound > most else "missed"),
            flush=True,
        )
        assert least <= max(most, 1.005 * bound), pair


if __name__ == "__main__":
    main()
