"""Families: an operator and those that follow it have one configuration, so what splits it has to split them all.

Takes a graph; gives a `Family` for each operator that a strategy names, which says whether a split is legal (`allows`)
and what becomes of a wish that is not (`along`). Decided from patterns alone, once for rules, random strategies and the
space of a search; `partition` finds the same box by box, for what a user wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from taskflow.core.geometry import REPLICAS, Degree, part_bounds, parts
from taskflow.graph.graph import Graph, Operator

Conflict = tuple[str, int, str]


@dataclass(frozen=True, eq=False)
class Family:
    """An operator and what decides how it is split.

    Attributes:
        leader: the operator that a strategy names.
        conflicts: (left, extent, right): in a group of the leader or a follower, `right` is split only where all parts
            of `left`, which has that extent, have one point; else the group is not contiguous in memory.
    """

    leader: Operator
    conflicts: frozenset[Conflict]

    @staticmethod
    def of(leader: Operator, followers: Iterable[Operator] = ()) -> Family:
        """The family of these operators."""
        conflicts = {c for op in (leader, *followers) for c in _conflicts(op)}
        splits = {a for a in leader.split_axes if leader.extents[a] > 1}
        return Family(leader, frozenset(c for c in conflicts if c[2] in splits))

    @cached_property
    def most(self) -> Mapping[str, int]:
        """The most parts of every axis."""
        return {
            a: extent if a in self.leader.split_axes else 1
            for a, extent in self.leader.extents.items()
        }

    @property
    def is_of_numbers(self) -> bool:
        """Whether the leader reads and makes numbers alone: on all devices that takes no longer, and they are alike."""
        return not any(region.shape for region in self.leader.args)

    def allows(self, degrees: Mapping[str, Degree]) -> bool:
        """Whether the family may be split so; axes without a degree are whole. Any may have replicas."""
        if any(
            parts(degree) > self.most.get(axis, 0)
            for axis, degree in degrees.items()
            if axis != REPLICAS
        ):
            return False
        return not any(
            parts(degrees.get(right, 1)) > 1 and _largest_part(extent, degrees.get(left, 1)) > 1
            for left, extent, right in self.conflicts
        )

    def along(self, axis: str | None, count: int) -> dict[str, int]:
        """Degrees for `axis` in `count` parts, or fewer; in a group that forbids it, the axes left of it come first.

        That cuts the dimension into parts that are contiguous in memory. Empty: it cannot be split, or `axis` is None.
        """
        if axis is None or axis not in self.leader.split_axes:
            return {}
        left = {name for name, _, right in self.conflicts if right == axis}
        order = sorted(
            left, key=lambda name: (sum(right == name for _, _, right in self.conflicts), name)
        )
        wishes = (self.share_out([axis], count), self.share_out([*order, axis], count))
        return next((degrees for degrees in wishes if self.allows(degrees)), {})

    def share_out(self, axes: Iterable[str], count: int) -> dict[str, int]:
        """`count` parts: the first of `axes` gets as many of them as it can have, the next what is left, and so on."""
        degrees: dict[str, int] = {}
        for axis in axes:
            degrees[axis] = min(self.most.get(axis, 1), count)
            count //= degrees[axis]
            if count < 2:
                break
        return degrees


def families(graph: Graph, named: Collection[str] = ()) -> list[Family]:
    """The families of the operators that follow no other or are `named` themselves, in program order."""
    members = {op.name: [op] for op in graph.operators if op.follows is None or op.name in named}
    for op in graph.operators:
        if op.follows is not None and op.name not in members:
            members[op.follows].append(op)
    return [Family.of(leader, followers) for leader, *followers in members.values()]


def _conflicts(op: Operator) -> Iterator[Conflict]:
    """See `Family`; an axis that `op` never splits is longer than any degree."""
    for left, right in (pair for group in op.bound.groups for pair in combinations(group, 2)):
        if op.extents[left] > 1 and op.extents[right] > 1 and right in op.split_axes:
            yield left, op.extents[left] if left in op.split_axes else sys.maxsize, right


def _largest_part(extent: int, degree: Degree) -> int:
    if isinstance(degree, int):
        return -(-extent // degree)
    return max(end - begin for begin, end in pairwise(part_bounds(extent, degree)))
