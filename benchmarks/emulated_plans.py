"""Plans that a search chooses for emulated machines, run beside all of its baselines.

`mpirun -n 4 python benchmarks/emulated_plans.py` does ten cases (model, machine, memory), in some minutes;
`--cases 0 3` some of them. An emulated row takes its predicted time if its real work is done by then: devices are so
slow that four of them share two cores (see `predict.py`). Memory is a part of what data parallelism needs. All starts
of the search that fit are baselines. Plans take turns; measured is the median of the rounds, a step ends with its
slowest rank. Asked for is that the chosen plan is the fastest (chosen / best up to 1, but for noise), and that measured
over predicted is at most 1.08.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from predict import EMULATED, MODELS, SMALLER, make_feeds

import taskflow
from taskflow.comm.transport import connect

CASES = [
    ("gpt", "even", 1.0),
    ("gpt", "slow links", 1.0),
    ("gpt", "even", 0.6),
    ("rnnlm", "even", 1.0),
    ("rnnlm", "unequal", 1.0),
    ("dlrm", "even", 1.0),
    ("dlrm", "slow links", 0.6),
    ("alexnet", "even", 1.0),
    ("alexnet", "even", 0.6),
    ("alexnet", "unequal", 1.0),
]


def emulated(kind: str) -> taskflow.MachineModel:
    """A device for each rank; `unequal`: the last one has half of the rates."""
    bandwidth = 2e7 if kind == "slow links" else 5e8
    machine = taskflow.MachineModel.uniform(
        connect().size, EMULATED, bandwidth=bandwidth, latency_seconds=5e-3
    )
    if kind != "unequal":
        return machine
    rates = {name: getattr(EMULATED, name) / 2 for name in ("flops_per_second", "memory_bandwidth")}
    return replace(machine, devices=(*machine.devices[:-1], replace(machine.devices[-1], **rates)))


def limited(
    graph: taskflow.Graph, machine: taskflow.MachineModel, part: float
) -> taskflow.MachineModel:
    """A machine with that part of the memory of data parallelism, or with as much as it has."""
    if part == 1.0:
        return machine
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    peak = taskflow.simulate(rows, taskflow.CostModel.analytic(machine)).peak_bytes.max()
    return machine.with_rates(memory_bytes=int(part * peak))


class Run:
    """A plan that takes its turns."""

    def __init__(
        self, graph: taskflow.Graph, plan: taskflow.Plan, costs: taskflow.CostModel, feeds: Any
    ) -> None:
        self.rows, self.feeds = plan.apply(graph, costs.machine, costs)[1], feeds
        self.predicted = taskflow.simulate(self.rows, costs).seconds
        self.step = taskflow.Executor(self.rows, costs=costs, allow_nan=True)
        self.step(feeds)
        self.times: list[float] = []

    def turn(self) -> None:
        """A step, as long as its slowest rank's."""
        self.step(self.feeds)
        self.times.append(max(connect().gather(self.step.seconds)))

    @property
    def measured(self) -> float:
        """Seconds."""
        return float(np.median(self.times))


def run_case(model: str, kind: str, part: float, options: Any) -> tuple[float, float]:
    """Print a line; chosen / best baseline, and measured / predicted."""
    sizes = MODELS[model] | SMALLER.get(model, {})
    graph = import_module(f"ops.models.{model}").build(**sizes)
    feeds = make_feeds(graph, sizes.get("rows") or sizes.get("vocabulary") or sizes["classes"])
    machine = limited(graph, emulated(kind), part)
    costs = taskflow.CostModel.analytic(machine)
    result = taskflow.search(graph, machine, costs, options.proposals)
    fitting = {name: plan for name, plan in result.plans.items() if name in result.baseline_seconds}
    chosen, runs = Run(graph, result.plan, costs, feeds), {}
    known = {chosen.rows.digest(): chosen}
    for name, plan in fitting.items():
        digest = plan.apply(graph, machine, costs)[1].digest()
        runs[name] = known[digest] = known.get(digest) or Run(graph, plan, costs, feeds)
    for _ in range(options.rounds):
        for run in known.values():
            run.turn()
    best = min(runs, key=lambda name: runs[name].measured)
    ratio, error = chosen.measured / runs[best].measured, chosen.measured / chosen.predicted
    show(
        f"{model:9s} {kind:11s} {part:6.1f} {1e3 * chosen.predicted:10.1f} {1e3 * chosen.measured:10.1f} {error:9.3f} "
        f"{1e3 * runs[best].measured:10.1f} {ratio:7.3f}  {best}, of {len(runs)}"
    )
    return ratio, error


def show(text: str) -> None:
    """Print on rank 0."""
    if connect().rank == 0:
        print(text, flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", type=int, choices=range(len(CASES)), default=range(len(CASES))
    )
    parser.add_argument("--proposals", type=int, default=2000, help="of every rank")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    show(
        "model     machine     memory  predicted   measured  meas/pred   baseline   ratio  best baseline"
    )
    found = [run_case(*CASES[k], options) for k in options.cases]
    ratios, errors = zip(*found, strict=True)
    show(f"worst: chosen / best baseline {max(ratios):.3f}, measured / predicted {max(errors):.3f}")


if __name__ == "__main__":
    main()
