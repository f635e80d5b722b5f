"""Every rule lowers every graph, and a search judges all of its starts: random graphs over the whole of `ops`.

`python benchmarks/rules.py` makes 500 graphs (`tests/ops/random_graphs.py`: every operator, groups, transposes, heads,
reshapes, states updated in place), lowers each by every rule of `taskflow/strategy` and under random strategies
on a machine of 4 devices and one of 6 on two hosts, and asks `search` for its starts. It prints what was refused and
why, and ends with 1 if something was. `--graphs 50` is for fewer, `--first 100` begins later.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import taskflow
from taskflow import CostModel, Graph, MachineModel
from taskflow.strategy.rules import RULES
from tests.ops.random_graphs import random_graph

MACHINES = (MachineModel.uniform(4), MachineModel.preset("p100", nodes=2).take(6))
RANDOM = {f"random {seed}": partial(taskflow.random_strategy, seed=seed) for seed in range(3)}


def refusals(graph: Graph) -> list[str]:
    """What is refused: a rule on a machine, or a start of a search."""
    found = []
    for machine in MACHINES:
        for name, rule in (RULES | RANDOM).items():
            try:
                taskflow.lower(graph, rule(graph, machine), machine)
            except ValueError as error:
                found.append(f"{name} on {machine.name}: {error}")
    machine = MACHINES[0]
    result = taskflow.search(graph, machine, CostModel.analytic(machine), proposals=1)
    found += [
        f"search: {name} is infinite"
        for name, s in result.baseline_seconds.items()
        if not math.isfinite(s)
    ]
    return found


def main() -> int:
    """Print every refusal and the totals; 1 if there is a refusal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    begin, operators, refused = time.perf_counter(), 0, 0
    for seed in range(options.first, options.first + options.graphs):
        graph = random_graph(seed)
        operators += len(graph.operators)
        for line in refusals(graph):
            refused += 1
            print(f"graph {seed}: {line}", flush=True)
    strategies = options.graphs * len(MACHINES) * len(RULES | RANDOM)
    print(
        f"{options.graphs} graphs of {operators} operators, {strategies} strategies by {len(RULES)} rules and at "
        f"random: {refused} refused or infinite ({time.perf_counter() - begin:.0f} s)"
    )
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
