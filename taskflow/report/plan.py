"""A plan in time: stages, micro-batches, how long devices idle, what micro-batches hold, and what is computed again.

Everything is read off the rows in their order and their simulated timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.core.text import describe_memory, list_numbers
from taskflow.graph.phases import Phase
from taskflow.report.describe import describe_bytes
from taskflow.schedule.found import held_bytes
from taskflow.schedule.pipeline import Pipeline, pipeline_of
from taskflow.tasks.task_graph import Kind, TaskGraph
from taskflow.tasks.timeline import Timeline


@dataclass(frozen=True)
class PlanExplanation:
    """What a plan does in time.

    Attributes:
        schedule: its name.
        parts: micro-batches of each device.
        stages: per stage its forward operators, in program order.
        devices: of every stage.
        idle: per device, the share of the step in which it computes nothing: its bubble.
        held_bytes: per device, the most that micro-batches hold between two blocks, such as forward and backward pass.
        recomputed: operators that are computed again for the backward pass.
        offloaded: regions that lie in the memory of hosts until they are needed.
        host_bytes: that devices keep there, all of them together.
    """

    schedule: str
    parts: int
    stages: tuple[tuple[str, ...], ...]
    devices: tuple[tuple[int, ...], ...]
    idle: tuple[float, ...]
    held_bytes: tuple[int, ...]
    recomputed: tuple[str, ...]
    offloaded: tuple[str, ...] = ()
    host_bytes: int = 0


def explain_plan(
    timeline: Timeline, schedule: str, recomputed: Sequence[str], offloaded: Sequence[str] = ()
) -> PlanExplanation:
    """The plan of a predicted timeline."""
    rows = timeline.task_graph
    pipeline = pipeline_of(rows)
    points = rows.kind == Kind.POINT
    busy = np.bincount(
        rows.device[points], (timeline.end - timeline.start)[points], len(rows.machine.devices)
    )
    idle = 1 - busy / timeline.seconds if timeline.seconds else np.zeros(len(busy))
    return PlanExplanation(
        schedule,
        pipeline.parts,
        _operators(rows, pipeline),
        pipeline.devices,
        tuple(idle.tolist()),
        tuple(held_bytes(rows).tolist()),
        tuple(recomputed),
        tuple(offloaded),
        0 if timeline.host_bytes is None else int(timeline.host_bytes.sum()),
    )


def _operators(rows: TaskGraph, pipeline: Pipeline) -> tuple[tuple[str, ...], ...]:
    """The forward operators of every stage that a strategy names."""
    by_stage: list[list[str]] = [[] for _ in pipeline.devices]
    forward = (pipeline.stage >= 0) & (pipeline.phase == Phase.FORWARD)
    for stage, launch in sorted(
        {*zip(pipeline.stage[forward].tolist(), rows.launch[forward].tolist(), strict=True)}
    ):
        if rows.launches[launch].leader == rows.launches[launch].name:
            by_stage[stage].append(rows.launches[launch].name)
    return tuple(map(tuple, by_stage))


def plan_headline(plan: PlanExplanation) -> str:
    """The schedule, what is computed again, and what lies in the memory of hosts."""
    stages = f"{len(plan.stages)} stage{'s' if len(plan.stages) != 1 else ''}"
    text = f"schedule {plan.schedule}: {plan.parts} micro-batch{'es' if plan.parts > 1 else ''}, {stages}"
    if plan.recomputed:
        text = f"{text}; computed again: {', '.join(plan.recomputed)}"
    if plan.offloaded:
        size = describe_memory(plan.host_bytes)
        text = f"{text}; in the memory of hosts, {size}: {', '.join(plan.offloaded)}"
    return text


def stage_table(plan: PlanExplanation) -> list[tuple[str, ...]]:
    """Devices and operators of every stage."""
    rows: list[tuple[str, ...]] = [("stage", "devices", "forward operators")]
    for number, (devices, names) in enumerate(zip(plan.devices, plan.stages, strict=True)):
        text = ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]} ({len(names)})"
        rows.append((str(number), list_numbers(sorted(devices)), text))
    return rows


def device_table(plan: PlanExplanation) -> list[tuple[str, ...]]:
    """How long every device idles, and what it holds for micro-batches."""
    rows: list[tuple[str, ...]] = [("device", "idle (bubble)", "held by micro-batches")]
    pairs = zip(plan.idle, plan.held_bytes, strict=True)
    return rows + [
        (str(k), f"{idle:.1%}", describe_bytes(held)) for k, (idle, held) in enumerate(pairs)
    ]
