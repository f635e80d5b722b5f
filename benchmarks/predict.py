"""Predicted against measured step time of six models, each reduced, under five strategies.

`mpirun -n 2 python benchmarks/predict.py`. In every round each strategy has a rehearsal, in which its rows are timed
one by one, and then runs some steps, so that what slows the machine down for a while slows down both. The prediction is
a simulation with the costs of all rehearsals and knows of no step; the measured time is the median over the rounds of
the median step on the slowest rank.

Tau is Kendall's tau of the predicted and the measured order of the strategies of a model: once of all pairs, and once
of those that are clear, where the middle halves of their measured rounds do not overlap. `--parts` says where the
difference lies. `mpirun -n 4 python benchmarks/predict.py --emulated --rounds 3 --seconds 0` does it on emulated
devices, whose costs are given.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import taskflow
from taskflow.comm import connect
from taskflow.cost import MeasuredCosts
from taskflow.rehearse import rehearse
from taskflow.task import Kind

MODELS: dict[str, dict[str, Any]] = {
    "alexnet": {"batch": 16, "image": 95, "channels": (32, 64, 96, 64, 64), "hidden": 512, "classes": 100},
    "inception_v3": {"batch": 8, "image": 107, "width": 0.25, "modules": (1, 1, 1), "classes": 100},
    "resnet101": {"batch": 8, "image": 64, "blocks": (1, 2, 4, 1), "width": 16, "classes": 100},
    "rnnlm": {"batch": 32, "steps": 10, "hidden": 256, "embed": 256, "vocabulary": 1000, "group": 5},
    "gpt": {"batch": 4, "sequence": 64, "layers": 2, "hidden": 128, "heads": 4, "vocabulary": 1000},
    "dlrm": {"batch": 512, "tables": 4, "rows": 10_000, "top": (512, 512, 512, 1)},
}
RULES = {
    "single_device": taskflow.single_device,
    "data_parallel": taskflow.data_parallel,
    "model_parallel": taskflow.model_parallel,
    "one_weird_trick": taskflow.one_weird_trick,
    "random": lambda graph, machine: taskflow.random_strategy(graph, machine, 3),
    "random 2": lambda graph, machine: taskflow.random_strategy(graph, machine, 4),
}
# Emulating a row takes some 0.1 ms on busy cores, so devices are slow, and models small for a step of about a second.
EMULATED = taskflow.Device("emulated", flops_per_second=1.5e9, memory_bandwidth=1e9, overhead_seconds=2e-3)
SMALLER: dict[str, dict[str, Any]] = {
    "inception_v3": {"modules": (1, 0, 0)},
    "resnet101": {"blocks": (1, 1, 1, 1)},
    "rnnlm": {"steps": 5, "hidden": 128, "embed": 128, "vocabulary": 500},
    "gpt": {"layers": 1},
}
STRATEGIES = 5  # a rule that gives the task graph of one before is left out: one weird trick without convolutions


@dataclass
class Run:
    """A model under a strategy: what was predicted and what each round measured, in seconds."""

    trainer: taskflow.Trainer
    predicted: float = 0.0
    rounds: list[float] = field(default_factory=list)

    def round(self, feeds: dict[str, np.ndarray], seconds: float) -> None:
        """Run steps for so long; keep the median on the slowest rank."""
        times: list[float] = []
        for _ in range(max(1, round(seconds / self.trainer.predicted_seconds))):
            self.trainer.step(feeds)
            times.append(self.trainer.step.seconds)
        self.rounds.append(max(self.trainer.transport.gather(float(np.median(times)))))

    @property
    def measured(self) -> float:
        """Seconds of a step."""
        return float(np.median(self.rounds))

    def differs(self, other: Run) -> bool:
        """Whether the middle halves of the rounds do not overlap."""
        (a, b), (c, d) = (np.quantile(r.rounds, (0.25, 0.75)) for r in (self, other))
        return bool(b < c or d < a)

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def make_feeds(graph: taskflow.Graph, words: int) -> dict[str, np.ndarray]:
    """Random inputs; `words` bounds the integers."""
    random = np.random.default_rng(0)
    return {
        r.name: random.integers(0, words, r.shape, dtype=np.int32)
        if r.dtype == "int32"
        else random.random(r.shape, dtype=np.float32)
        for r in graph.inputs
    }


def tau(pairs: list[tuple[Run, Run]]) -> float:
    """Kendall's tau: how many pairs are predicted in the measured order less those that are not, over all."""
    signs = [np.sign((x.predicted - y.predicted) * (x.measured - y.measured)) for x, y in pairs]
    return float(np.mean(signs)) if signs else 1.0


