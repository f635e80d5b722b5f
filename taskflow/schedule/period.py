"""Modulo scheduling: the same starts in every period, a micro-batch (or a few) a period, and that as short as can be.

Takes blocks and memory, gives starts. A period is feasible when no device has two blocks at one moment (modulo the
period) and none holds more than its memory once all micro-batches in flight have begun. A depth-first search places
one block after the other; two bounds cut it short:

* Time. Every placed block bounds the starts of all it has a path to or from.
* Memory. What a micro-batch holds, times how long, is at most memory times period. How long is known for blocks that
  are placed, and bounded by longest paths for others. The exact peak is looked at when a device has all its blocks.

Searches of all open periods take turns, with budgets that grow, so that one that is infeasible and hard to prove so
does not take all the time. Each turn places blocks in another order: as given, reversed, or outward from one of them.
Where a device neither works nor holds memory all the time, several micro-batches a period may do better: V-shaped
stages on 4 devices with memory for 3 take 6 units with one a period, 12 with three.

Modulo scheduling is that of Rau (MICRO 1994); for pipelines: Tessel (Lin et al., HPCA 2024), which needs a solver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, leaf, tiered
from taskflow.core.numbers import real, whole
from taskflow.schedule.blocks import FAR, Block, Table, is_exact, repeated, table_of

MOST_PARTS = 3  # micro-batches a period
FIRST_BUDGET = 2_000
GROWTH = 1.3  # placements of a search, and of the next one in the same period
ONE_PART_SHARE = 0.6  # of the time is for one micro-batch a period
JITTER = 0.15  # how often a block's first place is a random one, once plain searches have failed
DRAWS = 1_009  # random numbers of a search, used again and again
NOWHERE = -FAR


class Period(NamedTuple):
    """A periodic schedule.

    Attributes:
        period: time from one micro-batch to the next; between the starts of two periods, over micro-batches a period.
        starts: of every block (first axis) of the micro-batches of one period (second), the least is 0.
        is_optimal: whether it is proven that no schedule with as many micro-batches a period takes less.
        nodes: places of blocks that were tried for as many micro-batches a period.
    """

    period: float
    starts: Array
    is_optimal: bool
    nodes: int = 0


class End(IntEnum):
    """How a search ended."""

    FOUND, NONE, SPENT = range(3)


class _Pairs(NamedTuple):
    """What is held: `amount` on `device` from the start of block `taker` to that of `giver`."""

    device: Array
    taker: Array
    giver: Array
    amount: Array


def find_period(
    blocks: Sequence[Block],
    memory: float | Sequence[float] | None = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> Period | None:
    """The shortest period that is found in so many seconds, or None where memory is too small for one micro-batch.

    Args:
        blocks: of one micro-batch; a block waits for blocks of its own micro-batch.
        memory: of every device, or a number for each, in the units of `Block.memory`; None: without limit.
        seconds: that the search may take, compiling apart.
        seed: of the orders in which blocks are placed.

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
    """Units a micro-batch below which no period is: the work of a device, and memory times time over memory."""
    pairs = _pairs_of(table)
    held = np.maximum(table.distance[pairs.taker, pairs.giver], 0) * pairs.amount
    area = np.bincount(pairs.device, held, len(table.limit))
    return float(max((table.span @ table.on).max(), (area / np.maximum(table.limit, 1e-300)).max()))


def _search(table: Table, parts: int, most: int, seconds: float, seed: int) -> Period | None:
    """Starts in the shortest period of `parts` micro-batches, of at most `most` units; its `period` is that of all.

    The longest period comes first: where that is impossible for one micro-batch after the other, all are.
    """
    until = time.perf_counter() + seconds
    rng = np.random.default_rng(seed)
    many = repeated(table, parts)
    pairs = _pairs_of(many)
    least = max(math.ceil(least_period(table) * parts - 1e-9), int(table.span.max()))
    laps = _laps(many)
    starts = np.zeros(len(many.span), np.int64)
    orders = {period: _orders(many, rng) for period in (most, *range(least, most))}
    nodes = np.zeros(1, np.int64)
    best = None
    budget = float(FIRST_BUDGET)
    while orders and (best is None or time.perf_counter() < until):
        for period in list(orders):
            draws = rng.random(DRAWS if budget > FIRST_BUDGET else 0)
            order = next(orders[period])
            limit = nodes[0] + int(budget)
            end = place(many, pairs, period, order, laps, limit, draws, starts, nodes)
            if end == End.FOUND:
                best = Period(period, (starts - starts.min()).reshape(parts, -1).T.copy(), False)
                orders = {shorter: left for shorter, left in orders.items() if shorter < period}
                break
            if end == End.NONE and parts == 1 and period == most:
                return None
            if end == End.NONE:
                del orders[period]
            if time.perf_counter() > until:
                break
        budget *= GROWTH
        if best is None and time.perf_counter() > until:
            return None
    return None if best is None else best._replace(is_optimal=not orders, nodes=int(nodes[0]))


