"""Two levels: every piece goes round the hosts first, one member of each, then round the members of every host.

So each piece enters a host once. Hosts may be unequal: the piece of the j-th member of a host is taken on another host
by the j-th one there, counted round.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def two_level(group: Group, owners: Array) -> Steps:
    """Rings across hosts, then rings within; `owners` in any order."""
    begin, size = group.host_begin, np.diff(group.host_begin)
    hosts, pieces = len(size), np.arange(len(owners))
    host = np.searchsorted(begin, owners, "right") - 1
    number = owners - begin[host]
    k = np.arange(hosts)[:, None]
    at = (host + k) % hosts
    taking = begin[at] + number % size[at]  # by round and piece
    across = (np.repeat(k[:-1], len(owners), 1), taking[:-1], taking[1:], np.broadcast_to(pieces, taking[1:].shape))
    k = np.arange(size.max() - 1)[:, None, None]
    first, size = begin[at], size[at]
    source, target = (first + (taking - first + turn) % size for turn in (k, k + 1))
    is_there = np.broadcast_to(k < size - 1, source.shape)
    shape = (hosts - 1 + np.broadcast_to(k, source.shape), source, target, np.broadcast_to(pieces, source.shape))
    within = [column[is_there] for column in shape]
    columns = (np.concatenate([a.ravel(), b]) for a, b in zip(across, within, strict=True))
    return steps_of(owners, *columns)


def shorter_level(group: Group) -> int:
    """Rounds of the shorter level: of parts so many rounds apart one is between hosts while another is within."""
    size = np.diff(group.host_begin)
    return max(1, min(len(size), int(size.max())) - 1)


def owners_by_number(group: Group) -> Array:
    """All members, those of the same number within their hosts side by side, so that their pieces travel as one."""
    begin, members = group.host_begin, np.arange(group.count)
    host = np.searchsorted(begin, members, "right") - 1
    order: Array = np.lexsort((host, members - begin[host]))
    return order
