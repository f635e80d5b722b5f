"""More or less of activations, of optimizer state, of parameters in the memory of hosts: room for what links carry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.graph.graph import Graph
from taskflow.graph.homes import is_home
from taskflow.graph.offload import offload
from taskflow.schedule.plan import Plan
from taskflow.searching.moves.again import toggled
from taskflow.searching.problem import SearchProblem, Variant


def change_offload(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """All of one kind; where some of it is there, a random run of it is too, or is no more.

    What goes there is not computed again. Where devices lack memory, it is of a kind that lies in it.
    """
    if not problem.machine.memories or problem.space is not None:
        return None
    kinds = _kinds(plan, problem)
    if not kinds:
        return None
    names = kinds[int(generator.integers(len(kinds)))]
    now = set(plan.offloaded)
    chosen = toggled(names, now, generator) if now.intersection(names) else now.union(names)
    again = tuple(name for name in plan.recomputed if name not in chosen)
    return problem.fitted(replace(plan, offloaded=tuple(sorted(chosen)), recomputed=again))


def _kinds(plan: Plan, problem: SearchProblem) -> list[list[str]]:
    """What may go there; where devices lack memory, of kinds that lie in it."""
    kinds = problem.plain.made(offloadable)
    outcome = problem.judge.judge(plan)
    if outcome.fits or outcome.host_share > 1:
        return kinds
    gone = {*plan.offloaded, *plan.recomputed}
    return [names for names in kinds if not gone.issuperset(names)]


def offloadable(variant: Variant) -> list[list[str]]:
    """Forward operators by classes of equal ones, state that is as large as its parameter, and parameters."""
    graph = variant.graph
    kept = _kept(graph)
    values = [list(filter(kept.__contains__, names)) for names in variant.classes]
    shapes = {region.name: region.shape for region in graph.parameters if region.shape}
    states = dict.fromkeys(
        region.name
        for op in graph.operators
        for region in op.inputs
        if op.writes and region.role == "state" and region.shape == shapes.get(op.beside or "")
    )
    return [names for names in (*values, [*states], [*shapes]) if names]


def _kept(graph: Graph) -> set[str]:
    """Forward operators whose results the backward pass reads, if these can go to hosts."""
    read = {region.name for op in graph.operators if op.is_backward for region in op.inputs}
    kept = {
        op.name
        for op in graph.operators
        if not (op.is_backward or op.writes or is_home(op))
        and any(region.name in read for region in op.outputs)
    }
    try:
        offload(graph, kept)
    except ValueError:  # one is updated in place
        return set()
    return kept
