"""Pipelines: stages on groups of devices, of a host or more each, with tensor parallelism within.

As Megatron-LM lays out large models (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
Using Megatron-LM", SC 2021): tensor parallelism stays within a host, stages pass activations between hosts. A search
tries schedules that experts seldom do, too, stages that take equally long, and then moves the cuts between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from taskflow.graph.family import families
from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.fold import block_interiors
from taskflow.searching.outcome import Outcome
from taskflow.searching.placement import divisors
from taskflow.searching.starts import Start
from taskflow.searching.variants import Variant
from taskflow.simulation.simulate import simulate
from taskflow.strategy.stages import flops_of, level_cuts, quantile_cuts, stages

MICRO_BATCHES = 1, 2, 4  # of each stage; with fewer a pipeline is idle at its ends, with more its kernels are short
PART, LEADING = 0.25, 0.5  # of the seconds of a budget, at most: while no pipeline is the fastest so far, and then
ROW_SECONDS = 1e-5  # to lower and predict a row, about, where nothing was predicted yet
TIMES = 2.0  # rows of a pipeline for every point of an operator, about: with what it moves
FAR = 1.2  # times the best start: what is slower, whatever its tensor parallelism, is changed no further
SCHEDULES = ("one_f_one_b", 1), ("interleaved", 2)  # of experts, and the stages of each group of devices
MORE_SCHEDULES = ("zb_v", 2), ("interleaved", 3), ("zb_h1", 1)
MOVED = 4, 2, 1  # operators by which a cut is moved


class PipelineShape(NamedTuple):
    """A pipeline of equal stages.

    Attributes:
        tensor: degree of tensor parallelism.
        parts: micro-batches for each stage.
        schedule: its name, and the stages of each group of devices.
        groups: of devices.
        again: operators that are computed again.
        is_level: whether stages take equally long, instead of as many floating-point operations.
        moved: by how many operators every cut between stages is moved.
    """

    tensor: int
    parts: int
    schedule: tuple[str, int]
    groups: int
    again: tuple[str, ...]
    is_level: bool = False
    moved: tuple[int, ...] = ()

    @property
    def stages(self) -> int:
        """How many: in a V the two at its turn are one."""
        return self.groups * self.schedule[1] - (self.schedule[0] == "zb_v")


def judged_pipelines(
    first: Variant, starts: Sequence[Start], budget: Budget, row_seconds: float = ROW_SECONDS
) -> list[Outcome]:
    """Pipelines between hosts, or the devices of one, as many as there is time for; none without a budget in seconds.

    One thing is changed after the other, as long as that makes the best one faster.

    Args:
        starts: of whose degrees of tensor parallelism the best comes first.
        row_seconds: that a prediction takes for every row.
    """
    machine, known = first.machine, dict[PipelineShape, Outcome | None]()
    hosts, devices = len({d.host for d in machine.devices}), len(machine.devices)
    most = hosts if hosts > 1 else devices  # groups of devices
    if most < 2 or budget.seconds is None:
        return []
    points = len(first.graph.operators) * devices * MICRO_BATCHES[0]  # of the first one
    if TIMES * row_seconds * points > PART * budget.seconds:
        return []
    ranked = [s.tensor for s in sorted(starts, key=lambda s: s.with_room) if s.tensor]
    within = divisors(devices // hosts)
    options = PipelineOptions(
        [groups for groups in reversed(divisors(most)) if groups > 1],
        list(dict.fromkeys([*(t for t in ranked if t in within), *within])),
        (SCHEDULES[0], *MORE_SCHEDULES, *SCHEDULES[1:]),
        MICRO_BATCHES,
        (True, False),
    )
    begin, seconds_in_all = budget.elapsed, budget.seconds
    best_start = min((start.seconds for start in starts), default=math.inf)

    def seconds(shape: PipelineShape) -> float:
        if shape not in known:
            known[shape] = _judge(first, shape)
        return found.seconds if (found := known[shape]) else math.inf

    def is_over() -> bool:
        judged = [found.seconds for found in known.values() if found]
        part = LEADING if min(judged, default=math.inf) < best_start else PART
        with_next = (budget.elapsed - begin) * (len(judged) + 1) / max(len(judged), 1)
        return budget.is_interrupted or with_next > part * seconds_in_all

    for again in dict.fromkeys([(), _recomputed(first)]):
        if not any(found and math.isfinite(found.seconds) for found in known.values()):
            likely = (_first(first, options, again)._replace(parts=parts) for parts in MICRO_BATCHES)
            begun = next((shape for shape in likely if is_over() or math.isfinite(seconds(shape))), None)
            best = climb(begun or _first(first, options, again), options, seconds, FAR * best_start, is_over)
            if seconds(best) < best_start:
                move_cuts(best, seconds, is_over)
    return [found for found in known.values() if found]


class PipelineOptions(NamedTuple):
    """What a `PipelineShape` may have, likely ones first; in this order one thing is changed after the other."""

    groups: Sequence[int]
    tensor: Sequence[int]
    schedule: Sequence[tuple[str, int]]
    parts: Sequence[int]
    is_level: Sequence[bool]


def _first(first: Variant, options: PipelineOptions, again: tuple[str, ...]) -> PipelineShape:
    """The likeliest that can be, if one can be."""
    numbers = product(options.parts, options.groups, options.tensor)
    shapes = [PipelineShape(tensor, parts, options.schedule[0], groups, again) for parts, groups, tensor in numbers]
    return next((shape for shape in shapes if _is_even(first, shape)), shapes[0])


def climb(
    best: PipelineShape,
    options: PipelineOptions,
    seconds: Callable[[PipelineShape], float],
    limit: float,
    is_over: Callable[[], bool],
) -> PipelineShape:
    """Change the best one until nothing makes it faster, or none is within the limit."""
    before: PipelineShape | None = None
    while best != before:
        before = best
        for field, values in options._asdict().items():
            for value in values:
                if is_over():
                    return best
                other = best._replace(**{field: value})
                if field == "groups" and math.isinf(seconds(other)) and not is_over():
                    wider = best.tensor * best.groups // value  # a device has as much of the parameters as before
                    other = other._replace(tensor=wider) if wider in options.tensor else best
                best = min(best, other, key=seconds)
            if field == "tensor" and math.isfinite(seconds(best)) and seconds(best) > limit:
                return best
    return best


def move_cuts(
    best: PipelineShape, seconds: Callable[[PipelineShape], float], is_over: Callable[[], bool]
) -> PipelineShape:
    """Move one cut after the other, as long as that makes it faster."""
    for width in MOVED:
        before: PipelineShape | None = None
        while best != before:
            before = best
            for k, by in product(range(best.stages - 1), (-width, width)):
                if is_over():
                    return best
                moved = list(best.moved or (0,) * (best.stages - 1))
                moved[k] += by
                best = min(best, best._replace(moved=tuple(moved)), key=seconds)
    return best


def pipelines(first: Variant, tensors: Sequence[int], counts: Sequence[int]) -> Iterator[Outcome | None]:
    """Judge all pipelines of a graph as it is; those that do not fit also with layers computed again.

    None stands for one that cannot be.

    Args:
        tensors: degrees of tensor parallelism.
        counts: of groups of devices, each with a stage or several.
    """
    is_roomy = set[PipelineShape]()
    for again in dict.fromkeys([(), _recomputed(first)]):
        for schedule, parts, groups, tensor in product(SCHEDULES, MICRO_BATCHES, counts, tensors):
            shape = PipelineShape(tensor, parts, schedule, groups, again)
            if shape._replace(again=()) not in is_roomy and _is_even(first, shape):
                found = _judge(first, shape)
                if found and math.isfinite(found.seconds):
                    is_roomy.add(shape._replace(again=()))
                yield found


def _recomputed(first: Variant) -> tuple[str, ...]:
    """What a pipeline that has too little memory computes again: the inside of layers."""
    return block_interiors(first.graph) if first.graph.differentiations else ()


def _is_even(first: Variant, shape: PipelineShape) -> bool:
    """Whether all groups of devices are equal, and all micro-batches."""
    parts, count, tensor = shape.parts, shape.groups, shape.tensor
    devices, samples = len(first.machine.devices), [region.shape[0] for region in first.graph.inputs if region.shape]
    if count < 2 or devices % count or (devices // count) % tensor:
        return False
    return min(samples, default=1) % (parts * count * (devices // count // tensor)) == 0


def _judge(first: Variant, shape: PipelineShape) -> Outcome | None:
    """What `simulate` says; None: it cannot be."""
    if not _is_even(first, shape):
        return None
    count, (name, loops) = shape.groups, shape.schedule
    size, parts = len(first.machine.devices) // count, shape.parts * count
    within = first.grids.strategy(range(size), shape.tensor, "sequence" if shape.tensor > 1 else "replicas")
    if within is None:
        return None
    groups = [range(k * size, (k + 1) * size) for k in range(count)]
    groups = [*groups, *groups[-2::-1]] if name == "zb_v" else groups * loops
    try:  # fewer operators than stages, or no such micro-batches or schedule
        strategy = stages(first.graph, first.machine, cuts=_cuts(first, shape), within=within, devices=groups)
        plan = Plan(strategy, parts, name, shape.again)
        _, rows = plan.apply(first.graph, first.machine, first.costs)
    except ValueError:
        return None
    timeline = simulate(rows, first.costs)
    has_room = all(peak <= d.memory_bytes for peak, d in zip(timeline.peak_bytes, first.machine.devices, strict=True))
    figures = timeline.bytes_moved, int(timeline.peak_bytes.max())
    said = f"{name}, {count} stages, {parts} micro-batches, tensor {shape.tensor}"
    said += ", level" * shape.is_level + ", computed again" * bool(shape.again)
    return Outcome(plan, timeline.seconds if has_room else math.inf, *figures, "" if any(shape.moved) else said)


def _cuts(first: Variant, shape: PipelineShape) -> list[str]:
    """The operators that begin the second, third, ... stage; ValueError if there are fewer operators than stages."""
    found = families(first.graph)
    if shape.stages > len(found):
        raise ValueError(f"{shape.stages} stages of {len(found)} operators")
    cuts = (
        level_cuts(first.seconds, shape.stages)
        if shape.is_level
        else quantile_cuts(flops_of(first.graph, found), shape.stages)
    )
    moved = np.add(cuts, shape.moved or 0)
    if moved.min(initial=1) < 1 or moved.max(initial=0) >= len(found):
        raise ValueError("a cut is moved past the ends")
    return [found[k].leader.name for k in moved.tolist()]
