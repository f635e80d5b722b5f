"""`taskflow simulate A B --beside`: the steps of several models that share a machine, as one task graph."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from taskflow.cli.inputs import find_costs
from taskflow.cli.machine import find_machine
from taskflow.cli.model import build_model
from taskflow.cli.output import show_table
from taskflow.cost.model import CostModel
from taskflow.graph.beside import beside
from taskflow.graph.graph import Graph
from taskflow.lowering import lower
from taskflow.machine import MachineModel
from taskflow.report.describe import describe_seconds
from taskflow.schedule.jobs import ORDERS_OF_JOBS
from taskflow.schedule.orders import reorder
from taskflow.simulation.simulate import simulate
from taskflow.strategy.rules import RULES
from taskflow.strategy.strategy import Strategy

STEPS = 4  # in a row: jobs overlap between steps
LOWERED = "as lowered"


def seconds_of_orders(
    graph: Graph, strategy: Strategy, machine: MachineModel, costs: CostModel
) -> tuple[dict[str, float], float]:
    """Order -> seconds of one step of `STEPS` in a row; and what its busiest stream takes, which no order is below."""
    rows = lower(graph, strategy, machine, repeat=STEPS)
    seconds = {}
    for order in (LOWERED, *ORDERS_OF_JOBS):
        timeline = simulate(rows if order == LOWERED else reorder(rows, costs, order), costs)
        seconds[order] = timeline.seconds / STEPS
    return seconds, max(timeline.busy_seconds().values()) / STEPS


def compare(
    graphs: Mapping[str, Graph],
    strategies: Mapping[str, Strategy],
    machine: MachineModel,
    costs: CostModel,
) -> tuple[dict[str, float], dict[str, float], float]:
    """Job -> seconds of a step alone, in its best order; order -> those of all together; and the bound of these."""
    alone = {
        job: min(seconds_of_orders(graph, strategies[job], machine, costs)[0].values())
        for job, graph in graphs.items()
    }
    strategy = Strategy.beside(strategies)
    return alone, *seconds_of_orders(beside(graphs), strategy, machine, costs)


def simulate_beside(options: argparse.Namespace) -> int:
    """Print seconds of a step of each model alone, one after the other, and together.

    Raises:
        ValueError: there is one model, the strategy is no rule, or another option asks for something else.
    """
    _check(options)
    models = [options.model, *options.others]
    machine = find_machine(options.machine, options.nodes, options.devices and options.devices[0])
    costs = find_costs(options.costs, machine)
    graphs = _graphs(models, options.arguments)
    strategies = {job: RULES[options.strategy](graph, machine) for job, graph in graphs.items()}
    _show(models, *compare(graphs, strategies, machine, costs))
    return 0


def _graphs(models: Sequence[str], arguments: Sequence[str]) -> dict[str, Graph]:
    """Those of jobs a, b, ..."""
    return {chr(ord("a") + k): build_model(model, arguments) for k, model in enumerate(models)}


def _check(options: argparse.Namespace) -> None:
    if not options.others or not options.beside:
        raise ValueError("--beside: give two models or more, and this option")
    if options.strategy not in RULES:
        raise ValueError(f"--beside: --strategy is a rule, not {options.strategy}")
    if options.lengths or options.parts or options.jitter or len(options.devices or ()) > 1:
        raise ValueError("--beside: leave out --lengths, --parts, --jitter and several --devices")


def _show(
    models: Sequence[str], alone: Mapping[str, float], together: Mapping[str, float], bound: float
) -> None:
    total = sum(alone.values())
    seconds = {
        f"{job} alone: {model}": alone[job] for job, model in zip(alone, models, strict=True)
    }
    seconds["one after the other"] = total
    seconds |= {f"together, {what}": together[what] for what in together}
    seconds["no order is below"] = bound
    show_table(
        [
            (f"a step, of {STEPS} in a row", "", "of the sum"),
            *((what, describe_seconds(s), f"{s / total:.3f}") for what, s in seconds.items()),
        ]
    )
