"""Sharing of links: which rows load which links, and the schedule in which they share them fairly (`tasks.fair`)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct_columns, pointers, spread
from taskflow.core.start_rule import HOP
from taskflow.machine import MachineModel
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.agenda import NONE
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.fair import Loads, Successors, fair_pass, turn_round
from taskflow.tasks.peers import Peers
from taskflow.tasks.streams import find_queues, follows, ports_of
from taskflow.tasks.task_graph import JOINED, STREAMS, Kind, TaskGraph
from taskflow.tasks.tax import Tax, make_tax

_MIXING = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing
Hops = tuple[Array, Array, Array]  # columns of rows, links, and bytes per second at full pace


def schedule_fairly(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array, float]:
    """Start and end of every row, and the end of the last one, where transfers share links fairly.

    Args:
        task_graph: with all that rows wait for.
        seconds: of every row where nothing shares its links.
    """
    seconds = np.asarray(seconds, float)
    start, end = fair_pass(
        find_waits(task_graph), find_loads(task_graph, seconds), seconds, find_tax(task_graph)
    )
    return start, end, float(end.max(initial=0.0))


def find_waits(task_graph: TaskGraph) -> Successors:
    """Rows wait for what they depend on, and for the row before them on every queue."""
    before, after = follows(*find_queues(task_graph))
    waiting = np.repeat(np.arange(len(task_graph)), np.diff(task_graph.dep_ptr))
    pairs = np.concatenate([task_graph.dep_row, before]), np.concatenate([waiting, after])
    return turn_round(len(task_graph), *pairs)


def find_loads(task_graph: TaskGraph, seconds: Array) -> Loads:
    """What rows load of the links that several streams use."""
    machine, count = task_graph.machine, len(task_graph)
    (row, link, rate), latency = _hops(task_graph, seconds), _latencies(task_graph)
    peak = np.zeros(count)
    np.maximum.at(peak, row, rate)
    kept = _is_shared(task_graph, row, link)[link]
    row, link, rate = row[kept], link[kept], rate[kept]
    order = np.argsort(row, kind="stable")
    row, link, rate = row[order], link[order], rate[order]
    part = rate / peak[row] / machine.link_bandwidth[link]
    _, number = np.unique(link, return_inverse=True)
    return Loads(
        pointers(np.bincount(row, minlength=count)), number.reshape(-1), part, peak, latency
    )


class PeerLoads(NamedTuple):
    """What rows of a sample load of shared links, by link, then by what the rows are like.

    Attributes:
        row, link, part: entries, see `Loads`.
        number: of the link; those that the same kinds of rows load alike have one: none is ever fuller than another.
        peak: of every row of the sample.
    """

    row: Array
    link: Array
    part: Array
    number: Array
    peak: Array


def find_peer_loads(peers: Peers[TaskGraph], seconds: Array) -> PeerLoads:
    """The loads of the sample, whose rows take these seconds."""
    sample, like = peers.sample, peers.like
    row, link, rate = _hops(sample, seconds)
    peak = np.zeros(len(sample))
    np.maximum.at(peak, row, rate)
    kept = _is_shared(sample, row, link, peers.times > 1)[link]
    row, link, rate = row[kept], link[kept], rate[kept]
    part = rate / peak[row] / sample.machine.link_bandwidth[link]
    order = np.lexsort((part, like[row], link))
    row, link, part = row[order], link[order], part[order]
    loaded = np.stack([like[row], part.view(np.int64)], axis=1)
    ptr = np.flatnonzero(np.diff(link, prepend=-1, append=-1))
    number, known = np.zeros(len(link), np.int64), dict[bytes, int]()
    for a, b in pairwise(ptr.tolist()):
        number[a:b] = known.setdefault(loaded[a:b].tobytes(), len(known))
    return PeerLoads(row, link, part, number, peak)


def refine_orbits(peers: Peers[TaskGraph], seconds: Array) -> Orbits:
    """The orbits in which rows that are like each other take equal seconds, load links alike, and share none.

    Args:
        peers: of the rows of representatives.
        seconds: of every row of the sample.
    """
    sample, like, orbits = peers.sample, peers.like, peers.orbits
    loads = find_peer_loads(peers, seconds)
    finer = orbits.refine(_seen_by_devices(sample, like, seconds, loads))
    shares = (np.diff(loads.link) == 0) & (np.diff(like[loads.row]) == 0)
    some, others = loads.row[:-1][shares], loads.row[1:][shares]
    finer = finer.part(sample.device[some], sample.device[others])
    finer = finer.part(sample.source[some], sample.source[others])
    if len(finer) > len(orbits) or (not len(some) and _are_alike(peers, seconds, loads)):
        return finer
    return Orbits.of_equal(np.arange(len(orbits.of)), strides=orbits.strides)


def _seen_by_devices(sample: TaskGraph, like: Array, seconds: Array, loads: PeerLoads) -> Array:
    """Of every device a number that follows from the seconds of its rows, and from the links that they load."""
    code = _MIXING * (loads.number.astype(np.uint64) + _MIXING * loads.part.view(np.uint64))
    of_row = _MIXING * (seconds.view(np.uint64) ^ like.astype(np.uint64))
    np.add.at(of_row, loads.row, code ^ (code >> np.uint64(29)))
    of_row ^= of_row >> np.uint64(31)
    seen = np.zeros(len(sample.machine.devices), np.uint64)
    together = sample.kind == Kind.COLLECTIVE
    np.add.at(seen, sample.device[~together], of_row[~together])
    np.add.at(seen, sample.source[~together], of_row[~together] * _MIXING)
    args = np.flatnonzero(np.repeat(together, np.diff(sample.arg_ptr)))
    of_arg = np.repeat(of_row, np.diff(sample.arg_ptr))[args]
    np.add.at(seen, sample.instance_device[sample.arg_instance[args]], of_arg)
    return seen.view(np.int64)


def _are_alike(peers: Peers[TaskGraph], seconds: Array, loads: PeerLoads) -> bool:
    """Whether rows take the seconds of those that they are like, and load what these load, part for part."""
    like = peers.like
    columns = seconds, loads.peak, _latencies(peers.sample)
    if any((column != column[like]).any() for column in columns):
        return False
    every, _ = distinct_columns(np.stack([loads.row, loads.number, loads.part.view(np.int64)]))
    own = every[:, like[every[0]] == every[0]]
    many = np.bincount(like, minlength=len(like))
    mapped, often = distinct_columns(np.stack([like[every[0]], *every[1:]]))
    return bool(
        mapped.shape == own.shape and (mapped == own).all() and (often == many[own[0]]).all()
    )


def loads_of_representatives(peers: Peers[TaskGraph], loads: PeerLoads) -> Loads:
    """What the rows of representatives load, of links by their numbers."""
    entries = np.stack([loads.row, loads.number, loads.part.view(np.int64)])
    own, _ = distinct_columns(entries[:, peers.like[loads.row] == loads.row])
    ptr = pointers([*np.bincount(own[0], minlength=len(peers.like)), 0])
    row = np.where(
        peers.number < 0, len(peers.like), peers.number
    )  # behind all: points, which load nothing
    width = ptr[row + 1] - ptr[row]
    at, peak = spread(ptr[row], width), np.append(loads.peak, 0.0)
    latency = np.append(_latencies(peers.sample), 0.0)
    return Loads(pointers(width), own[1][at], own[2].view(np.float64)[at], peak[row], latency[row])


def find_hops(task_graph: TaskGraph, seconds: Array) -> tuple[Array, Array]:
    """Rows, and HOP of the links that they load."""
    machine, (row, link, rate) = task_graph.machine, _hops(task_graph, seconds)
    hop = np.zeros(len(row), HOP)
    hop["link"] = STREAMS * len(machine.devices) + link
    hop["part"], hop["latency"] = rate / machine.link_bandwidth[link], _latencies(task_graph)[row]
    return row, hop


def _latencies(task_graph: TaskGraph) -> Array:
    """Seconds before each row loads its links."""
    latency, moved = np.zeros(len(task_graph)), np.flatnonzero(task_graph.is_transfer)
    every = task_graph.machine.ways.latency(task_graph.source[moved], task_graph.device[moved])
    latency[moved] = np.where(task_graph.algorithm[moved] == JOINED, 0.0, every)
    return latency


def find_tax(task_graph: TaskGraph) -> Tax | None:
    """What collectives take of their devices' compute; None: nothing."""
    share = np.array([d.collective_share for d in task_graph.machine.devices])
    row = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    if not (share.any() and len(row)):
        return None
    groups = [task_graph.groups.devices_of(g) for g in (-2 - task_graph.streams[row, 0]).tolist()]
    taken = np.zeros(len(task_graph), np.int64)
    taken[row] = [len(devices) for devices in groups]
    stream = task_graph.streams[:, 0]
    is_task = (stream >= 0) & (stream < len(share))  # the first streams are those of compute
    payer = np.where(is_task & (share[np.where(is_task, stream, 0)] > 0), stream, NONE)
    return make_tax(pointers(taken), np.concatenate(groups), payer, 1.0 - share)


