"""Which devices do the same, found from fragments and points, of which a graph of many devices has few.

Devices are in one orbit where all that touches them is equal, in order: points, instances, arguments of rows. Then what
touches a device is like what touches its representative, at the same place. Where a row would be like one row by one of
its devices and like another row by another one, partners do not match, and the digits in which these two differ are
parted. At last all rows must wait for rows that are like those for which the row waits that they are like. What is
found is checked to the last row, nothing is only likely; where it does not hold, every device is an orbit.

All of this is asked of one kind of region at a time, and kept: the next strategy asks it of its new kinds alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct, pointers, spread
from taskflow.core.grouping import ranks
from taskflow.lowering.movement import Fragment
from taskflow.lowering.own import MarkedPart, part_of
from taskflow.lowering.rows import DistinctPoints
from taskflow.lowering.sample import Sample, instances_of_arguments
from taskflow.lowering.touches import (
    PRIME,
    RegionTouches,
    liken,
    narrow_touches,
    see,
    see_rows,
)
from taskflow.machine import MachineModel
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.peers import RowTable
from taskflow.tasks.task_graph import TaskGraph

DIGEST_BYTES = 16  # of hashes that are equal for equal bytes alone
MOST = 16  # orbits of which is remembered what is alike under them
MOST_VIEWS = 1024  # the same, and how far devices are from those of a table
SHARED = -1  # a port of several devices


def refined(kinds: Sequence[PlacedKind], orbits: Orbits) -> Orbits:
    """The orbits, refined until rows of representatives stand for all rows that move regions of these kinds.

    Devices of one orbit have equal rates.
    """
    alone = Orbits.of_equal(np.arange(len(orbits.of)), strides=orbits.strides)
    if any(kind.shares_a_port for kind in kinds):
        return alone
    orbits = orbits.refine(_mixed(kinds, lambda placed: placed.kind.seen))
    while len(orbits) < len(alone):
        before = 0
        while before < len(orbits):
            before = len(orbits)
            seen = partial(PlacedKind.seen_together, orbits=orbits)
            orbits = orbits.refine(_mixed(kinds, seen))
        alikes = [kind.alike(orbits) for kind in kinds]
        if any(alike is None for alike in alikes):  # by chance
            break
        some, others = (
            np.concatenate([getattr(alike, name) for alike in alikes if alike])
            for name in ("some", "others")
        )
        if not len(some):
            if all(alike.is_kept for alike in alikes if alike):
                return orbits
            break
        finer = orbits.part(some, others)
        if len(finer) == len(orbits):
            break
        orbits = finer
    return alone


def _mixed(kinds: Sequence[PlacedKind], seen: Callable[[PlacedKind], Array]) -> Array:
    """One number of every device for all that kinds have seen of it, which is 0 of devices that do not touch them.

    `seen`: of devices with the numbers that they have in the table of a kind.
    """
    total = np.zeros(kinds[0].table.devices, np.int64)
    for placed in kinds:
        touched = placed.table.touched
        total[touched + placed.by] += seen(placed)[touched] * (placed.weight | 1)
    return total


class Alike(NamedTuple):
    """What rows of a kind are like under some orbits.

    Attributes:
        like: of every row of the kind, the row that it is like.
        some, others: pairs of devices of one row, by which it would be like two rows.
        is_kept: whether rows wait for those that are like those for which the row waits that they are like.
    """

    like: Array
    some: Array
    others: Array
    is_kept: bool


class KindsTable:
    """Kinds of regions that were found together, with their rows on all devices.

    Args:
        sample: the kinds.
        chosen: their points.
        rows: those of `sample`, with algorithms.
        port: see `ports_of_links`.
        touched: the devices of all that touches them.
    """

    def __init__(
        self, sample: Sample, chosen: DistinctPoints, rows: TaskGraph, port: Array, touched: Array
    ) -> None:
        self.sample = sample
        self.chosen = chosen
        self.devices = len(rows.machine.devices)
        self.touched = touched
        self._seen_by = dict[tuple[bytes, int], Orbits]()
        self.peers = RowTable(rows)
        self.rows = rows
        kinds = len(sample.regions)
        every = np.arange(len(sample.regions) + 1)
        self.row, self.instance, self.arg = (
            pointers(n) for n in (sample.rows, sample.instances, sample.args)
        )
        self.edge = pointers(sample.edges)
        self.weight = np.random.default_rng(0).integers(0, PRIME, self.devices)  # of orbits
        self.place = spread(
            np.zeros_like(sample.version_rows), sample.version_rows
        )  # of a row in its version
        self._parts: dict[bytes, MarkedPart] = {}
        self._points: dict[bytes, Array] = {}
        of_rows = _ports(rows, port)
        shared = np.repeat(every[:-1], sample.rows)[of_rows == SHARED]
        self.shares_a_port = np.bincount(shared, minlength=kinds) > 0
        self.of_instances, self.of_rows, self.of_events = self._touches(of_rows)
        none = np.zeros(0, np.int64)
        ordinal = self.of_events.facts[2]
        self.chosen = chosen._replace(bytes=none, flops=none, point=none, ordinal=ordinal)
        self.seen = np.zeros((kinds, self.devices), np.int64)
        spans = self.instance, self.arg, self.event
        for touches, ptr in zip(
            (self.of_instances, self.of_rows, self.of_events), spans, strict=True
        ):
            see(tuple(touches), ptr, self.seen)

    def _touches(self, port: Array) -> tuple[RegionTouches, RegionTouches, RegionTouches]:
        """Instances, arguments of rows, and points with their arguments; `port`: of every row."""
        sample = self.sample
        rank = self._ranks(sample.instance_device, sample.instances)  # of an instance on its device
        size, _ = sample.by_region.gather(
            lambda f: np.prod(f.instance_box[:, :, 1] - f.instance_box[:, :, 0], axis=1)
        )
        flags, _ = sample.by_region.gather(_flags)
        version = np.repeat(np.arange(len(sample.version_rows)), sample.version_rows)
        instance = instances_of_arguments(sample)
        none = np.zeros((0, 0), np.int64)
        of_row = [sample.row[name] for name in ("kind", "collective", "ordinal", "points")]
        device = sample.instance_device[instance]
        return (
            narrow_touches(
                sample.instance_device, rank, np.arange(len(rank)), np.stack([size, flags]), none
            ),
            narrow_touches(
                device,
                self._ranks(device, sample.args),
                sample.arg_row,
                np.stack([*of_row, version, port, _algorithms(self.rows)]),
                np.stack([rank[instance], sample.arg["privilege"]]),
            ),
            self._touches_of_events(rank),
        )

    def _touches_of_events(self, rank: Array) -> RegionTouches:
        """Of points by their arguments, of events that differ; `rank`: of every instance on its device."""
        sample = self.sample
        chosen = self.chosen
        begin = pointers(chosen.points)
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        events = np.zeros(len(sample.regions), np.int64)
        event = 0
        for k, first in enumerate(self.instance[:-1].tolist()):
            instances = sample.by_region.fragments[sample.by_region.which[k]].event_instance
            at = 0
            met = set[tuple[int, bytes]]()
            for number in sample.event_points[event : event + sample.events[k]].tolist():
                of_event = instances[at : at + chosen.points[number]]
                key = number, hashlib.blake2b(of_event, digest_size=DIGEST_BYTES).digest()
                if key not in met:  # else all that is true of it is so of that one, too
                    met.add(key)
                    node = np.arange(begin[number], begin[number + 1])
                    parts.append(
                        (node, np.where(of_event < 0, -1, np.append(rank, 0)[first + of_event]))
                    )
                    events[k] += len(of_event)
                at += len(of_event)
            event += sample.events[k]
        self.event = pointers(events)
        node, instance = (np.concatenate(c) for c in zip(*parts, strict=True))
        number = np.repeat(np.arange(len(parts)), [len(nodes) for nodes, _ in parts])
        device = chosen.device[node]
        facts = (chosen.bytes, chosen.flops.view(np.int64), chosen.ordinal)
        more = np.stack([number, instance])
        return narrow_touches(device, self._ranks(device, events), node, np.stack(facts), more)

    def seen_by(self, orbits: Orbits, by: int) -> Orbits:
        """Orbits as they are for what touches devices whose numbers are by so many more; see `Orbits.seen_by`."""
        if (key := (orbits.key, by)) not in self._seen_by:
            if len(self._seen_by) >= MOST_VIEWS:
                self._seen_by.clear()
            self._seen_by[key] = orbits.seen_by(self.touched, by)
        return self._seen_by[key]

    def let_go(self) -> None:
        """Keep the rows alone: nothing is asked of orbits any more."""
        for name in ("sample", "chosen", "of_instances", "of_rows", "of_events", "seen"):
            vars(self).pop(name, None)
        self._parts.clear()
        self._points.clear()

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, without what is known under orbits."""
        of_rows = vars(self.rows).values()
        columns = (
            *self.sample,
            *self.of_instances,
            *self.of_rows,
            *self.of_events,
            *of_rows,
            self.seen,
        )
        return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))

    def _ranks(self, device: Array, count: Array) -> Array:
        """Of every touch how many of the same kind of region there are before on its device."""
        kind = np.repeat(np.arange(len(count)), count)
        return ranks(kind * self.devices + device, len(count) * self.devices)

    def part(self, orbits: Orbits) -> MarkedPart:
        """What representatives have of all kinds."""
        part: MarkedPart = _kept_of(
            self._parts, orbits, lambda: part_of(self.sample, self.chosen, orbits.is_first).light
        )
        return part

    def like_points(self, orbits: Orbits) -> Array:
        """Of every point the one of a representative at the same place; -1: there is none."""
        like: Array = _kept_of(self._points, orbits, lambda: self._find_points(orbits))
        return like

    def _find_points(self, orbits: Orbits) -> Array:
        chosen = self.chosen
        most = int(self.chosen.ordinal.max(initial=0)) + 1
        number = np.repeat(np.arange(len(chosen.points)), chosen.points)
        key = (number * self.devices + chosen.device) * most + chosen.ordinal
        first = orbits.representative[orbits.of][chosen.device]
        is_own = np.flatnonzero(first == chosen.device)  # of representatives, by their keys
        by_key = is_own[np.argsort(key[is_own], kind="stable")]
        wanted = key + (first - chosen.device) * most
        keys = key[by_key]
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where(keys[at] == wanted, by_key[at], -1) if len(keys) else np.full(len(key), -1)


