"""The sequence is cut, where there are fewer samples than devices, and attention goes around a ring."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.moves.shape import plan_of, samples_of
from taskflow.searching.placement import divisors
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import PlanShape


def next_context(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """The rule of a plan, or the plainest, with other parts of the sequence that nobody judged.

    Tensor parallelism is as it is, or over what samples and parts leave of the devices.
    """
    count = len(problem.machine.devices)
    samples = samples_of(problem)
    if problem.space is not None or samples >= count:
        return None
    shape = problem.shapes.get(id(plan), PlanShape())
    for context in divisors(count):
        left = max(count // (context * samples * shape.groups), 1)
        for tensor in (shape.tensor, left):
            changed = plan_of(shape._replace(context=context, tensor=tensor), problem)
            if changed is not None and problem.is_new(changed):
                return changed
    return None
