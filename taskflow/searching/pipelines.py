"""Pipelines: stages on groups of devices, of a host or more each, with tensor parallelism within.

As Megatron-LM lays out large models (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
Using Megatron-LM", SC 2021): tensor parallelism stays within a host, stages pass activations between hosts. A search
tries schedules that experts seldom do, too, stages that take equally long, and then moves the cuts between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
from taskflow.strategy.stages import flops_of, level_cuts, quantile_cuts, stages

MICRO_BATCHES = (
    1,
    2,
    4,
)  # of each stage; with fewer a pipeline is idle at its ends, with more its kernels are short
PART = 0.25  # of the seconds of a budget, at most: before walks, and as much behind them if one is the fastest
CLIMBING = 0.4  # of the seconds behind walks: then no other climb begins, and cuts are moved
LEAD = 0.95  # times the best start: of what is slower walks are expected to find something faster
ROW_SECONDS = 1e-5  # to lower and predict a row, about, where nothing was predicted yet
ALIKE = 16  # devices of a group that stand for all, about: 1,024 H100, 16 groups
TIMES = 2.0  # rows of a pipeline for every point of an operator, about: with what it moves
FAR = 1.2  # times the best start: what is slower, whatever its tensor parallelism, is changed no further
SCHEDULES = (
    ("one_f_one_b", 1),
    ("interleaved", 2),
)  # of experts, and the stages of each group of devices
MORE_SCHEDULES = ("zb_v", 2), ("interleaved", 3), ("zb_h1", 1)
MOVED = 4, 2, 1  # operators by which a cut is moved


class PipelineShape(NamedTuple):
    """What a pipeline is like.

    Attributes:
        tensor: degree of tensor parallelism.
        parts: micro-batches for each stage.
        schedule: its name, and the stages of each group of devices.
        groups: of devices.
        again: operators that are computed again.
        is_level: whether stages take equally long, as if all were on the first device; else they have as many
            floating-point operations.
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