def _kept_of(kept: dict[bytes, Any], orbits: Orbits, find: Any) -> Any:
    """What is found once for some orbits."""
    if orbits.key not in kept:
        if len(kept) >= MOST:
            kept.clear()
        kept[orbits.key] = find()
    return kept[orbits.key]


class PlacedKind:
    """A kind of region where it is: its devices have numbers that are `by` so many more than in its table.

    Attributes:
        kind: as the table has it.
        by, links: that number, and of every link that its rows load the one that takes its place; None: by is 0.
        weight: a number of its own.
    """

    def __init__(
        self, kind: RegionKind, weight: int, by: int = 0, links: Array | None = None
    ) -> None:
        self.kind = kind
        self.weight = weight
        self.by = by
        self.links = links
        self.table = kind.table
        self.rows = kind.rows
        self.shares_a_port = kind.shares_a_port

    def _there(self, orbits: Orbits) -> Orbits:
        return self.table.seen_by(orbits, self.by)

    def part(self, orbits: Orbits) -> Fragment:
        """What representatives have of it."""
        return self.kind.part(self._there(orbits))

    def numbers(self, orbits: Orbits) -> Array:
        """The rows of the table that are of this kind and touch representatives."""
        return self.kind.numbers(self._there(orbits))

    def like(self, orbits: Orbits) -> Array:
        """Of every row of the kind, the row of the table that it is like."""
        return self.kind.like(self._there(orbits))

    def seen_together(self, orbits: Orbits) -> Array:
        """See `RegionKind.seen_together`; of devices as the table numbers them."""
        return self.kind.seen_together(self._there(orbits))

    def alike(self, orbits: Orbits) -> Alike | None:
        """What rows are like; None: what touches a device is not what touches its representative."""
        alike = self.kind.alike(self._there(orbits))
        if alike is None:
            return None
        return alike._replace(some=alike.some + self.by, others=alike.others + self.by)


