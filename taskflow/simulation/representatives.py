"""Links under the rows of representatives: who loads which, and where rows that are like each other load them unalike.

A transfer loads the links on its way, and rows of representatives stand for rows on other links. Links that the same
kinds of rows load alike have one number: none is ever fuller than another, so one of them stands for all. Rows that are
like each other and load one link do so at once: the row that stands for them loads it as often. What is known of a kind
of region is kept, by costs and orbits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct_columns, pointers, spread
from taskflow.cost.model import CostModel
from taskflow.machine import MachineModel
from taskflow.simulation.sharing import hops_of, hops_to_hosts, latencies_of
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.fair import Loads
from taskflow.tasks.peers import Peers, RegionRows
from taskflow.tasks.streams import ports_of
from taskflow.tasks.task_graph import Kind, TaskGraph

_MIXING = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing
MOST = 64  # orbits and numbers of links for which is remembered what is known of a kind


class Users(NamedTuple):
    """Who uses links at one end of transfers.

    Attributes:
        links: that are used, ascending.
        low, high: of each, the least and the greatest number of a stream; none: low is above high.
        alone: how many rows use it that have a stream of their own, up to 2.
    """

    links: Array
    low: Array
    high: Array
    alone: Array


class TableLoads:
    """What the rows of a table load of links under some costs."""

    def __init__(self, rows: TaskGraph, costs: CostModel) -> None:
        self.rows = rows
        self.seconds = costs.seconds(rows)
        row, link, rate = hops_of(rows, self.seconds)
        order = np.lexsort((link, row))
        self.row = row[order]
        self.link = link[order]
        self.peak = np.zeros(len(rows))
        self.latency = latencies_of(rows)
        np.maximum.at(self.peak, row, rate)
        bandwidth = rows.machine.link_bandwidth[self.link]
        self.part = rate[order] / self.peak[self.row] / bandwidth
        self._kinds: dict[tuple[int, int, int], KindLoads] = {}  # by rows, and where devices are

    def of(self, kind: RegionRows[TaskGraph]) -> KindLoads:
        """What the rows of a kind load."""
        key = *kind.ends, kind.by
        if key not in self._kinds:
            self._kinds[key] = KindLoads(self, kind)
        return self._kinds[key]


class KindLoads:
    """What the rows of a kind load; entries are rows, counted from the first of the kind, links and parts, by row."""

    def __init__(self, table: TableLoads, kind: RegionRows[TaskGraph]) -> None:
        self.rows, self.span, self.by, span = table.rows, kind.span, kind.by, kind.span
        self.machine = table.rows.machine
        entries = slice(*np.searchsorted(table.row, kind.ends).tolist())
        self.row = table.row[entries] - kind.begin
        self._links_here = kind.links_here
        self.link = kind.links_here(table.link[entries])
        self.part = table.part[entries]
        self.seconds, self.peak, self.latency = (
            column[span] for column in (table.seconds, table.peak, table.latency)
        )
        self._under: dict[bytes, LoadsUnder] = {}

    @cached_property
    def users(self) -> tuple[Users, Users]:
        """Who uses links to send, and to receive."""
        rows = self.rows
        machine = self.rows.machine
        at = np.arange(self.span.start, self.span.stop)
        links, used = np.unique(self.link, return_inverse=True)
        port, has_port = ports_of(rows, at)
        together = rows.kind[at] == Kind.COLLECTIVE
        has_no_stream = np.array([d.kind == "cpu" for d in machine.devices])[rows.source[at]]
        port = len(machine.devices) + self._links_here(port)
        source = np.where(has_port, port, rows.source[at] + self.by)[self.row]
        device = (rows.device[at] + self.by)[self.row]
        sending = _users(links, used, source, (together | has_no_stream)[self.row])
        return sending, _users(links, used, device, (together | has_port)[self.row])

    @property
    def ends(self) -> tuple[tuple[Array, Array], ...]:
        """Rows and devices at which they end, or that they join; rows and devices where they begin."""
        rows = self.rows
        span = self.span
        together = rows.kind[span] == Kind.COLLECTIVE
        alone = np.flatnonzero(~together)
        arguments = np.diff(rows.arg_ptr[span.start : span.stop + 1])
        args = np.flatnonzero(np.repeat(together, arguments)) + rows.arg_ptr[span.start]
        joined = np.repeat(np.flatnonzero(together), arguments[together])
        devices = rows.instance_device[rows.arg_instance[args]]
        ending = np.concatenate([rows.device[span][alone], devices]) + self.by
        beginning = rows.source[span][alone] + self.by
        return (np.concatenate([alone, joined]), ending), (alone, beginning)

    def under(self, like: Array, orbits: Orbits) -> LoadsUnder:
        """The same where rows are alike under orbits; `like`: of each the one that stands for it."""
        if orbits.key not in self._under:
            if len(self._under) >= MOST:
                self._under.clear()
            self._under[orbits.key] = LoadsUnder(self, like)
        return self._under[orbits.key]


class HostLoads(KindLoads):
    """What points load that carry something to the memory of hosts, or from there.

    Row 2 d stands for all of device d that go there, row 2 d + 1 for those that come.
    """

    def __init__(self, machine: MachineModel) -> None:
        ways = machine.host_ways
        self.machine = machine
        self.span = slice(0, 2 * len(machine.devices))
        row = np.arange(self.span.stop)
        crossing = row % 2
        row, link, rate = hops_to_hosts(machine, row, crossing, row // 2)
        order = np.lexsort((link, row))
        self.row = row[order]
        self.link = link[order]
        self.peak = ways.bandwidth.T.reshape(-1)
        self.latency = ways.latency.T.reshape(-1)
        self.part = rate[order] / self.peak[self.row] / machine.link_bandwidth[self.link]
        self.seconds = np.zeros(len(self.peak))
        self._under = {}

    @cached_property
    def users(self) -> tuple[Users, Users]:
        """Queues of their own."""
        links, used = np.unique(self.link, return_inverse=True)
        queue = len(self.machine.devices) + len(self.machine.links) + self.row
        users = _users(links, used.reshape(-1), queue, np.zeros(len(queue), np.bool_))
        return users, users

    @property
    def ends(self) -> tuple[tuple[Array, Array], ...]:
        """See there."""
        row = np.arange(len(self.peak))
        return ((row, row // 2),)


def _users(links: Array, used: Array, user: Array, is_alone: Array) -> Users:
    """Who uses links; of every entry: which of the links, its stream, and whether its row has one of its own."""
    low = np.full(len(links), np.iinfo(np.int64).max)
    high = np.full(len(links), -1)
    np.minimum.at(low, used[~is_alone], user[~is_alone])
    np.maximum.at(high, used[~is_alone], user[~is_alone])
    alone = np.bincount(used[is_alone], minlength=len(links))
    return Users(links, low, high, np.minimum(alone, 2))


class LinkNumbers(NamedTuple):
    """The numbers of links.

    Attributes:
        of: per link; -1: it is loaded by nobody, or one stream alone.
        key: equal for equal numbers, and only for these.
    """

    of: Array
    key: bytes


class LoadsUnder:
    """What the rows of a kind load where some of them stand for others; `like`: for each the row that stands for it.

    Attributes:
        links, number: the links that are loaded, ascending; those that like rows load alike have one number, from 0.
        count: of every entry, by how many rows that are like each other its link is loaded so: they do it at once.
    """

    def __init__(self, loads: KindLoads, like: Array) -> None:
        self.loads = loads
        self.like = like
        of_rows = like[loads.row]
        order = np.lexsort((loads.part, of_rows, loads.link))
        link = loads.link[order]
        entries = np.stack([of_rows, loads.part.view(np.int64)])[:, order]
        self.links = link[np.flatnonzero(np.diff(link, prepend=-1))]
        self.number = _number_lists(link, entries)
        begin = np.flatnonzero((np.diff(np.vstack([link, entries]), prepend=-1) != 0).any(axis=0))
        often = np.diff(begin, append=len(link))
        self.count = np.empty_like(link)
        self.count[order] = np.repeat(often, often)
        self._among: dict[bytes, LoadsAmong] = {}

    def among(self, numbers: LinkNumbers) -> LoadsAmong:
        """The same where links have these numbers."""
        if numbers.key not in self._among:
            if len(self._among) >= MOST:
                self._among.clear()
            self._among[numbers.key] = LoadsAmong(self, numbers)
        return self._among[numbers.key]


def _number_lists(link: Array, entries: Array) -> Array:
    """Of every link, in order, a number that those with equal lists of entries share; (columns, n), sorted by link."""
    begin = np.flatnonzero(np.diff(link, prepend=-1))
    count = np.diff(begin, append=len(link))
    place = spread(np.zeros_like(begin), count)
    code = np.zeros(len(link), np.uint64)
    for column in (*entries, place):
        code = _mix(code + column.view(np.uint64))
    total = np.add.reduceat(code, begin) if len(begin) else code
    _, first, number = np.unique(total, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    there = np.repeat(begin[first[number]], count) + place
    if (count != count[first[number]]).any() or (entries != entries[:, there]).any():  # by chance
        return np.arange(len(begin))
    return number


def _mix(code: Array) -> Array:
    """Numbers that look like chance."""
    code = code * _MIXING
    mixed: Array = code ^ (code >> np.uint64(29))
    return mixed


class LoadsAmong:
    """What the rows of a kind load of links that have numbers.

    Attributes:
        row, number, part: entries of rows that stand for others, as often as like rows load a link at once.
        is_alike: whether rows take the seconds of those that stand for them, and load what these load, part for part.
    """

    def __init__(self, under: LoadsUnder, numbers: LinkNumbers) -> None:
        self.under = under
        self._numbers = numbers
        like = under.like
        loads = under.loads
        kept = np.flatnonzero(numbers.of[loads.link] >= 0)
        part = loads.part[kept].view(np.int64)
        entries = loads.row[kept], numbers.of[loads.link[kept]], part, under.count[kept]
        every, _ = distinct_columns(np.stack(entries))
        standing = every[:, like[every[0]] == every[0]]
        many = np.bincount(like, minlength=len(like))
        mapped, often = distinct_columns(np.stack([like[every[0]], *every[1:]]))
        columns = loads.seconds, loads.peak, loads.latency
        self.is_alike = bool(
            all((column == column[like]).all() for column in columns)
            and mapped.shape == standing.shape
            and (mapped == standing).all()
            and (often == many[standing[0]]).all()
        )
        self.row, self.number, part = np.repeat(standing[:3], standing[3], axis=1)
        self.part = part.view(np.float64)

    @cached_property
    def seen(self) -> Array:
        """Of every device a number that follows from the seconds of its rows, and from the links that they load."""
        loads = self.under.loads
        like = self.under.like
        kept = np.flatnonzero(self._numbers.of[loads.link] >= 0)
        number = self._numbers.of[loads.link[kept]]
        part = loads.part[kept]
        code = _mix(number.astype(np.uint64) + _MIXING * part.view(np.uint64))
        code = _mix(code + self.under.count[kept].astype(np.uint64))
        of_rows = _MIXING * (loads.seconds.view(np.uint64) ^ like.astype(np.uint64))
        np.add.at(of_rows, loads.row[kept], code)
        of_rows = _mix(of_rows)
        seen = np.zeros(len(loads.machine.devices), np.uint64)
        for row, device in loads.ends:
            np.add.at(seen, device, of_rows[row])
            of_rows = of_rows * _MIXING
        return seen.view(np.int64)


def loads_of(peers: Peers[TaskGraph], costs: CostModel) -> tuple[list[KindLoads], Array]:
    """What the rows of every kind load, and the seconds of the rows of all tables in turn."""
    for table in peers.tables:
        if costs not in table.known:
            table.known[costs] = TableLoads(table.rows, costs)
    loads = [kind.table.known[costs].of(kind) for kind in peers.kinds]
    return loads, np.concatenate([table.known[costs].seconds for table in peers.tables])


def with_alike_loads(task_graph: TaskGraph, costs: CostModel) -> tuple[TaskGraph, Loads, Array]:
    """Rows of representatives, made anew where rows that are like each other take other seconds or load links unalike.

    Also what these rows load, and the seconds of the rows of all tables in turn.
    """
    peers = task_graph.peers
    assert peers is not None, "rows of representatives"
    kinds, table_seconds = loads_of(peers, costs)
    orbits, loads = find_loads(task_graph, kinds)
    while len(orbits) > len(peers.orbits):
        task_graph = peers.lower(orbits)
        peers = task_graph.peers
        assert peers is not None, "rows of finer orbits"
        orbits, loads = find_loads(task_graph, kinds)
    return task_graph, loads, table_seconds


def find_loads(task_graph: TaskGraph, loads: Sequence[KindLoads]) -> tuple[Orbits, Loads]:
    """The orbits in which rows that are like each other load links alike; and what the rows load.

    Where the orbits are finer than those of the peers, the loads are of no use.

    Args:
        task_graph: rows of representatives.
        loads: of the kinds of their regions.
    """
    peers = task_graph.peers
    assert peers is not None, "rows of representatives"
    orbits = peers.orbits
    likes = [kind.like - kind.begin for kind in peers.kinds]
    if (task_graph.crossing >= 0).any():
        first = 2 * orbits.representative[orbits.of]
        likes.append(np.stack([first, first + 1], axis=1).reshape(-1))
        loads = [*loads, HostLoads(task_graph.machine)]
    under = [of.under(like, orbits) for of, like in zip(loads, likes, strict=True)]
    numbers = _number_links(under, _are_shared(peers, loads))
    among = [of_kind.among(numbers) for of_kind in under]
    finer = orbits
    is_alike = all(of_kind.is_alike for of_kind in among)
    if not is_alike:
        seen = np.zeros(len(orbits.of), np.int64)
        for weight, of_kind in zip(_weights(len(among)), among, strict=True):
            seen += of_kind.seen * weight
        finer = finer.refine(seen)
        if len(finer) == len(orbits):
            finer = Orbits.of_equal(np.arange(len(orbits.of)), strides=orbits.strides)
    return finer, _of_rows(task_graph, among, loads)


def _weights(count: int) -> Array:
    """Odd numbers."""
    return np.random.default_rng(0).integers(1 << 62, size=count) | 1


def _are_shared(peers: Peers[TaskGraph], loads: Sequence[KindLoads]) -> Array:
    """Whether several sending and several receiving streams use a link; per link."""
    links = len(loads[0].machine.links) if loads else 0
    regions = [kind.regions for kind in peers.kinds] + [1]
    are_shared = np.ones(links, np.bool_)
    for end in range(2):
        low = np.full(links, np.iinfo(np.int64).max)
        high = np.full(links, -1)
        alone = np.zeros(links, np.int64)
        for of, count in zip(loads, regions, strict=False):
            users = of.users[end]
            at = users.links
            low[at] = np.minimum(low[at], users.low)
            high[at] = np.maximum(high[at], users.high)
            alone[at] += users.alone * min(count, 2)
        are_shared &= (low < high) | (alone > 1) | ((alone > 0) & (high >= 0))
    return are_shared


def _number_links(under: Sequence[LoadsUnder], are_shared: Array) -> LinkNumbers:
    """Links that the same kinds of rows load alike have one number, in the order of the links."""
    code = np.zeros(len(are_shared), np.int64)
    weights = _weights(len(under))
    for weight, of_kind in zip(weights, under, strict=True):
        code[of_kind.links] += (of_kind.number + 1) * weight
    used = np.zeros(len(are_shared), np.bool_)
    for of_kind in under:
        used[of_kind.links] = True
    at = np.flatnonzero(used & are_shared)
    _, first, number = np.unique(code[at], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    number, first = order[number.reshape(-1)], at[first[number.reshape(-1)]]
    for of_kind in under:
        numbers = np.full(len(code), -1)
        numbers[of_kind.links] = of_kind.number
        if (numbers[at] != numbers[first]).any():  # by chance
            number = np.arange(len(at))
            break
    of_links = np.full(len(code), -1)
    of_links[at] = number
    return LinkNumbers(of_links, of_links.tobytes())


def _of_rows(
    task_graph: TaskGraph, among: Sequence[LoadsAmong], loads: Sequence[KindLoads]
) -> Loads:
    """What the rows of representatives load, of links by their numbers."""
    peers = task_graph.peers
    assert peers is not None
    of_kinds = [of_kind.span.stop - of_kind.span.start for of_kind in loads]
    first = pointers(of_kinds)
    begin = np.array([kind.begin for kind in peers.kinds], np.int64)
    none = int(first[-1])  # behind all rows: a point, which loads nothing
    row = np.where(peers.kind < 0, none, first[peers.kind] + peers.number - begin[peers.kind])
    crossing = task_graph.crossing
    crossed = np.flatnonzero(crossing >= 0)
    row[crossed] = first[-2] + 2 * task_graph.device[crossed] + crossing[crossed]
    entries = np.concatenate([a.row + f for a, f in zip(among, first.tolist(), strict=False)])
    ptr = pointers(np.bincount(entries, minlength=none + 1))
    width = ptr[row + 1] - ptr[row]
    at = spread(ptr[row], width)
    number, part = (
        np.concatenate([getattr(a, name) for a in among])[at] for name in ("number", "part")
    )
    peak, latency = (
        np.append(np.concatenate([getattr(of_kind, name) for of_kind in loads]), 0.0)[row]
        for name in ("peak", "latency")
    )
    return Loads(pointers(width), number, part, peak, latency)
