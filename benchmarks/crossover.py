"""Two jobs on one machine, as one task graph, beside one after the other: the pairs of CrossoverScheduler and others.

    python benchmarks/crossover.py [alexnet+alexnet ...]

By prediction, on two hosts of four P100: data parallel, four steps in a row. Each ratio is to the sum of both jobs,
each in its own best order; no order is below the last column, what the busiest stream has to do.
"""

from __future__ import annotations

import importlib
import sys

import taskflow
from taskflow.cli.beside import compare

BATCHES = {"alexnet": 512, "resnet101": 64, "inception_v3": 64, "gpt": 16}
# What the best order has to reach, or what no order is below where that is more.
PAIRS = {
    ("alexnet", "alexnet"): 0.88,
    ("gpt", "alexnet"): 0.97,
    ("resnet101", "inception_v3"): 0.94,
    ("alexnet", "resnet101"): 1.0,
    ("gpt", "gpt"): 1.005,
}


def build(name: str) -> taskflow.Graph:
    """A model of `ops.models`, with its training."""
    built = importlib.import_module(f"ops.models.{name}").build(batch=BATCHES[name])
    return built[0] if isinstance(built, tuple) else built


def main() -> None:
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
        print(
            f"{'+'.join(pair):24} one after the other {total * 1e3:7.1f} ms; "
            + ", ".join(f"{order} {ratio:.3f}" for order, ratio in ratios.items())
            + f"; bound {bound / total:.3f}",
            flush=True,
        )
        assert min(ratios.values()) <= max(most, 1.005 * bound / total), pair


if __name__ == "__main__":
    main()
