"""Twice as many micro-batches, or half as many."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem


def change_parts(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """Either, whatever nobody judged; several of one stage one after the other. Steps in a row are micro-batches."""
    if problem.space is not None or problem.repeat > 1:
        return None
    for parts in (2 * plan.parts, plan.parts // 2)[:: 1 if generator.random() < 1 / 2 else -1]:
        if parts and problem.is_new(other := problem.in_parts(plan, parts)):
            return other
    return None
