"""Which block comes how many periods after which: the search of `period.py`, compiled.

Of two blocks that share a device, b starts `lap` periods after a, and a rest: at least the span of a, at most a period
less the span of b. Once the laps of all such pairs are known, all that is left are least times between starts, and what
a device holds follows from laps alone. So the search chooses laps, never moments, and costs the same in fine units.

`apart[a, b]` is the least time from the start of a to that of b, closed under addition (all longest paths), as in Rau's
modulo scheduling. Every choice is entered there, and what it excludes, until nothing changes:

* a lap that no longer fits between `apart[a, b]` and `-apart[b, a]`;
* when a block starts, its device holds too much by the laps that are possible;
* memory times time: what is held for how long, and for as long as a block that gives back runs, less than the limit;
* between a block and its next run, all others of a device, each with its earliest start and latest end there, are
  longer than a period (the bound of one machine: Carlier, EJOR 11, 1982). Blocks of which every two share some device
  count as those of a device.

Next is the pair with the fewest laps left over how often it was in vain (Boussemart et al., ECAI 2004).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, leaf, tiered
from taskflow.schedule.blocks import FAR

EPSILON = 1e-9  # of memory: rounding


class End(IntEnum):
    """How a search ended."""

    FOUND, NONE, SPENT = range(3)


class Held(NamedTuple):
    """What is held: `amount` on `device` from the start of block `taker` to that of `giver`; sorted by device."""

    device: Array
    taker: Array
    giver: Array
    amount: Array


class Columns(NamedTuple):
    """Blocks for compiled code.

    Attributes:
        span: whole units of time, by block.
        gap: the least time from the start of a block (first axis) to that of another after it on their device.
        memory: by block, on each of its devices.
        pairs: (pairs, 2) blocks that share a device; the first is not after the second in a micro-batch.
        alone: (cliques, blocks) whether a block is of those of which every two share a device.
        on: (devices, blocks) whether a block runs on a device.
        limit: memory of every device.
        held: who gives back what whom has taken.
        lost: by device, memory times time that cannot be used, since what gives back runs before another takes.
    """

    span: Array
    gap: Array
    memory: Array
    pairs: Array
    alone: Array
    on: Array
    limit: Array
    held: Held
    lost: Array


class Trail(NamedTuple):
    """What was changed, to be undone.

    Attributes:
        cell: of `apart`.
        before: what it was.
        size: (1,) how many there are.
    """

    cell: Array
    before: Array
    size: Array


@tiered
def close(apart: Array) -> None:
    """The longest paths over the least times that are given."""
    for via in range(len(apart)):
        for a in range(len(apart)):
            first = apart[a, via]
            if first > -FAR:
                for b in range(len(apart)):
                    if apart[via, b] > -FAR:
                        apart[a, b] = max(apart[a, b], first + apart[via, b])


@tiered
def choose_laps(
    problem: Columns,
    apart: Array,
    period: int,
    weight: Array,
    limit: int,
    nodes: Array,
    trail: Trail,
) -> int:
    """Choose laps of all pairs, depth first; how it ended (`End`). If found, `apart` has the starts.

    Args:
        problem: the blocks.
        apart: least times between starts, closed.
        period: units.
        weight: of every pair; those that are in vain become heavier.
        limit: of `nodes`.
        nodes: (1,) choices that were tried so far, those of this search are added.
        trail: room for changes; a search that needs more is SPENT.
    """
    pairs = problem.pairs
    gap = problem.gap
    chosen = np.empty(len(pairs) + 1, np.int64)  # pair, by open choice: each once
    laps = np.empty_like(chosen)
    sizes = np.empty_like(chosen)
    scratch = np.empty((3, len(apart)), np.int64)
    depth = 0
    trail.size[0] = 0
    is_possible = infer(problem, apart, period, trail, scratch) < 0
    while is_possible:
        if is_full(trail, apart):  # what does not fit was not entered
            return End.SPENT
        pair = choose(problem, apart, period, weight)
        if pair < 0:
            return End.FOUND
        a = pairs[pair, 0]
        b = pairs[pair, 1]
        nodes[0] += 1
        if apart[a, b] <= -FAR:  # nothing says which period: any will do
            lap = 0
            bind(apart, a, b, gap[a, b], trail)
        else:
            lap = least_lap(apart, a, b, gap, period)
            chosen[depth] = pair
            laps[depth] = lap
            sizes[depth] = trail.size[0]
            depth += 1
        vain = pair
        if bind(apart, b, a, gap[b, a] - (lap + 1) * period, trail):
            vain = infer(problem, apart, period, trail, scratch)
        while vain >= 0:
            weight[vain if vain < len(pairs) else pair] += 1
            if depth == 0:
                return End.NONE
            if nodes[0] > limit:
                return End.SPENT
            depth -= 1
            undo(apart, trail, sizes[depth])
            pair = chosen[depth]
            a = pairs[pair, 0]
            b = pairs[pair, 1]
            nodes[0] += 1
            vain = pair
            if bind(apart, a, b, gap[a, b] + (laps[depth] + 1) * period, trail):
                vain = infer(problem, apart, period, trail, scratch)
    return End.NONE


@inlined
def is_full(trail: Trail, apart: Array) -> bool:
    """Whether the next change may find no room."""
    return bool(trail.size[0] + apart.size > len(trail.cell))


@leaf
def bind(apart: Array, first: int, then: int, least: int, trail: Trail) -> bool:
    """Enter the least time from the start of one block to that of another; False: it cannot be so long."""
    if apart[first, then] >= least or is_full(trail, apart):
        return True
    if apart[then, first] > -FAR and apart[then, first] + least > 0:
        return False
    blocks = len(apart)
    for a in range(blocks):
        time = apart[a, first] + least
        if apart[a, first] > -FAR and time > apart[a, then]:
            for b in range(blocks):
                if apart[then, b] > -FAR and time + apart[then, b] > apart[a, b]:
                    trail.cell[trail.size[0]] = a * blocks + b
                    trail.before[trail.size[0]] = apart[a, b]
                    trail.size[0] += 1
                    apart[a, b] = time + apart[then, b]
    return True


@leaf
def undo(apart: Array, trail: Trail, size: int) -> None:
    """Take changes back until so many are left."""
    for k in range(trail.size[0] - 1, size - 1, -1):
        apart[trail.cell[k] // len(apart), trail.cell[k] % len(apart)] = trail.before[k]
    trail.size[0] = size


@inlined
def least_lap(apart: Array, a: int, b: int, gap: Array, period: int) -> int:
    """The fewest periods from a to b, where something is known of them."""
    return int(-((-apart[a, b] - gap[b, a]) // period) - 1)


@inlined
def most_lap(apart: Array, a: int, b: int, gap: Array, period: int) -> int:
    """The most periods from a to b, where something is known of them."""
    return int((-apart[b, a] - gap[a, b]) // period)


@leaf
def choose(problem: Columns, apart: Array, period: int, weight: Array) -> int:
    """The pair to choose a lap of; -1: all have one."""
    best = -1
    least = np.inf
    for pair in range(len(weight)):
        a = problem.pairs[pair, 0]
        b = problem.pairs[pair, 1]
        laps = 0
        if apart[a, b] > -FAR:
            laps = most_lap(apart, a, b, problem.gap, period)
            laps -= least_lap(apart, a, b, problem.gap, period)
            if laps == 0:
                continue
        if (laps + 1) / weight[pair] < least:
            least = (laps + 1) / weight[pair]
            best = pair
        if apart[a, b] <= -FAR:
            return pair
    return best


@leaf
def infer(problem: Columns, apart: Array, period: int, trail: Trail, scratch: Array) -> int:
    """Enter all that follows; the pair that no lap is left for, or a number above all pairs; -1: it may be possible."""
    size = -1
    while size < trail.size[0]:
        size = trail.size[0]
        for pair in range(len(problem.pairs)):
            if not round_laps(problem, apart, period, trail, pair):
                return pair
        for device in range(len(problem.limit)):
            if problem.limit[device] < np.inf and not (
                fits_area(problem, apart, period, trail, device)
                and fits_levels(problem, apart, period, trail, device)
            ):
                return len(problem.pairs)
    for clique in range(len(problem.alone)):
        for block in range(len(problem.span)):
            if problem.alone[clique, block] and not fits_between(
                problem, apart, period, problem.alone[clique], block, scratch
            ):
                return len(problem.pairs)
    return -1


@inlined
def round_laps(problem: Columns, apart: Array, period: int, trail: Trail, pair: int) -> bool:
    """Enter the fewest and the most laps of a pair; False: there is none."""
    a = problem.pairs[pair, 0]
    b = problem.pairs[pair, 1]
    if apart[a, b] <= -FAR:
        return True
    gap = problem.gap
    least = least_lap(apart, a, b, gap, period)
    most = most_lap(apart, a, b, gap, period)
    return (
        least <= most
        and bind(apart, a, b, gap[a, b] + least * period, trail)
        and bind(apart, b, a, gap[b, a] - (most + 1) * period, trail)
    )


@inlined
def fits_area(problem: Columns, apart: Array, period: int, trail: Trail, device: int) -> bool:
    """Whether memory times time may be enough; enter how long each may be held at most."""
    held = problem.held
    first = np.searchsorted(held.device, device)
    last = np.searchsorted(held.device, device + 1)
    room = problem.limit[device] * period * (1 + EPSILON) - problem.lost[device]
    for k in range(first, last):
        if apart[held.taker[k], held.giver[k]] <= -FAR:
            return True
        room -= held.amount[k] * apart[held.taker[k], held.giver[k]]
    if room < 0:
        return False
    for k in range(first, last):
        most = apart[held.taker[k], held.giver[k]] + int(room / held.amount[k])
        if not bind(apart, held.giver[k], held.taker[k], -most, trail):
            return False
    return True


@inlined
def fits_levels(problem: Columns, apart: Array, period: int, trail: Trail, device: int) -> bool:
    """Whether what is held whenever a block takes memory may be little enough; enter the laps that this leaves."""
    gap = problem.gap
    memory = problem.memory
    for at in range(len(memory)):
        if problem.on[device, at] and memory[at] > 0:
            room = problem.limit[device] * (1 + EPSILON) - memory[at]
            for block in range(len(memory)):
                if problem.on[device, block] and block != at and memory[block] != 0:
                    if apart[at, block] <= -FAR:
                        room = np.inf
                    elif memory[block] > 0:
                        room -= memory[block] * (1 + least_lap(apart, block, at, gap, period))
                    else:
                        room -= memory[block] * (1 + most_lap(apart, block, at, gap, period))
            if room < 0:
                return False
            for block in range(len(memory)):
                if room < np.inf and problem.on[device, block] and block != at:
                    if memory[block] > 0:
                        lap = int(room / memory[block])
                        lap += 1 + least_lap(apart, block, at, gap, period)
                        if not bind(apart, at, block, gap[at, block] - lap * period, trail):
                            return False
                    elif memory[block] < 0:
                        lap = most_lap(apart, block, at, gap, period)
                        lap -= int(-room / memory[block])
                        if not bind(apart, block, at, gap[block, at] + lap * period, trail):
                            return False
    return True


@leaf
def fits_between(
    problem: Columns, apart: Array, period: int, alone: Array, block: int, scratch: Array
) -> bool:
    """Whether all others of a clique fit between a block and its next run, by their earliest starts and latest ends."""
    heads = scratch[0]
    tails = scratch[1]
    spans = scratch[2]
    count = 0
    for other in range(len(alone)):
        if alone[other] and other != block:
            head = problem.span[block]
            tail = 0
            if apart[block, other] > -FAR:
                lap = least_lap(apart, block, other, problem.gap, period)
                if lap == most_lap(apart, block, other, problem.gap, period):
                    head = apart[block, other] - lap * period
                    tail = apart[other, block] - problem.span[other] + (lap + 1) * period
            place = count
            while place > 0 and tails[place - 1] < tail:
                heads[place] = heads[place - 1]
                tails[place] = tails[place - 1]
                spans[place] = spans[place - 1]
                place -= 1
            heads[place] = head
            tails[place] = tail
            spans[place] = problem.span[other]
            count += 1
    for first in range(count):
        end = heads[first]
        for k in range(count):
            if heads[k] >= heads[first]:
                end += spans[k]
                if end + tails[k] > period:
                    return False
    return True
