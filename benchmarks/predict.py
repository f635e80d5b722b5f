"""Predicted against measured step time of six models, each reduced, under five strategies.

`mpirun -n 2 python benchmarks/predict.py` does all, in about a minute a model; `--models gpt` a part of it. Every
strategy takes its turn in every round: a rehearsal, in which its rows are timed one by one without waiting for each
other, and then some steps. So what slows the machine down for a while slows down both. The prediction is a simulation
of the rows of all rehearsals and knows of no step; measured is the median over the rounds of a round's median step, a
step ending with its slowest rank. A turn in which other processes took more than a tenth of the cores is repeated, up
to four times.

Which strategies: of all in `_listed` those five whose predicted times, of rehearsals in turn before any step, lie
furthest apart: the smallest factor between two of them is the largest possible. What is measured has no say in it, and
none is left out afterwards. (Data and model parallelism are often within 5 % of each other, and medians of ten rounds
differed by 6 to 14 % from those of the next ten, so their order is no fact. The first five that lay 10 % apart, which
were taken here before, had to be filled up with such pairs where the list had no five.)

Tau is Kendall's tau of the predicted and the measured order of the strategies of a model: once of all pairs, and once
of those that are clear, where the middle halves of their measured rounds do not overlap.

`mpirun -n 4 python benchmarks/predict.py --emulated` does it on emulated devices, whose costs are given; no turn is
repeated. An emulated row takes its given time if its real work is done by then. So the devices are slow enough for four
of them to share two cores: their rates are a hundredth of those of a core, and a row takes at least 5 ms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
from others import Others

import taskflow
from taskflow.comm.transport import LocalTransport, connect
from taskflow.cost.model import MeasuredCosts
from taskflow.execute.rehearsal import Rehearsal, typical_seconds
from taskflow.tasks.task_graph import Kind

MODELS: dict[str, dict[str, Any]] = {
    "alexnet": {
        "batch": 16,
        "image": 95,
        "channels": (32, 64, 96, 64, 64),
        "hidden": 512,
        "classes": 100,
    },
    "inception_v3": {"batch": 8, "image": 107, "width": 0.25, "modules": (1, 1, 1), "classes": 100},
    "resnet101": {"batch": 8, "image": 64, "blocks": (1, 2, 4, 1), "width": 16, "classes": 100},
    "rnnlm": {
        "batch": 32,
        "steps": 10,
        "hidden": 256,
        "embed": 256,
        "vocabulary": 1000,
        "group": 5,
    },
    "gpt": {"batch": 4, "sequence": 64, "layers": 2, "hidden": 128, "heads": 4, "vocabulary": 1000},
    "dlrm": {"batch": 512, "tables": 4, "rows": 10_000, "top": (512, 512, 512, 1)},
}
EMULATED = taskflow.Device(
    "emulated", flops_per_second=1.5e9, memory_bandwidth=1e9, overhead_seconds=5e-3
)
SMALLER: dict[str, dict[str, Any]] = {
    "inception_v3": {"modules": (1, 0, 0)},
    "resnet101": {"blocks": (1, 1, 1, 1)},
    "rnnlm": {"steps": 5, "hidden": 128, "embed": 128, "vocabulary": 500},
    "gpt": {"layers": 1},
}
STRATEGIES = 5
SECONDS = 25.0  # of rehearsals, in turn, before strategies are chosen
MOST_OF_OTHERS = 0.1
ATTEMPTS = 5


def candidates(
    graph: taskflow.Graph, machine: taskflow.MachineModel
) -> Iterator[tuple[str, taskflow.Strategy]]:
    """Names and strategies, in the order in which they are considered; none comes twice."""
    seen: list[taskflow.Strategy] = []
    for name, strategy in _listed(graph, machine):
        if strategy not in seen:
            seen.append(strategy)
            yield name, strategy


def _listed(
    graph: taskflow.Graph, machine: taskflow.MachineModel
) -> Iterator[tuple[str, taskflow.Strategy]]:
    yield "single device", taskflow.single_device(graph, machine)
    yield "data parallel", taskflow.data_parallel(graph, machine)
    yield "model parallel", taskflow.model_parallel(graph, machine)
    yield "searched", searched(graph, machine)
    yield "one weird trick", taskflow.one_weird_trick(graph, machine)
    yield "round robin", round_robin(graph, machine)
    parallel, alone = taskflow.data_parallel(graph, machine), taskflow.single_device(graph, machine)
    for eighth in range(1, 8):
        yield f"{eighth}/8 on one device", mixed(alone, parallel, eighth / 8)
    for seed in range(12):
        yield f"random {seed}", taskflow.random_strategy(graph, machine, seed)
    for eighth in range(1, 8):
        yield (
            f"{eighth}/8 random",
            mixed(taskflow.random_strategy(graph, machine, 0), parallel, eighth / 8),
        )


def searched(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Strategy:
    """What a short search on rank 0 finds, by analytic costs: a rehearsal for each proposal would take minutes."""
    found = None
    if connect().rank == 0:
        costs = taskflow.CostModel.analytic(machine)
        found = taskflow.search(
            graph, machine, costs, proposals=100, transport=LocalTransport()
        ).strategy
    strategy: taskflow.Strategy = connect().gather(found)[0]
    return strategy


def round_robin(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Strategy:
    """Every operator on one device, the next one on the next."""
    alone = [
        taskflow.single_device(graph, machine, device) for device in range(len(machine.devices))
    ]
    strategy = alone[0]
    for k, name in enumerate(list(strategy)):
        strategy[name] = alone[k % len(alone)][name]
    return strategy


def mixed(first: taskflow.Strategy, rest: taskflow.Strategy, part: float) -> taskflow.Strategy:
    """The first part of the operators under one strategy, the rest under another."""
    strategy, names = taskflow.Strategy(dict(rest)), list(rest)
    for name in names[: round(part * len(names))]:
        strategy[name] = first[name]
    return strategy


class Run:
    """A model under a plan: what was predicted and what each round measured, in seconds."""

    def __init__(self, task_graph: taskflow.TaskGraph, costs: taskflow.CostModel) -> None:
        self.costs, self.task_graph = costs, task_graph
        self.rounds: list[float] = []
        self.disturbed = 0
        self._rows: list[np.ndarray] = []
        self._rehearsal = Rehearsal(self.task_graph) if isinstance(costs, MeasuredCosts) else None

    def start(self, feeds: dict[str, np.ndarray]) -> None:
        """Make the executor and run a step, in which caches and pages are cold."""
        self.feeds = feeds
        self.step = taskflow.Executor(
            self.task_graph, costs=self.costs, allow_nan=True, record=True
        )
        self.step(feeds)
        self._rows.clear()  # of the choice

    def turn(self, steps: int, attempts: int) -> None:
        """A rehearsal and some steps, again where others took part; see the module."""
        others = Others(self.step.transport)
        for attempt in range(attempts):
            if attempt:
                self._rows.pop()
            others.share()
            self.rehearse(steps)
            times = [self._slowest_step() for _ in range(steps)]
            if others.share() <= MOST_OF_OTHERS:
                break
        else:
            self.disturbed += 1
        self.rounds.append(float(np.median(times)))

    def rehearse(self, rounds: int) -> None:
        """Time the rows so many times, and keep that for the prediction."""
        self._rows.append(
            self._rehearsal.time_rows(rounds)
            if self._rehearsal
            else np.zeros((0, len(self.task_graph)))
        )

    def _slowest_step(self) -> float:
        self.step(self.feeds)
        return float(max(self.step.transport.gather(self.step.seconds)))

    def predict(self) -> float:
        """Seconds of a step, from the rehearsals so far."""
        if isinstance(self.costs, MeasuredCosts):
            self.costs.learn(
                self.task_graph, typical_seconds(self.task_graph, np.concatenate(self._rows))
            )
        return taskflow.simulate(self.task_graph, self.costs).seconds


@dataclass
class Line:
    """A line of the table, in seconds."""

    predicted: float
    rounds: list[float] = field(default_factory=list)

    @property
    def measured(self) -> float:
        """Seconds of a step."""
        return float(np.median(self.rounds))

    @property
    def half(self) -> tuple[float, float]:
        """The middle half of the rounds."""
        low, high = np.quantile(self.rounds, (0.25, 0.75))
        return float(low), float(high)

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def is_clear(x: Line, y: Line) -> bool:
    """Whether the middle halves of their rounds do not overlap."""
    return x.half[1] < y.half[0] or y.half[1] < x.half[0]


def tau(pairs: list[tuple[Line, Line]]) -> float:
    """Kendall's tau: how many pairs are predicted in the measured order less those that are not, over all."""
    signs = [np.sign((x.predicted - y.predicted) * (x.measured - y.measured)) for x, y in pairs]
    return float(np.mean(signs)) if signs else 1.0


