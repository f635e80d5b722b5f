"""Groups: the members of a collective as a small machine of their own, which is all that algorithms and prices see.

Members are numbered from 0, host by host. Streams and links are numbered in the order in which the members use
them, so that groups that look alike are equal, whatever their devices: what is known of one is known of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.machine import MachineModel
from taskflow.tasks.streams import StreamTable

_DIGEST_BYTES = 16


@dataclass(frozen=True, eq=False)
class Group:
    """What p members are to each other.

    Attributes:
        key: a hash, equal for groups that are alike.
        host_begin: (hosts + 1,) the first member of every host.
        latency, bandwidth: (p, p) of a message.
        doors: (p, p) by which link a message comes; what is to be added waits in scratch memory of its door.
        links: (p, p, hops) links on its way, -1 behind the last.
        link_bandwidth: of every link.
        behind: of every link, the member at its end, -1 where that is none.
        queues: (3, p) streams on which a member receives, sends, and adds what arrives; -1 for none.
        by_link: (p,) whether a member sends by link: it has a stream for every link.
        fold_seconds: (p,) the fixed part of a fold; memory_bandwidth: (p,) at which it reads and writes the rest.
    """

    key: bytes
    host_begin: Array
    latency: Array
    bandwidth: Array
    doors: Array
    links: Array
    link_bandwidth: Array
    behind: Array
    queues: Array
    by_link: Array
    fold_seconds: Array
    memory_bandwidth: Array

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.latency)

    @cached_property
    def streams(self) -> Array:
        """(p, p, n) streams of devices that a message from one to another occupies, -1 for none."""
        found = np.full((self.count, self.count, 2 + bool(self.by_link.any())), -1, np.int32)
        _put_streams(found, self.links, self.queues, self.by_link)
        return found

    @property
    def folding(self) -> Array:
        """(p,) the stream on which a member adds what arrives."""
        found: Array = self.queues[2]
        return found

    @cached_property
    def stream_count(self) -> int:
        """Number of streams."""
        return int(self.queues.max()) + 1 + len(self.link_bandwidth) * bool(self.by_link.any())

    @cached_property
    def most_doors(self) -> int:
        """By so many links messages come to a member."""
        return 1 + int(self.doors.max(initial=0))

    @cached_property
    def is_relayed(self) -> Array:
        """(p, p) whether another member passes on what is sent."""
        found, is_passed = (
            np.zeros(self.links.shape[:2], np.bool_),
            np.append(self.behind >= 0, False),
        )
        for k in range(self.links.shape[2] - 1):
            found |= is_passed[self.links[:, :, k]] & (self.links[:, :, k + 1] >= 0)
        return found

    @cached_property
    def capacity(self) -> Array:
        """Of every link: how many messages pass it in the time in which one passes the narrowest."""
        narrowest = self.link_bandwidth.min(initial=np.inf)
        found: Array = np.maximum(1, (self.link_bandwidth / narrowest + 1e-9).astype(np.int64))
        return found

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        """What rows take of streams and links, as a plain tuple."""
        of_pairs = (
            self.streams,
            self.latency,
            self.bandwidth,
            self.links,
            self.link_bandwidth,
            self.doors,
        )
        return *of_pairs, self.folding, self.fold_seconds, self.memory_bandwidth

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Of every member its host, numbered from 0."""
        return tuple(
            np.repeat(np.arange(len(self.host_begin) - 1), np.diff(self.host_begin)).tolist()
        )


def group_of(
    machine: MachineModel, table: StreamTable, devices: Sequence[int]
) -> tuple[Group, Array]:
    """The group of these devices, which stand host by host; and of each of its links the machine's number."""
    at, members = np.array(devices, np.int64), [machine.devices[d] for d in devices]
    is_run = bool((np.diff(at) == 1).all())  # then nothing is copied
    pair = (slice(at[0], at[-1] + 1),) * 2 if is_run else np.ix_(at, at)
    used, links = _by_first_use(machine.routes[pair])
    ways, member = [machine.links[k] for k in used.tolist()], {d: k for k, d in enumerate(devices)}
    behind = np.array([member.get(way.ends[1], -1) for way in ways], np.int64)
    host_begin = np.flatnonzero(np.diff([-1, *(d.host for d in members), -1]))
    rate = np.array([d.memory_efficiency * d.memory_bandwidth for d in members])
    fold_seconds = (
        np.array([d.overhead_seconds for d in members]) + [d.half_bytes for d in members] / rate
    )
    queues = _by_first_use(np.stack([table.arriving[at], table.sending[at], table.within[at]]))[1]
    alone = (
        links,
        machine.link_bandwidth[used],
        behind,
        queues,
        table.by_link[at],
        fold_seconds,
        rate,
    )
    doors, latency = (
        np.where(behind >= 0, machine.link_doors[used], -1),
        [way.latency_seconds for way in ways],
    )
    within = [(d.memory_bandwidth, d.sends_by_link) for d in members]
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for column in (
        host_begin,
        *alone,
        doors,
        np.array(latency),
        np.array(within),
    ):  # the rest follows from these
        hasher.update(repr(column.shape).encode())
        hasher.update(np.ascontiguousarray(column).data)
    of_pairs = machine.latency_seconds[pair], machine.bandwidth[pair], machine.doors[pair]
    return Group(hasher.digest(), host_begin, *of_pairs, *alone), used


@tiered
def _put_streams(found: Array, links: Array, queues: Array, by_link: Array) -> None:
    """See `Group.streams`; that of a link has a number behind those of the queues."""
    queue_count = queues.max() + 1
    for s in range(len(links)):
        for t in range(len(links)):
            if s != t:
                found[s, t, 0], found[s, t, 1] = queues[0, t], queues[1, s]
                if by_link[s] and links[s, t, 0] >= 0:
                    found[s, t, 2] = queue_count + links[s, t, 0]


def _by_first_use(numbers: Array) -> tuple[Array, Array]:
    """The numbers that are used, in the order of their first use, and for every number its place there; -1 stays."""
    rank = np.full(int(numbers.max(initial=-1)) + 2, -1, np.int32)
    found = np.empty(_rank(numbers.reshape(-1), rank), np.int64)
    used = np.flatnonzero(rank >= 0)
    found[rank[used]] = used
    return found, rank[numbers]


@tiered
def _rank(numbers: Array, rank: Array) -> int:
    """Set the ranks of numbers, which are -1, by their first use; how many there are."""
    count = 0
    for number in numbers:
        if number >= 0 and rank[number] < 0:
            rank[number] = count
            count += 1
    return count