def _hops(task_graph: TaskGraph, seconds: Array) -> Hops:
    """Every link on the way of a transfer, and of what a collective sends: that at an even pace all the while."""
    machine, moved = task_graph.machine, np.flatnonzero(task_graph.is_transfer)
    ends = task_graph.source[moved], task_graph.device[moved]
    routes = machine.ways.links(*ends)
    rates = np.repeat(machine.ways.bandwidth(*ends), (routes >= 0).sum(axis=1))
    found = [(np.repeat(moved, (routes >= 0).sum(axis=1)), routes[routes >= 0], rates)]
    together = np.flatnonzero(
        (task_graph.kind == Kind.COLLECTIVE) & (seconds > 0) & (task_graph.bytes > 0)
    )
    alike: dict[tuple[int, int], list[int]] = {}
    group = -2 - task_graph.streams[together, 0]
    for each, *key in np.stack([together, group, task_graph.algorithm[together]], axis=1).tolist():
        alike.setdefault((key[0], key[1]) if key[1] >= 0 else (NONE, each), []).append(each)
    for rows in alike.values():
        own = np.array(rows)
        links, parts = links_of(task_graph, rows[0])
        paces = paces_of(machine, links, parts, task_graph.bytes[own] / seconds[own])
        found.append((np.repeat(own, len(links)), np.tile(links, len(own)), paces.reshape(-1)))
    row, link, rate = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return row, link, rate


