"""The schedule of a given number of micro-batches: list scheduling by priorities, annealed.

Takes blocks, memory and a number of micro-batches, gives starts. Of all blocks that may be next, the one goes first
whose priority and earliest start are least together; it starts as soon as its devices are free and its predecessors
done. A block that takes memory waits until there is enough. Simulated annealing then moves priorities. It starts from
those of a periodic schedule (`period.py`), of a micro-batch after the other, of backward blocks first, of the longest
way to the end, and of what the caller knows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inlined, inner, tiered
from taskflow.core.numbers import is_whole, real, whole
from taskflow.schedule.blocks import FAR, Block, Table, is_exact, table_of
from taskflow.schedule.period import Period, find_period

STUCK = 1 << 50  # the makespan of an order in which every block that is left waits for memory
PERIOD_SHARE = 0.25  # of the time goes to the periodic schedule
FIRST_ROUNDS, ROUNDS = (
    1_500,
    6_000,
)  # moves of an annealing from a given start, and from one of the best
BEST = 3  # annealings that are gone on with
TEMPERATURES = (0.8, 0.3)  # units


class Finite(NamedTuple):
    """A schedule.

    Attributes:
        makespan: time from the first start to the last end.
        starts: of every block (first axis) of every micro-batch (second).
        is_optimal: whether it is as short as a lower bound.
    """

    makespan: float
    starts: Array
    is_optimal: bool


def find_schedule(
    blocks: Sequence[Block],
    memory: float | Sequence[float] | None = None,
    parts: int = 1,
    seconds: float = 5.0,
    seed: int = 0,
    known: Array | None = None,
) -> Finite | None:
    """The shortest schedule of `parts` micro-batches that is found in so many seconds, or None.

    Args:
        blocks: of one micro-batch; a block waits for blocks of its own micro-batch.
        memory: of every device, or a number for each, in the units of `Block.memory`; None: without limit.
        parts: micro-batches.
        seconds: that the search may take, compiling apart.
        seed: of the annealing.
        known: starts to begin with, as in `Finite`; None: there are none.

    Raises:
        ValueError: a block is impossible, blocks wait in a circle, a micro-batch keeps memory, or there is none.
    """
    if not is_whole(parts):
        raise ValueError(f"parts: {parts!r} micro-batches; at least one")
    seconds = real("find_schedule", "seconds", seconds, 0)
    seed = whole("find_schedule", "seed", seed, 0)
    table, unit = table_of(blocks, memory)
    until = time.perf_counter() + seconds
    rng = np.random.default_rng(seed)
    least = _least_makespan(table, parts)
    best = Finite(STUCK, np.zeros((len(blocks), parts), np.int64), False)
    first = _first_priorities(
        table, parts, find_period(blocks, memory, seconds * PERIOD_SHARE, seed), unit
    )
    first += [] if known is None else [known * 10.0 / unit]
    pool: list[tuple[int, int, Array]] = []
    number = 0
    scratch = best.starts.copy()
    lists = _lists(table)
    while number < len(first) or (best.makespan > least and time.perf_counter() < until):
        if number < len(first):
            priorities = first[number]
            rounds = FIRST_ROUNDS
        else:
            priorities = pool[rng.integers(len(pool))][2].copy()
            rounds = ROUNDS
            if rng.random() < 0.5:
                priorities += rng.normal(size=priorities.shape) * table.span.sum() * 0.05
        draws = rng.random((rounds, 5))
        temperature = TEMPERATURES[number % 2]
        makespan = anneal(lists, priorities, least, temperature, draws, scratch)
        pool = sorted([*pool, (makespan, number, priorities)], key=lambda tried: tried[:2])[:BEST]
        number += 1
        if makespan < best.makespan:
            best = Finite(makespan, scratch.copy(), makespan <= least)
        if best.makespan <= least:
            break
    if best.makespan >= STUCK:
        return None
    return Finite(
        best.makespan * unit, best.starts * unit, best.is_optimal and is_exact(blocks, unit)
    )


def _least_makespan(table: Table, parts: int) -> int:
    """Units: a device's work, with the shortest way to its first block and the shortest from its last one."""
    reach = table.distance > -FAR
    head = np.where(reach, table.distance, 0).max(axis=0)
    tail = np.where(reach, table.distance + table.span, 0).max(axis=1) - table.span
    least = int((head + table.span + tail).max())
    for on in table.on.T:
        if on.any():
            least = max(least, int(head[on].min() + parts * table.span[on].sum() + tail[on].min()))
    return least


