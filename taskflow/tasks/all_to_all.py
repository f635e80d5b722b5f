"""All-to-alls: what each member has for every other; pairwise, or passed on by a member of the sender's host.

Every tile has one source and one target, and tiles stand by target, then source. The two-level way is that of Tutel
("2DH", MLSys 2023): what the members of a host have for a member of another one is gathered at one of theirs and
crosses as one message, so that hosts of l devices exchange l messages a pair of hosts instead of l * l.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.core.columns import Array
from taskflow.tasks.moves import Outline
from taskflow.tasks.steps import Messages

WITHOUT_RELAYS = "copies", "pairwise"  # all others have memory for what is passed on


def relay_of(source: int, target: int, members: Array, hosts: Array) -> int:
    """The device that passes on what one has for another: on its host, with the other's place among the members there.

    It is the source itself where both are on one host. `members` stand in the order of a ring.
    """
    if hosts[source] == hosts[target]:
        return source
    number = 0
    count = 0
    is_before = True
    for device in members:
        is_before = is_before and device != target
        number += is_before and hosts[device] == hosts[target]
        count += hosts[device] == hosts[source]
    number %= count
    for device in members:
        if hosts[device] == hosts[source]:
            if number == 0:
                return int(device)
            number -= 1
    return source


def pairwise(o: Outline) -> Messages:
    """In round k every member gets what the k-th behind it has for it."""
    target = np.array(o.targets)
    return _messages(
        o,
        (np.array(o.owners) - target) % len(o.hosts),
        np.array(o.owners),
        target,
        np.arange(len(target)),
    )


def two_level(o: Outline) -> Messages:
    """What is for other hosts is gathered at members of the own one while that for the host before it crosses."""
    source = np.array(o.owners)
    target = np.array(o.targets)
    relay = np.array(o.relays)
    if len(relay) == 0:
        return pairwise(o)
    _, host = np.unique(o.hosts, return_inverse=True)
    hosts = int(host.max()) + 1
    members = len(o.hosts)
    away = (host[source] - host[target]) % hosts
    is_passed = relay != source
    turn = np.where(away, 2 * away, 2 * hosts) * members  # those within a host come last
    tile = np.append(np.flatnonzero(is_passed), np.arange(len(source)))
    passing = np.arange(len(tile)) < is_passed.sum()
    a = np.where(passing, source[tile], relay[tile])
    b = np.where(passing, relay[tile], target[tile])
    return _messages(o, turn[tile] - 3 * members * passing + (a - b) % members, a, b, tile)


ALGORITHMS: dict[str, Callable[[Outline], Messages]] = {
    "pairwise": pairwise,
    "two-level": two_level,
}


def _messages(o: Outline, turn: Array, source: Array, target: Array, tile: Array) -> Messages:
    """Messages in turn; tiles that stand side by side and go the same way are one."""
    order = np.lexsort((tile, target, source, turn))
    turn, source, target, tile = (column[order] for column in (turn, source, target, tile))
    alike = np.stack([turn, source, target, tile - np.arange(len(tile))])
    begin = np.append(0, 1 + np.flatnonzero(np.diff(alike).any(axis=0)))
    last = tile[np.append(begin[1:], len(tile)) - 1] + 1
    columns = source[begin], target[begin], tile[begin], last
    return Messages(np.array(o.owners), *columns, np.zeros(len(begin), np.bool_))
