"""Groups: the members of a collective as a small machine of their own, which is all that algorithms and prices see.

Members are numbered from 0 by host and device. Streams and links are numbered in the order in which the members use
them, so that groups that look alike are equal, whatever their devices: what is known of one is known of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import njit
from taskflow.machine import MachineModel
from taskflow.tasks.streams import StreamTable

_DIGEST_BYTES = 16


@dataclass(frozen=True, eq=False)
class Group:
    """What p members are to each other.

    Attributes:
        host_begin: (hosts + 1,) the first member of every host.
        streams: (p, p, n) streams of devices that a message from one to another occupies, -1 for none; a member that
            sends by link has one for every link.
        latency, bandwidth: (p, p) of a message.
        links: (p, p, hops) links on its way, -1 behind the last.
        is_relayed: (p, p) whether another member passes it on.
        link_bandwidth: of every link.
        capacity: of every link: how many messages pass it in the time in which one passes the narrowest.
        doors: (p, p) by which link a message comes; what is to be added waits in scratch memory of its door.
        folding: (p,) the stream on which a member adds what arrives.
        fold_seconds: (p,) the fixed part of a fold; memory_bandwidth: (p,) at which it reads and writes the rest.
    """

    host_begin: Array
    streams: Array
    latency: Array
    bandwidth: Array
    links: Array
    is_relayed: Array
    link_bandwidth: Array
    capacity: Array
    doors: Array
    folding: Array
    fold_seconds: Array
    memory_bandwidth: Array

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.latency)

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        """What rows take of streams and links, as a plain tuple."""
        of_pairs = self.streams, self.latency, self.bandwidth, self.links, self.link_bandwidth, self.doors
        return *of_pairs, self.folding, self.fold_seconds, self.memory_bandwidth

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Of every member its host, numbered from 0."""
        return tuple(np.repeat(np.arange(len(self.host_begin) - 1), np.diff(self.host_begin)).tolist())

    @cached_property
    def key(self) -> bytes:
        """A hash, equal for groups that are alike."""
        hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for name in _FIELDS:
            column = getattr(self, name)
            hasher.update(repr(column.shape).encode())
            hasher.update(column.tobytes())
        return hasher.digest()


_FIELDS = tuple(field.name for field in fields(Group))


def group_of(machine: MachineModel, table: StreamTable, devices: Sequence[int]) -> tuple[Group, Array]:
    """The group of these devices, which stand by host and number; and of each of its links the machine's number."""
    at, members = np.array(devices, np.int64), [machine.devices[d] for d in devices]
    is_run = bool((np.diff(at) == 1).all())  # then nothing is copied
    pair = (slice(at[0], at[-1] + 1),) * 2 if is_run else np.ix_(at, at)
    rate = np.array([d.memory_efficiency * d.memory_bandwidth for d in members])
    used, links = _by_first_use(machine.routes[pair])
    ends = table.ends(at[:, None], at[None, :])
    if table.by_link[at].any():
        ends = np.concatenate([ends, table.ports(at[:, None], at[None, :])[..., None]], axis=2)
    _, streams = _by_first_use(np.append(ends, table.within[at]))
    bandwidth = machine.link_bandwidth[used]
    member = {d: k for k, d in enumerate(devices)}
    behind = np.array([member.get(machine.links[k].ends[1], -1) for k in used.tolist()], np.int64)
    group = Group(
        np.flatnonzero(np.diff([-1, *(d.host for d in members), -1])),
        streams[: -len(at)].reshape(ends.shape),
        machine.latency_seconds[pair],
        machine.bandwidth[pair],
        links,
        _are_relayed(links, behind),
        bandwidth,
        np.maximum(1, (bandwidth / bandwidth.min(initial=np.inf) + 1e-9).astype(np.int64)),
        machine.doors[pair],
        streams[-len(at) :],
        np.array([d.overhead_seconds for d in members]) + [d.half_bytes for d in members] / rate,
        rate,
    )
    return group, used


def _by_first_use(numbers: Array) -> tuple[Array, Array]:
    """The numbers that are used, in the order of their first use, and for every number its place there; -1 stays."""
    rank = np.full(int(numbers.max(initial=-1)) + 2, -1, np.int32)
    found = np.empty(_rank(numbers.reshape(-1), rank), np.int64)
    used = np.flatnonzero(rank >= 0)
    found[rank[used]] = used
    return found, rank[numbers]


@njit
def _rank(numbers: Array, rank: Array) -> int:
    """Set the ranks of numbers, which are -1, by their first use; how many there are."""
    count = 0
    for number in numbers:
        if number >= 0 and rank[number] < 0:
            rank[number] = count
            count += 1
    return count


def _are_relayed(links: Array, behind: Array) -> Array:
    """(p, p) whether another member passes on what is sent; `behind`: the member where a link ends, -1: none."""
    found, is_passed = np.zeros(links.shape[:2], np.bool_), np.append(behind >= 0, False)
    for k in range(links.shape[2] - 1):
        found |= is_passed[links[:, :, k]] & (links[:, :, k + 1] >= 0)
    return found
