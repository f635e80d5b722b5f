"""What collectives cost, and which algorithm carries one out: one pass over its rows on the links of its group.

The rows are those that `execute.expand` makes (see `collective.rows`), and links are shared fairly (`tasks.fair`).

An algorithm is left out without a pass where its busiest stream or link alone takes longer than another one in all.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from taskflow.collective.algorithms import ALGORITHMS, BY_STEPS, ROOTED, serving
from taskflow.collective.group import Group, group_of
from taskflow.collective.library import STEPS_ALONE, Library, LibraryPrices, is_one_call
from taskflow.collective.rows import Sending, rows_of, sending, work_of
from taskflow.collective.twins import twins
from taskflow.core.columns import Array, pointers
from taskflow.machine import MachineModel
from taskflow.machine.library import LIBRARY
from taskflow.machine.protocol import OWN
from taskflow.tasks import exchange as exchanges
from taskflow.tasks.all_to_all import ALGORITHMS as TO_EACH
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.moves import (
    Outline,
    boxes_of,
    cut_of,
    even_outline,
    straight_messages,
    with_outsiders,
)
from taskflow.tasks.steps import Messages, Steps, Way, messages_of
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import COLLECTIVES, Privilege, TaskGraph

MOST = 1 << 12  # collectives and groups that are remembered
# Tried where there are outsiders, and straight if little is sent: of what walks asked for, on average within 0.8 % (64
# P100), 0.4 % (64 H100), 1.7 % (16 V100) of the fastest. To try all takes three quarters of a search.
WITH_OUTSIDERS = ("ring", "rings", "two-level in 4 parts")
SMALL = 8  # devices of a machine on which searches, too, try every algorithm
# In groups of more, of these that whose busiest stream or link takes the least, or the fastest where one has all. On
# 256 H100 and V100, of 4 KB to 256 MB, that takes up to 1.31 times what the fastest of all does. To try all on 1,024
# takes hours.
MANY = 128
MANY_TREES = 64  # in groups of more no trees are grown where nobody relays: that takes 0.2 s, and others are as fast
WITH_MANY = ("two-level", "two-level doubling", "halving-doubling", "tree", "chain in 16 parts")
_MOST_MEMBERS, _TRIED_BYTES = 64, (1 << 14, 1 << 20, 1 << 25)  # see `_winners`
_DIGEST_BYTES = 16
Few = Callable[[str], Collection[str]]  # collective -> algorithms
REDUCE, BROADCAST = COLLECTIVES.index("reduce"), COLLECTIVES.index("broadcast")


class Choice(NamedTuple):
    """Seconds of a collective, and its algorithm: "" where it has none, see `Exchange.is_regular`."""

    seconds: float
    algorithm: str


class Carried(NamedTuple):
    """Seconds of a collective, the links of the machine that it crosses, and which part of its bytes each carries.

    Links that are alike carry equal parts (`LinkColumns.evened`). A tree, or what is left over of even pieces, loads
    those of some members more than others', and that while a part of its seconds lasts; what is certain is their sum.
    So members are alike, and few devices stand for all.
    """

    seconds: float
    links: Array
    parts: Array


class Asked(NamedTuple):
    """What the costs of an exchange depend on: its members, and whether an algorithm can carry it out."""

    group: tuple[int, ...]
    outline: Outline
    is_regular: bool


class NamedDevices(NamedTuple):
    """The devices of the arguments of a collective.

    Attributes:
        number: of these names.
        members: see `Exchange.members`.
        pattern: which member each name is, and on which of their hosts members are.
    """

    number: int
    members: tuple[int, ...]
    pattern: bytes


class Look(NamedTuple):
    """What a collective row looks like.

    Attributes:
        row: its number.
        named: its devices.
        place: the lowest corner of its boxes, and its instances counted from the first.
        digest: of all else; of rows with the same one, members do the same.
    """

    row: int
    named: NamedDevices
    place: bytes
    digest: bytes


class CollectiveCosts:
    """Seconds and algorithms of collectives on one machine, each found once.

    With `few`, the fastest is chosen among those alone that it gives of a name.
    """

    def __init__(self, machine: MachineModel) -> None:
        self.machine = machine
        self.few: Few | None = None
        self.table, self._library = StreamTable(machine), Library.of(machine)
        self._names: dict[tuple[bytes, int], NamedDevices] = {}
        self._ways: dict[tuple[int, bytes], Way | None] = {}
        self._seconds: dict[object, float] = {}  # by the way
        self._outlines: dict[bytes, tuple[Outline, bool]] = {}
        # with the machine's numbers of links
        self._models: dict[tuple[int, ...], tuple[GroupPrices, Array]] = {}
        self._alike: dict[bytes, GroupPrices] = {}

    @staticmethod
    def of(machine: MachineModel) -> CollectiveCosts:
        """Those of a machine, the same ones while few others are asked for: lowering and costs share what they find."""
        kept = [costs for costs in _RECENT if costs.machine is machine]
        if not kept:
            kept.append(CollectiveCosts(machine))
            _RECENT.append(kept[0])
        return kept[0]

    @staticmethod
    def of_search(machine: MachineModel) -> CollectiveCosts:
        """For a search: those that lowering has, on more than `SMALL` devices by the algorithms of `_winners` alone.

        An estimate may be above what lowering finds, never below it.
        """
        costs = CollectiveCosts.of(machine)
        if len(machine.devices) > SMALL:
            costs = copy(costs)
            costs.few = cache(CollectiveCosts(machine.with_library(OWN))._winners)
        return costs

    def _winners(self, name: str) -> Collection[str]:
        """Algorithms that are the fastest for some size: among all, those of a host, one of each host."""
        host = [device.host for device in self.machine.devices]
        every = sorted(range(len(host)), key=host.__getitem__)
        first = {host[d]: d for d in reversed(every)}
        on_host = [d for d in every if host[d] == host[every[0]]]
        groups = every[:_MOST_MEMBERS], on_host, sorted(first.values())
        prices = [self.prices(tuple(group[:_MOST_MEMBERS])) for group in groups if len(group) > 1]
        tries = product(prices, _TRIED_BYTES)
        return {of_group.choose(name, size).algorithm for of_group, size in tries}

    def seconds(self, task_graph: TaskGraph, rows: Array) -> Array:
        """Seconds of collective rows."""
        first, kind, _ = twins(task_graph, rows)
        ways = [task_graph.ways[n] if n >= 0 else None for n in task_graph.algorithm[rows].tolist()]
        of_kinds, seconds = dict[object, float](), np.empty(len(rows))
        if len(self._seconds) >= MOST:
            self._seconds = {}
        for k, (of, way) in enumerate(zip(kind.tolist(), ways, strict=True)):
            prices = self._seconds if way else of_kinds  # those that go one way look alike
            if (key := way or of) not in prices:
                prices[key] = self._choice_of(task_graph, int(first[of]), way).seconds
            seconds[k] = prices[key]
        return seconds

    def of_row(self, task_graph: TaskGraph, row: int) -> Choice:
        """Of a collective row, with the algorithm that it has, if it has one; else what lowering would choose."""
        number = int(task_graph.algorithm[row])
        return self._choice_of(task_graph, row, task_graph.ways[number] if number >= 0 else None)

    def _choice_of(self, task_graph: TaskGraph, row: int, way: Way | None) -> Choice:
        asked = self._asked(task_graph, self.look(task_graph, row))
        if way and not way.carried:
            way.carried.append(self._carried(asked.group, asked.outline, way.algorithm)[1:])
        return self._choose(asked, way.algorithm if way else None)

    def _choose(self, asked: Asked, algorithm: str | None) -> Choice:
        """The algorithm given, else the machine's for it, or the fastest; and what it takes."""
        prices = self.prices(asked.group)
        if not asked.is_regular:
            return Choice(prices.seconds_of(asked.outline, ""), "")
        given = algorithm or self.machine.collectives.get(asked.outline.name)
        return prices.best(asked.outline, given, self.few)

    def way(self, task_graph: TaskGraph, look: Look) -> Way | None:
        """How the collective row that looks so is carried out, if it is regular."""
        key = look.named.number, look.digest
        if key not in self._ways:
            if len(self._ways) >= MOST:
                self._ways = {}
            asked = self._asked(task_graph, look)
            algorithm, prices = self._algorithm(asked), self.prices(asked.group)
            self._ways[key] = (
                Way(algorithm, prices.messages(asked.outline, algorithm)) if algorithm else None
            )
        return self._ways[key]

    def look(self, task_graph: TaskGraph, row: int) -> Look:
        """All that the price of a collective row depends on."""
        first, end = task_graph.arg_ptr[row : row + 2].tolist()
        instance, box = task_graph.arg_instance[first:end], task_graph.arg_box[first:end]
        privilege, lowest = task_graph.arg_privilege[first:end], box[:, 0].min(axis=0)
        collective = int(task_graph.collective[row])
        root = {REDUCE: int((privilege == Privilege.READ).sum()), BROADCAST: 0}.get(collective, -1)
        named = self._named(task_graph.instance_device[instance], root)
        itemsize = task_graph.regions[int(task_graph.region[row])].itemsize
        hasher = hashlib.blake2b(bytes([collective, itemsize]), digest_size=_DIGEST_BYTES)
        hasher.update(named.pattern)
        alike = np.unique(instance, return_inverse=True)[1]  # equal where instances are
        columns = task_graph.instance_partial[instance], alike, privilege
        for column in (*columns, box - lowest):
            hasher.update(column.tobytes())
        place = np.append(lowest, instance - instance[0]).tobytes()
        return Look(row, named, place, hasher.digest())

    def _named(self, names: Array, root: int) -> NamedDevices:
        """Of the devices of all arguments; the first member is that of argument `root`, if that is not negative."""
        key = hashlib.blake2b(names.tobytes(), digest_size=_DIGEST_BYTES).digest(), root
        if key not in self._names:
            if len(self._names) >= MOST:
                self._names, self._ways = {}, {}
            ring = self.table.ring(names)
            begin = ring.index(int(names[root])) if root >= 0 else 0
            members = ring[begin:] + ring[:begin]
            number = {device: k for k, device in enumerate(members)}
            hosts = self.table.host_number[np.array(members)].tolist()
            place = {host: k for k, host in enumerate(dict.fromkeys(hosts))}
            pattern = [number[d] for d in names.tolist()] + [place[host] for host in hosts]
            self._names[key] = NamedDevices(len(self._names), members, np.array(pattern).tobytes())
        return self._names[key]

    def _asked(self, task_graph: TaskGraph, look: Look) -> Asked:
        """Of a row that looks so; those that look alike share an outline."""
        if look.digest not in self._outlines:
            if len(self._outlines) >= MOST:
                self._outlines = {}
            exchange = task_graph.exchange(look.row)
            region = task_graph.regions[int(task_graph.region[look.row])]
            described = exchange.outline(region.itemsize), exchange.is_regular
            self._outlines[look.digest] = described
        return Asked(look.named.members, *self._outlines[look.digest])

    def _algorithm(self, asked: Asked) -> str:
        """The algorithm that `_choose` gives it, of which no seconds are asked."""
        if not asked.is_regular:
            return ""
        given = self.machine.collectives.get(asked.outline.name)
        return self.prices(asked.group).algorithm(asked.outline, given, self.few)

    def carried(self, exchange: Exchange, itemsize: int) -> Carried:
        """What an exchange takes by the algorithm that is chosen, and of the links."""
        asked = Asked(tuple(exchange.members), exchange.outline(itemsize), exchange.is_regular)
        return self._carried(asked.group, asked.outline, self._algorithm(asked))

    def _carried(self, group: tuple[int, ...], outline: Outline, algorithm: str) -> Carried:
        prices, links = self._of(group)
        seconds, load = prices.priced(outline, algorithm)
        even, crossed = prices.group.ways.link.evened(load[:-1]), np.argsort(links)
        crossed = crossed[even[crossed] > 0]
        return Carried(seconds, links[crossed], even[crossed] / max(load[-1], 1.0))

    def prices(self, group: tuple[int, ...]) -> GroupPrices:
        """The prices of a group, host by host, the root first; those that look alike share them."""
        return self._of(group)[0]

    def _of(self, group: tuple[int, ...]) -> tuple[GroupPrices, Array]:
        """And of each of its links the machine's number."""
        if group not in self._models:
            if len(self._models) >= MOST:
                self._models, self._alike = {}, {}
            model, links = group_of(self.machine, self.table, group)
            part = partial(self._part, group)
            prices = GroupPrices(model, part, self._library)
            self._models[group] = self._alike.setdefault(model.key, prices), links
        return self._models[group]

    def _part(self, group: tuple[int, ...], members: tuple[int, ...]) -> GroupPrices:
        """The prices of some members of a group."""
        return self.prices(tuple(group[k] for k in members))