def _laps(table: Table) -> Array:
    """How many periods a block may be put off when its followers are not placed.

    One will do where every block that its followers wait for is before or behind it: else both could go earlier.
    Every block beside it may put its followers off by one more.
    """
    reach = table.distance > NOWHERE
    near = reach | reach.T
    together = near.copy()
    for _ in range(len(near).bit_length()):
        together = together @ together
    laps: Array = 1 + (together & ~near).sum(axis=1)
    return laps


def _pairs_of(table: Table) -> _Pairs:
    """Who gives back what whom has taken: the nearest before it first; any assignment makes a true bound."""
    pairs: list[tuple[int, int, int, float]] = []
    for device in range(len(table.limit)):
        here = np.flatnonzero(table.on[:, device])
        left = {int(block): float(table.memory[block]) for block in here if table.memory[block] > 0}
        for giver in here[table.memory[here] < 0].tolist():
            need, near = -float(table.memory[giver]), table.distance[:, giver]
            for taker in sorted(
                left, key=lambda block: near[block] if near[block] > NOWHERE else FAR
            ):
                amount = min(need, left[taker])
                if amount > 0:
                    pairs.append((device, taker, giver, amount))
                    left[taker] = left[taker] - amount
                    need = need - amount
    columns = list(zip(*pairs, strict=True)) if pairs else [(), (), (), ()]
    devices, takers, givers = (np.array(column, np.int64) for column in columns[:3])
    return _Pairs(devices, takers, givers, np.array(columns[3], float))


def _orders(table: Table, rng: np.random.Generator) -> Iterator[Array]:
    """Orders to place blocks in."""
    blocks = len(table.span)
    yield np.arange(blocks)
    yield np.arange(blocks)[::-1].copy()
    beside = [np.flatnonzero(near).tolist() for near in table.after | table.after.T]
    while True:
        order: list[int] = []
        rest = set(range(blocks))
        while rest:
            near = sorted(rest & {other for block in order for other in beside[block]}) or sorted(
                rest
            )
            order.append(int(near[rng.integers(len(near))]))
            rest.discard(order[-1])
        yield np.array(order)


@tiered
def place(
    table: Table,
    pairs: _Pairs,
    period: int,
    order: Array,
    laps: Array,
    limit: int,
    draws: Array,
    starts: Array,
    nodes: Array,
) -> int:
    """Fill in `starts` of a schedule of `period`, by depth-first search; how it ended (`End`).

    Args:
        table: blocks.
        pairs: what they hold.
        period: units.
        order: in which blocks are placed.
        laps: see `_laps`.
        limit: of `nodes`.
        draws: random numbers, which say when a block is tried at a random place first; or none.
        starts: of every block.
        nodes: (1,) places that were tried so far, those of this search are added.
    """
    blocks, devices = table.on.shape
    busy = np.zeros((devices, period), np.bool_)
    left = table.on.sum(axis=0)
    earliest = np.full((blocks + 1, blocks), -FAR)
    latest = np.full((blocks + 1, blocks), FAR)
    first = np.zeros(blocks, np.int64)
    step = np.ones(blocks, np.int64)
    count = np.zeros(blocks, np.int64)
    tried = np.zeros(blocks, np.int64)
    depth = 0
    is_new = True
    while 0 <= depth < blocks:
        block = order[depth]
        if is_new:
            _open(
                earliest[depth, block],
                latest[depth, block],
                period * laps[block],
                period,
                block,
                first,
                step,
                count,
            )
            if depth == 0:
                count[block] = 1  # all starts may be shifted together
            tried[block] = 0
            draw = draws[nodes[0] % len(draws)] if len(draws) else 1.0
            if draw < JITTER:
                tried[block] = -1 - int(draw / JITTER * min(count[block], period))
        else:
            _mark(table, busy, left, block, starts[block], period, False)
        is_new = False
        while tried[block] < count[block]:
            moment = first[block] + step[block] * (
                tried[block] if tried[block] >= 0 else -1 - tried[block]
            )
            tried[block] = max(tried[block] + 1, 0)
            if not _is_free(table, busy, block, moment, period):
                continue
            nodes[0] += 1
            if nodes[0] > limit:
                return End.SPENT
            starts[block] = moment
            _bound(table, block, moment, depth, earliest, latest)
            _mark(table, busy, left, block, moment, period, True)
            if _fits(
                table, pairs, period, block, left, earliest[depth + 1], latest[depth + 1], starts
            ):
                is_new = True
                break
            _mark(table, busy, left, block, moment, period, False)
        depth += 1 if is_new else -1
    return End.FOUND if depth == blocks else End.NONE


