"""What else there is, for a page: baselines, the plans that no other beats, how a search went, and what-if."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.machine.scaling import scalable
from taskflow.report.stragglers import stragglers
from taskflow.report.whatif import Find, what_if
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult
from taskflow.searching.outcome import FOUND, Outcome, judged, non_dominated
from taskflow.searching.starts import rule_starts

MOST_STARTS = 12  # of a search that are simulated again, for bytes and memory
SLOWER = 1.1  # of one device
NETWORK = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
FLOPS = (0.5, 1.0, 2.0)  # factors

Progress = Callable[[int, int, str], None]  # done, of how many, what


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
    history = [
        [proposal, seconds] for proposal, seconds in searched.history if math.isfinite(seconds)
    ]
    names = {outcome.name for outcome in outcomes}
    starts = searched.baseline_seconds.items()
    plans += [
        {"name": name, "seconds": _finite(s), "is_best": False}
        for name, s in starts
        if name not in names
    ]
    course = {
        "history": history,
        "proposals": searched.proposals,
        "lower_bound_seconds": searched.lower_bound_seconds,
        "best_start": searched.best_start,
        "best_start_seconds": _finite(searched.baseline_seconds[searched.best_start]),
        "text": str(searched),
    }
    return {"plans": plans, "search": course}


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
    grid = [(n, f) for f in FLOPS for n in (NETWORK if network else (1.0,)) if (n, f) != (1.0, 1.0)]
    alone = [pair for pair in grid if pair[1] == 1.0]
    asked = [(name, grid if k == 0 else alone) for k, name in enumerate(plans)]
    total = sum(len(pairs) + 1 for _, pairs in asked)
    done = 0
    answers = []
    for name, pairs in asked:
        scales = [
            {k: x for k, x in ((network, n), ("flops", f)) if k and x != 1.0} for n, f in pairs
        ]
        seconds = []
        for case in what_if(
            graph, machine, costs, _giving(plans[name]), scales=scales, sensitivities=False
        ):
            progress(done, total, f"what if: {name}")
            done += 1
            seconds.append(None if case.refusal else _finite(case.seconds))
        points = [[n, f, s] for (n, f), s in zip([(1.0, 1.0), *pairs], seconds, strict=True)]
        answers.append({"name": name, "points": points})
    first = next(iter(plans.values()))
    (base,) = what_if(graph, machine, costs, _giving(first), sensitivities=True)
    progress(done, total, "what if: one device is slow")
    slow = stragglers(graph, first, machine, costs, SLOWER) if math.isfinite(base.seconds) else []
    factors = {"network": NETWORK if network else (1.0,), "flops": FLOPS}
    return {
        "of_network": network,
        **factors,
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


def _giving(plan: Plan) -> Find:
    """What finds always this plan."""
    return lambda *_: plan
