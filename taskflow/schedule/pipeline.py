"""The pipeline in a task graph: stages, phases and micro-batches of its rows.

Takes a task graph whose operators have several points on a device; gives a `Pipeline`. Nobody writes it down: a
micro-batch is the ordinal of a point, a stage is a run of operators on the same devices, and the phase of an operator
was told by `differentiate`. What an operator does once a step (it has no axis of samples, it reads parameters alone, or
it is an update) belongs to no stage, nor does what is made of feeds alone and awaited by an earlier micro-batch
(`early`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.grouping import grouped
from taskflow.graph.phases import Phase
from taskflow.schedule.early import early_launches, last_ordinals
from taskflow.schedule.put_off import computed_again, of_parameters
from taskflow.tasks.task_graph import Kind, TaskGraph

NONE = -1
LETTERS = {Phase.FORWARD: "F", Phase.BACKWARD: "I", Phase.WEIGHT: "W"}


class Pipeline(NamedTuple):
    """What a schedule says the order of.

    Attributes:
        stage: per row its stage; NONE: it is no point, or belongs to none.
        phase: per row its `Phase`.
        part: per row its micro-batch.
        parts: micro-batches of each device.
        devices: of every stage, in the order of points.
        again: the stages that compute something again for their backward pass.
    """

    stage: Array
    phase: Array
    part: Array
    parts: int
    devices: tuple[tuple[int, ...], ...]
    again: frozenset[int] = frozenset()

    def stages_of(self, device: int) -> tuple[int, ...]:
        """The stages that run on a device."""
        return tuple(stage for stage, devices in enumerate(self.devices) if device in devices)


def pipeline_of(task_graph: TaskGraph) -> Pipeline:
    """The pipeline in a task graph."""
    rows = np.flatnonzero(task_graph.kind == Kind.POINT)
    launch = task_graph.launch[rows]
    count = np.zeros(len(task_graph.launches), np.int64)
    np.maximum.at(count, launch, task_graph.ordinal[rows] + 1)
    parts = int(count.max(initial=1))
    stage_of, devices = _stages(task_graph, rows, (count == parts) & ~of_parameters(task_graph))
    stage = np.full(len(task_graph), NONE)
    stage[rows] = stage_of[launch]
    stage[rows[early_launches(task_graph, stage >= 0)[launch]]] = NONE
    phase = np.full(len(task_graph), NONE)
    phase[rows] = np.array([launch.phase for launch in task_graph.launches], np.int64)[launch]
    return Pipeline(
        stage,
        phase,
        task_graph.ordinal,
        parts,
        devices,
        frozenset(stage_of[computed_again(task_graph)].tolist()) - {NONE},
    )


def _stages(
    task_graph: TaskGraph, rows: Array, is_staged: Array
) -> tuple[Array, tuple[tuple[int, ...], ...]]:
    """The stage of every launch, and the devices of every stage."""
    stage_of = np.full(len(is_staged), NONE)
    devices = list[tuple[int, ...]]()
    of_leader = dict[str, int]()
    for number, (launch, used) in enumerate(
        zip(task_graph.launches, _devices_of_launches(task_graph, rows), strict=True)
    ):
        if not is_staged[number] or launch.phase == Phase.UPDATE:
            continue
        if launch.phase != Phase.FORWARD:
            stage_of[number] = of_leader.get(launch.leader, _last_on(used, devices))
            continue
        if not devices or devices[-1] != used:
            devices.append(used)
        stage_of[number] = len(devices) - 1
        of_leader.setdefault(launch.leader, len(devices) - 1)
    return stage_of, tuple(devices)


def _devices_of_launches(task_graph: TaskGraph, rows: Array) -> Iterator[tuple[int, ...]]:
    """Those of every launch, in the order of its points."""
    by_launch = rows
    for key in (task_graph.point, task_graph.launch):
        numbers = key[by_launch]
        by_launch = by_launch[grouped(numbers, int(numbers.max(initial=-1)) + 1)[1]]
    numbers = np.arange(len(task_graph.launches) + 1)
    ends = np.searchsorted(task_graph.launch[by_launch], numbers).tolist()
    for begin, end in pairwise(ends):
        yield tuple(dict.fromkeys(task_graph.device[by_launch[begin:end]].tolist()))


def _last_on(used: tuple[int, ...], devices: Sequence[tuple[int, ...]]) -> int:
    """The last of the stages on these devices, or NONE."""
    return max((stage for stage, others in enumerate(devices) if others == used), default=NONE)


def check_barriers(task_graph: TaskGraph, pipeline: Pipeline, name: str) -> None:
    """No point of a stage waits for a later micro-batch, in a task graph from `lower`.

    Raises:
        ValueError: an operator needs several micro-batches at once; `name` is the schedule that asks.
    """
    waiting = task_graph.waiting_row
    awaited = task_graph.dep_row
    is_staged = pipeline.stage >= 0
    last = last_ordinals(
        task_graph.dep_ptr,
        awaited,
        task_graph.ordinal,
        is_staged,
        task_graph.kind != Kind.POINT,
    )
    is_late = is_staged[waiting] & (last[awaited] > task_graph.ordinal[waiting])
    if is_late.any():
        needs = _needs_all(task_graph, pipeline, int(np.argmax(is_late)))
        raise ValueError(f"schedule '{name}': {needs}")


def _needs_all(task_graph: TaskGraph, pipeline: Pipeline, dependence: int) -> str:
    """That the row of this dependence needs all micro-batches of the other one, and what to use."""
    reader = task_graph.name(int(task_graph.waiting_row[dependence]))
    maker = task_graph.name(int(task_graph.dep_row[dependence]))
    needs = (
        f"'{reader}' needs all {pipeline.parts} micro-batches of '{maker}' before its first point"
    )
    return f"{needs}; use {way_out(task_graph, pipeline, (reader, maker))}"


def way_out(task_graph: TaskGraph, pipeline: Pipeline, names: Sequence[str]) -> str:
    """What to use where these operators need several micro-batches at once: what the first that knows one says."""
    launches = {launch.name: launch for launch in task_graph.launches}
    advice = [
        launches[name].kernel.apart.format(parts=pipeline.parts)
        for name in names
        if name in launches
    ]
    order = "an order that knows no stages, such as taskflow.schedule.program"
    return next((f"{apart}, or {order}" for apart in advice if apart), order)
