"""Fair links and the walk's rule: how well that ranks strategies, and how long a fair simulation takes.

In a walk a link goes through what it is given in the order of rows, and a transfer takes its part of it
(`core.start_rule`); all figures that a person sees share links fairly (`simulation.sharing`). Kendall's tau between
both, over random strategies, and over data parallelism but for some operators, whose steps differ by little.
And what the pass of that rule takes a row, in graphs of data parallelism.

    python benchmarks/fair.py [--strategies 240] [--models alexnet rnnlm]
"""

from __future__ import annotations

import argparse
import time
import timeit
from importlib import import_module
from pathlib import Path
from sys import path as import_path
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau

import taskflow
from taskflow import CostModel, Graph, MachineModel, Strategy, lower, simulate
from taskflow.lowering import Lowering
from taskflow.searching.space import Space
from taskflow.simulation.sharing import schedule_fairly
from taskflow.simulation.simulate import schedule, walk_pass

import_path.insert(0, str(Path(__file__).parent.parent / "examples"))

LEAST_TAU, MOST_SECONDS, MOST_NANOSECONDS = 0.95, 1.0, 8.0
BATCH = 16  # samples a device
OPTIONS: dict[str, dict[str, int]] = {"rnnlm": {"steps": 6, "group": 2}}
# Model, cluster, hosts and sizes of graphs of 20,000 to 500,000 rows.
PASSES: list[tuple[str, str, int, dict[str, int]]] = [
    ("inception_v3", "p100", 4, {}),
    ("inception_v3", "p100", 16, {}),
    ("rnnlm", "p100", 16, {}),
    ("gpt", "h100", 8, {"layers": 96}),
]


def build(model: str, batch: int) -> Graph:
    """A model of the examples."""
    graph: Graph = import_module(f"ops.models.{model}").build(batch=batch, **OPTIONS.get(model, {}))
    return graph


def strategies(graph: Graph, machine: MachineModel, count: int) -> list[Strategy]:
    """Half of them random, half data parallel but for some operators."""
    space, random, found = Space(graph, machine), np.random.default_rng(0), []
    for k in range(count):
        drawn = space.draw_strategy(random)
        if k % 2:
            near = taskflow.data_parallel(graph, machine)
            for name in random.permutation(list(drawn))[
                : 1 + int(random.integers(len(drawn)))
            ].tolist():
                near[name] = drawn[name]
            drawn = near
        found.append(drawn)
    return found


class Ranking(NamedTuple):
    """Kendall's tau of the walk's rule against the fair one: of random strategies, of near ones, and of all together.

    And the median of the seconds of both, walk / fair.
    """

    random: float
    near: float
    both: float
    ratio: float


def rank(model: str, cluster: str, hosts: int, count: int) -> Ranking:
    """Judge so many strategies by both rules."""
    machine = MachineModel.preset(cluster, nodes=hosts)
    graph, costs = build(model, BATCH * len(machine.devices)), CostModel.analytic(machine)
    lowering, both = Lowering(graph, machine), []
    for strategy in strategies(graph, machine, count):
        task_graph = lowering.lower(strategy)
        seconds = costs.seconds(task_graph)
        both.append((schedule(task_graph, seconds)[2], schedule_fairly(task_graph, seconds)[2]))
    walk, fair = np.array(both).T
    taus = (
        float(kendalltau(walk[part], fair[part])[0])
        for part in (slice(0, None, 2), slice(1, None, 2), slice(None))
    )
    return Ranking(*taus, float(np.median(walk / fair)))


def time_simulation() -> None:
    """Seconds of the second fair simulation of ResNet-101 on 64 devices: prices of collectives are kept."""
    machine = MachineModel.preset("p100", nodes=16)
    graph, costs = build("resnet101", BATCH * 64), CostModel.analytic(machine)
    task_graph = lower(graph, taskflow.data_parallel(graph, machine), machine)
    simulate(task_graph, costs)
    begun = time.perf_counter()
    timeline = simulate(task_graph, costs)
    taken = time.perf_counter() - begun
    verdict = "ok" if taken <= MOST_SECONDS else "TOO SLOW"
    print(
        f"ResNet-101 on 64 P100, {len(task_graph)} rows, {timeline.seconds * 1e3:.1f} ms a step: simulated fairly in"
    )
    print(f"  {taken:.2f} s (at most {MOST_SECONDS:.0f}): {verdict}")


def time_passes() -> None:
    """Nanoseconds a row of the one pass of the walk's rule, the best of several."""
    for model, cluster, hosts, options in PASSES:
        machine = MachineModel.preset(cluster, nodes=hosts)
        graph = import_module(f"ops.models.{model}").build(batch=len(machine.devices), **options)
        task_graph = lower(graph, taskflow.data_parallel(graph, machine), machine)
        run = walk_pass(task_graph, CostModel.analytic(machine).seconds(task_graph))
        run()
        taken = min(timeit.repeat(run, number=1, repeat=7)) / len(task_graph) * 1e9
        verdict = "ok" if taken <= MOST_NANOSECONDS else "TOO SLOW"
        print(
            f"{model} on {len(machine.devices)} {cluster}, {len(task_graph)} rows: one pass takes"
        )
        print(f"  {taken:.1f} ns a row (at most {MOST_NANOSECONDS:.0f}): {verdict}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", type=int, default=240, help="of each model and machine")
    parser.add_argument("--models", nargs="*", default=["alexnet", "rnnlm"])
    parser.add_argument("--clusters", nargs="*", default=["p100", "k80"])
    parser.add_argument("--hosts", nargs="*", type=int, default=[2, 4, 8])
    options = parser.parse_args()
    time_simulation()
    time_passes()
    print(f"the walk's rule against fair links (tau at least {LEAST_TAU}):")
    for cluster in options.clusters:
        for hosts in options.hosts:
            for model in options.models:
                found = rank(model, cluster, hosts, options.strategies)
                verdict = "ok" if found.both >= LEAST_TAU else "TOO LOW"
                print(
                    f"  {cluster:5} {hosts} hosts  {model:8} tau {found.both:.3f} ({found.random:.3f} of random ones, "
                    f"{found.near:.3f} of near ones)  walk/fair {found.ratio:.3f}: {verdict}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
