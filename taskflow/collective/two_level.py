"""Two levels: every piece goes to all hosts first, to one member of each, then to the other members of every host.

So each piece enters a host once. Hosts may be unequal: the piece of the j-th member of a host is taken on another host
by the j-th one there, counted round. On both levels pieces go round rings, or who has them doubles: as many bytes in
few rounds, for any number of members.

Source of the second: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
multiport message-passing systems", 1997.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, in_order, steps_of

Way = Callable[
    [Array], tuple[Array, Array]
]  # distances from an owner -> rounds, and from how far a piece comes there


def two_level(group: Group, owners: Array) -> Steps:
    """Rings across hosts, then rings within; `owners` in any order."""
    return _two_levels(group, owners, lambda away: (away - 1, away - 1))


def two_level_doubling(group: Group, owners: Array) -> Steps:
    """Twice as many hosts in every round, then twice as many members of each; `owners` in any order."""
    return _two_levels(group, owners, _doubling)


def _doubling(away: Array) -> tuple[Array, Array]:
    """In round k a piece goes 2**k further from all who have it."""
    round_ = np.frexp(away)[1].astype(np.int64) - 1
    return round_, away - (1 << round_)


def _two_levels(group: Group, owners: Array, way: Way) -> Steps:
    begin = group.host_begin
    size = np.diff(group.host_begin)
    hosts = len(size)
    host = np.searchsorted(begin, owners, "right") - 1
    number = owners - begin[host]
    at = (host + np.arange(hosts)[:, None]) % hosts
    taking = begin[at] + number % size[at]  # by distance and piece
    round_, before = way(np.arange(1, hosts))
    across = steps_of(owners, round_[:, None], taking[before], taking[1:], np.arange(len(owners)))
    by_size = [
        _within(begin[:-1][size == members], number % members, members, way)
        for members in np.unique(size).tolist()
    ]
    rounds, *columns = (np.concatenate(column) for column in zip(*by_size, strict=True))
    within = in_order(owners, rounds + round_.max(initial=-1) + 1, *columns)
    return Steps(
        owners, *(np.concatenate(column) for column in zip(across[1:], within[1:], strict=True))
    )


def _within(begin: Array, holder: Array, size: int, way: Way) -> tuple[Array, ...]:
    """Round, source, target and pieces of the messages within hosts of one size.

    Args:
        begin: the first member of each.
        holder: per piece, the number of the member who has it.
    """
    first = np.flatnonzero(np.diff(holder, prepend=-1))
    away = np.arange(1, size)
    later, before = way(away)
    source, target = (
        (holder[first, None] + distance) % size + begin[:, None, None]
        for distance in (before, away)
    )
    ends = first[:, None], np.append(first[1:], len(holder))[:, None]
    return tuple(column.ravel() for column in np.broadcast_arrays(later, source, target, *ends))


def shorter_level(group: Group) -> int:
    """Rounds of the shorter level: of parts so many rounds apart one is between hosts while another is within."""
    size = np.diff(group.host_begin)
    return max(1, min(len(size), int(size.max())) - 1)


def owners_by_number(group: Group) -> Array:
    """All members, those of the same number within their hosts side by side, so that their pieces travel as one."""
    begin = group.host_begin
    members = np.arange(group.count)
    host = np.searchsorted(begin, members, "right") - 1
    order: Array = np.lexsort((host, members - begin[host]))
    return order
