"""What the rows that move regions of a kind load of links, by costs, by orbits, and by the numbers of links.

Of a kind that is placed on other devices than those of its table, all is as the table says, but for the links.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct_columns, spread
from taskflow.cost.model import CostModel
from taskflow.machine import MachineModel
from taskflow.simulation.sharing import hops_of, hops_to_hosts, latencies_of
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.peers import RegionRows
from taskflow.tasks.streams import ports_of
from taskflow.tasks.task_graph import Kind, TaskGraph

_MIXING = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing
MOST = 64  # orbits and numbers of links for which is remembered what is known of a kind


class Users(NamedTuple):
    """Who uses links at one end of transfers.

    Attributes:
        links: that are used.
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
    """What the rows of a kind load; entries are rows, counted from the first of the kind, links and parts, by row.

    Where the kind is placed on other devices than those of its table, `model` has what is true of both, on the links
    of the table; else it is this one.
    """

    model: KindLoads
    row: Array
    link: Array
    part: Array

    def __init__(self, table: TableLoads, kind: RegionRows[TaskGraph]) -> None:
        self.rows, self.span, self.by, span = table.rows, kind.span, kind.by, kind.span
        self.machine = table.rows.machine
        self.links_here = kind.links_here
        self.seconds, self.peak, self.latency = (
            column[span] for column in (table.seconds, table.peak, table.latency)
        )
        self._under: dict[bytes | int, LoadsUnder] = {}
        if kind.by:
            self.model = table.of(replace(kind, by=0, links=None))
            self.row = self.model.row
            self.link = self.model.link
            self.part = self.model.part
            return
        self.model = self
        entries = slice(*np.searchsorted(table.row, kind.ends).tolist())
        self.row = table.row[entries] - kind.begin
        self.link = table.link[entries]
        self.part = table.part[entries]

    @cached_property
    def _users_of_model(self) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
        """The links of the table that are used; of those who send and receive, link, stream and whether it is a port.

        Beside it of every link how many rows use it that have a stream of their own.
        """
        rows = self.rows
        at = np.arange(self.span.start, self.span.stop)
        links, used = np.unique(self.link, return_inverse=True)
        port, has_port = ports_of(rows, at)
        together = rows.kind[at] == Kind.COLLECTIVE
        has_no_stream = np.array([d.kind == "cpu" for d in self.machine.devices])[rows.source[at]]
        sending = np.where(has_port, port, rows.source[at]), together | has_no_stream, has_port
        receiving = rows.device[at], together | has_port, np.zeros_like(has_port)
        both = []
        for user, is_alone, is_port in (sending, receiving):
            alone = is_alone[self.row]
            of_rows = self.row[~alone]
            pairs = np.stack([used[~alone], user[of_rows], is_port[of_rows]])
            count = np.bincount(used[alone], minlength=len(links))
            both.append((distinct_columns(pairs)[0], count))
        return links, both[0], both[1]

    @cached_property
    def users(self) -> tuple[Users, Users]:
        """Who uses links to send, and to receive."""
        (links, *both) = self.model._users_of_model
        links = self.links_here(links)
        users = []
        for (used, stream, is_port), alone in both:
            user = stream + self.by
            ports = np.flatnonzero(is_port)
            user[ports] = len(self.machine.devices) + self.links_here(stream[ports])
            users.append(_users(links, used, user, alone))
        return users[0], users[1]

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

    def under(self, like: Array, begin: int, orbits: Orbits) -> LoadsUnder:
        """The same where rows are alike under orbits.

        `like`: of each the one that stands for it, counted so that the first of the kind is number `begin`.
        """
        return self._kept_under(orbits.key, like, begin)

    def _kept_under(self, key: bytes | int, like: Array, begin: int) -> LoadsUnder:
        if key not in self._under:
            if len(self._under) >= MOST:
                self._under.clear()
            model = None
            if self.model is not self:  # what rows are like is one array for all that have a model
                model = self.model._kept_under(id(like), like, begin)
            self._under[key] = LoadsUnder(self, like, begin, model)
        return self._under[key]


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
        self.model = self
        self._under = {}

    @cached_property
    def users(self) -> tuple[Users, Users]:
        """Queues of their own."""
        links, used = np.unique(self.link, return_inverse=True)
        queue = len(self.machine.devices) + len(self.machine.links) + self.row
        users = _users(links, used.reshape(-1), queue, np.zeros_like(links))
        return users, users

    @property
    def ends(self) -> tuple[tuple[Array, Array], ...]:
        """See there."""
        row = np.arange(len(self.peak))
        return ((row, row // 2),)


def _users(links: Array, used: Array, user: Array, alone: Array) -> Users:
    """Who uses links: streams `user` the links `used`, and of every link so many rows that have one of their own."""
    low = np.full(len(links), np.iinfo(np.int64).max)
    high = np.full(len(links), -1)
    np.minimum.at(low, used, user)
    np.maximum.at(high, used, user)
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
    """What the rows of a kind load where some of them stand for others; of a kind with a model, what that one says.

    Attributes:
        like: for each row the one that stands for it, counted from the first of the kind.
        links, number: the links that are loaded; those that like rows load alike have one number, from 0.
        place: of every entry, which of the links it loads.
        count: of every entry, by how many rows that are like each other its link is loaded so: they do it at once.
    """

    like: Array
    links: Array
    number: Array
    place: Array
    count: Array

    def __init__(
        self, loads: KindLoads, like: Array, begin: int, model: LoadsUnder | None = None
    ) -> None:
        self.loads = loads
        self.of_table = like  # whose identity the model is known by
        self._among: dict[bytes, LoadsAmong] = {}
        self._standing: dict[bytes, StandingLoads] = {}
        self.model = model or self
        if model is not None:
            self.like = model.like
            self.links = loads.links_here(model.links)
            self.number, self.place, self.count = model.number, model.place, model.count
            return
        self.like = like - begin
        of_rows = self.like[loads.row]
        order = np.lexsort((loads.part, of_rows, loads.link))
        link = loads.link[order]
        entries = np.stack([of_rows, loads.part.view(np.int64)])[:, order]
        self.links = link[np.flatnonzero(np.diff(link, prepend=-1))]
        self.place = np.searchsorted(self.links, loads.link)
        self.number = _number_lists(link, entries)
        begins = np.flatnonzero((np.diff(np.vstack([link, entries]), prepend=-1) != 0).any(axis=0))
        often = np.diff(begins, append=len(link))
        self.count = np.empty_like(link)
        self.count[order] = np.repeat(often, often)

    def among(self, numbers: LinkNumbers) -> LoadsAmong:
        """The same where links have these numbers."""
        if numbers.key not in self._among:
            if len(self._among) >= MOST:
                self._among.clear()
            self._among[numbers.key] = LoadsAmong(self, numbers)
        return self._among[numbers.key]

    def standing(self, of_links: Array) -> StandingLoads:
        """See there; `of_links`: the numbers of the links, from 0 without a gap, or -1."""
        key = of_links.tobytes()
        if key not in self._standing:
            if len(self._standing) >= MOST:
                self._standing.clear()
            self._standing[key] = self._find_standing(of_links)
        return self._standing[key]

    def _find_standing(self, of_links: Array) -> StandingLoads:
        like = self.like
        loads = self.loads
        number = of_links[self.place]
        kept = np.flatnonzero(number >= 0)
        part = loads.part[kept].view(np.int64)
        entries = loads.row[kept], number[kept], part, self.count[kept]
        every, _ = distinct_columns(np.stack(entries))
        standing = every[:, like[every[0]] == every[0]]
        many = np.bincount(like, minlength=len(like))
        mapped, often = distinct_columns(np.stack([like[every[0]], *every[1:]]))
        columns = loads.seconds, loads.peak, loads.latency
        is_alike = bool(
            all((column == column[like]).all() for column in columns)
            and mapped.shape == standing.shape
            and (mapped == standing).all()
            and (often == many[standing[0]]).all()
        )
        rows, numbers, parts = np.repeat(standing[:3], standing[3], axis=1)
        return StandingLoads(rows, numbers, parts.view(np.float64), is_alike)


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


class StandingLoads(NamedTuple):
    """Entries of rows that stand for others, as often as like rows load a link at once.

    Attributes:
        row, number, part: rows, numbers of links, and parts.
        is_alike: whether rows take the seconds of those that stand for them, and load what these load, part for part.
    """

    row: Array
    number: Array
    part: Array
    is_alike: bool


class LoadsAmong:
    """What the rows of a kind load of links that have numbers; see `StandingLoads`."""

    def __init__(self, under: LoadsUnder, numbers: LinkNumbers) -> None:
        self.under = under
        self._of_links = numbers.of[under.links]
        loaded = np.flatnonzero(self._of_links >= 0)
        of_links = np.full(len(under.links), -1)
        used, of_links[loaded] = np.unique(self._of_links[loaded], return_inverse=True)
        standing = under.model.standing(of_links)  # in order: `used` ascends
        self.row, self.part, self.is_alike = standing.row, standing.part, standing.is_alike
        self.number = used[standing.number]

    @cached_property
    def seen(self) -> Array:
        """Of every device a number that follows from the seconds of its rows, and from the links that they load."""
        loads = self.under.loads
        like = self.under.like
        number = self._of_links[self.under.place]
        kept = np.flatnonzero(number >= 0)
        number = number[kept]
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
