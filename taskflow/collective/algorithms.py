"""The algorithms of collectives by name, and what each is good for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taskflow.collective.double_tree import double_tree, tree_roots
from taskflow.collective.grid_ring import grid_ring
from taskflow.collective.group import Group
from taskflow.collective.halving import core_members, halving_doubling
from taskflow.collective.multitree import multitree
from taskflow.collective.ring import bidirectional_ring, ring, rings
from taskflow.collective.straight import straight
from taskflow.collective.tree import binomial_tree
from taskflow.collective.two_level import (
    owners_by_number,
    shorter_level,
    two_level,
    two_level_doubling,
)
from taskflow.core.columns import Array
from taskflow.tasks.all_to_all import ALGORITHMS as TO_EACH
from taskflow.tasks.steps import Steps, pipelined

ROOTED = ("reduce", "broadcast")  # those where one member has all


def everyone(group: Group) -> Array:
    """All members."""
    return np.arange(group.count)


def first_member(_: Group) -> Array:
    """One member, which gets all sums."""
    return np.zeros(1, np.int64)


def other_hosts(group: Group) -> int:
    """How many hosts there are besides that of a member."""
    return len(group.host_begin) - 2


class Algorithm(NamedTuple):
    """How pieces come to all members.

    Attributes:
        bring: group, owners -> steps.
        summing: of a group, the owners of the pieces of an all-reduce.
        serves: the collectives that it is for.
        parts: each piece in so many, one behind the other.
        stride: of a group, rounds from one part to the next.
        sends: of a group, how many messages its busiest member sends at least, one behind the other.
    """

    bring: Callable[[Group, Array], Steps]
    summing: Callable[[Group], Array] = everyone
    serves: tuple[str, ...] = ("all-reduce", "reduce-scatter", "all-gather")
    parts: int = 1
    stride: Callable[[Group], int] = lambda _: 1
    sends: Callable[[Group], int] = lambda _: 0

    def steps(self, name: str, group: Group) -> Steps:
        """The steps that bring pieces from their owners to all, in a collective of this name."""
        owners = first_member(group) if name in ROOTED else everyone(group)
        steps = self.bring(group, self.summing(group) if name == "all-reduce" else owners)
        return pipelined(steps, self.parts, self.stride(group)) if self.parts > 1 else steps


_ROOTED_TOO = ("all-reduce", "reduce-scatter", "all-gather", *ROOTED)
_ALL_REDUCE = ("all-reduce",)
ALGORITHMS = {
    "straight": Algorithm(straight, serves=_ROOTED_TOO),
    "ring": Algorithm(ring),
    "bidirectional ring": Algorithm(bidirectional_ring),
    "rings": Algorithm(rings),
    "halving-doubling": Algorithm(halving_doubling, core_members),
    "tree": Algorithm(binomial_tree, first_member, (*_ALL_REDUCE, *ROOTED)),
    "tree in 4 parts": Algorithm(binomial_tree, first_member, (*_ALL_REDUCE, *ROOTED), 4),
    "chain in 4 parts": Algorithm(ring, first_member, ROOTED, 4),
    "chain in 16 parts": Algorithm(ring, first_member, ROOTED, 16),
    "double tree": Algorithm(double_tree, tree_roots, _ALL_REDUCE),
    "double tree in 4 parts": Algorithm(double_tree, tree_roots, _ALL_REDUCE, 4, lambda _: 2),
    "double tree in 16 parts": Algorithm(double_tree, tree_roots, _ALL_REDUCE, 16, lambda _: 2),
    "two-level": Algorithm(two_level, owners_by_number, sends=other_hosts),
    "two-level in 4 parts": Algorithm(two_level, owners_by_number, parts=4, stride=shorter_level),
    "two-level in 8 parts": Algorithm(two_level, owners_by_number, parts=8, stride=shorter_level),
    "two-level doubling": Algorithm(two_level_doubling, owners_by_number),
    "2-D ring": Algorithm(grid_ring),
    "multitree": Algorithm(multitree),
}
NAMES = tuple(ALGORITHMS)
BY_STEPS = tuple(
    dict.fromkeys(name for algorithm in ALGORITHMS.values() for name in algorithm.serves)
)  # collectives


def serving(name: str) -> tuple[str, ...]:
    """The algorithms for collectives of a name."""
    if name == "all-to-all":
        return tuple(TO_EACH)
    return tuple(key for key, algorithm in ALGORITHMS.items() if name in algorithm.serves)