def make_feeds(graph: taskflow.Graph, words: int) -> dict[str, np.ndarray]:
    """Random inputs; `words` bounds the integers."""
    random = np.random.default_rng(0)
    return {
        r.name: random.integers(0, words, r.shape, dtype=np.int32)
        if r.dtype == "int32"
        else random.random(r.shape, dtype=np.float32)
        for r in graph.inputs
    }


def choose(graph: taskflow.Graph, costs: taskflow.CostModel) -> dict[str, Run]:
    """Five strategies by the rule of the module."""
    machine = costs.machine
    runs = {
        name: Run(taskflow.lower(graph, each, machine), costs)
        for name, each in candidates(graph, machine)
    }
    begin = time.monotonic()
    while (
        isinstance(costs, MeasuredCosts) and connect().gather(time.monotonic() - begin)[0] < SECONDS
    ):
        for run in runs.values():
            run.rehearse(2)
    chosen = furthest_apart([run.predict() for run in runs.values()], STRATEGIES)
    return {name: run for k, (name, run) in enumerate(runs.items()) if k in chosen}


def furthest_apart(seconds: Sequence[float], count: int) -> tuple[int, ...]:
    """Places of so many times of which the closest two lie further apart, by a factor, than in any other choice."""
    logs = np.log(seconds)
    choices = np.array(list(combinations(range(len(logs)), count)))
    smallest = np.diff(np.sort(logs[choices], axis=1), axis=1).min(axis=1)
    best: tuple[int, ...] = tuple(choices[np.argmax(smallest)].tolist())
    return best


