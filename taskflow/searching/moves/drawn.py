"""Other configurations, drawn at random: of one operator (FlexFlow's move), of its kin, and of a chain behind it.

Some optima are far for one operator at a time: the steps of a recurrent layer share their weights and are split alike,
and layers read the results of each other as they lie.
"""

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


def change_kin(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """All kin that have the configuration of a random one of them get a common new one."""
    proposals = problem.variant(plan).proposals
    if not proposals.kin:
        return None
    kin = proposals.kin[int(generator.random() * len(proposals.kin))]
    name = kin[int(generator.random() * len(kin))]
    old = plan.strategy[name]
    new = proposals.space.draw_common(name, generator)
    return problem.changed(plan, {other: new for other in kin if plan.strategy[other] == old})


def change_chain(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A new configuration for an operator, brought over to the chain that had what was brought over from it before."""
    proposals = problem.variant(plan).proposals
    names = proposals.space.names
    names = names[int(generator.random() * len(names)) :]
    names = names[: int((len(names) + 1) ** generator.random())]  # most are short
    changes = {names[0]: proposals.space.draw(names[0], generator)}
    for name in names[1:]:
        route = proposals.before.get(name)
        if route is None or route.source not in changes:
            continue
        if proposals.bring(name, route, plan.strategy[route.source]) == plan.strategy[name]:
            brought = proposals.bring(name, route, changes[route.source])
            if brought is None:
                return None
            changes[name] = brought
    return problem.changed(plan, changes)
