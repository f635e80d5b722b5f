"""Modulo scheduling: the same starts in every period, a micro-batch (or a few) a period, and that as short as can be.

Takes blocks and memory, gives starts. A period is feasible when no device has two blocks at one moment (modulo the
period) and none holds more than its memory once all micro-batches in flight have begun. What is feasible in a period is
so in a longer one: blocks keep their places in it. So the shortest is enclosed: searches (`laps.py`) of periods between
the longest that is known to be too short and the shortest that is found take turns, with budgets that grow.

Less is left to search where equal things are told apart: all starts may be shifted, micro-batches be renumbered, and
two blocks swapped of which one may be wherever the other is.

Where a device neither works nor holds memory all the time, several micro-batches a period may do better: V-shaped
stages on 4 devices with memory for 3 take 6 units with one a period, 12 with three.

Modulo scheduling is that of Rau (MICRO 1994); for pipelines: Tessel (Lin et al., HPCA 2024), which needs a solver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.numbers import real, whole
from taskflow.schedule.blocks import FAR, Block, Table, distances, is_exact, repeated, table_of
from taskflow.schedule.laps import Columns, End, Held, Trail, choose_laps, close

MOST_PARTS = 3  # micro-batches a period
FIRST_BUDGET = 200
GROWTH = 1.5  # choices of a search, and of the next one in the same period
ONE_PART_SHARE = 0.6  # of the time is for one micro-batch a period
# Of least times between blocks, on the way to one schedule: 256 stages need half. Memory that none fills is not taken.
CHANGES = 1 << 26
MOST_CLIQUES = 1_000  # that are looked at
JITTER = 0.1  # of the weights of pairs, from search to search


class Period(NamedTuple):
    """A periodic schedule.

    Attributes:
        period: time from one micro-batch to the next; between the starts of two periods, over micro-batches a period.
        starts: of every block (first axis) of the micro-batches of one period (second), the least is 0.
        is_optimal: whether it is proven that no schedule with as many micro-batches a period takes less.
        nodes: choices that were tried for as many micro-batches a period.
    """

    period: float
    starts: Array
    is_optimal: bool
    nodes: int = 0


def find_period(
    blocks: Sequence[Block],
    memory: float | Sequence[float] | None = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> Period | None:
    """The shortest period that is found in so many seconds; None: memory is too small for one micro-batch, or it has so
    many blocks (thousands) that none is found.

    Args:
        blocks: of one micro-batch; a block waits for blocks of its own micro-batch.
        memory: of every device, or a number for each, in the units of `Block.memory`; None: without limit.
        seconds: that the search may take, compiling apart.
        seed: of the order in which pairs of blocks are decided.

    Raises:
        ValueError: a block is impossible, blocks wait in a circle, or a micro-batch keeps memory.
    """
    seconds = real("find_period", "seconds", seconds, 0)
    seed = whole("find_period", "seed", seed, 0)
    table, unit = table_of(blocks, memory)
    until = time.perf_counter() + seconds
    best = None
    least = least_period(table)
    for parts in range(1, MOST_PARTS + 1):
        most = (
            int(table.span.sum()) * parts
            if best is None
            else math.ceil(best.period / unit * parts) - 1
        )
        if best is None and parts > 1:
            break  # micro-batches one after the other do not fit either
        if most < math.ceil(least * parts - 1e-9):
            break
        left = until - time.perf_counter()
        shorter = _search(
            table,
            parts,
            most,
            left * (ONE_PART_SHARE if parts == 1 else 1 / (MOST_PARTS + 1 - parts)),
            seed,
        )
        if shorter is not None:
            best = Period(
                shorter.period / parts * unit,
                shorter.starts * unit,
                shorter.is_optimal and is_exact(blocks, unit),
                shorter.nodes,
            )
    return best


def least_period(table: Table) -> float:
    """Units a micro-batch below which no period is: work that nothing is beside, and memory times time over memory."""
    held = _held(table)
    times = np.maximum(table.distance[held.taker, held.giver], 0) * held.amount
    area = np.bincount(held.device, times, len(table.limit)) + _lost(table)
    work = _alone(table) @ table.span
    return float(max(work.max(), (area / np.maximum(table.limit, 1e-300)).max()))


def _search(table: Table, parts: int, most: int, seconds: float, seed: int) -> Period | None:
    """Starts in the shortest period of `parts` micro-batches, of at most `most` units; its `period` is that of all.

    The longest period comes first: where that is impossible for one micro-batch after the other, all are.
    """
    until = time.perf_counter() + seconds
    rng = np.random.default_rng(seed)
    least = max(math.ceil(least_period(table) * parts - 1e-9), int(table.span.max()))
    many = repeated(_ordered(table), parts)
    problem = _problem(many)
    room = CHANGES + 2 * many.distance.size
    trail = Trail(np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(1, np.int64))
    weight = np.ones(len(problem.pairs))
    nodes = np.zeros(1, np.int64)
    budget = float(FIRST_BUDGET)
    best = None
    period = most
    is_first = True
    while least <= most and (is_first or time.perf_counter() < until):
        is_first = False
        apart = _apart(many, parts, period)
        weight *= 1 + JITTER * rng.random(len(weight))
        limit = int(nodes[0] + budget)
        end = choose_laps(problem, apart, period, weight, limit, nodes, trail)
        if end == End.FOUND:
            starts = apart[(apart > -FAR).argmax(axis=0), np.arange(len(apart))]
            best = Period(period, (starts - starts.min()).reshape(parts, -1).T.copy(), False)
            most = period - 1
        elif end == End.NONE:
            least = period + 1
        if period < most:
            period = (max(period, least - 1) + most + 1) // 2
        else:
            period = least
            budget *= GROWTH if nodes[0] > limit else 1
    return None if best is None else best._replace(is_optimal=least > most, nodes=int(nodes[0]))


def _ordered(table: Table) -> Table:
    """Of two blocks that are alike, one is first where it may be wherever the other is: else swap them.

    Two gradients of weights, for which nobody waits, are made in the order in which they can be.
    """
    before = table.distance > -FAR
    np.fill_diagonal(before, False)
    alike = (table.on[:, None] == table.on).all(axis=2) & ~before & ~before.T
    alike &= (table.span[:, None] == table.span) & (table.memory[:, None] == table.memory)
    after = table.after.copy()
    for a, b in np.argwhere(np.triu(alike, 1)).tolist():
        if (before[:, a] <= before[:, b]).all() and (before[b] <= before[a]).all():
            after[b, a] = True
        elif (before[:, b] <= before[:, a]).all() and (before[a] <= before[b]).all():
            after[a, b] = True
    return table._replace(after=after, distance=distances(table.span, after))


def _apart(table: Table, parts: int, period: int) -> Array:
    """The least time from the start of a block to that of another; -FAR: nothing says which comes first.

    No block is put off for nothing: where all that follow it could go a period earlier with it, they do. So what
    follows another with none between is less than a period late, and less than one more, and a span, for every block
    beside one of both, that it may wait for.
    The micro-batches of a period begin in their order, the second as soon after the first as any after the one before.
    """
    import networkx as nx  # only who searches for schedules waits for it

    apart = table.distance.copy()
    near = (apart > -FAR) | (apart > -FAR).T
    groups = [*map(sorted, nx.connected_components(nx.from_numpy_array(near)))]
    late = _lateness(near, groups, period + table.span)
    first, then = _next_to_each_other(apart)
    apart[then, first] = -(table.span[first] - 1 + period + late[first] + late[then])
    _begin_in_order(apart, groups, parts, period)
    close(apart)
    return apart


def _lateness(near: Array, groups: Sequence[Sequence[int]], span: Array) -> Array:
    """Per block the spans of those of its group that no path connects with it."""
    late = np.zeros(len(near), np.int64)
    for group in groups:
        late[group] = ~near[np.ix_(group, group)] @ span[group]
    return late


def _next_to_each_other(apart: Array) -> tuple[Array, ...]:
    """The blocks that are followed by another with none between, and these others."""
    before = (apart > -FAR) & ~np.eye(len(apart), dtype=np.bool_)
    return np.nonzero(before & (before.astype(np.float32) @ before == 0))


def _begin_in_order(apart: Array, groups: Sequence[Sequence[int]], parts: int, period: int) -> None:
    """Enter that the micro-batches of a period begin in their order; `groups`: blocks that some path connects."""
    blocks = len(apart) // parts
    for group in groups:
        for number in range(group[0] + blocks, len(apart), blocks) if group[0] < blocks else ():
            apart[number - blocks, number] = 0
            apart[number, group[0]] = 1 - period
    if parts > 1:
        apart[blocks, 0] = -(period // parts)


def _problem(table: Table) -> Columns:
    """Blocks as the search takes them."""
    by_rank = np.argsort((table.distance > -FAR).sum(axis=0), kind="stable")
    place = np.argsort(by_rank)
    is_late = place[:, None] > place
    shared = (table.on.astype(int) @ table.on.T > 0) & is_late
    return Columns(
        table.span,
        np.maximum(table.span[:, None], is_late),
        table.memory,
        np.argwhere(shared)[:, ::-1].copy(),
        _alone(table),
        np.ascontiguousarray(table.on.T),
        table.limit,
        _held(table),
        _lost(table),
    )


def _alone(table: Table) -> Array:
    """(sets, blocks) of which every two share a device: those of each device, and others that have more work."""
    import networkx as nx

    kinds, kind = np.unique(table.on, axis=0, return_inverse=True)
    shared = kinds.astype(int) @ kinds.T > 0
    sets = [*table.on.T]
    most = (table.span @ table.on).max()
    for clique in islice(nx.find_cliques(nx.from_numpy_array(shared)), MOST_CLIQUES):
        among = np.isin(kind.ravel(), clique)
        if among @ table.span > most:
            sets.append(among)
    return np.array(sets)


def _lost(table: Table) -> Array:
    """Memory times time of every device while a block runs that gave back: no other can take it meanwhile."""
    return -(np.minimum(table.memory, 0) * table.span) @ table.on


def _held(table: Table) -> Held:
    """Who gives back what whom has taken: the nearest before it first; any assignment makes a true bound."""
    pairs: list[tuple[int, int, int, float]] = []
    for device in range(len(table.limit)):
        here = np.flatnonzero(table.on[:, device])
        left = {int(block): float(table.memory[block]) for block in here if table.memory[block] > 0}
        for giver in here[table.memory[here] < 0].tolist():
            need, near = -float(table.memory[giver]), table.distance[:, giver]
            for taker in sorted(left, key=lambda block: near[block] if near[block] > -FAR else FAR):
                amount = min(need, left[taker])
                if amount > 0:
                    pairs.append((device, taker, giver, amount))
                    left[taker] = left[taker] - amount
                    need = need - amount
    columns = list(zip(*pairs, strict=True)) if pairs else [(), (), (), ()]
    devices, takers, givers = (np.array(column, np.int64) for column in columns[:3])
    return Held(devices, takers, givers, np.array(columns[3], float))