@leaf
def _open(
    early: int,
    late: int,
    most: int,
    period: int,
    block: int,
    first: Array,
    step: Array,
    count: Array,
) -> None:
    """The places to try, nearest to what is placed first."""
    first[block] = 0
    step[block] = 1
    count[block] = period
    if early > -FAR:
        first[block] = early
        count[block] = most
        if late < FAR:
            count[block] = max(0, late - early + 1)
    elif late < FAR:
        first[block] = late
        step[block] = -1
        count[block] = most


@inlined
def _bound(
    table: Table, block: int, moment: int, depth: int, earliest: Array, latest: Array
) -> None:
    """The bounds of all blocks at the next depth, once a block starts at a moment."""
    for other in range(len(table.span)):
        early = moment + table.distance[block, other]
        late = moment - table.distance[other, block]
        earliest[depth + 1, other] = max(
            earliest[depth, other], early if early > -FAR // 2 else -FAR
        )
        latest[depth + 1, other] = min(latest[depth, other], late if late < FAR // 2 else FAR)


@leaf
def _is_free(table: Table, busy: Array, block: int, start: int, period: int) -> bool:
    for device in range(table.on.shape[1]):
        if table.on[block, device]:
            for moment in range(start, start + table.span[block]):
                if busy[device, moment % period]:
                    return False
    return True


@leaf
def _mark(
    table: Table, busy: Array, left: Array, block: int, start: int, period: int, is_there: bool
) -> None:
    """Enter a block in the tables of devices, or take it out; `left` counts the blocks that are not there."""
    for device in range(table.on.shape[1]):
        if table.on[block, device]:
            left[device] += -1 if is_there else 1
            for moment in range(start, start + table.span[block]):
                busy[device, moment % period] = is_there


@leaf
def _fits(
    table: Table,
    pairs: _Pairs,
    period: int,
    block: int,
    left: Array,
    earliest: Array,
    latest: Array,
    starts: Array,
) -> bool:
    """Whether memory may still be enough; exactly, for a device of which `block` was the last."""
    devices = len(table.limit)
    for device in range(devices):
        area = 0.0
        for pair in range(len(pairs.device)):
            if pairs.device[pair] == device:
                taker = pairs.taker[pair]
                giver = pairs.giver[pair]
                held = table.distance[taker, giver]
                if earliest[giver] > -FAR and latest[taker] < FAR:
                    held = max(held, earliest[giver] - latest[taker])
                area += pairs.amount[pair] * held if held > -FAR else -np.inf
        if area > table.limit[device] * period * (1 + 1e-12):
            return False
        if (
            table.on[block, device]
            and left[device] == 0
            and _peak(table, device, period, starts) > table.limit[device]
        ):
            return False
    return True


@inlined
def _peak(table: Table, device: int, period: int, starts: Array) -> float:
    """The most that a device holds once every block has run in every period."""
    most = 0.0
    for taker in range(len(starts)):
        if table.on[taker, device] and table.memory[taker] > 0:
            moment = starts[taker] % period
            level = 0.0
            for other in range(len(starts)):
                if table.on[other, device]:
                    begun = (1 if starts[other] % period <= moment else 0) - starts[other] // period
                    level += table.memory[other] * begun
            most = max(most, level)
    return most
