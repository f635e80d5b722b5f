"""Operators that have the same configurations to choose from, and the same one now, change together.

Some optima are far for one operator at a time: the steps of a recurrent layer share their weights and are split alike.
"""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem


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
