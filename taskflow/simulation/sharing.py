"""Sharing of links: which rows load which links, and the schedule in which they share them fairly (`tasks.fair`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taskflow.core.columns import Array, pointers, spread
from taskflow.core.grouping import turned
from taskflow.core.start_rule import HOP
from taskflow.machine import MachineModel
from taskflow.tasks.agenda import NONE
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.fair import Loads, Successors, fair_pass
from taskflow.tasks.streams import find_queues, follows, ports_of
from taskflow.tasks.task_graph import JOINED, STREAMS, Kind, TaskGraph
from taskflow.tasks.tax import Tax, make_tax

Hops = tuple[Array, Array, Array]  # columns of rows, links, and bytes per second at full pace


def schedule_fairly(
    task_graph: TaskGraph, seconds: Array, taken: Array | None = None
) -> tuple[Array, Array, float]:
    """Start and end of every row, and the end of the last one, where transfers share links fairly.

    Args:
        task_graph: with all that rows wait for.
        seconds: of every row by itself where nothing shares its links.
        taken: of every row, in calls; default: the same.
    """
    seconds = np.asarray(seconds, float)
    loads = find_loads(task_graph, seconds)
    tax = find_tax(task_graph)
    start, end = fair_pass(find_waits(task_graph), loads, seconds if taken is None else taken, tax)
    return start, end, float(end.max(initial=0.0))


def find_waits(task_graph: TaskGraph) -> Successors:
    """Rows wait for what they depend on, and for the row before them on every queue."""
    before, after = follows(*find_queues(task_graph))
    followers = turned(task_graph.dep_ptr, task_graph.dep_row, before, after)
    missing = np.bincount(after, minlength=len(task_graph))
    missing += np.diff(task_graph.dep_ptr)
    return Successors(*followers, missing)


def find_loads(task_graph: TaskGraph, seconds: Array) -> Loads:
    """What rows load of the links that several streams use."""
    machine = task_graph.machine
    count = len(task_graph)
    (row, link, rate) = hops_of(task_graph, seconds)
    latency = latencies_of(task_graph)
    peak = np.zeros(count)
    np.maximum.at(peak, row, rate)
    kept = _is_shared(task_graph, row, link)[link]
    row = row[kept]
    link = link[kept]
    rate = rate[kept]
    order = np.lexsort((link, row))  # as representatives have them: sums are rounded alike
    row = row[order]
    link = link[order]
    rate = rate[order]
    part = rate / peak[row] / machine.link_bandwidth[link]
    _, number = np.unique(link, return_inverse=True)
    return Loads(
        pointers(np.bincount(row, minlength=count)), number.reshape(-1), part, peak, latency
    )


def find_hops(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array]:
    """Rows, and HOP of the links that they load."""
    machine = task_graph.machine
    (row, link, rate) = hops_of(task_graph, seconds)
    hop = np.zeros(len(row), HOP)
    hop["link"] = STREAMS * len(machine.devices) + link
    hop["part"], hop["latency"] = rate / machine.link_bandwidth[link], latencies_of(task_graph)[row]
    return row, hop


def latencies_of(task_graph: TaskGraph) -> Array:
    """Seconds before each row loads its links."""
    latency = np.zeros(len(task_graph))
    moved = np.flatnonzero(task_graph.is_transfer)
    every = task_graph.machine.ways.latency(task_graph.source[moved], task_graph.device[moved])
    latency[moved] = np.where(task_graph.algorithm[moved] == JOINED, 0.0, every)
    crossing = task_graph.crossing
    crossed = np.flatnonzero(crossing >= 0)
    if len(crossed):
        ways = task_graph.machine.host_ways
        latency[crossed] = ways.latency[crossing[crossed], task_graph.device[crossed]]
    return latency


def find_tax(task_graph: TaskGraph) -> Tax | None:
    """What collectives take of their devices' compute, and copies that a library sends; None: nothing."""
    share = np.array([d.collective_share for d in task_graph.machine.devices])
    together = task_graph.kind == Kind.COLLECTIVE
    sent = task_graph.is_transfer
    row = np.flatnonzero(together | (sent & task_graph.machine.has_library))
    if not (share.any() and len(row)):
        return None
    ends = np.stack([task_graph.source[row], task_graph.device[row]], axis=1)
    groups = task_graph.groups
    is_group = together[row]
    group = np.where(is_group, -2 - task_graph.streams[row, 0], 0)
    ptr = np.append(groups.device_ptr, 0)  # there may be no group
    begin = np.where(is_group, ptr[group], len(groups.devices) + 2 * np.arange(len(row)))
    count = np.where(is_group, ptr[group + 1] - ptr[group], 2)
    devices = np.append(groups.devices, ends)[spread(begin, count)]
    taken = np.zeros(len(task_graph), np.int64)
    taken[row] = count
    stream = task_graph.first_stream
    is_task = (stream >= 0) & (stream < len(share))  # the first streams are those of compute
    payer = np.where(is_task & (share[np.where(is_task, stream, 0)] > 0), stream, NONE)
    return make_tax(pointers(taken), devices, payer, 1.0 - share)


