"""Pipeline schedules: what every device does for which micro-batch, in order.

A `Schedule` is a list of steps for every device; a `Policy` makes one for any number of stages and micro-batches.
`lay_out` gives the rows of a task graph in the order of a schedule: points follow the list of their device, all else
goes when it can. Numbers do not depend on it (law 3), since partial results are added up in a fixed order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from taskflow.core.columns import Array, distinct
from taskflow.core.files import fit, naming, parse_json, read_text, replace_file, without_head
from taskflow.core.grouping import grouped, ranks
from taskflow.graph.phases import Phase
from taskflow.schedule.list_scheduling import BY_START, NOBODY, list_schedule
from taskflow.schedule.pipeline import LETTERS, Pipeline, check_barriers, pipeline_of, way_out
from taskflow.schedule.put_off import NOWHERE, computed_again
from taskflow.tasks.task_graph import Kind, TaskGraph

FORMAT = "taskflow-schedule"
VERSION = 1
# Phase, stage and micro-batch. F: forward, I: gradients of activations (of the stage's input, in the end), W: gradients
# of weights, B: both, as they are lowered. The letters are those of torch.distributed.pipelining.
Step = tuple[str, int, int]
PHASES = {"F": "F", "I": "I", "W": "W", "B": "IW"}
# Of what can start at the same moment, which goes first. A device with one thread takes what others send when no point
# can start: a transfer that is late holds up all behind it (a late receive before a forward pass: pytorch #172668).
MOVES, POINTS, TRANSFERS, UPDATES = range(4)

_DEVICE = re.compile("0|[1-9][0-9]{0,8}")
_Number = Annotated[int, Meta(ge=0, lt=1 << 31)]


class ScheduleTable(Struct, forbid_unknown_fields=True):
    """A schedule file, and what a plan file says of its schedule."""

    name: str
    devices: dict[str, Any]
    eager: _Number = 0

    def schedule(self) -> Schedule:
        """The schedule; ValueError if an entry is malformed (named)."""
        lists: dict[int, tuple[Step, ...]] = {}
        for device, value in self.devices.items():
            if not _DEVICE.fullmatch(device):
                raise ValueError(f"device '{device}' is no number")
            steps = fit(value, tuple[tuple[str, _Number, _Number], ...], f"device {device}")
            for phase, _, _ in steps:
                if phase not in PHASES:
                    raise ValueError(
                        f"device {device}: phase '{phase}' is none of {', '.join(PHASES)}"
                    )
            lists[int(device)] = steps
        return Schedule(lists, self.name, self.eager)


class Place(NamedTuple):
    """A device of a pipeline, for which a policy makes a list.

    Attributes:
        position: among the devices, by their first stages.
        positions: how many there are.
        stages: that run on it.
        length: stages of the whole pipeline.
        parts: micro-batches.
        again: stages that compute something again for their backward pass.
    """

    position: int
    positions: int
    stages: tuple[int, ...]
    length: int
    parts: int
    again: frozenset[int] = frozenset()


Groups = Sequence[tuple[int, ...]]


def in_loops(groups: Groups, count: int | None = None) -> Groups:
    """Group after group, from the first again where there are more stages."""
    return [groups[k % len(groups)] for k in range(count or len(groups))]


@dataclass(frozen=True)
class Policy:
    """A rule that makes the list of every device, see `taskflow.schedule.policies`.

    As a decorator it makes a policy of a function.

    Attributes:
        steps: gives the steps of a device at a place.
        placement: gives the devices of every stage, of groups of devices in their order and how many stages there are
            (None: as many as it takes); what `taskflow.stages(devices=)` takes.
        eager: see `Schedule`. Then gradients of weights come behind those of activations also where something is
            computed again.
    """

    steps: Callable[[Place], Sequence[Step]]
    placement: Callable[[Groups, int | None], Groups] = in_loops
    eager: int = 0

    @property
    def name(self) -> str:
        """That of its function, with how eager it is behind a colon."""
        return self.steps.__name__ + (f":{self.eager}" if self.eager else "")

    def schedule(self, pipeline: Pipeline) -> Schedule:
        """The lists of all devices of a pipeline."""
        stages = {
            device: pipeline.stages_of(device)
            for device in sorted(set[int]().union(*pipeline.devices))
        }
        firsts = sorted(set(map(min, stages.values())))
        again = frozenset[int]() if self.eager else pipeline.again
        rest = len(pipeline.devices), pipeline.parts, again
        position = {numbers: firsts.index(min(numbers)) for numbers in stages.values()}
        steps_of = {
            numbers: tuple(self.steps(Place(at, len(firsts), numbers, *rest)))
            for numbers, at in position.items()
        }
        steps = {device: steps_of[numbers] for device, numbers in stages.items()}
        return Schedule(steps, self.name, self.eager)


@dataclass(frozen=True)
class Schedule:
    """The order in which every device works.

    Attributes:
        steps: device -> its steps. What stands in no list goes when it can.
        name: for messages.
        eager: 0: a device does step after step, and what a step computes again where it is read. From 1 on a step
            begins with what it computes again before it needs a gradient, so that the gradient finds it done. From 2
            on so many steps in turn may be under way: while one waits for other devices, the next goes on.
    """

    steps: Mapping[int, Sequence[Step]]
    name: str = "schedule"
    eager: int = 0

    def to_table(self) -> dict[str, Any]:
        """A `ScheduleTable` as JSON has it."""
        devices = {
            str(device): [list(step) for step in steps] for device, steps in self.steps.items()
        }
        return {"name": self.name, "devices": devices} | (
            {"eager": self.eager} if self.eager else {}
        )

    def save(self, path: str | Path) -> None:
        """Write JSON, atomically; see `load`."""
        replace_file(
            path, json.dumps({"format": FORMAT, "version": VERSION, **self.to_table()}) + "\n"
        )

    @staticmethod
    def load(path: str | Path) -> Schedule:
        """Read a schedule file; whether it fits a task graph is checked when rows are laid out.

        Raises:
            ValueError: the file is no JSON, of another format or version, or an entry is malformed (named).
        """
        with naming(f"schedule file '{path}'"):
            return fit(
                without_head(parse_json(read_text(path)), FORMAT, VERSION), ScheduleTable
            ).schedule()


def lay_out(task_graph: TaskGraph, seconds: Array, schedule: Schedule | Policy) -> Array:
    """Row numbers in the order of a schedule.

    Args:
        task_graph: from `lower`.
        seconds: of every row.
        schedule: of its stages, or a policy that makes one.

    Raises:
        ValueError: an operator needs several micro-batches at once; a step is there twice, or is none of this task
            graph; a block of this is in no list; or devices wait for each other.
    """
    pipeline = pipeline_of(task_graph)
    check_barriers(task_graph, pipeline, schedule.name)
    if isinstance(schedule, Policy):
        schedule = schedule.schedule(pipeline)
    place = _places(task_graph, pipeline, schedule)
    device = task_graph.device
    listed = np.flatnonzero(place >= 0)
    is_first = np.zeros(len(task_graph), np.bool_)
    if schedule.eager:
        is_first = _without_gradients(task_graph, place)
    for key in (~is_first, place, device):
        listed = listed[grouped(key[listed], int(key.max(initial=0)) + 1)[1]]
    following = np.full(len(task_graph), -1)
    is_same = device[listed[:-1]] == device[listed[1:]]
    late = NOBODY
    if schedule.eager > 1:
        is_same &= place[listed[:-1]] == place[listed[1:]]
        late = _begun_late(device[listed], listed, is_same, schedule.eager)
    following[listed[:-1][is_same]] = listed[1:][is_same]
    priority = np.where(task_graph.kind == Kind.POINT, POINTS, MOVES)
    one_thread = np.array([device.kind == "cpu" for device in task_graph.machine.devices])
    priority[task_graph.is_transfer & one_thread[task_graph.device]] = TRANSFERS
    priority[pipeline.phase == Phase.UPDATE] = UPDATES
    position = np.full(len(task_graph), NOWHERE)
    position[listed] = ranks(device[listed], len(task_graph.machine.devices))
    if schedule.eager > 1:
        priority = priority.astype(float)
        priority[listed] += position[listed] / (2 * len(listed))  # the step that stands first
    order = list_schedule(task_graph, seconds, BY_START, priority, following, position, late)
    if len(order) < len(task_graph):
        raise ValueError(_stuck(task_graph, pipeline, schedule, following, order))
    return order


def _without_gradients(task_graph: TaskGraph, place: Array) -> Array:
    """Per row whether it computes something again that no row before it in its step reads, but to do so, too."""
    is_again = place >= 0
    rows = np.arange(len(task_graph))
    is_again[is_again] = computed_again(task_graph)[task_graph.launch[is_again]]
    columns = np.stack([task_graph.device, place], axis=1)
    step = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)
    readers = task_graph.waiting_row[is_again[task_graph.dep_row]]
    readers = readers[~is_again[readers] & (place[readers] >= 0)]
    first_reader = np.full(len(task_graph), len(task_graph))
    np.minimum.at(first_reader, step[readers], readers)
    is_unread: Array = is_again & (rows < first_reader[step])
    return is_unread


def _begun_late(device: Array, listed: Array, is_within: Array, eager: int) -> tuple[Array, Array]:
    """First rows of steps, each with the last row of a step before it: all but the last `eager` - 1 are to be done.

    Args:
        device, listed: the rows of all lists, one device after the other.
        is_within: of every row but the last, whether the next belongs to the same step.
        eager: steps that may be under way.
    """
    firsts = np.flatnonzero(np.append(True, ~is_within))
    lasts = np.append(firsts[1:], len(listed)) - 1
    late = np.concatenate([firsts[back:] for back in range(eager, 2 * eager)])
    before = np.concatenate([lasts[:-back] for back in range(eager, 2 * eager)])
    is_same = device[late] == device[before]
    return listed[late[is_same]], listed[before[is_same]]


def _places(task_graph: TaskGraph, pipeline: Pipeline, schedule: Schedule) -> Array:
    """Per row the number of its step in the list of its device; -1: it is in none."""
    staged = np.flatnonzero(pipeline.stage >= 0)
    columns = np.stack([task_graph.device, pipeline.phase, pipeline.stage, pipeline.part])
    columns = columns[:, staged]
    ends = columns.max(axis=1, initial=0) + 1
    of_rows = np.ravel_multi_index(tuple(columns), ends)
    keys = distinct(of_rows.copy())
    positions = _positions(np.stack(np.unravel_index(keys, ends), axis=1), pipeline, schedule)
    place = np.full(len(task_graph), -1)
    place[staged] = positions[np.searchsorted(keys, of_rows)]
    return place


def _positions(blocks: Array, pipeline: Pipeline, schedule: Schedule) -> Array:
    """The place of every block in the list of its device; (blocks, 4): device, phase, stage and micro-batch."""
    where = f"schedule '{schedule.name}'"
    block_of = {
        (d, LETTERS[Phase(phase)], stage, part): k
        for k, (d, phase, stage, part) in enumerate(blocks.tolist())
    }
    number = np.full(len(blocks), -1)
    for device, steps in schedule.steps.items():
        stages = pipeline.stages_of(device)
        for position, (letter, stage, part) in enumerate(steps):
            if letter not in PHASES or stage not in stages or not 0 <= part < pipeline.parts:
                has = f"stages {list(stages)} and {pipeline.parts} micro-batches"
                raise ValueError(
                    f"{where}: device {device} cannot do {_say((letter, stage, part))}; it has {has}"
                )
            for phase in PHASES[letter]:
                block = block_of.get((device, phase, stage, part))
                if block is None:
                    continue  # a stage without weights has no weight gradients
                if number[block] >= 0:
                    raise ValueError(
                        f"{where}: device {device} does {_say((phase, stage, part))} twice"
                    )
                number[block] = position
    if len(missing := np.flatnonzero(number < 0)):
        device, phase, stage, part = blocks[missing[0]].tolist()
        left = f"{len(missing)} of {len(blocks)} blocks are in no list"
        raise ValueError(
            f"{where}: device {device} never does {_say((LETTERS[Phase(phase)], stage, part))}; {left}"
        )
    return number


def _say(step: Step) -> str:
    phase, stage, part = step
    return f"{phase} of stage {stage} for micro-batch {part}"


def _stuck(
    task_graph: TaskGraph,
    pipeline: Pipeline,
    schedule: Schedule,
    following: Array,
    order: Iterable[int],
) -> str:
    """Who waits for whom where rows cannot be issued."""
    left = np.ones(len(task_graph), np.bool_)
    left[np.asarray(order, np.int64)] = False
    behind = np.zeros(len(task_graph), np.bool_)
    behind[following[left & (following >= 0)]] = True
    heads = np.flatnonzero(left & ~behind & (pipeline.stage >= 0))
    said = []
    for row in heads.tolist():
        phase = LETTERS[Phase(int(pipeline.phase[row]))]
        stage = int(pipeline.stage[row])
        said.append(
            f"device {task_graph.device[row]} at {_say((phase, stage, int(pipeline.part[row])))}"
        )
    text = f"schedule '{schedule.name}': devices wait for each other: {'; '.join(said)}"
    for row in heads.tolist():
        if names := _awaits_later(task_graph, pipeline, row, left):
            needs = f"'{names[0]}' needs all {pipeline.parts} micro-batches of '{names[-1]}'"
            return f"{text}; {needs}: use {way_out(task_graph, pipeline, names)}"
    return text


def _awaits_later(task_graph: TaskGraph, pipeline: Pipeline, row: int, left: Array) -> list[str]:
    """The operators on the way from a row to a later micro-batch that it awaits through what belongs to no stage."""
    ways = [[row]]
    seen = {row}
    while ways:
        way = ways.pop(0)
        for before in task_graph.deps(way[-1]):
            if not left[before] or before in seen:
                continue
            seen.add(before)
            if pipeline.stage[before] < 0:
                ways.append([*way, before])
            elif pipeline.part[before] > pipeline.part[row] and len(way) > 1:
                return [name for name, _ in groupby(map(task_graph.name, [*way, before]))]
    return []
