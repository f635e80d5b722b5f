"""An operator changes, and with it those behind it that read its results as they lie."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem


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
