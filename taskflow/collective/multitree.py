"""MultiTree: one tree below every member, all grown together along the links of the machine, so that no link is taken
twice in a round. It suits any topology.

In every round each tree in turn takes one more member, until none can: over the first free way, in the order in which
parents joined, from members that belonged to the tree before the round. A wide link counts as several narrow ones.
Source: Huang et al., "Communication algorithm-architecture co-design for distributed deep learning", ISCA 2021.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.tasks.steps import Steps, steps_of


def multitree(group: Group, owners: Array) -> Steps:
    """Trees below the owners; a way leads from member to member, or through switches, as the machine's routes do."""
    source, target = np.nonzero(~group.is_relayed & ~np.eye(group.count, dtype=np.bool_))
    begin = np.searchsorted(source, np.arange(group.count + 1))
    ways = begin, target, np.ascontiguousarray(group.links[source, target])
    parent, round_ = _grow(owners, *ways, group.capacity)
    piece, below = np.nonzero(parent >= 0)
    return steps_of(owners, round_[piece, below], parent[piece, below], below, piece)


@tiered
def _grow(
    owners: Array, begin: Array, target: Array, links: Array, capacity: Array
) -> tuple[Array, Array]:
    """(trees, members) the one above each (-1: the root), and the round in which it joined.

    Args:
        begin, target, links: the ways of a member; the links of each, -1 behind the last.
        capacity: of every link, in one round.
    """
    trees = len(owners)
    members = len(begin) - 1
    parent = np.full((trees, members), -1)
    round_ = np.zeros((trees, members), np.int64)
    order = np.zeros((trees, members), np.int64)
    size = np.ones(trees, np.int64)
    is_in = np.zeros((trees, members), np.bool_)
    for tree in range(trees):
        order[tree, 0] = owners[tree]
        is_in[tree, owners[tree]] = True
    free = np.empty_like(capacity)
    number = 0
    lacking = trees * (members - 1)
    next_parent = np.empty(trees, np.int64)
    next_way = np.empty(trees, np.int64)
    while lacking:
        free[:] = capacity
        before = size.copy()
        next_parent[:] = 0
        next_way[:] = -1
        is_growing = True
        while is_growing:
            is_growing = False
            for tree in range(trees):
                while (
                    next_parent[tree] < before[tree]
                ):  # what was taken stays taken: no way is tried twice a round
                    above = order[tree, next_parent[tree]]
                    way = max(next_way[tree], begin[above])
                    while way < begin[above + 1] and (
                        is_in[tree, target[way]] or not _is_free(links[way], free)
                    ):
                        way += 1
                    if way < begin[above + 1]:
                        break
                    next_parent[tree] += 1
                    next_way[tree] = -1
                if next_parent[tree] == before[tree]:
                    continue
                next_way[tree] = way + 1
                is_growing = True
                for link in links[way]:
                    if link >= 0:
                        free[link] -= 1
                below = target[way]
                parent[tree, below] = above
                round_[tree, below] = number
                is_in[tree, below] = True
                order[tree, size[tree]] = below
                size[tree] += 1
                lacking -= 1
        number += 1
    return parent, round_


@tiered
def _is_free(links: Array, free: Array) -> bool:
    for link in links:  # noqa: SIM110 numba has no `all` of a generator
        if link >= 0 and free[link] <= 0:
            return False
    return True