class RegionKind:
    """A kind of region on all devices: its row in a table of kinds, whose orbits all orbits here are."""

    def __init__(self, table: KindsTable, k: int) -> None:
        self.table = table
        self.k = k
        self._together: dict[bytes, Array] = {}
        self._alike: dict[bytes, Alike | None] = {}

    @property
    def rows(self) -> slice:
        """Its rows in the table."""
        return slice(*self.table.row[self.k : self.k + 2].tolist())

    def part(self, orbits: Orbits) -> Fragment:
        """What representatives have of it."""
        return self.table.part(orbits).fragments[self.k]

    def numbers(self, orbits: Orbits) -> Array:
        """The rows of the table that are of this kind and touch representatives."""
        is_row = self.table.part(orbits).is_node[self.table.sample.points :]
        numbers: Array = self.rows.start + np.flatnonzero(is_row[self.rows])
        return numbers

    def like(self, orbits: Orbits) -> Array:
        """Of every row of the kind, the row of the table that it is like."""
        alike = self.alike(orbits)
        assert alike is not None, "orbits that are refined"
        return alike.like

    @property
    def shares_a_port(self) -> bool:
        """Whether transfers leave by links by which those of other devices leave."""
        return bool(self.table.shares_a_port[self.k])

    @property
    def seen(self) -> Array:
        """Of every device a number that follows from what touches it, in order."""
        seen: Array = self.table.seen[self.k]
        return seen

    def seen_together(self, orbits: Orbits) -> Array:
        """The same from the orbits of the devices that rows touch, which touch it."""
        together: Array = _kept_of(self._together, orbits, lambda: self._see_together(orbits))
        return together

    def _see_together(self, orbits: Orbits) -> Array:
        touches = self.table.of_rows
        span = self.table.arg[self.k : self.k + 2].tolist()
        weight = self.table.weight[orbits.of]
        rows = self.rows
        seen = np.zeros(self.table.devices, np.int64)
        see_rows(touches.device, touches.thing, *span, rows.start, rows.stop, weight, seen)
        return seen

    def alike(self, orbits: Orbits) -> Alike | None:
        """What rows are like; None: what touches a device is not what touches its representative."""
        alike: Alike | None = _kept_of(self._alike, orbits, lambda: self._find_alike(orbits))
        return alike

    def _find_alike(self, orbits: Orbits) -> Alike | None:
        table = self.table
        rows = self.rows
        like = np.arange(rows.start, rows.stop)
        by = np.full(rows.stop - rows.start, -1)
        unlike = np.zeros(table.arg[self.k + 1] - table.arg[self.k], np.bool_)
        orbit_columns = orbits.of, orbits.size, orbits.is_first
        for touches, ptr, first in (
            (table.of_instances, table.instance, -1),
            (table.of_rows, table.arg, rows.start),
            (table.of_events, table.event, -1),
        ):
            span = ptr[self.k : self.k + 2].tolist()
            if not liken(tuple(touches), *span, *orbit_columns, first, like, by, unlike):
                return None
        touch = table.arg[self.k] + np.flatnonzero(unlike)
        others = table.of_rows.device[touch]
        some = by[table.of_rows.thing[touch] - rows.start]
        is_kept = not len(others) and self._is_kept(like, table.like_points(orbits))
        return Alike(like, some, others, is_kept)

    def _is_kept(self, like: Array, points: Array) -> bool:
        """See `Alike.is_kept`; `points`: what every point of the table is like."""
        sample, edges = self.table.sample, slice(*self.table.edge[self.k : self.k + 2].tolist())
        nodes, begin = sample.points + len(sample.row), sample.points + self.rows.start
        waiting, awaited = (
            ends[edges].astype(np.int64) for ends in (sample.waiting, sample.awaited)
        )

        def of(node: Array) -> Array:
            """What nodes are like."""
            likes = np.append(points, 0)[np.minimum(node, sample.points)]
            at = np.flatnonzero(node >= sample.points)
            likes[at] = sample.points + like[node[at] - begin]
            return likes

        both = of(waiting), of(awaited)
        if min(both[0].min(initial=0), both[1].min(initial=0)) < 0:
            return False
        every = distinct(waiting * nodes + both[1])
        here = (both[0] == waiting) & (both[1] == awaited)
        own_edges = distinct(waiting[here] * nodes + awaited[here])
        if not len(own_edges):
            return not len(every)
        mapped = of(every // nodes) * nodes + every % nodes
        at = np.minimum(np.searchsorted(own_edges, mapped), len(own_edges) - 1)
        waits = own_edges // nodes
        of_points = np.bincount(np.maximum(points, 0), minlength=sample.points + 1)
        of_rows = np.bincount(like - self.rows.start, minlength=len(like) + 1)
        many = np.where(
            waits < sample.points,
            of_points[np.minimum(waits, sample.points)],
            of_rows[np.clip(waits - begin, 0, len(like))],
        )
        return bool(
            (own_edges[at] == mapped).all()
            and (np.bincount(at, minlength=len(own_edges)) == many).all()
        )


def ports_of_links(machine: MachineModel) -> Array:
    """Of every link, its number among those by which transfers leave its source; SHARED: of several sources.

    Only devices that send by link have ports; other links have the number 0.
    """
    ways = machine.ways
    by_link = [d.sends_by_link and d.kind != "cpu" for d in machine.devices]
    devices = np.arange(len(machine.devices))
    first = np.concatenate(
        [ways.within[:, :, :1].reshape(len(devices), -1), ways.out[:, :1]], axis=1
    )
    source = np.repeat(devices, first.shape[1])
    links = first.reshape(-1).astype(np.int64)
    kept = (links >= 0) & np.array(by_link)[source]
    pairs = distinct(source[kept] * (len(machine.links) + 1) + links[kept])
    source, links = np.divmod(pairs, len(machine.links) + 1)
    port = np.zeros(len(machine.links) + 1, np.int64)
    port[links] = np.arange(len(links)) - np.searchsorted(source, source)
    port[np.flatnonzero(np.bincount(links, minlength=len(port)) > 1)] = SHARED
    return port


def _ports(rows: TaskGraph, port: Array) -> Array:
    """Per row, by which of its source's ports a transfer leaves."""
    ports = np.zeros(len(rows), np.int64)
    machine = rows.machine
    by_link = np.array([d.sends_by_link and d.kind != "cpu" for d in machine.devices])
    moved = np.flatnonzero((rows.source != rows.device) & by_link[rows.source])
    ports[moved] = port[machine.ways.links(rows.source[moved], rows.device[moved])[:, 0]]
    return ports


def _flags(fragment: Fragment) -> Array:
    """Of every instance, whether it is partial, a home, fetched."""
    flags = fragment.instance_partial.astype(np.int64)
    flags[fragment.homes] += 2
    flags[fragment.fetches[:, 1]] += 4
    return flags


def _algorithms(rows: TaskGraph) -> Array:
    """Per row a number of the algorithm's name; 0: none."""
    names = ["", *(way.algorithm for way in rows.ways)]
    number = np.unique(names, return_inverse=True)[1].reshape(-1)
    algorithms: Array = number[np.maximum(rows.algorithm, -1) + 1]
    return algorithms