def _first_priorities(table: Table, parts: int, period: Period | None, unit: float) -> list[Array]:
    """Priorities to start from: blocks by micro-batches, less goes first."""
    number = np.arange(parts, dtype=float)
    level = (
        -np.where(table.distance > -FAR, table.distance + table.span, 0)
        .max(axis=1)[:, None]
        .astype(float)
    )
    priorities = [
        number * 0.01 + (table.memory[:, None] >= 0) * 0.5,  # those that give memory back first
        *(level + number * float(table.span.sum()) * lag for lag in (0.0, 0.25, 0.5, 1.0)),
    ]
    if period is not None:
        starts = _starts_of(parts, period, unit)
        priorities = [starts, starts * 10.0, *priorities]
    return priorities


def _starts_of(parts: int, period: Period, unit: float) -> Array:
    """(blocks, parts) units: the starts of so many micro-batches in a periodic schedule."""
    in_period = period.starts.shape[1]
    starts: Array = np.tile(period.starts, (1, -(-parts // in_period)))[:, :parts] / unit
    starts += period.period / unit * in_period * (np.arange(parts) // in_period)
    return starts


class Lists(NamedTuple):
    """Blocks for compiled code; `x` of block k is `x[x_ptr[k] : x_ptr[k + 1]]`.

    Attributes:
        span, memory, limit: as in `Table`.
        before_ptr, before: the blocks that it waits for.
        device_ptr, device: where it runs.
    """

    span: Array
    memory: Array
    limit: Array
    before_ptr: Array
    before: Array
    device_ptr: Array
    device: Array


def _lists(table: Table) -> Lists:
    after, on = (np.ascontiguousarray(np.nonzero(flags)[1]) for flags in (table.after, table.on))
    ptrs = (pointers(flags.sum(axis=1)) for flags in (table.after, table.on))
    return Lists(
        table.span, table.memory, table.limit * (1 + 1e-12), next(ptrs), after, next(ptrs), on
    )


@tiered
def anneal(
    lists: Lists, priorities: Array, least: int, temperature: float, draws: Array, starts: Array
) -> int:
    """Move `priorities` again and again; leave the best in `priorities` and `starts`; its makespan.

    Args:
        lists: the blocks.
        priorities: of blocks (first axis) of micro-batches (second).
        least: a makespan below which none is.
        temperature: a schedule that is longer by so many units is taken with probability 1/e.
        draws: five random numbers for every move.
        starts: of blocks of micro-batches.
    """
    blocks, parts = priorities.shape
    trial = np.empty_like(starts)
    total = lists.span.sum()
    now = lay(lists, priorities, starts)
    best = now
    if now < STUCK:
        priorities[:] = starts
    for which, when, kind, far, chance in draws:
        if best <= least:
            break
        block = int(which * blocks)
        part = int(when * parts)
        begin, end = (part, part + 1) if kind < 0.5 else (part, parts) if kind < 0.8 else (0, parts)
        move = (far - 0.5) * total * (1.0 if kind < 0.5 else 0.7)
        before = priorities[block].copy()
        priorities[block, begin:end] += move
        new = lay(lists, priorities, trial)
        if new <= now or (new < STUCK and chance < np.exp((now - new) / temperature)):
            now = new
            priorities[:] = trial
            if new < best:
                best = new
                starts[:] = trial
        else:
            priorities[block] = before
    if best < STUCK:
        priorities[:] = starts
    return best


@inner
def lay(lists: Lists, priorities: Array, starts: Array) -> int:
    """Fill in `starts`: one block after the other, always the one of least priority plus start; the makespan."""
    (blocks, parts) = priorities.shape
    devices = len(lists.limit)
    following = np.zeros(blocks, np.int64)
    free = np.zeros(devices, np.int64)
    level = np.zeros(devices)
    last = 0
    for _ in range(blocks * parts):
        best = -1
        best_start = 0
        least = np.inf
        for block in range(blocks):
            part = following[block]
            start = (
                start_of(lists, block, part, following, free, level, starts) if part < parts else -1
            )
            if start >= 0 and priorities[block, part] + start < least:
                best = block
                best_start = start
                least = priorities[block, part] + start
        if best < 0:
            return STUCK
        starts[best, following[best]] = best_start
        following[best] += 1
        last = max(last, best_start + lists.span[best])
        for k in range(lists.device_ptr[best], lists.device_ptr[best + 1]):
            free[lists.device[k]] = best_start + lists.span[best]
            level[lists.device[k]] += lists.memory[best]
    return last


@inlined
def start_of(
    lists: Lists, block: int, part: int, following: Array, free: Array, level: Array, starts: Array
) -> int:
    """When a block can start; -1: what it waits for is not placed, or there is no memory for it."""
    start = 0
    for k in range(lists.before_ptr[block], lists.before_ptr[block + 1]):
        before = lists.before[k]
        if following[before] <= part:
            return -1
        start = max(start, starts[before, part] + lists.span[before])
    for k in range(lists.device_ptr[block], lists.device_ptr[block + 1]):
        device = lists.device[k]
        if lists.memory[block] > 0 and level[device] + lists.memory[block] > lists.limit[device]:
            return -1
        start = max(start, free[device])
    return start
