"""The rows of a plan in another order: what overlaps depends on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.graph.graph import Graph
from taskflow.schedule.orders import named
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Policy
from taskflow.searching.problem import SearchProblem

OF_JOBS = "own_path", "crossover"
EAGER = 2, 1, 0  # of a pipeline, see `Schedule`
ORDERS = None, "critical_path", "forward_first", "first_ready", *OF_JOBS


def orders_of(graph: Graph) -> tuple[str, ...]:
    """The orders that are tried; those of jobs where there are several."""
    has_jobs = len({op.job for op in graph.operators}) > 1
    return tuple(order for order in ORDERS if order and (has_jobs or order not in OF_JOBS))


def next_order(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """The plan in the order that was the fastest so far; the first plan, in the next order; a pipeline, more eager."""
    policy = named(plan.schedule)
    if not problem.has_orders or not (isinstance(policy, Policy) or plan.schedule in ORDERS):
        return None
    orders = orders_of(problem.graph) if problem.order is None else (problem.order,)
    if isinstance(policy, Policy):
        orders = tuple(replace(policy, eager=eager).name for eager in EAGER)
    return problem.first_new(plan, (replace(plan, schedule=order) for order in orders))
