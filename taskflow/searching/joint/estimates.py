"""A pipeline on blocks: seconds and bytes from the prices of its atoms, without lowering it.

Every device does the steps of its list one after the other, as a policy says; a block takes what the atoms of its stage
take. What is done once a step comes after the last micro-batch of a stage; gradients move behind the last backward pass
as far as that covers them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.graph.phases import Phase
from taskflow.schedule.pipeline import LETTERS, Pipeline
from taskflow.schedule.policies import POLICIES
from taskflow.schedule.schedule import PHASES, Schedule
from taskflow.searching.joint.cells import CellTables, StageWay
from taskflow.searching.joint.costs import AtomCosts
from taskflow.searching.joint.planned import PlannedPipeline, PlannedStage

CODES = {letter: int(phase) for phase, letter in LETTERS.items()}
WHOLE = np.array(
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
)  # gradients of weights among those of activations
FORWARD, BACKWARD, WEIGHT = int(Phase.FORWARD), int(Phase.BACKWARD), int(Phase.WEIGHT)
# policies, and whether a stage whose atoms are computed again does its backward passes whole: else all that it computes
# again lives until the gradients of its weights
TRIED = (
    ("one_f_one_b", False),
    ("zb_h1", False),
    ("one_f_one_b", True),
)  # where every device has one stage
LOOPED = ("interleaved", False), ("zb_v", False)  # where it has several


class Estimate(NamedTuple):
    """What is expected of a pipeline under the better of some policies.

    Attributes:
        seconds: of a step.
        share: of its memory that the fullest device needs.
        policy: its name, and whether stages whose atoms are computed again do their backward passes whole.
    """

    seconds: float
    share: float
    policy: tuple[str, bool]


class StageCosts(NamedTuple):
    """Of one stage: see `AtomCosts`."""

    spans: Array
    once_seconds: float
    kept_bytes: float
    fixed_bytes: float
    held_bytes: float
    passed_bytes: float


class Estimates:
    """Estimates of pipelines of one graph."""

    def __init__(self, tables: CellTables) -> None:
        self.tables, self.atoms = tables, tables.pricing.atoms
        self.rates, self.machine = tables.pricing.costs.rates, tables.machine
        self._stages, self._steps = cache(self._stage), cache(steps_of)
        self._room = np.array([device.free_bytes for device in self.machine.devices], float)

    def estimate(self, pipeline: PlannedPipeline) -> Estimate | None:
        """None: a stage cannot be split so."""
        with suppress(KeyError):
            costs = [self.costs_of(stage, pipeline.parts) for stage in pipeline.stages]
            if all(each is not None for each in costs):
                return self._best(pipeline, [each for each in costs if each is not None])
        return None

    def costs_of(self, stage: PlannedStage, parts: int) -> StageCosts | None:
        """What a stage costs, and those on devices that are alike; None: it cannot be split so."""
        return self._stages(
            stage._replace(first=self.tables.like[stage.first, stage.devices]), parts
        )

    def _stage(self, stage: PlannedStage, parts: int) -> StageCosts | None:
        found, kept, held = list[AtomCosts](), dict[str, int](), dict[str, int]()
        for k in range(stage.begin, stage.end):
            is_again = k in stage.again
            price = self.tables.price(
                k, StageWay(stage.devices, stage.split, is_again, stage.first), parts
            )
            if price is None:
                return None
            names = self.tables.regions[is_again][k]
            kept |= {names[n]: size for n, size in price.kept.items()}
            held |= {names[n]: size for n, size in price.held.items()}
            found.append(price)
        spans, sync = np.sum([p.spans for p in found], axis=0), sum(p.sync_seconds for p in found)
        late = max(sync - spans[BACKWARD] - spans[WEIGHT], sync / len(found))
        fixed = (
            sum(kept.values())
            + sum(p.gradient_bytes for p in found)
            + max(p.transient_bytes for p in found)
        )
        passed = sum(p.passed_bytes for p in found)
        return StageCosts(
            spans,
            late + sum(p.update_seconds for p in found),
            sum(kept.values()),
            fixed,
            sum(held.values()),
            passed,
        )

    def _best(self, pipeline: PlannedPipeline, costs: Sequence[StageCosts]) -> Estimate:
        groups, parts = pipeline.groups, pipeline.parts
        once, fixed = (
            np.array([c.once_seconds for c in costs]),
            np.array([c.fixed_bytes for c in costs]),
        )
        spans, delays, tried = np.array([c.spans for c in costs]), self._delays(pipeline), []
        again = np.array([bool(stage.again) for stage in pipeline.stages])
        for policy in _policies(pipeline):
            steps = self._steps(policy[0], groups, parts)
            if steps is None:
                continue
            whole = again & policy[1] if len(groups) > 1 else np.ones(1, np.bool_)
            joint = np.where(whole[:, None], spans @ WHOLE, spans)
            held = np.array(
                [
                    (c.held_bytes, c.passed_bytes * (not w))
                    for c, w in zip(costs, whole, strict=True)
                ]
            )
            ends, levels = play(steps, joint, delays, held, parts)
            tried.append((float((ends + once).max()), self._share(groups, fixed, levels), policy))
        fitting = [each for each in tried if each[1] <= 1.0]
        seconds, share, policy = min(
            fitting or tried, key=lambda each: each[:2] if fitting else each[1::-1]
        )
        return Estimate(seconds, share, policy)

    def order(self, pipeline: PlannedPipeline, policy: tuple[str, bool]) -> Schedule | str | None:
        """What a plan says of it; one stage with one micro-batch is in the order of the program."""
        if len(pipeline.stages) == pipeline.parts == 1:
            return None
        again = [k for k, stage in enumerate(pipeline.stages) if stage.again]
        if not again:
            return policy[0]
        return schedule_of(policy[0], pipeline.groups, pipeline.parts, again if policy[1] else ())

    def orders(self, pipeline: PlannedPipeline) -> list[Schedule | str | None]:
        """All that a plan may say of it."""
        return [self.order(pipeline, policy) for policy in _policies(pipeline)]

    def _share(self, groups: Sequence[Sequence[int]], fixed: Array, levels: Array) -> float:
        devices = list(dict.fromkeys(group[0] for group in groups))
        need = np.array(
            [sum(f for f, g in zip(fixed, groups, strict=True) if g[0] == d) for d in devices]
        )
        return float(((need + levels) / self._room[devices]).max())

    def _delays(self, pipeline: PlannedPipeline) -> Array:
        """Seconds that a micro-batch takes to every stage from the one before."""
        found, old = [0.0], pipeline.stages
        for left, right in pairwise(old):
            source, target = left.first + left.devices - 1, right.first
            size = (
                self.atoms[right.begin].crossing_bytes
                / pipeline.parts
                / min(left.devices, right.devices)
            )
            move = self.rates.latency[source, target] + size / self.rates.throughput[source, target]
            found.append(0.0 if source == target else move)
        return np.array(found)


def _policies(pipeline: PlannedPipeline) -> Sequence[tuple[str, bool]]:
    if len(set(pipeline.groups)) < len(pipeline.stages):
        return LOOPED
    if len(pipeline.stages) == 1:
        return TRIED[:1]
    return TRIED if any(stage.again for stage in pipeline.stages) else TRIED[:2]


def steps_of(policy: str, groups: tuple[tuple[int, ...], ...], parts: int) -> Array | None:
    """(groups of devices, steps, 3): phase, stage and micro-batch, padded with -1; None: it asks for other groups."""
    with suppress(ValueError):
        schedule, lists = schedule_of(policy, groups, parts), []
        for device in dict.fromkeys(group[0] for group in groups):
            each = schedule.steps[device]
            lists.append(
                [
                    (CODES[phase], stage, part)
                    for letter, stage, part in each
                    for phase in PHASES[letter]
                ]
            )
        found = np.full((len(lists), max(map(len, lists)), 3), -1)
        for k, steps in enumerate(lists):
            found[k, : len(steps)] = steps
        return found
    return None


def schedule_of(
    policy: str, groups: tuple[tuple[int, ...], ...], parts: int, whole: Collection[int] = ()
) -> Schedule:
    """The schedule of a policy; the stages `whole` do not part gradients of activations and of weights."""
    none = np.zeros(0, np.int64)
    schedule = POLICIES[policy].schedule(Pipeline(none, none, none, parts, groups))
    if not whole:
        return schedule
    joined = {
        device: tuple(
            ("B", *s[1:]) if s[0] == "I" and s[1] in whole else s
            for s in steps
            if (s[0] != "W" or s[1] not in whole)
        )
        for device, steps in schedule.steps.items()
    }
    return Schedule(joined, f"{policy}, backward passes whole")


@tiered
def play(steps: Array, spans: Array, delays: Array, held: Array, parts: int) -> tuple[Array, Array]:
    """When the last step of every stage ends; and the most bytes in flight of every list.

    Args:
        steps: lists, see `steps_of`.
        spans: (stages, 3) seconds of a step.
        delays: seconds to every stage from the one before.
        held: (stages, 2) bytes of a micro-batch until its backward pass is over, and only within that.
        parts: micro-batches.
    """
    lists, stages = len(steps), len(spans)
    done, last = np.full((3, stages, parts), np.inf), np.zeros(stages)
    at, free, level, most = (
        np.zeros(lists, np.int64),
        np.zeros(lists),
        np.zeros(lists),
        np.zeros(lists),
    )
    is_moving = True
    while is_moving:
        is_moving = False
        for k in range(lists):
            while at[k] < steps.shape[1] and steps[k, at[k], 0] >= 0:
                phase, stage, part = steps[k, at[k]]
                ready = 0.0 if phase == FORWARD else done[phase - 1, stage, part]
                if phase == FORWARD and stage > 0:
                    ready = done[FORWARD, stage - 1, part] + delays[stage]
                if phase == BACKWARD and stage + 1 < stages:
                    ready = max(ready, done[BACKWARD, stage + 1, part] + delays[stage + 1])
                if ready == np.inf:
                    break
                free[k] = max(free[k], ready) + spans[stage, phase]
                done[phase, stage, part] = last[stage] = free[k]
                if phase == WEIGHT:
                    level[k] -= held[stage, 0] + held[stage, 1]
                else:
                    level[k] += held[stage, phase]
                most[k], at[k], is_moving = max(most[k], level[k]), at[k] + 1, True
    for k in range(lists):
        if at[k] < steps.shape[1] and steps[k, at[k], 0] >= 0:
            last[:] = np.inf
    return last, most
