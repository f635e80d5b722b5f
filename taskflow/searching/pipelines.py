"""Pipelines of experts: equal stages, one for each host or several for one, tensor parallelism within.

As Megatron-LM lays out large models (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
Using Megatron-LM", SC 2021): tensor parallelism stays within a host, stages pass activations between hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.fold import block_interiors
from taskflow.searching.outcome import Outcome
from taskflow.searching.starts import Start
from taskflow.searching.variants import Variant
from taskflow.simulation.simulate import simulate
from taskflow.strategy.stages import stages

MICRO_BATCHES = 2, 4, 1  # of each stage; with fewer a pipeline is idle at its ends, with more its kernels are short
TENSORS = 2  # degrees of tensor parallelism, the best of the grids
PART = 0.25  # of the seconds of a budget, at most
ROW_SECONDS = 1e-5  # to lower and predict a row, about, where nothing was predicted yet
TIMES = 2.0  # rows of a pipeline for every point of an operator, about: with what it moves
FAR = 1.2  # times the best start: with so many stages no other pipeline is tried
SCHEDULES = ("one_f_one_b", 1), ("interleaved", 2)  # and the stages of each group of devices


def judged_pipelines(
    first: Variant, starts: Sequence[Start], budget: Budget, row_seconds: float = ROW_SECONDS
) -> list[Outcome]:
    """Pipelines between the hosts of a machine, as many as there is time for; none without a budget in seconds.

    Args:
        starts: whose best degrees of tensor parallelism are taken.
        row_seconds: that a prediction takes for every row.
    """
    hosts, found = len({d.host for d in first.machine.devices}), list[Outcome]()
    if hosts < 2 or budget.seconds is None:
        return found
    points = len(first.graph.operators) * len(first.machine.devices) * MICRO_BATCHES[0]  # of the first one
    if TIMES * row_seconds * points > PART * budget.seconds:
        return found
    tensors = list(dict.fromkeys(s.tensor for s in sorted(starts, key=lambda s: s.with_room) if s.tensor))
    begin, limit = budget.elapsed, FAR * min((start.seconds for start in starts), default=math.inf)
    tried_ones = pipelines(first, tensors[:TENSORS] or [1], list(dict.fromkeys([hosts, 2])), limit)
    for tried, outcome in enumerate(tried_ones, 1):
        found += [outcome] if outcome else []
        is_over = (budget.elapsed - begin) * (tried + 1) / tried > PART * budget.seconds
        if is_over or budget.is_interrupted or (tried > 1 and not found):  # a graph that can have none
            break
    return found


def pipelines(
    first: Variant, tensors: Sequence[int], counts: Sequence[int], limit: float = math.inf
) -> Iterator[Outcome | None]:
    """Judge pipelines of a graph as it is, likely ones first; those that do not fit also with layers computed again.

    None stands for one that cannot be.

    Args:
        tensors: degrees of tensor parallelism, the best first.
        counts: of groups of devices, each with a stage or several.
        limit: seconds; a count whose first pipeline that fits is slower is given up.
    """
    shapes = [shape for shape in product(MICRO_BATCHES, counts, tensors) if _is_even(first, *shape)]
    again, is_roomy = block_interiors(first.graph) if first.graph.differentiations else (), set[object]()
    hopeful: dict[int, bool] = {}  # by count
    for interiors in dict.fromkeys([(), again]):
        for (schedule, loops), (parts, count, tensor) in product(SCHEDULES, shapes):
            if (schedule, parts, count, tensor) not in is_roomy and hopeful.get(count, True):
                plan = _plan(first, parts, count, tensor, (schedule, loops), interiors)
                name = f"{schedule}, {count} stages, {parts * count} micro-batches, tensor {tensor}"
                found = _judge(first, plan, name + ", computed again" * bool(interiors)) if plan else None
                if found and math.isfinite(found.seconds):
                    is_roomy.add((schedule, parts, count, tensor))
                    hopeful.setdefault(count, found.seconds <= limit)
                yield found


def _is_even(first: Variant, parts: int, count: int, tensor: int) -> bool:
    """Whether all groups of devices are equal, and all micro-batches."""
    devices, samples = len(first.machine.devices), [region.shape[0] for region in first.graph.inputs if region.shape]
    if count < 2 or devices % count or (devices // count) % tensor:
        return False
    return min(samples, default=1) % (parts * count * (devices // count // tensor)) == 0


def _plan(
    first: Variant, parts: int, count: int, tensor: int, schedule: tuple[str, int], again: tuple[str, ...]
) -> Plan | None:
    size, (name, loops) = len(first.machine.devices) // count, schedule
    within = first.grids.strategy(range(size), tensor, "sequence" if tensor > 1 else "replicas")
    if within is None:
        return None
    groups = [range(k * size, (k + 1) * size) for k in range(count)]
    try:
        strategy = stages(first.graph, first.machine, count * loops, within=within, devices=groups * loops)
    except ValueError:  # fewer operators than stages
        return None
    return Plan(strategy, parts * count, name, again)


def _judge(first: Variant, plan: Plan, name: str) -> Outcome | None:
    """What `simulate` says; None: its micro-batches or its schedule cannot be."""
    try:
        _, rows = plan.apply(first.graph, first.machine, first.costs)
    except ValueError:
        return None
    timeline = simulate(rows, first.costs)
    has_room = all(peak <= d.memory_bytes for peak, d in zip(timeline.peak_bytes, first.machine.devices, strict=True))
    figures = timeline.bytes_moved, int(timeline.peak_bytes.max())
    return Outcome(plan, timeline.seconds if has_room else math.inf, *figures, name)