def run_model(name: str, costs: taskflow.CostModel, options: Any) -> dict[str, Run]:
    """Predict and measure one model under every strategy."""
    sizes = MODELS[name] | (SMALLER.get(name, {}) if options.emulated else {})
    graph = import_module(f"ops.models.{name}").build(**sizes)
    feeds = make_feeds(graph, sizes.get("rows") or sizes.get("vocabulary") or sizes["classes"])
    runs = choose(graph, costs)
    for run in runs.values():
        run.start(feeds)
    for _ in range(options.rounds):
        for run in runs.values():
            run.turn(options.steps, 1 if options.emulated else ATTEMPTS)
    return runs


def report(name: str, runs: dict[str, Run], shows_parts: bool) -> list[Line]:
    """Print the lines of a model."""
    lines = {strategy: Line(run.predict(), run.rounds) for strategy, run in runs.items()}
    details = (
        {strategy: connect().gather(parts(run)) for strategy, run in runs.items()}
        if shows_parts
        else {}
    )
    if connect().rank == 0:
        for strategy, line in lines.items():
            low, high = (1e3 * seconds for seconds in line.half)
            print(
                f"{name:13s} {strategy:17s} {line.predicted * 1e3:12.2f} {line.measured * 1e3:12.2f} "
                f"{low:8.2f} to {high:8.2f} {line.error:+7.1%}"
            )
            print("".join(f"    {text}\n" for text in details.get(strategy, ())), end="")
        pairs = list(combinations(lines.values(), 2))
        clear = [(x, y) for x, y in pairs if is_clear(x, y)]
        disturbed = sum(run.disturbed for run in runs.values())
        turns = sum(len(run.rounds) for run in runs.values())
        print(
            f"{name:13s} tau {tau(pairs):.2f}; of the {len(clear)} clear pairs {tau(clear):.2f}; "
            f"{disturbed} of {turns} turns disturbed",
            flush=True,
        )
    return list(lines.values())


def parts(run: Run) -> str:
    """Milliseconds per kind of row, predicted and in the last step, on this rank."""
    graph, timeline = run.task_graph, run.step.timeline
    seconds, taken = run.costs.seconds(graph), np.nan_to_num(timeline.end - timeline.start)
    found = []
    for kind in Kind:
        rows = (graph.device == connect().rank) & (graph.kind == kind)
        found.append(
            f"{kind.name.lower()} {rows.sum()}: {seconds[rows].sum() * 1e3:.2f} {taken[rows].sum() * 1e3:.2f}"
        )
    return ", ".join(found)


def machine_costs(is_emulated: bool) -> taskflow.CostModel:
    """Costs of emulated devices, one for each rank, or of the cores at hand."""
    if is_emulated:
        size = connect().size
        machine = taskflow.MachineModel.uniform(size, EMULATED, bandwidth=5e8, latency_seconds=5e-3)
        return taskflow.CostModel.analytic(machine)
    return taskflow.CostModel.measured(taskflow.measure_machine(taskflow.MachineModel.local()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--emulated", action="store_true", help="on emulated devices, a slow one for each rank"
    )
    parser.add_argument("--rounds", type=int, help="default: 16, or 1 with --emulated")
    parser.add_argument("--steps", type=int, help="of a round; default: 2, or 1 with --emulated")
    parser.add_argument("--parts", action="store_true", help="compare kinds of rows, too")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.emulated else 16)
    options.steps = options.steps or (1 if options.emulated else 2)
    costs = machine_costs(options.emulated)
    is_first = connect().rank == 0
    if is_first:
        heads = f"{'predicted ms':>12s} {'measured ms':>12s} {'middle half':>20s} {'error':>7s}"
        print(f"{'model':13s} {'strategy':17s} {heads}", flush=True)
    errors: list[float] = []
    for name in options.models:
        errors += [
            abs(line.error) for line in report(name, run_model(name, costs, options), options.parts)
        ]
    if is_first:
        print(f"error: median {np.median(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()
