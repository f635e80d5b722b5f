"""The messages of collectives among many devices, step by step, compiled by numba; see `collective_cost`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import leaf, njit
from taskflow.tasks import exchange

above = leaf(exchange.above)


class Network(NamedTuple):
    """Routes (devices, devices, hops), -1: no link; bytes/s of every link; latencies (devices, devices)."""

    routes: Any
    bandwidth: Any
    latency: Any


class Steps(NamedTuple):
    """Messages of steps: (n, 2) latency and seconds per byte; of every step where its messages begin; uses of links.

    Of a step there are only messages that may be its slowest: none has as long a latency and as many seconds per byte.
    """

    message: Any
    ptr: Any
    used: Any


@njit
def flat_steps(group: Any, hosts: Any, routes: Any, bandwidth: Any, latency: Any) -> tuple[Any, Any, int]:
    """The steps of what is no tree, in which every device of a group sends at most one message at the same time.

    They are that of a ring; halvings, of as many devices as a power of two; that of the others, who send to the first
    ones; and, if there are hosts with equal parts of several devices, that of rings within hosts, and across them.

    Args:
        group: devices by host and number.
        hosts: of these devices.
        routes, bandwidth, latency: see `Network`.

    Returns:
        Message and ptr of `Steps`, and the number of hosts, or 0 where there is only one level.
    """
    network, count, power, halvings = Network(routes, bandwidth, latency), len(group), 1, 0
    while 2 * power <= count:
        power, halvings = 2 * power, halvings + 1
    here = part_size(hosts)
    message, ptr = np.empty((count * (halvings + 4), 2)), np.zeros(halvings + 5, np.int64)
    x, source, target = Steps(message, ptr, np.zeros(len(bandwidth))), group.copy(), np.empty(count, np.int64)
    for i in range(count):
        target[i] = group[(i + 1) % count]
    add_step(0, source, target, count, network, x)
    for k in range(1, halvings + 1):
        for i in range(power):
            target[i] = group[i ^ (power >> k)]
        add_step(k, source, target, power, network, x)
    for i in range(power, count):
        source[i - power], target[i - power] = group[i], group[i - power]
    add_step(halvings + 1, source, target, count - power, network, x)
    for i in range(count if here else 0):
        source[i], target[i] = group[i], group[i - i % here + (i + 1) % here]
    add_step(halvings + 2, source, target, count if here else 0, network, x)
    for i in range(count if here else 0):
        target[i] = group[(i + here) % count]
    add_step(halvings + 3, source, target, count if here else 0, network, x)
    return message[: ptr[-1]], ptr, count // here if here else 0


@njit
def tree_steps(group: Any, routes: Any, bandwidth: Any, latency: Any) -> tuple[Any, Any]:
    """The levels of a binomial tree, in which number i hangs below number `above(i)`: those of bit 0 first.

    Arguments and results are those of `flat_steps`.
    """
    network, count, levels = Network(routes, bandwidth, latency), len(group), 0
    while 1 << levels < count:
        levels += 1
    message, ptr = np.empty((count, 2)), np.zeros(levels + 1, np.int64)
    x, source, target = Steps(message, ptr, np.zeros(len(bandwidth))), group.copy(), group.copy()
    for k in range(levels):
        n = 0
        for i in range(1, count):
            if i & -i == 1 << k:
                source[n], target[n] = group[above(i)], group[i]
                n += 1
        add_step(k, source, target, n, network, x)
    return message[: ptr[-1]], ptr


@leaf
def part_size(hosts: Any) -> int:
    """Devices of a host, where several hosts have as many, and more than one; else 0."""
    size = 0
    while size < len(hosts) and hosts[size] == hosts[0]:
        size += 1
    if size == 1 or size == len(hosts) or len(hosts) % size > 0:
        return 0
    for i in range(size, len(hosts)):
        if (hosts[i] == hosts[i - 1]) != (i % size > 0):
            return 0
    return size


@leaf
def add_step(k: int, source: Any, target: Any, count: int, network: Network, x: Steps) -> None:
    """Step number k, in which so many sources send to their targets over the links that they share."""
    for i in range(count):
        for link in network.routes[source[i], target[i]]:
            if link >= 0:
                x.used[link] += 1.0
    end = x.ptr[k]
    for i in range(count):
        per_byte = 0.0
        for link in network.routes[source[i], target[i]]:
            if link >= 0:
                per_byte = max(per_byte, x.used[link] / network.bandwidth[link])
        end = add_message(x.message, x.ptr[k], end, network.latency[source[i], target[i]], per_byte)
    x.used[:] = 0
    x.ptr[k + 1] = end


@leaf
def add_message(found: Any, begin: int, end: int, latency: float, per_byte: float) -> int:
    """Put a message in place of those from `begin` to `end` that it outlasts, unless one outlasts it; the new end."""
    for i in range(begin, end):
        if found[i, 0] >= latency and found[i, 1] >= per_byte:
            return end
    kept = begin
    for i in range(begin, end):
        if found[i, 0] > latency or found[i, 1] > per_byte:
            found[kept, 0], found[kept, 1] = found[i, 0], found[i, 1]
            kept += 1
    found[kept, 0], found[kept, 1] = latency, per_byte
    return kept + 1