def links_of(task_graph: TaskGraph, row: int) -> tuple[Array, Array]:
    """See `links_of_exchange`, of a collective row."""
    number, machine = int(task_graph.algorithm[row]), task_graph.machine
    known = task_graph.ways[number].carried if number >= 0 else []
    if not known:
        known.append(links_of_exchange(machine, task_graph.exchange(row)))
    return known[0]


def paces_of(machine: MachineModel, links: Array, parts: Array, rates: Array) -> Array:
    """(rates, links): bytes per second of collectives on links that carry parts of their bytes per second."""
    paces: Array = np.minimum(np.outer(rates, parts), machine.link_bandwidth[links])
    return paces


def links_of_exchange(machine: MachineModel, exchange: Exchange) -> tuple[Array, Array]:
    """The links that a collective's algorithm crosses, and the part of its bytes that each carries."""
    source, target, size = exchange.sent()
    routes = machine.ways.links(source, target)
    message, hop = np.nonzero(routes >= 0)
    carried = np.bincount(routes[message, hop], size[message])
    links = np.flatnonzero(carried)
    return links, carried[links] / max(size.sum(), 1)


def _is_shared(
    task_graph: TaskGraph, row: Array, link: Array, is_often: Array | None = None
) -> Array:
    """Whether several sending and several receiving streams use a link; per link. `is_often`: a row is several."""
    devices, links = task_graph.machine.devices, len(task_graph.machine.links)
    is_shared, source, device = (
        np.ones(links, np.bool_),
        task_graph.source[row],
        task_graph.device[row],
    )
    is_collective = task_graph.kind[row] == Kind.COLLECTIVE
    port, has_port = ports_of(task_graph, row)
    has_no_stream = np.array([d.kind == "cpu" for d in devices])[source]  # the receiver copies
    sending = np.where(has_port, len(devices) + len(task_graph) + port, source)
    for ends, is_alone in (
        (sending, is_collective | has_no_stream),
        (device, is_collective | has_port),
    ):
        users = np.where(is_alone, len(devices) + row, ends)
        low, high = np.full(links, np.iinfo(np.int64).max), np.full(links, -1)
        np.minimum.at(low, link, users)
        np.maximum.at(
            high,
            link,
            users if is_often is None else users + len(is_often) * (is_alone & is_often[row]),
        )
        is_shared &= low != high
    return is_shared
