"""An operator changes, and with it those behind it that read its results as they lie."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem


def change_chain(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A new configuration for an operator, brought over to the chain that had what was brought over from it before."""
    proposals = problem.variant(plan).proposals
    strategy = plan.strategy
    names = proposals.space.names
    first = int(generator.random() * len(names))
    reach = int((len(names) - first + 1) ** generator.random())  # most are short
    changes = {names[first]: proposals.space.draw(names[first], generator)}
    for name in names[first + 1 : first + reach]:
        route = proposals.before.get(name)
        if route is None or route.source not in changes:
            continue
        if proposals.bring(name, route, strategy[route.source]) == strategy[name]:
            brought = proposals.bring(name, route, changes[route.source])
            if brought is None:
                return None
            changes[name] = brought
    return problem.changed(plan, changes)
