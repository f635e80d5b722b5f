"""The sequence is cut, where there are fewer samples than devices: attention gathers keys, or goes around a ring.

All devices of a sample are used: parts of the sequence in attention, times neighbours that have parts of the heads
there and of the sequence elsewhere (all-to-all, Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509), times tensor
parallelism. Both at once are those of Fang and Zhao, "USP", arXiv 2405.07719.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS
from taskflow.searching.moves.shape import plan_of, samples_of
from taskflow.searching.placement import divisors
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import PlanShape


def next_context(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator, is_ring: bool = False
) -> Plan | None:
    """The rule of a plan, or the plainest, with other parts of the sequence that nobody judged, the most first."""
    shape = problem.shapes.get(id(plan), PlanShape())
    left = len(problem.machine.devices) // (samples_of(problem) * shape.groups)
    if problem.space is not None or left < 2:
        return None
    plans = (plan_of(rule, problem) for rule in _rules(shape, left, is_ring))
    return next(filter(problem.is_new, plans), None)


def _rules(shape: PlanShape, devices: int, is_ring: bool) -> Iterator[PlanShape]:
    """A rule with so many devices for a sample; the most parts of the sequence first, of a ring the fewest."""
    degrees = [
        (parts, tensor)
        for parts in divisors(devices)[is_ring:]
        for tensor in divisors(devices // parts)
    ]
    for parts, tensor in degrees if is_ring else degrees[::-1]:
        yield shape._replace(
            tensor=tensor,
            context=devices // tensor,
            heads=devices // tensor // parts,
            rest=RESTS[-1] if tensor > 1 else RESTS[0],
            is_ring=is_ring,
        )


def next_ring(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """The same with attention that goes around a ring of these parts, the fewest first: each is a round of rows."""
    return next_context(plan, problem, generator, is_ring=True)
