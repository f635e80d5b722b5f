"""Steps of an exchange as columns: the copies and folds by which its moves are carried out.

Takes moves in order, and what is known of the arguments, by member; gives the steps of some members, each with its
number among those of all. Every move is looked at, since where a part lies depends on those before; only the steps of
these members are made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inner, leaf, tiered
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
    found = _carry(tuple(moves), final, boxes, tuple(memories), is_own, (done, most))
    number, target, part, added, follows, offset, begin, last = found
    box = np.stack([boxes[begin, 0], boxes[last, 1]], axis=1)
    return StepColumns(number, target, part, added, follows > 0, offset, box)


def _final_sums(moves: Moves, owner: Array) -> Array:
    """Of every part, the number of the move that completes its sum at its owner; -1: none."""
    final, adding = np.full(len(owner), -1), np.flatnonzero(moves.adds)
    count = (moves.last - moves.first)[adding]
    part = np.repeat(moves.first[adding] - pointers(count)[:-1], count) + np.arange(count.sum())
    move = np.repeat(adding, count)
    is_owned = owner[part] == moves.target[move]
    np.maximum.at(final, part[is_owned], move[is_owned])
    return final


@tiered
def _carry(
    moves: tuple[Array, ...],
    final: Array,
    boxes: Array,
    memories: tuple[Array, ...],
    is_own: Array,
    counts: tuple[int, int],
) -> Array:
    """(8, steps) columns of `StepColumns`; in place of a box its first and its last part.

    The sums of a message stand behind it, when all of it is there.
    """
    source, target, first, last, adds, message, _, offset = moves
    holder, target_ptr, targets, covered, arrives = memories
    number, most = counts
    steps, n, sums, folds = np.empty((8, most), np.int64), 0, np.empty((8, most), np.int64), 0
    summed, follows = 0, 0
    for move in range(len(source)):
        s, t, behind = source[move], target[move], offset[move]
        if move == 0 or message[move] != message[move - 1]:
            steps[:, n : n + folds] = sums[:, :folds]
            steps[0, n : n + folds] += number
            n, number, folds, summed, follows = n + folds, number + summed, 0, 0, 0
        k = _with_elements(boxes, first[move], last[move])
        while k < last[move]:
            end, after = _alike(boxes, (final, holder[s], holder[t]), k, last[move], move)
            held, there = holder[s, k], holder[t, k]
            own_targets = targets[target_ptr[t] : target_ptr[t + 1]]
            to = there
            if not adds[move] or final[k] == move:
                to = _covering(own_targets, covered, boxes[k, 0], boxes[end, 1], there)
            arriving = arrives[move] if adds[move] else to
            if is_own[s] or is_own[t]:
                steps[0, n], steps[1, n], steps[2, n], steps[3, n] = number, arriving, held, COPY
                steps[4, n], steps[5, n] = follows, behind if adds[move] else 0
                steps[6, n], steps[7, n] = k, end
                n += 1
            number, follows = number + 1, 1
            if adds[move]:
                if is_own[t]:
                    sums[0, folds], sums[1, folds], sums[2, folds] = summed, to, there
                    sums[3, folds], sums[4, folds], sums[5, folds] = arriving, 0, behind
                    sums[6, folds], sums[7, folds] = k, end
                    folds += 1
                summed += 1
                behind += _volume(boxes[k, 0], boxes[end, 1])
            holder[t, k : end + 1] = to
            k = after
    steps[:, n : n + folds] = sums[:, :folds]
    steps[0, n : n + folds] += number
    return steps[:, : n + folds]


@inner
def _alike(boxes: Array, lies: tuple[Array, ...], k: int, last: int, move: int) -> tuple[int, int]:
    """The last part, and the first behind it, of those from part `k` on that lie in the same memory at both ends."""
    final, held, there = lies
    end, after = k, _with_elements(boxes, k + 1, last)
    while after < last:
        is_final = (final[after] == move) == (final[k] == move)
        if not is_final or held[after] != held[k] or there[after] != there[k]:
            break
        end, after = after, _with_elements(boxes, after + 1, last)
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


@leaf
def _covering(arguments: Array, boxes: Array, low: Array, high: Array, there: int) -> int:
    """The first of these arguments in which a box lies; else what holds a partial result of it, which is spent."""
    for argument in arguments:
        is_within = True
        for k in range(len(low)):
            is_within = is_within and boxes[argument, 0, k] <= low[k]
            is_within = is_within and high[k] <= boxes[argument, 1, k]
        if is_within:
            return int(argument)
    return there
