"""The rows of a plan in another order: what overlaps depends on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.graph.graph import Graph
from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem

OF_JOBS = "own_path", "crossover"
ORDERS = None, "critical_path", "forward_first", "first_ready", *OF_JOBS


def orders_of(graph: Graph) -> tuple[str, ...]:
    """The orders that are tried; those of jobs where there are several."""
    has_jobs = len({op.job for op in graph.operators}) > 1
    return tuple(each for each in ORDERS if each and (has_jobs or each not in OF_JOBS))


def next_order(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """The plan in the order that was the fastest so far; the first plan, in the next order."""
    if not problem.has_orders or plan.schedule not in ORDERS:
        return None
    shape = problem.shapes.get(id(plan))
    orders = orders_of(problem.graph) if problem.order is None else (problem.order,)
    others = [problem.shaped(replace(plan, schedule=order), shape) for order in orders]
    return next((other for other in others if problem.is_new(other)), None)
