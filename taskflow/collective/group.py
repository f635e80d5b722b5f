"""Groups: the members of a collective as a small machine of their own, which is all that algorithms and prices see.

Members are numbered from 0, host by host. Streams and links are numbered in the order in which the members use
them, so that groups that look alike are equal, whatever their devices: what is known of one is known of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine import MachineModel
from taskflow.machine.ways import Ways
from taskflow.tasks.streams import StreamTable

_DIGEST_BYTES = 16


@dataclass(frozen=True, eq=False)
class Group:
    """What p members are to each other.

    Attributes:
        key: a hash, equal for groups that are alike.
        host_begin: (hosts + 1,) the first member of every host.
        ways: from member to member. What is to be added waits in scratch memory of the door by which it comes.
        queues: (3, p) streams on which a member receives, sends, and adds what arrives; -1 for none.
        by_link: (p,) whether a member sends by link: it has a stream for every link.
        fold_seconds: (p,) the fixed part of a fold; memory_bandwidth: (p,) at which it reads and writes the rest.
    """

    key: bytes
    host_begin: Array
    ways: Ways
    queues: Array
    by_link: Array
    fold_seconds: Array
    memory_bandwidth: Array

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.by_link)

    @property
    def folding(self) -> Array:
        """(p,) the stream on which a member adds what arrives."""
        stream: Array = self.queues[2]
        return stream

    @property
    def link_bandwidth(self) -> Array:
        """Of every link."""
        bandwidth: Array = self.ways.link.bandwidth[:-1]
        return bandwidth

    @cached_property
    def links(self) -> Array:
        """(p, p, hops) links on the way of a message, -1 behind the last: of few members."""
        member = np.arange(self.count)
        return self.ways.links(member[:, None], member)

    @cached_property
    def stream_count(self) -> int:
        """Number of streams."""
        return int(self.queues.max()) + 1 + len(self.link_bandwidth) * bool(self.by_link.any())

    @cached_property
    def most_doors(self) -> int:
        """By so many links messages come to a member."""
        return self.ways.most_doors

    @cached_property
    def is_relayed(self) -> Array:
        """(p, p) whether another member passes on what is sent: of few members."""
        is_passed = self.ways.link.end >= 0
        passing: Array = is_passed[self.links[:, :, :-1]] & (self.links[:, :, 1:] >= 0)
        return np.asarray(passing.any(axis=2))

    @cached_property
    def capacity(self) -> Array:
        """Of every link: how many messages pass it in the time in which one passes the narrowest."""
        narrowest = self.link_bandwidth.min(initial=np.inf)
        capacity: Array = np.maximum(1, (self.link_bandwidth / narrowest + 1e-9).astype(np.int64))
        return capacity

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Of every member its host, numbered from 0."""
        return tuple(
            np.repeat(np.arange(len(self.host_begin) - 1), np.diff(self.host_begin)).tolist()
        )


class Sent(NamedTuple):
    """What messages take of a group; (messages,) or (messages, n) each.

    Attributes:
        streams: of devices, -1 for none.
        links: -1 behind the last.
        latency, bandwidth, door: see `Ways`.
    """

    streams: Array
    links: Array
    latency: Array
    bandwidth: Array
    door: Array


def sent_in(g: Group, source: Array, target: Array) -> Sent:
    """What messages from some members to others take."""
    links = g.ways.links(source, target)
    streams = np.full((len(source), 2 + bool(g.by_link.any())), -1, np.int32)
    streams[:, 0], streams[:, 1] = g.queues[0][target], g.queues[1][source]
    if streams.shape[1] > 2:
        first = links[:, :1].max(axis=1, initial=-1)
        by_link = g.by_link[source] & (first >= 0)
        streams[:, 2] = np.where(by_link, int(g.queues.max()) + 1 + first, -1)
    streams[source == target] = -1
    bandwidth = g.ways.bandwidth_along(links, source, target)
    doors = g.ways.doors_along(links, target)
    return Sent(streams, links, g.ways.latency_of(links), bandwidth, doors)


def group_of(
    machine: MachineModel, table: StreamTable, devices: Sequence[int]
) -> tuple[Group, Array]:
    """The group of these devices, which stand host by host; and of each of its links the machine's number."""
    at = np.array(devices, np.int64)
    ways, used = machine.ways.only(at)
    host_begin = np.flatnonzero(np.diff(table.host_number[at], prepend=-1, append=-1))
    queues = _by_first_use(np.stack([table.arriving[at], table.sending[at], table.within[at]]))
    alone = queues, table.by_link[at], table.fold_seconds[at], table.fold_rate[at]
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for column in (host_begin, *ways.columns, *alone):
        hasher.update(repr(column.shape).encode())
        hasher.update(np.ascontiguousarray(column).data)
    return Group(hasher.digest(), host_begin, ways, *alone), used


def _by_first_use(numbers: Array) -> Array:
    """For every number its rank by first use; -1 stays."""
    used, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    is_some = used >= 0
    rank = np.full(len(used), -1, np.int32)
    rank[is_some] = np.argsort(np.argsort(first[is_some]))
    return rank[which.reshape(numbers.shape)]