def hops_of(task_graph: TaskGraph, seconds: Array) -> Hops:
    """Every link on the way of a transfer, and of what a collective sends: that at an even pace all the while.

    Also those between a device and the memory of its host.
    """
    hops = [_hops_of_transfers(task_graph), *_hops_of_collectives(task_graph, seconds)]
    crossing = task_graph.crossing
    if len(crossed := np.flatnonzero(crossing >= 0)):
        hops.append(hops_to_hosts(task_graph.machine, crossed, crossing, task_graph.device))
    row, link, rate = (np.concatenate(columns) for columns in zip(*hops, strict=True))
    return row, link, rate


def _hops_of_transfers(task_graph: TaskGraph) -> Hops:
    ways = task_graph.machine.ways
    moved = np.flatnonzero(task_graph.is_transfer)
    ends = task_graph.source[moved], task_graph.device[moved]
    routes = ways.links(*ends)
    count = (routes >= 0).sum(axis=1)
    return np.repeat(moved, count), routes[routes >= 0], np.repeat(ways.bandwidth(*ends), count)


def hops_to_hosts(machine: MachineModel, rows: Array, crossing: Array, device: Array) -> Hops:
    """Those of rows that carry something to the memory of a device's host, or from there; see `TaskGraph.crossing`."""
    way = crossing[rows], device[rows]
    links = machine.host_ways.links[way]
    count = (links >= 0).sum(axis=1)
    rates = machine.host_ways.bandwidth[way]
    return np.repeat(rows, count), links[links >= 0], np.repeat(rates, count)


def _hops_of_collectives(task_graph: TaskGraph, seconds: Array) -> Iterator[Hops]:
    """Of those that are carried out alike at once: they cross the same links."""
    together = np.flatnonzero(
        (task_graph.kind == Kind.COLLECTIVE) & (seconds > 0) & (task_graph.bytes > 0)
    )
    alike: dict[tuple[int, int], list[int]] = {}
    group = -2 - task_graph.streams[together, 0]
    for row, *key in np.stack([together, group, task_graph.algorithm[together]], axis=1).tolist():
        alike.setdefault((key[0], key[1]) if key[1] >= 0 else (NONE, row), []).append(row)
    for equal_rows in map(np.array, alike.values()):
        links, parts = links_of(task_graph, int(equal_rows[0]))
        rates = task_graph.bytes[equal_rows] / seconds[equal_rows]
        paces = paces_of(task_graph.machine, links, parts, rates)
        yield np.repeat(equal_rows, len(links)), np.tile(links, len(equal_rows)), paces.reshape(-1)


def links_of(task_graph: TaskGraph, row: int) -> tuple[Array, Array]:
    """See `links_of_exchange`, of a collective row."""
    number = int(task_graph.algorithm[row])
    machine = task_graph.machine
    carried = task_graph.ways[number].carried if number >= 0 else []
    if not carried:
        carried.append(links_of_exchange(machine, task_graph.exchange(row)))
    return carried[0]


def paces_of(machine: MachineModel, links: Array, parts: Array, rates: Array) -> Array:
    """(rates, links): bytes per second of collectives on links that carry parts of their bytes per second."""
    paces: Array = np.minimum(np.outer(rates, parts), machine.link_bandwidth[links])
    return paces


def links_of_exchange(machine: MachineModel, exchange: Exchange) -> tuple[Array, Array]:
    """The links that a collective's algorithm crosses, and the part of its bytes that each carries; see `Carried`."""
    source, target, size = exchange.sent()
    routes = machine.ways.links(source, target)
    message, hop = np.nonzero(routes >= 0)
    carried = np.bincount(routes[message, hop], size[message], len(machine.links))
    ways, links = machine.ways.only(np.array(exchange.members))
    even = ways.link.evened(carried[links])
    order = np.argsort(links)
    order = order[even[order] > 0]
    return links[order], even[order] / max(size.sum(), 1)


def _is_shared(task_graph: TaskGraph, row: Array, link: Array) -> Array:
    """Whether several sending and several receiving streams use a link; per link."""
    devices = task_graph.machine.devices
    links = len(task_graph.machine.links)
    is_shared = np.ones(links, np.bool_)
    source = task_graph.source[row]
    device = task_graph.device[row]
    is_collective = task_graph.kind[row] == Kind.COLLECTIVE
    port, has_port = ports_of(task_graph, row)
    has_no_stream = np.array([d.kind == "cpu" for d in devices])[source]  # the receiver copies
    sending = np.where(has_port, len(devices) + len(task_graph) + port, source)
    crossing = task_graph.crossing[row]
    crossed = crossing >= 0
    queue = len(devices) + len(task_graph) + links + 2 * device + crossing
    sending = np.where(crossed, queue, sending)
    receiving = np.where(crossed, queue, device)
    for ends, is_alone in (
        (sending, is_collective | (has_no_stream & ~crossed)),
        (receiving, is_collective | (has_port & ~crossed)),
    ):
        users = np.where(is_alone, len(devices) + row, ends)
        low = np.full(links, np.iinfo(np.int64).max)
        high = np.full(links, -1)
        np.minimum.at(low, link, users)
        np.maximum.at(high, link, users)
        is_shared &= low != high
    return is_shared
