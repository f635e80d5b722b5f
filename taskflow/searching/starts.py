"""Starts of a search: a generator of plans, cheapest and likeliest first, that are judged while there is time.

Strategies by rule, those of the user, and the first of the plans that moves lay out (`moves.shape`). What does not fit
into memory is for moves to repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.rules import RULES
from taskflow.strategy.sharded import shard_state
from taskflow.strategy.strategy import Strategy, check_strategy, completed

# Rules that ask a machine only how many devices it has.
HALVED = "data parallel", "one weird trick", "model parallel"
LIKELY = "data parallel", "single device"  # which come first
RULE_NAMES = {name.replace("_", " "): rule for name, rule in RULES.items()}


def starts(
    problem: SearchProblem, given: Mapping[str, Plan], left_out: list[str], seed: int
) -> Iterator[tuple[str, Plan]]:
    """Names and plans.

    Args:
        given: plans of the user; where strategies are in no space, the only ones.
        left_out: gets the names of those that are not in the space, if one is given.
        seed: of random strategies, which are the last.
    """
    by_rule = rule_starts(problem.graph, problem.machine) if problem.has_strategies else ()
    order = problem.first_order
    rules = ((name, Plan(strategy, schedule=order)) for name, strategy in by_rule)
    for name, plan in chain(given.items(), rules):
        if problem.space is None:
            strategy = completed(problem.variant(plan).graph, plan.strategy)
            yield name, replace(plan, strategy=strategy)
        elif (inside := problem.space.own(plan)) is not None:
            yield name, inside
        else:
            left_out.append(name)
    generator = np.random.default_rng(seed)
    k = 0
    while problem.has_strategies:
        space = problem.variant(Plan(Strategy({}))).space
        yield f"random {k}", Plan(space.draw_strategy(generator))
        k += 1


def rule_starts(graph: Graph, machine: MachineModel) -> Iterator[tuple[str, Strategy]]:
    """Strategies by rule, also on fewer devices: a small model is slower on all of them.

    Each is made when it is asked for. Of equal ones, as one without tables is, the first is given.
    """
    different: list[Strategy] = []
    for name, strategy in _by_rule(graph, machine):
        if strategy not in different:
            different.append(strategy)
            yield name, strategy
            if name == "proportional":
                yield f"{name}, sharded state", shard_state(graph, strategy)


def _by_rule(graph: Graph, machine: MachineModel) -> Iterator[tuple[str, Strategy]]:
    for name in (*LIKELY, *(name for name in RULE_NAMES if name not in LIKELY)):
        yield name, RULE_NAMES[name](graph, machine)
    count = len(machine.devices) // 2
    while count > 1:
        some = MachineModel.uniform(count)
        for name in HALVED:
            yield f"{name} on {count} devices", RULE_NAMES[name](graph, some)
        count //= 2


def checked_starts(
    problem: SearchProblem, given: Mapping[str, Strategy] | Mapping[str, Plan]
) -> dict[str, Plan]:
    """Plans of the user's starts; ValueError: one does not fit the graph or machine, or has the name of one by rule."""
    plans = {n: start if isinstance(start, Plan) else Plan(start) for n, start in given.items()}
    for name, plan in plans.items():
        if name.partition(" on ")[0].partition(",")[0] in RULE_NAMES:
            raise ValueError(f"search: the start '{name}': it has the name of a start by a rule")
        try:
            graph = problem.variant(plan).graph
            devices = len(problem.machine.devices)
            check_strategy(graph, plan.strategy, devices)
            problem.judge.lowering(plan).numbers(plan.strategy)
        except ValueError as error:
            raise ValueError(f"search: the start '{name}': {error}") from error
    return plans
