"""Links between ranks as they are: timed within each host and between every two, and the machine that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from taskflow.collective.choose import FASTEST
from taskflow.comm.transport import Transport
from taskflow.cost.plausible import transfer_rate
from taskflow.cost.samples import one_way_times
from taskflow.machine import MachineModel
from taskflow.machine.device import Link

_SMALL_BYTES = 8
_SMALL_ROUNDS = 200
_LARGE = {
    True: (1 << 20, 20),
    False: (1 << 22, 8),
}  # bytes and rounds, on one host or not; networks let bursts pass


class LinkRate(NamedTuple):
    """Of a transfer."""

    latency_seconds: float
    bandwidth: float


def link_between(transport: Transport, first: int, second: int) -> LinkRate:
    """The rate of messages between two ranks, on every rank; all ranks call it.

    Raises:
        ValueError: it is not possible, on every rank.
    """
    ends = (first, second)
    large = _LARGE[transport.hosts[first] == transport.hosts[second]]
    sizes = (_SMALL_BYTES, _SMALL_ROUNDS), large
    times = [
        one_way_times(transport, np.zeros(size, np.uint8), rounds, ends=ends)
        for size, rounds in sizes
    ]
    short, long = transport.gather(times)[first]
    # Not the median of short ones, which on a busy machine may be above that of large ones.
    rate = transfer_rate(
        f"messages between ranks {first} and {second}", (_SMALL_BYTES, large[0]), [min(short)], long
    )
    return LinkRate(float(np.median(short)), rate)


def measure_links(machine: MachineModel, transport: Transport, alone: LinkRate) -> MachineModel:
    """`machine` with its links as they are between the ranks that drive its devices; all ranks call it.

    Args:
        alone: between devices of the only rank of a host.
    """
    ranks = [
        np.flatnonzero(np.array(transport.hosts) == host).tolist()
        for host in range(max(transport.hosts) + 1)
    ]
    inside = [link_between(transport, *here[:2]) if len(here) > 1 else alone for here in ranks]
    if len(ranks) == 1:
        return machine.with_rates(**inside[0]._asdict())
    pairs = combinations(range(len(ranks)), 2)
    between = {(a, b): link_between(transport, ranks[a][0], ranks[b][0]) for a, b in pairs}
    over = transport.over(range(len(machine.devices)))
    return on_hosts(
        machine,
        [transport.hosts[rank] for rank in over.ranks_of(len(machine.devices))],
        inside,
        between,
    )


def on_hosts(
    machine: MachineModel,
    hosts: Sequence[int],
    inside: Sequence[LinkRate],
    between: Mapping[tuple[int, int], LinkRate],
) -> MachineModel:
    """The devices of `machine` on several hosts.

    Every two devices of a host have a link of their own; all of a host share its card. A card is as fast as the fastest
    pair of hosts that it is in, so a pair is as fast as the slower one of its cards. Where a host has several devices,
    even a few sum and gather by the fastest algorithm: copies would bring each part to every device of the other host.

    Args:
        hosts: of each device.
        inside: rate within each host.
        between: rate between every two hosts.
    """
    links = [
        Link((a, b), *inside[hosts[a]][::-1])
        for a, b in permutations(range(len(hosts)), 2)
        if hosts[a] == hosts[b]
    ]
    for host, rate in enumerate(inside):
        members = [device for device, where in enumerate(hosts) if where == host]
        rates = [rate for pair, rate in between.items() if host in pair]
        links += _card_links(host, members, rate, rates)
    devices = tuple(replace(d, host=h) for d, h in zip(machine.devices, hosts, strict=True))
    several = (
        dict.fromkeys(("all-reduce", "all-gather"), FASTEST) if len(set(hosts)) < len(hosts) else {}
    )
    return replace(
        machine, devices=devices, links=tuple(links), collectives={**several, **machine.collectives}
    )


def _card_links(
    host: int, members: Sequence[int], rate: LinkRate, rates: Sequence[LinkRate]
) -> list[Link]:
    """From the devices of a host, with `rate` within it, by its card to the network; one device is its own card.

    `rates`: of the pairs of hosts that it is in.
    """
    bandwidth = max(r.bandwidth for r in rates)
    latency = min(r.latency_seconds for r in rates) / 2
    card: int | str = members[0] if len(members) == 1 else f"card@{host}"
    to_card = [] if len(members) == 1 else [((d, card), rate.bandwidth, 0.0) for d in members]
    links = []
    for (a, b), width, seconds in [*to_card, ((card, "network"), bandwidth, latency)]:
        links += [Link((a, b), width, seconds), Link((b, a), width, seconds)]
    return links
