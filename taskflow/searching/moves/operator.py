"""One operator gets another configuration: that of a neighbour, or any (FlexFlow's move)."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem


def change_operator(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """Every second time, where it can be, one that an adjacent operator has now; else one of its space, uniformly.

    Uniform draws find what is new, copies remove the movement between neighbours.
    """
    proposals = problem.variant(plan).proposals
    if not proposals.choosing:
        return None
    name = proposals.choosing[int(generator.random() * len(proposals.choosing))]
    near = proposals.near(name, plan.strategy)
    place = int(generator.random() * 2 * len(near))
    config = near[place] if place < len(near) else proposals.space.draw(name, generator)
    return problem.changed(plan, {name: config})
