"""Double binary tree: each half of the data has a binary tree of its own, and leaves of one are inner in the other.

In parts, one behind the other, it has the bandwidth of a ring and the latency of a tree. Source: Sanders, Speck and
Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; numbered as NCCL does.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def double_tree(group: Group, owners: Array) -> Steps:
    """`owners`: those of `tree_roots`."""
    parent, round_ = _binary_tree(group.count)
    below = np.flatnonzero(parent >= 0)
    source, target = (
        np.concatenate([place[at] for place in _places(group.count)])
        for at in (parent[below], below)
    )
    return steps_of(
        owners, np.tile(round_[below], 2), source, target, np.repeat([0, 1], len(below))
    )


def tree_roots(group: Group) -> Array:
    """The roots of the two trees."""
    return np.array([place[0] for place in _places(group.count)])


def _places(count: int) -> tuple[Array, Array]:
    """Which member stands at each place, in each of the trees: the second is the first in a mirror, or shifted."""
    members = np.arange(count)
    return members, (members + 1) % count if count % 2 else members[::-1]


def _binary_tree(count: int) -> tuple[Array, Array]:
    """Per place the one above it (the root, 0: -1), and the round in which it gets the piece."""
    parent = np.full(count, -1)
    round_ = np.zeros(count, np.int64)
    for place in range(1, count):
        bit = place & -place
        above = (place ^ bit) | (bit << 1)
        parent[place] = place ^ bit if above >= count else above
    todo = [0]
    while todo:
        place = todo.pop()
        children = np.flatnonzero(parent == place)
        round_[children] = round_[place] + 1 + np.arange(len(children))
        todo += children.tolist()
    return parent, round_ - 1
