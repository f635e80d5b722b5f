"""The schedule of a task graph's own pipeline, searched for.

Takes rows and their costs, finds the blocks in them (the points of one stage, phase and micro-batch) with how long they
take and what they hold, and searches for the order in which every device does them (`finite`), beginning with the best
policy. What is given is what was found: a list for every device, which `reorder` follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.numbers import real, whole
from taskflow.cost.model import CostModel
from taskflow.graph.phases import Phase
from taskflow.schedule.blocks import Block
from taskflow.schedule.finite import find_schedule
from taskflow.schedule.pipeline import LETTERS, Pipeline, check_barriers, pipeline_of
from taskflow.schedule.policies import POLICIES
from taskflow.schedule.schedule import PHASES, Schedule, Step
from taskflow.tasks.task_graph import Privilege, TaskGraph

NAME = "searched"


class Blocks(NamedTuple):
    """The blocks of a pipeline.

    Attributes:
        blocks: of one micro-batch.
        steps: phase and stage of each.
        parts: micro-batches.
    """

    blocks: list[Block]
    steps: list[tuple[str, int]]
    parts: int


def search_schedule(
    task_graph: TaskGraph,
    costs: CostModel,
    memory: float | Sequence[float] | None = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> Schedule:
    """The fastest schedule of a pipeline that is found in so many seconds.

    Args:
        task_graph: of a strategy whose operators have several points on a device, see `taskflow.stages`.
        costs: seconds of every row.
        memory: bytes of every device, or of each, for what micro-batches hold between their forward and backward pass;
            None: without limit.
        seconds: that the search may take, compiling apart.
        seed: of the search.

    Raises:
        ValueError: an operator needs several micro-batches at once, or memory is too small for one micro-batch.
    """
    seed = whole("search_schedule", "seed", seed, 0)
    problem = blocks_of(task_graph, costs)
    seconds = real("search_schedule", "seconds", seconds, 0)
    schedule = find_schedule(
        problem.blocks, memory, problem.parts, seconds, seed, best_policy(task_graph, problem)
    )
    if schedule is None:
        least = f"one micro-batch alone holds up to {least_memory(problem.blocks):g}"
        raise ValueError(f"search_schedule: no schedule fits {memory} bytes a device; {least}")
    steps: dict[int, list[tuple[float, Step]]] = {}
    for (letter, stage), block, starts in zip(
        problem.steps, problem.blocks, schedule.starts.tolist(), strict=True
    ):
        for device in block.devices:
            timed = ((start, (letter, stage, part)) for part, start in enumerate(starts))
            steps.setdefault(device, []).extend(timed)
    order = {
        device: tuple(step for _, step in sorted(timed, key=lambda pair: pair[0]))
        for device, timed in sorted(steps.items())
    }
    return Schedule(order, NAME)


def best_policy(task_graph: TaskGraph, problem: Blocks) -> Array | None:
    """When blocks begin by the policy that is the fastest; None: none fits the placement."""
    pipeline = pipeline_of(task_graph)
    spans = np.array([[block.span] for block in problem.blocks])
    best = None
    for policy in POLICIES.values():
        with suppress(ValueError):  # it asks for another placement
            starts = starts_of(problem, policy.schedule(pipeline))
            if starts is not None and (
                best is None or (starts + spans).max() < (best + spans).max()
            ):
                best = starts
    return best


def starts_of(problem: Blocks, schedule: Schedule) -> Array | None:
    """When blocks begin that follow the lists of a schedule; None: devices would wait for each other."""
    blocks = problem.blocks
    lists = _lists(problem, schedule)
    ends = np.full((len(blocks), problem.parts), np.nan)
    free = dict.fromkeys(lists, 0.0)
    while heads := {lists[device][0] for device in lists if lists[device]}:
        placed = False
        for block, part in sorted(heads):
            devices = blocks[block].devices
            before = ends[list(blocks[block].after), part]
            if not np.isnan(before).any() and all(
                lists[device] and lists[device][0] == (block, part) for device in devices
            ):
                end = max([*before, *(free[device] for device in devices)]) + blocks[block].span
                ends[block, part] = end
                placed = True
                for device in devices:
                    free[device] = end
                    lists[device].popleft()
        if not placed:
            return None
    return None if np.isnan(ends).any() else ends - [[block.span] for block in blocks]


def least_memory(blocks: Sequence[Block]) -> float:
    """The most that a device holds while one micro-batch goes through."""
    alone = find_schedule(blocks, None, 1, 0.0)
    level: dict[int, float] = {}
    most = 0.0
    for number in np.argsort(alone.starts[:, 0], kind="stable").tolist() if alone else ():
        for device in blocks[number].devices:
            level[device] = level.get(device, 0.0) + blocks[number].memory
            most = max(most, level[device])
    return most


def _lists(problem: Blocks, schedule: Schedule) -> dict[int, deque[tuple[int, int]]]:
    """Per device the numbers of blocks in the order of its steps, each with its micro-batch."""
    number = dict(zip(problem.steps, count()))
    return {
        device: deque(
            (number[phase, stage], part)
            for letter, stage, part in steps
            for phase in PHASES[letter]
            if (phase, stage) in number
        )
        for device, steps in schedule.steps.items()
    }


def blocks_of(task_graph: TaskGraph, costs: CostModel) -> Blocks:
    """The blocks of a task graph's pipeline, each of a mean micro-batch.

    A block takes the seconds of its points on the device on which these are most. It holds what later blocks of its
    micro-batch read of what it makes or receives; who is the last to read it gives it back.
    """
    pipeline = pipeline_of(task_graph)
    check_barriers(task_graph, pipeline, NAME)
    staged = np.flatnonzero(pipeline.stage >= 0)
    phases = len(LETTERS)
    codes, block = _numbered(pipeline)
    of_device = np.zeros((len(codes), len(task_graph.machine.devices)))
    np.add.at(
        of_device, (block[staged], task_graph.device[staged]), costs.seconds(task_graph)[staged]
    )
    spans = of_device.max(axis=1) / pipeline.parts
    held = _changes(task_graph, pipeline, block, len(codes))
    after = _after(task_graph, block, len(codes))
    blocks = []
    steps = []
    for number, code in enumerate(codes.tolist()):
        stage, phase = divmod(code, phases)
        devices = sorted(set(task_graph.device[staged[block[staged] == number]].tolist()))
        blocks.append(Block(float(spans[number]), float(held[number]), devices, after[number]))
        steps.append((LETTERS[Phase(phase)], stage))
    return Blocks(blocks, steps, pipeline.parts)


def _after(task_graph: TaskGraph, block: Array, blocks: int) -> list[list[int]]:
    """The blocks that each waits for, directly or by what moves data between them."""
    reach: dict[int, set[int]] = {}
    waits: list[set[int]] = [set() for _ in range(blocks)]
    for row in np.flatnonzero(task_graph.ordinal == 0).tolist():  # all micro-batches are alike
        before = set[int]().union(
            *(
                reach[dep] if block[dep] < 0 else {int(block[dep])}
                for dep in task_graph.deps(row)
                if task_graph.ordinal[dep] == 0
            )
        )
        if block[row] >= 0:
            waits[block[row]] |= before - {int(block[row])}
        else:
            reach[row] = before
    return [*map(sorted, waits)]


def held_bytes(task_graph: TaskGraph) -> Array:
    """(devices,) the most that micro-batches hold between blocks, with the rows in their order."""
    pipeline = pipeline_of(task_graph)
    _, block = _numbered(pipeline)
    lives = _lives(task_graph, pipeline, block)
    lives = lives.only(block[lives.first] != block[lives.last])
    size = task_graph.instance_bytes()[lives.instance]
    device = task_graph.instance_device[lives.instance]
    most: Array = np.zeros(len(task_graph.machine.devices), np.int64)
    for number in np.unique(device).tolist():
        is_here = device == number
        most[number] = _most_at_once(lives.only(is_here), size[is_here], len(task_graph))
    return most


def _most_at_once(lives: HeldInstances, size: Array, rows: int) -> int:
    change = np.zeros(rows + 1, np.int64)
    np.add.at(change, lives.first, size)
    np.add.at(change, lives.last + 1, -size)
    return int(change.cumsum().max())


def _numbered(pipeline: Pipeline) -> tuple[Array, Array]:
    """Stage and phase of every block as one number, in order, and the block of every row; -1: none."""
    staged = pipeline.stage >= 0
    code = np.where(staged, pipeline.stage * len(LETTERS) + pipeline.phase, -1)
    codes = np.unique(code[staged])
    return codes, np.where(staged, np.searchsorted(codes, code), -1)


def _changes(task_graph: TaskGraph, pipeline: Pipeline, block: Array, blocks: int) -> Array:
    """Bytes that each block takes and does not give back, or gives back, of every device; mean over micro-batches."""
    lives = _lives(task_graph, pipeline, block)
    size = task_graph.instance_bytes()[lives.instance]
    change = np.zeros(blocks)
    np.add.at(change, block[lives.first], size)
    np.add.at(change, block[lives.last], -size)
    devices = np.array(
        [len(set(task_graph.device[block == number].tolist())) for number in range(blocks)]
    )
    change /= pipeline.parts
    change /= devices
    return change


class HeldInstances(NamedTuple):
    """Instances that are held, and the rows of blocks that use each first and last."""

    instance: Array
    first: Array
    last: Array

    def only(self, some: Array) -> HeldInstances:
        """Those of which `some` is True."""
        return HeldInstances(*(column[some] for column in self))


def _lives(task_graph: TaskGraph, pipeline: Pipeline, block: Array) -> HeldInstances:
    """What a micro-batch makes and reads."""
    is_used = (task_graph.arg_instance >= 0) & (block[task_graph.arg_row] >= 0)
    first, last = _first_and_last(task_graph, is_used)
    kept = (last >= 0) & ~task_graph.instance_partial
    kept &= ~np.array([r.is_persistent for r in task_graph.regions], np.bool_)[
        task_graph.instance_region
    ]
    is_sum = is_used & (task_graph.arg_privilege == Privilege.REDUCE)
    kept[task_graph.arg_instance[is_sum]] = False  # gradients live until the update
    kept &= (
        pipeline.part[np.maximum(first, 0) % len(task_graph)] == pipeline.part[np.maximum(last, 0)]
    )
    return HeldInstances(np.flatnonzero(kept), first[kept], last[kept])


def _first_and_last(task_graph: TaskGraph, is_used: Array) -> tuple[Array, Array]:
    """Per instance the first and the last row of these arguments; where there are none, no row and -1."""
    instance = task_graph.arg_instance[is_used]
    row = task_graph.arg_row[is_used]
    first = np.full(len(task_graph.instance_region), len(task_graph))
    last = np.full(len(task_graph.instance_region), -1)
    np.minimum.at(first, instance, row)
    np.maximum.at(last, instance, row)
    return first, last
