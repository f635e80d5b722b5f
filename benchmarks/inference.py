"""Inference on four devices: searched plans against those by hand, by latency and by throughput.

    python benchmarks/inference.py [MODEL ...] [--batch 1] [--proposals 600] [--seed 0] [--in-flight 8]

Latency: seconds of a step of the model without its optimizer, alone. Throughput: of a step in steady state, with so
many in a row (`taskflow.search(repeat=)`): what as many more take; beside it when the first one is done.
By hand: one device; tensor parallelism of four (Megatron's, with what it leaves over in any way, and every operator
along its first axis of parameters); pipelines of four stages of equal work, or of equal layers, or of equal work with
cuts between layers, and for latency with micro-batches where there are samples. The search is given none of them.
The ratio is that of the search to the best by hand.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise

import grids

import taskflow
from taskflow import Graph, MachineModel, Plan

DEVICES = 4
ORDERS = None, "forward_first", "critical_path"
WORST, GOOD, LEAST_GOOD = 1.0, 0.9, 3
ROUNDING = 1e-9  # relative: equal plans


def of_models(name: str) -> Callable[[int], Graph]:
    """A model of `ops.models` without its optimizer."""

    def build(batch: int) -> Graph:
        graph: Graph = import_module(f"ops.models.{name}").build(batch=batch, training=False)
        return graph

    return build


MODELS = {
    "AlexNet": of_models("alexnet"),
    "Inception-v3": of_models("inception_v3"),
    "ResNet-101": of_models("resnet101"),
    "GPT": of_models("gpt"),
    "BERT-large": of_models("bert"),
    "T5": grids.t5_forward,
    "RNNLM": of_models("rnnlm"),
    "MoE": of_models("moe"),
}


def by_hand(graph: Graph, machine: MachineModel) -> Iterator[tuple[str, Callable[[], Plan]]]:
    """Names of plans, and what makes them; ValueError: there is none."""
    yield "one device", lambda: Plan(taskflow.single_device(graph, machine))
    yield "tensor parallel", lambda: Plan(taskflow.model_parallel(graph, machine))
    for rest in grids.RESTS:
        yield (
            f"tensor parallel, {rest}",
            partial(taskflow.grid, graph, machine, tensor=DEVICES, rest=rest),
        )
    for parts in (1, 2, 4):
        schedule = "one_f_one_b" if parts > 1 else None
        for name, cut in (("equal", even_cuts), ("by layer", layer_cuts), ("layers", equal_layers)):
            yield (
                f"pipeline, {name}" + f", {parts} micro-batches" * (parts > 1),
                partial(staged, graph, machine, cut, parts, schedule),
            )


def staged(
    graph: Graph,
    machine: MachineModel,
    cut: Callable[[Graph, MachineModel], list[str]],
    parts: int,
    schedule: str | None,
) -> Plan:
    """A pipeline with these cuts."""
    return Plan(taskflow.stages(graph, machine, cuts=cut(graph, machine)), parts, schedule)


def even_cuts(graph: Graph, machine: MachineModel) -> list[str]:
    """The first operators of stages of equal work, but of the first stage."""
    devices = {n: c.devices for n, c in taskflow.stages(graph, machine, DEVICES).items()}
    names = list(devices)
    return [b for a, b in pairwise(names) if devices[a] != devices[b]]


def layer_cuts(graph: Graph, machine: MachineModel) -> list[str]:
    """The same, each moved to the first operator of its layer."""
    first = dict[str, str]()
    for op in graph.operators:
        first.setdefault(head(op.name), op.name)
    return list(dict.fromkeys(first[head(name)] for name in even_cuts(graph, machine)))


def equal_layers(graph: Graph, machine: MachineModel) -> list[str]:
    """The first operators of every quarter of what has layers' names."""
    layers = dict[str, str]()
    for op in graph.operators:
        if head(op.name) != op.name:
            layers.setdefault(head(op.name), op.name)
    names = list(layers.values())
    return [names[len(names) * k // DEVICES] for k in range(1, DEVICES)]


def head(name: str) -> str:
    """What stands before the first point of a name: its layer."""
    return name.partition(".")[0]


class Row:
    """One model's plans, judged by latency or by throughput.

    Args:
        repeat: 1: latency; else so many steps in a row.
    """

    def __init__(self, graph: Graph, machine: MachineModel, repeat: int) -> None:
        self.graph, self.machine, self.repeat = graph, machine, repeat
        self.costs = taskflow.CostModel.analytic(machine)

    def seconds(self, plan: Plan) -> float:
        """Of a step; infinite: it does not fit into memory."""
        alone = plan.predict(self.graph, self.machine, self.costs)
        if alone.shortage or self.repeat == 1:
            return math.inf if alone.shortage else alone.seconds
        several = plan.predict(self.graph, self.machine, self.costs, self.repeat)
        twice = plan.predict(self.graph, self.machine, self.costs, 2 * self.repeat)
        seconds = twice.steady_seconds(several.seconds, self.repeat)
        return math.inf if twice.shortage else seconds

    def best_by_hand(self) -> tuple[float, str]:
        """Its seconds, in the order of rows that is best for it, and its name."""
        best = math.inf, "none"
        for name, make in by_hand(self.graph, self.machine):
            if self.repeat > 1 and "micro-batches" in name:
                continue
            with suppress(ValueError):
                plan = make()
                for order in ORDERS if plan.parts == 1 else [plan.schedule]:
                    best = min(best, (self.seconds(replace(plan, schedule=order)), name))
        return best

    def ratio(self, name: str, proposals: int, seed: int) -> float:
        """Print the row; search to best by hand."""
        seconds, hand = self.best_by_hand()
        result = taskflow.search(
            self.graph, self.machine, self.costs, proposals, seed, repeat=self.repeat
        )
        searched = self.seconds(result.plan)
        if self.repeat > 1:
            first = f"{1e3 * result.first_seconds:.3f} ms for the first"
            says = f"{1 / searched:.0f} steps/s, {first}"
        else:
            says = "latency"
        what = f"{1e3 * searched:.3f} ms searched ({says}), {1e3 * seconds:.3f} ms by {hand}"
        print(f"{name}: {what}: {searched / seconds:.3f}", flush=True)
        return searched / seconds


def main() -> None:
    """Print a row for each model, by latency and by throughput, and verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--machine", default="p100", help="a preset of four devices")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--proposals", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-flight", type=int, default=8)
    options = parser.parse_args()
    machine = MachineModel.preset(options.machine)
    for repeat in (1, options.in_flight):
        what = "throughput" if repeat > 1 else "latency"
        print(f"{what}, {DEVICES} {options.machine}, batch {options.batch}")
        ratios = [
            Row(MODELS[name](options.batch), machine, repeat).ratio(
                name, options.proposals, options.seed
            )
            for name in options.models
        ]
        good = sum(ratio <= GOOD for ratio in ratios)
        is_met = max(ratios) <= WORST + ROUNDING and good >= min(LEAST_GOOD, len(ratios))
        verdict = "ok" if is_met else "MISSED"
        print(f"{what}: at most {max(ratios):.3f}, {good} of {len(ratios)} <= {GOOD}: {verdict}")


if __name__ == "__main__":
    main()