def parts(run: Run) -> str:
    """Milliseconds per kind of row, predicted and measured, on this rank; and what waiting takes."""
    trainer, timeline = run.trainer, run.trainer.step.timeline
    graph = trainer.task_graph
    seconds = trainer.costs.seconds(graph)
    mine = graph.device == trainer.transport.rank
    taken = np.nan_to_num(timeline.end - timeline.start)
    found = []
    for kind in Kind:
        rows = mine & (graph.kind == kind)
        found.append(f"{kind.name.lower()} {rows.sum()}: {seconds[rows].sum() * 1e3:.2f} {taken[rows].sum() * 1e3:.2f}")
    return ", ".join(found)


def run_model(name: str, machine: taskflow.MachineModel, costs: taskflow.CostModel, options: Any) -> dict[str, Run]:
    """Predict and measure one model under every strategy."""
    sizes = MODELS[name] | (SMALLER.get(name, {}) if options.emulated else {})
    graph = import_module(f"models.{name}").build(**sizes)
    feeds = make_feeds(graph, sizes.get("rows") or sizes.get("vocabulary") or sizes["classes"])
    runs: dict[str, Run] = {}
    for rule, make in RULES.items():
        trainer = taskflow.Trainer(graph, machine=machine, costs=costs, strategy=make, quiet=True)
        if len(runs) < STRATEGIES and all(r.trainer.strategy != trainer.strategy for r in runs.values()):
            runs[rule] = Run(trainer)
    for number in range(options.rounds + 1):
        for run in runs.values():
            if isinstance(costs, MeasuredCosts):
                rehearse(costs, run.trainer.task_graph)
            run.round(feeds, options.seconds)
            if not number:  # caches and pages are still cold
                run.rounds.clear()
    for run in runs.values():
        run.predicted = taskflow.simulate(run.trainer.task_graph, costs).seconds
    return runs


def report(name: str, runs: dict[str, Run], shows_parts: bool) -> float:
    """Print the lines of a model; gives tau of the clear pairs."""
    transport = connect()
    pairs = list(combinations(runs.values(), 2))
    clear = [(x, y) for x, y in pairs if x.differs(y)]
    for rule, run in runs.items():
        details = transport.gather(parts(run)) if shows_parts else []
        if transport.rank == 0:
            print(f"{name:14s} {rule:16s} {run.predicted * 1e3:12.3f} {run.measured * 1e3:12.3f} {run.error:+7.1%}")
            print("".join(f"    {line}\n" for line in details), end="", flush=True)
    if transport.rank == 0:
        print(f"{name:14s} tau {tau(pairs):.2f}; of the {len(clear)} clear pairs {tau(clear):.2f}", flush=True)
    return tau(clear)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--emulated", action="store_true", help="on emulated devices, a slow one for each rank")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a round")
    parser.add_argument("--parts", action="store_true", help="compare kinds of rows, too")
    options = parser.parse_args()
    transport = connect()
    if options.emulated:
        machine = taskflow.MachineModel.uniform(transport.size, EMULATED, bandwidth=5e8, latency_seconds=2e-3)
        costs = taskflow.CostModel.analytic(machine)
    else:
        machine = taskflow.measure_machine(taskflow.MachineModel.local())
        costs = taskflow.CostModel.measured(machine)
    if transport.rank == 0:
        print(f"{'model':14s} {'strategy':16s} {'predicted ms':>12s} {'measured ms':>12s} {'error':>7s}")
    errors: list[float] = []
    agreements: list[float] = []
    for name in options.models:
        runs = run_model(name, machine, costs, options)
        agreements.append(report(name, runs, options.parts))
        errors += [abs(run.error) for run in runs.values()]
    if transport.rank == 0:
        print(f"least tau of clear pairs {min(agreements):.2f}")
        print(f"error: median {np.median(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()
