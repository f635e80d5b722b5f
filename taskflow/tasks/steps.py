"""Steps: a collective among p members, numbered from 0, as columns; an algorithm is what it gives.

Every algorithm brings the pieces of some owners to all members, and nothing else: each member receives each piece that
is not its own exactly once, from one that has it. So the way of a piece is a tree in time, and all else follows:

* all-gather, broadcast: the steps;
* reduce-scatter, reduce: the steps backwards, each from its target to its source, where it is added (`backwards`);
* all-reduce: backwards, then forwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, spread

SUMS = (
    "all-reduce",
    "reduce-scatter",
    "reduce",
)  # the collectives whose sources are partial results


class Steps(NamedTuple):
    """What is sent, in order.

    Attributes:
        owner: (pieces,) the member that has it at the beginning. The pieces of an owner make up what it has, evenly.
        round: (messages,) ascending; what a message carries arrived in an earlier round.
        source, target: (messages,) members.
        first, last: (messages,) the pieces from `first` to before `last`.
    """

    owner: Array
    round: Array
    source: Array
    target: Array
    first: Array
    last: Array

    def backwards(self) -> Steps:
        """The steps by which the owners get the sums of their pieces, instead of bringing them to all."""
        last_round = self.round[-1] if len(self.round) else 0
        back = (
            column[::-1]
            for column in (last_round - self.round, self.target, self.source, self.first, self.last)
        )
        return Steps(self.owner, *back)


def steps_of(owner: Array, round_: Array, source: Array, target: Array, piece: Array) -> Steps:
    """Steps of messages of a piece each, in any order; neighbouring pieces that go the same way at once become one."""
    columns = [
        np.asarray(column, np.int64).ravel()
        for column in np.broadcast_arrays(round_, source, target, piece)
    ]
    extents = [
        int(column.max(initial=0)) + 2 for column in columns
    ]  # so the last piece has no neighbour
    key = np.sort(np.ravel_multi_index(columns, extents))
    at = np.flatnonzero(np.diff(key, prepend=-2) != 1)
    round_, source, target, piece = np.unravel_index(key[at], extents)
    count = np.diff(at, append=len(key))
    return Steps(np.asarray(owner, np.int64), round_, source, target, piece, piece + count)


def in_order(owner: Array, *columns: Array) -> Steps:
    """Steps of messages in any order: those with no pieces are left out, neighbours that go the same way become one.

    `columns`: round, source, target, first and last, see `Steps`.
    """
    messages = np.stack([column.ravel() for column in np.broadcast_arrays(*columns)])
    messages = messages[:, messages[3] < messages[4]]
    messages = messages[:, np.lexsort(messages[3::-1])]
    is_new = np.ones(messages.shape[1], np.bool_)
    is_new[1:] = (messages[:3, 1:] != messages[:3, :-1]).any(axis=0) | (
        messages[3, 1:] != messages[4, :-1]
    )
    begins = np.flatnonzero(is_new)
    round_, source, target, first, _ = messages[:, begins]
    last = messages[4, np.append(begins, messages.shape[1])[1:] - 1]
    return Steps(np.asarray(owner, np.int64), round_, source, target, first, last)


def pipelined(steps: Steps, parts: int, stride: int) -> Steps:
    """Each message in so many parts, each part `stride` rounds behind the one before.

    The first parts of all pieces stand side by side, then the second ones: what travelled as one still does.
    """
    piece = np.concatenate([np.arange(a, b) for a, b in zip(steps.first, steps.last, strict=True)])
    count = steps.last - steps.first
    part = np.arange(parts)[:, None]
    round_, source, target = (np.repeat(column, count) for column in steps[1:4])
    number = part * len(steps.owner) + piece
    return steps_of(np.tile(steps.owner, parts), round_ + stride * part, source, target, number)


class Messages(NamedTuple):
    """What is carried out, in order.

    Attributes:
        owner: (pieces,) who has a piece, or gets its sum.
        source, target, first, last: see `Steps`.
        adds: whether what arrives is added to what is there, or takes its place.
        together: so many pieces a message that is added has at most; 0: any number.
    """

    owner: Array
    source: Array
    target: Array
    first: Array
    last: Array
    adds: Array
    together: int = 0


@dataclass(frozen=True, eq=False)
class Way:
    """How a collective is carried out: the algorithm, and its messages.

    Attributes:
        carried: the links that it crosses, and the part of its bytes that each carries, once that is known.
    """

    algorithm: str
    messages: Messages
    carried: list[tuple[Array, Array]] = field(default_factory=list)


def messages_of(name: str, steps: Steps, parts: int) -> Messages:
    """The messages of the collective `name`, whose pieces `steps` bring to all.

    A message that is added carries one of so many `parts` of all, at most: more does not fit where it arrives.
    """
    halves = []
    together = 0
    if name in SUMS and len(steps.owner) < parts:
        steps = pipelined(steps, -(-parts // len(steps.owner)), 0)
    if name in SUMS:
        together = len(steps.owner) // parts
        halves.append((True, _cut(steps.backwards(), together)))
    if name not in SUMS or name == "all-reduce":
        halves.append((False, steps))
    source, target, first, last = (
        np.concatenate([half[k] for _, half in halves]) for k in range(2, 6)
    )
    adds = np.repeat([adds for adds, _ in halves], [len(half.round) for _, half in halves])
    return Messages(steps.owner, source, target, first, last, adds, together)


def _cut(steps: Steps, most: int) -> Steps:
    """Messages of so many pieces at most: in a round the first parts of all, then the second parts, and so on."""
    count = -(-(steps.last - steps.first) // most)
    number = spread(np.zeros_like(count), count)
    round_, source, target, begin, end = (np.repeat(column, count) for column in steps[1:])
    first = begin + number * most
    order = np.lexsort((number, round_))
    columns = (round_, source, target, first, np.minimum(first + most, end))
    return Steps(steps.owner, *(column[order] for column in columns))
