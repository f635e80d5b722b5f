"""More or less of activations, of optimizer state, of parameters in the memory of hosts: room for what links carry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.graph.homes import is_home
from taskflow.graph.offload import offload
from taskflow.schedule.plan import Plan
from taskflow.searching.moves.again import toggled
from taskflow.searching.problem import SearchProblem, Variant
from taskflow.strategy.strategy import Strategy


def change_offload(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """All of one kind; where some of it is there, a random run of it is too, or is no more.

    What goes there is not computed again. Where devices lack memory, it is of a kind that lies in it.
    """
    if not problem.machine.memories or problem.space is not None:
        return None
    kinds = problem.variant(Plan(Strategy({}))).made(offloadable)
    now = set(plan.offloaded)
    outcome = problem.judge.judge(plan)
    lying = kinds
    if not outcome.fits and outcome.host_share <= 1:
        lying = [names for names in kinds if not now.union(plan.recomputed).issuperset(names)]
    if not lying:
        return None
    names = lying[int(generator.integers(len(lying)))]
    chosen = toggled(names, now, generator) if now.intersection(names) else now.union(names)
    offloaded = tuple(name for of_kind in kinds for name in of_kind if name in chosen)
    again = tuple(name for name in plan.recomputed if name not in chosen)
    return problem.fitted(replace(plan, offloaded=offloaded, recomputed=again))


def offloadable(variant: Variant) -> list[list[str]]:
    """Forward operators by classes of equal ones, state of optimizers by parameters, and parameters."""
    graph = variant.graph
    read = {region.name for op in graph.operators if op.is_backward for region in op.inputs}
    forward = (op for op in graph.operators if not op.is_backward and not op.writes)
    makers = (op for op in forward if not is_home(op))
    values = [op.name for op in makers if any(region.name in read for region in op.outputs)]
    try:
        offload(graph, values)
    except ValueError:  # one is updated in place
        values = []
    parameters = [region.name for region in graph.parameters if region.shape]
    states: dict[str, list[str]] = {name: [] for name in parameters}
    for op in graph.operators:
        beside = op.beside or ""
        for region in op.inputs if op.writes and beside in states else ():
            if region.role == "state" and region.shape == graph.regions[beside].shape:
                states[beside].append(region.name)
    of_states = dict.fromkeys(name for names in states.values() for name in names)
    kept = set(values)
    of_values = [[name for name in names if name in kept] for names in variant.classes]
    return [names for names in (*of_values, [*of_states], [*parameters]) if names]
