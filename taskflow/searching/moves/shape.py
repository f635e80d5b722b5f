"""Plans that are laid out by a rule, and one thing in the rule changed: grids of experts, and pipelines of them.

Tensor parallelism of some degree among neighbours, what it does not split whole, by samples or along the sequence,
state whole or sharded (ZeRO), layers computed again or not. Stages on equal groups of devices, each such a grid, as
Megatron-LM lays out large models (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
Using Megatron-LM", SC 2021), under the schedules that there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grid_plan import on_groups, turns
from taskflow.searching.grids import RESTS
from taskflow.searching.moves.again import recomputable
from taskflow.searching.placement import divisors
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import (
    HOMES,
    INTERLEAVED,
    ONE_STAGE,
    PARTS,
    SCHEDULES,
    SHARDED,
    WHOLE,
    PlanShape,
    Turn,
    V,
)
from taskflow.strategy.rules import even_work
from taskflow.strategy.stages import level_cuts
from taskflow.strategy.strategy import Strategy

# Along these the seconds of pipelines fall and then rise: behind a slower one there is no faster one.
DEGREES = "tensor", "groups"


def next_shape(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """The plan with one thing in its rule changed that nobody judged; in the same order of rows and buckets."""
    shape = problem.shapes.get(id(plan))
    others = list(_others(shape, problem)) if shape is not None else []
    # What nobody tried comes first, then what gained most of late.
    for _, other in sorted(others, key=lambda pair: -problem.gains.get(pair[0], math.inf)):
        other = fitted(other, problem)
        changed = plan_of(other, problem)
        if changed is not None and changed.parts == plan.parts == 1:
            changed = replace(changed, schedule=plan.schedule, bucket_bytes=plan.bucket_bytes)
            changed = problem.shaped(changed, other)
        if changed is not None and problem.is_new(changed):
            return changed
    return None


def plan_of(shape: PlanShape, problem: SearchProblem) -> Plan | None:
    """The plan of a rule; None: there is none."""
    if shape not in problem.plans:
        plan = _lay_out(shape, problem)
        problem.plans[shape] = plan and problem.shaped(plan, shape)
    return problem.plans[shape]


def fitted(shape: PlanShape, problem: SearchProblem) -> PlanShape:
    """The rule where several steps are in a row: a step is a micro-batch."""
    if problem.repeat == 1 or shape.groups == 1:
        return shape
    return shape._replace(parts=0, schedule=ONE_STAGE)


def _others(shape: PlanShape, problem: SearchProblem) -> Iterator[tuple[Turn, PlanShape]]:
    """Those with one thing changed, or as many devices for a part of the parameters in more groups or fewer."""
    count = len(problem.machine.devices)
    hosts = len({device.host for device in problem.machine.devices})
    values: dict[str, Sequence[Any]] = {
        "tensor": _nearest(shape.tensor, divisors(count)),
        "rest": RESTS[::-1] if shape.tensor > 1 else (),
        "state": (SHARDED, WHOLE, HOMES),
        "is_even": (True, False),
        "is_again": (True, False),
        "groups": _nearest(
            shape.groups, {*divisors(hosts if hosts > 1 else count), 2 * shape.groups}
        ),
    }
    if shape.groups > 1:
        policy, in_turn = shape.schedule
        more = ((policy, in_turn + 1), (policy, 2 * in_turn)) if policy == INTERLEAVED else ()
        values |= {"schedule": (*more, *SCHEDULES), "parts": PARTS}
    for field, choices in values.items():
        ended = set[Turn]()
        for value in choices:
            turn = field, value > getattr(shape, field)
            if turn in ended:
                continue
            other = shape._replace(**{field: value})
            if field == "tensor":  # a device has as many samples of a micro-batch as before
                fewer = shape.parts * value // shape.tensor
                other = other._replace(parts=max(min(fewer, shape.parts), 1))
            if other.tensor == 1:
                other = other._replace(rest=RESTS[0])
            if other.groups == 1:
                other = other._replace(parts=1, schedule=ONE_STAGE)
            for parts in PARTS if shape.groups == 1 < other.groups else (other.parts,):
                yield turn, other._replace(parts=parts)
            if field in DEGREES and _is_slower(other, shape, problem):
                ended.add(turn)
    for by in (2, shape.tensor, 1 / 2):
        groups = int(shape.groups * by)
        other = shape._replace(groups=groups, tensor=int(shape.tensor / by))
        yield ("groups", groups > shape.groups), other


def _nearest(now: int, degrees: Iterable[int]) -> list[int]:
    """Degrees in the order of how many times more or less than now they are."""
    return sorted(degrees, key=lambda degree: max(degree / now, now / degree))


def _is_slower(other: PlanShape, shape: PlanShape, problem: SearchProblem) -> bool:
    """Whether a pipeline is known to be slower than that of the rule that it was made from."""
    plans = [problem.plans.get(each) for each in (shape, other)]
    seconds = [o.with_room for plan in plans if plan and (o := problem.judge.said(plan))]
    return shape.groups > 1 and seconds[1:] > seconds[:1]


def samples_of(problem: SearchProblem) -> int:
    """The fewest of an input."""
    return min((region.shape[0] for region in problem.graph.inputs if region.ndim), default=1)


def _lay_out(shape: PlanShape, problem: SearchProblem) -> Plan | None:
    again = problem.variant(Plan(Strategy({}))).made(recomputable) if shape.is_again else ()
    count = len(problem.machine.devices)
    split = shape.tensor * shape.context
    if shape.groups < 1 or shape.tensor < 1 or count % (shape.groups * split):
        return None
    size = count // shape.groups
    parts = max(shape.groups * shape.parts, 1)
    if shape.groups > 1 and samples_of(problem) % (parts * (size // split)):
        return None
    try:
        first = problem.variant(Plan(Strategy({}), ring=shape.ring))
        tensor, rest, context, heads = shape.tensor, shape.rest, shape.context, shape.heads
        strategy = first.grids.strategy(range(size), tensor, rest, context, 1, heads, True)
    except ValueError:  # no attention that can go around a ring
        return None
    if strategy is None or (shape.is_again and not again):
        return None
    if shape.is_even:
        even = even_work(first.graph, problem.machine, strategy)
        if even is strategy or shape.groups > 1:
            return None
        strategy = even
    if shape.groups > 1:
        names = list(first.grids.families)
        if shape.stages > len(names):
            return None
        groups = turns(shape.groups, shape.stages, shape.schedule[0] == V)
        cuts = [names[k] for k in level_cuts(first.family_seconds, shape.stages)]
        try:
            strategy = on_groups(first.graph, problem.machine, strategy, size, groups, cuts)
        except ValueError:  # no such micro-batches
            return None
    plan = Plan(
        strategy,
        parts,
        shape.schedule[0] if parts > 1 else problem.first_order,
        again,
        tuple(r.name for r in problem.graph.parameters) if shape.state == HOMES else (),
        ring=shape.ring,
    )
    if shape.state == WHOLE:
        return plan
    sharded = problem.variant(plan).sharded.of(strategy)
    return None if sharded == strategy else replace(plan, strategy=sharded)
