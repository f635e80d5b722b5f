"""Steps of an exchange as columns: the copies and folds by which its moves are carried out.

Takes moves in order, and what is known of the arguments, by member; gives the steps of some members, each with its
number among those of all. Every move is looked at, since where a part lies depends on those before; only the steps of
these members are made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inlined, inner, leaf, tiered
from taskflow.tasks.moves import Moves

COPY = -1  # in place of the second part of a sum


class StepColumns(NamedTuple):
    """Steps in order; arguments are numbers.

    Attributes:
        number: of the step among those of all devices.
        target, part: arguments; `target` := `part`.
        added: what is added to it; `COPY`: nothing.
        follows: whether it travels in the message of the step before.
        offset: see `ExchangeStep`.
        box: (steps, 2, dimensions).
    """

    number: Array
    target: Array
    part: Array
    added: Array
    follows: Array
    offset: Array
    box: Array


class Memories(NamedTuple):
    """Arguments by member.

    Attributes:
        holder: (members, parts) the argument that holds each part, or a partial result of it; -1: none. It is changed.
        target_ptr, targets: the targets of every member, as CSR.
        boxes: (arguments, 2, dimensions).
        arrives: of every move that is added, the scratch memory in which it arrives.
    """

    holder: Array
    target_ptr: Array
    targets: Array
    boxes: Array
    arrives: Array


def carry(
    moves: Moves, owner: Array, boxes: Array, memories: Memories, is_own: Array, done: int
) -> StepColumns:
    """The steps of the members that are marked.

    Args:
        moves: of all.
        owner: of every part.
        boxes: (parts, 2, dimensions).
        memories: see there.
        is_own: (members,).
        done: so many steps were before these.
    """
    touches = is_own[moves.source] | is_own[moves.target]
    most = 2 * int((moves.last - moves.first)[touches].sum())
    final = _final_sums(moves, owner)
    columns = _carry(tuple(moves), final, boxes, tuple(memories), is_own, done, most)
    number, target, part, added, follows, offset, begin, last = columns
    box = np.stack([boxes[begin, 0], boxes[last, 1]], axis=1)
    return StepColumns(number, target, part, added, follows > 0, offset, box)


def _final_sums(moves: Moves, owner: Array) -> Array:
    """Of every part, the number of the move that completes its sum at its owner; -1: none."""
    final = np.full(len(owner), -1)
    adding = np.flatnonzero(moves.adds)
    count = (moves.last - moves.first)[adding]
    part = np.repeat(moves.first[adding] - pointers(count)[:-1], count) + np.arange(count.sum())
    move = np.repeat(adding, count)
    is_owned = owner[part] == moves.target[move]
    np.maximum.at(final, part[is_owned], move[is_owned])
    return final


@tiered
def _carry(
    move_columns: tuple[Array, ...],
    final: Array,
    boxes: Array,
    memory_columns: tuple[Array, ...],
    is_own: Array,
    number: int,
    most: int,
) -> Array:
    """(8, steps) columns of `StepColumns`; in place of a box its first and its last part.

    The sums of a message stand behind it, when all of it is there: until then their numbers count from 0.
    """
    moves, memories = Moves(*move_columns), Memories(*memory_columns)
    steps = np.empty((8, most), np.int64)
    n = 0
    sums = np.empty((8, most), np.int64)
    folds = 0
    summed = follows = 0
    for move in range(len(moves.source)):
        source = moves.source[move]
        target = moves.target[move]
        offset = moves.offset[move]
        if move == 0 or moves.message[move] != moves.message[move - 1]:
            n = _append(steps, n, sums[:, :folds], number)
            number += summed
            folds = summed = follows = 0
        lies = final, memories.holder[source], memories.holder[target]
        k = _with_elements(boxes, moves.first[move], moves.last[move])
        while k < moves.last[move]:
            end, after = _alike(boxes, lies, k, moves.last[move], move)
            there = memories.holder[target, k]
            to = there
            if not moves.adds[move] or final[k] == move:
                to = _receiver(memories, boxes, k, end, target)
            arriving = memories.arrives[move] if moves.adds[move] else to
            if is_own[source] or is_own[target]:
                behind = offset if moves.adds[move] else 0
                held = memories.holder[source, k]
                n = _put(steps, n, (number, arriving, held, COPY, follows, behind, k, end))
            number += 1
            follows = 1
            if moves.adds[move]:
                if is_own[target]:
                    folds = _put(sums, folds, (summed, to, there, arriving, 0, offset, k, end))
                summed += 1
                offset += _volume(boxes[k, 0], boxes[end, 1])
            memories.holder[target, k : end + 1] = to
            k = after
    return steps[:, : _append(steps, n, sums[:, :folds], number)]


@inlined
def _put(steps: Array, n: int, step: tuple[int, ...]) -> int:
    """Write step number `n`; gives their number then."""
    for k, value in enumerate(step):
        steps[k, n] = value
    return n + 1


@inner
def _append(steps: Array, n: int, sums: Array, number: int) -> int:
    """Write the sums of a message behind `n` steps, their numbers from `number` on; gives the number of steps then."""
    end = n + len(sums[0])
    steps[:, n:end] = sums
    steps[0, n:end] += number
    return end


@inner
def _alike(boxes: Array, lies: tuple[Array, ...], k: int, last: int, move: int) -> tuple[int, int]:
    """The last part, and the first behind it, of those from part `k` on that lie in the same memory at both ends."""
    final, held, there = lies
    end = k
    after = _with_elements(boxes, k + 1, last)
    while after < last:
        is_final = (final[after] == move) == (final[k] == move)
        if not is_final or held[after] != held[k] or there[after] != there[k]:
            break
        end = after
        after = _with_elements(boxes, after + 1, last)
    return end, after


@leaf
def _with_elements(boxes: Array, k: int, last: int) -> int:
    """The first part from number `k` on that has elements; `last`: none before that."""
    while k < last and _volume(boxes[k, 0], boxes[k, 1]) == 0:
        k += 1
    return k


@leaf
def _volume(low: Array, high: Array) -> int:
    volume = 1
    for k in range(len(low)):
        volume *= max(high[k] - low[k], 0)
    return volume


@inlined
def _receiver(memories: Memories, boxes: Array, first: int, last: int, member: int) -> int:
    """The first target of a member in which these parts lie; else what holds their partial results, which is spent."""
    low = boxes[first, 0]
    high = boxes[last, 1]
    for k in range(memories.target_ptr[member], memories.target_ptr[member + 1]):
        target = memories.targets[k]
        is_within = True
        for d in range(len(low)):
            is_within = is_within and memories.boxes[target, 0, d] <= low[d]
            is_within = is_within and high[d] <= memories.boxes[target, 1, d]
        if is_within:
            return int(target)
    return int(memories.holder[member, first])
