"""What else there is, for a page: baselines, the plans that no other beats, how a search went, and what-if."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.machine.scaling import scalable
from taskflow.report.stragglers import stragglers
from taskflow.report.whatif import Case, Find, what_if
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult
from taskflow.searching.outcome import FOUND, Outcome, judged, non_dominated
from taskflow.searching.starts import rule_starts

MOST_STARTS = 12  # of a search that are simulated again, for bytes and memory
SLOWER = 1.1  # of one device
NETWORK = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
FLOPS = (0.5, 1.0, 2.0)  # factors

Progress = Callable[[int, int, str], None]  # done, of how many, what
Factors = tuple[float, float]  # of the network, and of flops
AS_IS: Factors = (1.0, 1.0)


def rule_outcomes(
    graph: Graph, machine: MachineModel, costs: CostModel, progress: Progress
) -> list[Outcome]:
    """The strategies by rule that a search would start from, simulated."""
    named = dict(rule_starts(graph, machine))
    outcomes = []
    for done, (name, strategy) in enumerate(named.items()):
        progress(done, len(named), f"baseline {name}")
        outcomes.append(judged(graph, machine, costs, Plan(strategy), name))
    return outcomes


def search_outcomes(
    searched: SearchResult,
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    progress: Progress,
) -> list[Outcome]:
    """The fastest starts of a search, and those that nothing beats; measured costs measure nothing more for it."""
    by_name = {outcome.name: outcome for outcome in searched.pareto if outcome.name != FOUND}
    named = [
        name for name in searched.plans if name in searched.baseline_seconds and name not in by_name
    ][:MOST_STARTS]
    for done, name in enumerate([] if isinstance(costs, MeasuredCosts) else named):
        progress(done, len(named), f"start {name}")
        by_name[name] = judged(graph, machine, costs, searched.plans[name], name)
    return list(by_name.values())


def choice_columns(outcomes: list[Outcome], searched: SearchResult | None) -> dict[str, Any]:
    """Baselines with their three figures, which of them nothing beats, and the course of a search."""
    best = {id(outcome) for outcome in non_dominated(outcomes)}
    plans = [{**_figures(outcome), "is_best": id(outcome) in best} for outcome in outcomes]
    if searched is None:
        return {"plans": plans, "search": None}
    names = {outcome.name for outcome in outcomes}
    plans += [
        {"name": name, "seconds": _finite(seconds), "is_best": False}
        for name, seconds in searched.baseline_seconds.items()
        if name not in names
    ]
    return {
        "plans": plans,
        "search": {
            "history": [[*point] for point in searched.history if math.isfinite(point[1])],
            "proposals": searched.proposals,
            "lower_bound_seconds": searched.lower_bound_seconds,
            "best_start": searched.best_start,
            "best_start_seconds": _finite(searched.baseline_seconds[searched.best_start]),
            "text": str(searched),
        },
    }


def _figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "seconds": _finite(outcome.seconds),
        "bytes_moved": outcome.bytes_moved,
        "peak_bytes": outcome.peak_bytes,
    }


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def what_if_columns(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    plans: Mapping[str, Plan],
    progress: Progress,
) -> dict[str, Any] | None:
    """Seconds of plans where network and flops are so many times what they are; None for costs measured on one machine.

    The network is the links between hosts, or those within where there is one host. The first plan is asked about every
    pair of factors, by `sensitivities` each rate, by `stragglers` one slow device; the others about networks. A plan
    keeps its strategy and is lowered for each machine, so collectives are chosen anew.
    """
    if isinstance(costs, MeasuredCosts):
        return None
    network = next((name for name in ("network", "links") if name in scalable(machine)), "")
    networks = NETWORK if network else (1.0,)
    asked = _asked(plans, networks)
    answers = _answers(partial(what_if, graph, machine, costs), plans, network, asked, progress)
    first = next(iter(plans.values()))
    (base,) = what_if(graph, machine, costs, _giving(first), sensitivities=True)
    total = sum(map(len, asked.values()))
    progress(total, total, "what if: one device is slow")
    slow = stragglers(graph, first, machine, costs, SLOWER) if math.isfinite(base.seconds) else []
    return {
        "of_network": network,
        "network": networks,
        "flops": FLOPS,
        "plans": answers,
        "sensitivities": dict(base.sensitivities),
        "slower": SLOWER,
        "stragglers": [
            {
                "device": one.device,
                "longer": one.seconds / base.seconds - 1,
                "by_path": (SLOWER - 1) * one.path_seconds / base.seconds,
            }
            for one in slow
        ],
    }


def _asked(plans: Iterable[str], networks: Sequence[float]) -> dict[str, list[Factors]]:
    """The factors that every plan is asked about, first what network and flops are."""
    grid = [(n, f) for f in FLOPS for n in networks if (n, f) != AS_IS]
    alone = [pair for pair in grid if pair[1] == 1.0]
    return {name: [AS_IS, *(alone if k else grid)] for k, name in enumerate(plans)}


def _answers(
    ask: Callable[..., Iterator[Case]],
    plans: Mapping[str, Plan],
    network: str,
    asked: Mapping[str, Sequence[Factors]],
    progress: Progress,
) -> list[dict[str, Any]]:
    """Factors and seconds of every plan."""
    points: dict[str, list[list[float | None]]] = {name: [] for name in plans}
    for done, (name, point) in enumerate(_points(ask, plans, network, asked)):
        progress(done, sum(map(len, asked.values())), f"what if: {name}")
        points[name].append(point)
    return [{"name": name, "points": points[name]} for name in plans]


def _points(
    ask: Callable[..., Iterator[Case]],
    plans: Mapping[str, Plan],
    network: str,
    asked: Mapping[str, Sequence[Factors]],
) -> Iterator[tuple[str, list[float | None]]]:
    for name, pairs in asked.items():
        scales = [_scales(network, *pair) for pair in pairs[1:]]
        for pair, case in zip(
            pairs, ask(_giving(plans[name]), scales=scales, sensitivities=False), strict=True
        ):
            yield name, [*pair, None if case.refusal else _finite(case.seconds)]


def _scales(network: str, bandwidth: float, flops: float) -> dict[str, float]:
    scales = {network: bandwidth, "flops": flops}
    return {rate: factor for rate, factor in scales.items() if rate and factor != 1.0}


def _giving(plan: Plan) -> Find:
    """What finds always this plan."""
    return lambda *_: plan
