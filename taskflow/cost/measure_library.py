"""How long the collectives of a GPU library (NCCL) take among the ranks, by size: tables for the machine model.

Timed by the events of every rank's GPU, captured in a graph as in a step; the slowest rank counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskflow.backend import Communicator, GroupCall, StreamBackend
from taskflow.backend.ranks import why_no_library
from taskflow.backend.streams import Call
from taskflow.backend.timing import DeviceClock
from taskflow.comm.transport import Transport
from taskflow.machine.library import COLLECTIVES, LibraryTimes

SIZES = (1 << 10, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 28)  # bytes
_CALLS = 10  # behind each other


def measure_library(
    backend: StreamBackend, transport: Transport, sizes: Sequence[int] = SIZES
) -> tuple[LibraryTimes, ...]:
    """Every collective among all ranks, the ranks of a host, and one of each host; all ranks call it.

    Nothing where ranks have no library, or share a GPU. Groups of unequal hosts are left out.
    """
    if transport.size < 2 or why_no_library(transport.gather(backend.rank_gpu(transport.rank))):
        return ()
    table = []
    groups = _groups(transport.hosts)
    communicators = backend.communicators(transport.rank, groups, transport, max(sizes))
    clock = DeviceClock(backend, transport.rank)
    for group in groups:
        hosts = len({transport.hosts[rank] for rank in group})
        for collective in COLLECTIVES:
            communicator = communicators.get(group)
            times = [
                _seconds(clock, _calls(backend, transport.rank, communicator, collective, size))
                for size in sizes
            ]
            slowest = np.max(transport.gather(times), axis=0).tolist()
            table.append(LibraryTimes(collective, hosts, len(group), tuple(sizes), tuple(slowest)))
    return tuple(table)


def _groups(hosts: Sequence[int]) -> list[tuple[int, ...]]:
    """Those of two or more ranks that have as many on every host."""
    of_hosts = [
        tuple(np.flatnonzero(np.array(hosts) == host).tolist()) for host in sorted(set(hosts))
    ]
    every = [tuple(range(len(hosts)))] if len({len(ranks) for ranks in of_hosts}) == 1 else []
    groups = dict.fromkeys([*every, of_hosts[0], tuple(ranks[0] for ranks in of_hosts)])
    return [group for group in groups if len(group) > 1]


def _seconds(clock: DeviceClock, calls: Sequence[Call]) -> float:
    """Of one collective on this rank; 0 for who is not in the group."""
    if not calls:
        return 0.0
    clock.seconds_each(calls, 1)  # not counted: ranks connect in their first call
    return clock.seconds_each(calls, _CALLS)


def _calls(
    backend: StreamBackend, rank: int, communicator: Communicator | None, collective: str, size: int
) -> Sequence[Call]:
    """The calls of a collective of `size` bytes; the first of a group is the root. None for who is not in it."""
    if communicator is None:
        return []
    group = communicator.group
    count = max(size // 4 // len(communicator.group), 1) * len(communicator.group)
    whole, other = (backend.zeros(rank, 4 * count).view("float32") for _ in range(2))
    tile = slice(*(count // len(group) * (group.index(rank) + k) for k in (0, 1)))
    is_root = rank == group[0]
    given, got = {
        "all-reduce": (whole, other),
        "reduce-scatter": (whole, other[tile]),
        "all-gather": (whole[tile], other),
        "reduce": (whole, other if is_root else None),
        "broadcast": (whole if is_root else None, None if is_root else other),
    }[collective]
    return communicator.calls([GroupCall(collective.replace("-", "_"), given, got, group[0])])
