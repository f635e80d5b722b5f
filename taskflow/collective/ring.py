"""Rings: pieces go from neighbour to neighbour; the least bytes on every link, p - 1 rounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of

_MOST_TRIES = 5_000  # ways that are tried in the search for rings: a few milliseconds
_MOST_MEMBERS = 64


def ring(group: Group, owners: Array) -> Steps:
    """In round k every piece goes from the k-th member behind its owner to the next."""
    return _round_rings(owners, [np.arange(group.count)])


def bidirectional_ring(group: Group, owners: Array) -> Steps:
    """Half of every piece goes one way round, the other half the other way: for links that carry both ways at once."""
    return _round_rings(owners, _both_ways([np.arange(group.count)]))


def rings(group: Group, owners: Array) -> Steps:
    """As many rings as the direct links between the members make (see `find_rings`), each both ways, with even shares.

    That is what NCCL does on a mesh of NVLinks: three rings on the eight devices of a DGX-1, of which each has six
    links. Where no ring is found, members stand by number.
    """
    return _round_rings(owners, _both_ways(find_rings(group) or [np.arange(group.count)]))


def find_rings(group: Group) -> list[Array]:
    """Rings through all members along direct links, of which each is used no more often than it is wide.

    Source: such rings are edge-disjoint Hamiltonian cycles of a multigraph. Found depth first: to the member next which
    has the fewest links left, as in Warnsdorff's rule; at most half as many as the member with the fewest links has.
    """
    direct = (group.links >= 0).sum(axis=2) == 1
    free = np.where(direct, np.append(group.capacity, 0)[group.links[:, :, 0]], 0)
    free = np.minimum(free, free.T)
    most = int(free.sum(axis=1).min()) // 2
    tries = iter(range(_MOST_TRIES))
    return _disjoint(free, most, tries) if 2 < group.count <= _MOST_MEMBERS else []


def _disjoint(free: Array, most: int, tries: Iterator[int]) -> list[Array]:
    """Up to `most` rings that share no link: the first found set of as many, else the largest one."""
    best: list[Array] = []
    for path in _rings_of(free, tries) if most else ():
        rest = free.copy()
        for a, b in pairwise([*path, path[0]]):
            rest[a, b] -= 1
            rest[b, a] -= 1
        best = max(best, [np.array(path), *_disjoint(rest, most - 1, tries)], key=len)
        if len(best) == most:
            break
    return best


def _rings_of(free: Array, tries: Iterator[int]) -> Iterator[list[int]]:
    """The rings through all members, from member 0."""
    path = [0]
    todo = [_next(free, [0])]
    while todo:
        if not todo[-1] or next(tries, None) is None:
            todo.pop()
            path.pop()
            continue
        path.append(todo[-1].pop())
        if len(path) == len(free) and free[path[-1], 0]:
            yield list(path)
        todo.append(_next(free, path))


def _next(free: Array, path: list[int]) -> list[int]:
    """The members that may follow on a path, the best last."""
    able = set(np.flatnonzero(free[path[-1]]).tolist()) - set(path)
    return sorted(able, key=lambda member: (-int(free[member].sum()), -member))


def _both_ways(orders: list[Array]) -> list[Array]:
    return [way for order in orders for way in (order, order[::-1])]


def _round_rings(owners: Array, orders: list[Array]) -> Steps:
    """Each piece in as many parts as there are orders of members, each along its own."""
    owner = np.repeat(owners, len(orders))
    k = np.arange(len(orders[0]) - 1)[:, None]
    order = np.tile(np.stack(orders), (len(owners), 1))  # of every piece
    place = (order == owner[:, None]).argmax(axis=1)
    piece = np.arange(len(owner))
    source = order[piece, (place + k) % len(orders[0])]
    target = order[piece, (place + k + 1) % len(orders[0])]
    return steps_of(owner, k, source, target, piece)