_RECENT: deque[CollectiveCosts] = deque(maxlen=4)  # see `CollectiveCosts.of`


class GroupPrices:
    """What every algorithm takes in a group.

    Args:
        part: the prices of some members.
    """

    def __init__(
        self,
        group: Group,
        part: Callable[[tuple[int, ...]], GroupPrices] | None = None,
        library: Library = STEPS_ALONE,
    ) -> None:
        self.group, self._part = group, part
        self.library = LibraryPrices(group, library, lambda members: self._of_part(members).group)
        self._has_trees = group.count <= MANY_TREES or group.ways.has_relays
        self._steps: dict[tuple[str, str], Steps] = {}
        self._among: dict[tuple[str, str, int], Messages] = {}
        self._sent: dict[tuple[object, ...], Sending] = {}
        self._work: dict[tuple[object, ...], tuple[Array, Array]] = {}
        self._choices: dict[tuple[object, ...], Choice] = {}
        self._priced: dict[tuple[Outline, str], tuple[float, Array]] = {}

    def best(
        self, outline: Outline, algorithm: str | None = None, few: Few | None = None
    ) -> Choice:
        """The fastest algorithm of a regular collective, or the one given, if it serves; "": straight, in turn.

        Where all is even that is no better than the algorithm `straight`. `few`: see `CollectiveCosts`.
        """
        key = outline, algorithm, few
        if key not in self._choices:
            if len(self._choices) >= MOST:
                self._choices = {}
            able = self._able(outline, algorithm, few)
            is_bound = len(able) > 1 and outline.is_even
            bounds = sorted(
                (self.bound_of(outline, name) if is_bound else 0.0, k)
                for k, name in enumerate(able)
            )
            best = Choice(np.inf, able[0])
            for bound, k in bounds:
                if bound < best.seconds:
                    best = min(
                        best,
                        Choice(self.seconds_of(outline, able[k]), able[k]),
                        key=lambda choice: choice.seconds,
                    )
            self._choices[key] = best
        return self._choices[key]

    def algorithm(
        self, outline: Outline, algorithm: str | None = None, few: Few | None = None
    ) -> str:
        """The algorithm of `best`; among many members nothing is priced where one is left."""
        able = self._able(outline, algorithm, few) if self.group.count > MANY else ()
        return able[0] if len(able) == 1 else self.best(outline, algorithm, few).algorithm

    def _able(self, outline: Outline, algorithm: str | None, few: Few | None) -> tuple[str, ...]:
        """Among which the fastest is chosen."""
        library = (LIBRARY,) if self._serves(outline) else ()
        if algorithm and algorithm in (*serving(outline.name), *library):
            return (algorithm,)
        if library and self.library.is_certain:
            return library
        able = (
            *(name for name in tried(outline, few) if name != "multitree" or self._has_trees),
            *library,
        )
        if self.group.count <= MANY or len(able) == 1 or outline.name in ROOTED:
            return able
        return (self._least_busy(outline, able),)

    def _least_busy(self, outline: Outline, able: Sequence[str]) -> str:
        """Of these algorithms the one whose busiest stream or link takes the least.

        Messages are not made where the latencies of those that one member sends take longer than another algorithm.
        """
        latency = self.group.ways.least_latency
        sends = [ALGORITHMS[name].sends(self.group) if name in ALGORITHMS else 0 for name in able]
        best = np.inf, 0
        for k in np.argsort(sends, kind="stable").tolist():
            if sends[k] * latency < best[0]:
                best = min(best, (self._busiest(outline, able[k], np.mean), k))
        return able[best[1]]

    def seconds_of(self, outline: Outline, algorithm: str) -> float:
        """Seconds of one algorithm, on links that nothing else occupies; "": see `Exchange.is_regular`."""
        return self.priced(outline, algorithm)[0]

    def priced(self, outline: Outline, algorithm: str) -> tuple[float, Array]:
        """And the bytes that cross every link; the last one: that are sent in all."""
        key = outline, algorithm
        if key not in self._priced:
            if len(self._priced) >= MOST:
                self._priced = {}
            if algorithm == LIBRARY:
                self._priced[key] = self._called(outline), self.library.load(outline)
            else:
                rows = rows_of(self.group, outline, self._sending(outline, algorithm))
                self._priced[key] = rows.seconds(), rows.load
        return self._priced[key]

    def _serves(self, outline: Outline) -> bool:
        """Whether the library has a call for it, and what that takes is known."""
        return self.library.curve(outline.name) is not None and is_one_call(outline)

    def _called(self, outline: Outline) -> float:
        """What the library takes for it."""
        curve = self.library.curve(outline.name)
        assert curve, "a call that the library has not"
        return curve.at(outline.whole_bytes)

    def bound_of(self, outline: Outline, algorithm: str) -> float:
        """What its busiest stream or link takes, where all is even: messages are as long as the shortest piece."""
        return self._busiest(outline, algorithm, np.min) * (1 - 1e-9)

    def _busiest(self, outline: Outline, algorithm: str, length: Callable[[Array], float]) -> float:
        """What its busiest stream or link takes, where all pieces are as long as `length` of all of them."""
        if algorithm == LIBRARY:
            return self._called(outline)
        sends = self._sending(outline, algorithm)
        messages = sends.messages
        has_all = (
            len(outline.sources) == self.group.count
        )  # else something that is added comes to nothing: no fold
        key = outline.name, algorithm, outline.parts, has_all
        if key not in self._work:
            self._work[key] = work_of(sends, self.group, has_all)
        fixed, per_piece = self._work[key]
        cut = cut_of(outline, messages.owner, messages.together)
        end = pointers(np.prod(np.diff(boxes_of(outline, cut), axis=1)[:, 0], axis=1))[cut.ptr]
        size = outline.unit_bytes * float(length(np.diff(end)))
        return float((fixed + per_piece * size).max(initial=0.0)) if size else 0.0

    def messages(self, outline: Outline, algorithm: str) -> Messages:
        """The messages of one algorithm; of few bytes, any number can arrive at once."""
        return self._sending(outline, algorithm).messages

    def _sending(self, outline: Outline, algorithm: str) -> Sending:
        """The messages of one algorithm, and what they take of the group; "": straight, in turn."""
        if not algorithm:
            return sending(self.group, straight_messages(outline))
        if outline.name == "all-to-all":  # nothing of it is known beforehand
            return sending(self.group, TO_EACH[algorithm](outline))
        parts = outline.parts
        key = outline.name, algorithm, parts, outline.outsiders
        if key not in self._sent:
            core = self
            if outline.outsiders:
                core = self._of_part(outline.core)
            among = core._messages_among(outline.name, algorithm, parts)
            self._sent[key] = sending(self.group, with_outsiders(outline, among))
        return self._sent[key]

    def _messages_among(self, name: str, algorithm: str, parts: int) -> Messages:
        """The messages of a collective of which all members have, or get, a part; see `steps.messages_of`."""
        key = name, algorithm, parts
        if key not in self._among:
            of_steps = name, self._as_steps if algorithm == LIBRARY else algorithm
            if of_steps not in self._steps:
                self._steps[of_steps] = ALGORITHMS[of_steps[1]].steps(name, self.group)
            self._among[key] = messages_of(name, self._steps[of_steps], parts)
        return self._among[key]

    @property
    def _as_steps(self) -> str:
        """The algorithm whose steps stand for a call of the library where nobody has it."""
        return "ring" if self.group.count <= MANY else "two-level"

    def _of_part(self, members: tuple[int, ...]) -> GroupPrices:
        """The prices of some members."""
        if len(members) == self.group.count:
            return self
        assert self._part, "a group of a machine"
        return self._part(members)

    # -- of equal pieces -----------------------------------------------------------------------------------------------

    def choose(self, name: str, size: float, algorithm: str | None = None) -> Choice:
        """`best` of a collective of which all have, or get, `size` bytes, in tiles that are as equal as can be."""
        return self.best(even_outline(name, self.group.hosts, size), algorithm)

    def seconds(self, name: str, algorithm: str, size: float) -> float:
        """`seconds_of` such a one."""
        return self.seconds_of(even_outline(name, self.group.hosts, size), algorithm)


def tried(outline: Outline, few: Few | None = None) -> tuple[str, ...]:
    """Algorithms among which the fastest is chosen; "": see `Exchange.is_regular`; `few`: see `CollectiveCosts`."""
    able = serving(outline.name)
    if len(outline.hosts) > MANY and outline.name != "all-to-all":
        return tuple(name for name in WITH_MANY if name in able)
    if outline.outsiders:
        is_small = outline.tile_bytes <= exchanges.SMALL_BYTES
        return (*(name for name in WITH_OUTSIDERS if name in able), *([""] if is_small else []))
    if few is not None and outline.name in BY_STEPS:
        able = tuple(name for name in able if name in few(outline.name))
    return able if outline.is_even or outline.name == "all-to-all" else (*able, "")