class Pipelines:
    """Pipelines between hosts, or the devices of one, as far as there is time to judge them.

    Args:
        starts: of whose degrees of tensor parallelism the best comes first.
        row_seconds: that a prediction takes for every row. Of how many groups the first pipeline would take longer than
            there is time, none is tried.

    Attributes:
        seconds: of the fastest so far.
    """

    def __init__(
        self,
        first: Variant,
        starts: Sequence[Start],
        budget: Budget,
        row_seconds: float = ROW_SECONDS,
    ) -> None:
        self._first, self._budget, self.seconds = first, budget, math.inf
        self._known: dict[PipelineShape, Outcome | None] = {}
        self._best_start = min((start.seconds for start in starts), default=math.inf)
        self._judging = 0.0  # seconds that it has taken so far
        hosts, devices = len({d.host for d in first.machine.devices}), len(first.machine.devices)
        room = 0.0 if first.is_limited else PART * (budget.seconds or 0.0)
        rows = (
            TIMES * len(first.graph.operators) * MICRO_BATCHES[0]
        )  # for every point of an operator
        groups = [
            count
            for count in reversed(divisors(hosts if hosts > 1 else devices))
            if count > 1 and row_seconds * rows * min(devices, ALIKE * count) < room
        ]
        self._can_be = len(groups) > 0
        ranked = [s.tensor for s in sorted(starts, key=lambda s: s.outcome.with_room) if s.tensor]
        within = divisors(devices // hosts)
        self._options = PipelineOptions(
            groups,
            list(dict.fromkeys([*(t for t in ranked if t in within), *within])),
            (SCHEDULES[0], *MORE_SCHEDULES, *SCHEDULES[1:]),
            MICRO_BATCHES,
            (True, False),
        )

    @property
    def is_leading(self) -> bool:
        """Whether one is so much faster than all starts that walks from them may not overtake it."""
        return self.seconds < LEAD * self._best_start

    @property
    def found(self) -> list[Outcome]:
        """All that were judged."""
        return [found for found in self._known.values() if found]

    @contextmanager
    def around(self, others: Callable[[], float]) -> Iterator[None]:
        """Search before walks, and behind them if one is faster than these have found (`others`)."""
        self.search(PART)
        kept_back = PART * (self._budget.seconds or 0.0) * self.is_leading
        self._budget.kept_back += kept_back
        yield
        self._budget.kept_back -= kept_back
        if self.seconds < others():
            self.search(PART, CLIMBING)

    def search(self, part: float, climbing: float = 1.0) -> None:
        """Judge more of them, in that part of the budget's seconds; none without a budget in seconds.

        From several beginnings one thing is changed after the other, as long as that makes the best one faster. Then
        the cuts of the best are moved. No second climb begins, or goes on, after a part of the time (`climbing`).
        """
        if not self._can_be:
            return
        begin, most = (
            self._budget.elapsed,
            min(part * (self._budget.seconds or 0.0), self._budget.left_seconds),
        )
        is_late, is_over = (partial(self._is_over, begin + each * most) for each in (climbing, 1.0))
        ways, end = (self._options, self._seconds, FAR * self._best_start), is_over
        for again in dict.fromkeys([(), _recomputed(self._first)]):
            begins = _begins(self._first, self._options, again)
            for shape in begins:
                if not end() and math.isfinite(self._seconds(shape)):
                    climb(shape, *ways, end)
                    end = is_late
            if begins and not math.isfinite(self.seconds):
                climb(begins[0], *ways, end)
            if math.isfinite(self.seconds):
                break
        best = min(self._known, key=self._seconds, default=None)
        if best and self.is_leading:
            move_cuts(best, self._seconds, is_over)

    def _seconds(self, shape: PipelineShape) -> float:
        if shape not in self._known:
            begin = self._budget.elapsed
            found = self._known[shape] = judge_shape(self._first, shape)
            self.seconds = min(self.seconds, found.seconds if found else math.inf)
            self._judging += self._budget.elapsed - begin
        return found.seconds if (found := self._known[shape]) else math.inf

    def _is_over(self, end: float) -> bool:
        """Whether the next one will not be judged by then."""
        each = self._judging / max(len(self.found), 1)
        return self._budget.is_interrupted or self._budget.elapsed + each > end


class PipelineOptions(NamedTuple):
    """What a `PipelineShape` may have, likely ones first; in this order one thing is changed after the other."""

    groups: Sequence[int]
    tensor: Sequence[int]
    schedule: Sequence[tuple[str, int]]
    parts: Sequence[int]
    is_level: Sequence[bool]


def _begins(
    first: Variant, options: PipelineOptions, again: tuple[str, ...]
) -> list[PipelineShape]:
    """From which to climb, the likeliest first: of all numbers of groups and micro-batches, where groups are equal."""
    found = dict[tuple[int, int], PipelineShape]()
    for groups, parts, tensor in product(options.groups, options.parts, options.tensor):
        shape = PipelineShape(tensor, parts, options.schedule[0], groups, again)
        if _is_even(first, shape):
            found.setdefault((groups, parts), shape)
    return list(found.values())


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
                    wider = (
                        best.tensor * best.groups // value
                    )  # a device has as much of the parameters as before
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


def pipelines(
    first: Variant, tensors: Sequence[int], counts: Sequence[int]
) -> Iterator[Outcome | None]:
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
                found = judge_shape(first, shape)
                if found and found.fits:
                    is_roomy.add(shape._replace(again=()))
                yield found


def _recomputed(first: Variant) -> tuple[str, ...]:
    """What a pipeline that has too little memory computes again: the inside of layers."""
    return block_interiors(first.graph) if first.graph.differentiations else ()


def _is_even(first: Variant, shape: PipelineShape) -> bool:
    """Whether all groups of devices are equal, and all micro-batches."""
    parts, count, tensor = shape.parts, shape.groups, shape.tensor
    devices, samples = (
        len(first.machine.devices),
        [region.shape[0] for region in first.graph.inputs if region.shape],
    )
    if count < 2 or devices % count or (devices // count) % tensor:
        return False
    return min(samples, default=1) % (parts * count * (devices // count // tensor)) == 0


def judge_shape(first: Variant, shape: PipelineShape) -> Outcome | None:
    """What `simulate` says; None: it cannot be."""
    if not _is_even(first, shape):
        return None
    count, (name, loops) = shape.groups, shape.schedule
    size, parts = len(first.machine.devices) // count, shape.parts * count
    within = first.grids.strategy(
        range(size), shape.tensor, "sequence" if shape.tensor > 1 else "replicas"
    )
    if within is None:
        return None
    groups = [range(k * size, (k + 1) * size) for k in range(count)]
    groups = [*groups, *groups[-2::-1]] if name == "zb_v" else groups * loops
    try:  # fewer operators than stages, no such micro-batches or schedule, or too many rows for the memory here
        strategy = stages(
            first.graph, first.machine, cuts=_cuts(first, shape), within=within, devices=groups
        )
        plan = Plan(strategy, parts, name, shape.again)
        timeline = plan.predict(first.graph, first.machine, first.costs)
    except (ValueError, MemoryError):
        return None
    said = f"{name}, {count} stages, {parts} micro-batches, tensor {shape.tensor}"
    said += ", level" * shape.is_level + ", computed again" * bool(shape.again)
    return Outcome.of(plan, timeline, "" if any(shape.moved) else said)


def _cuts(first: Variant, shape: PipelineShape) -> list[str]:
    """The operators that begin the second, third, ... stage; ValueError if there are fewer operators than stages."""
    found = families(first.graph)
    if shape.stages > len(found):
        raise ValueError(f"{shape.stages} stages of {len(found)} operators")
    cuts = (
        level_cuts(first.family_seconds, shape.stages)
        if shape.is_level
        else quantile_cuts(flops_of(first.graph, found), shape.stages)
    )
    moved = np.add(cuts, shape.moved or 0)
    if moved.min(initial=1) < 1 or moved.max(initial=0) >= len(found):
        raise ValueError("a cut is moved past the ends")
    return [found[k].leader.name for k in moved.tolist()]
