"""Streams: the in-order queues of a machine, and which of them each row occupies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskflow.core.columns import Column, pointers
from taskflow.core.grouping import grouped
from taskflow.core.start_rule import HOP
from taskflow.machine import MachineModel
from taskflow.machine.equal import in_order
from taskflow.tasks.task_graph import STREAMS, Array, Groups, Kind, TaskGraph

STREAM_NAMES = "compute", "sending", "receiving", "host copies", "moves within", "to the host"


def count_streams(machine: MachineModel) -> int:
    """Number of all streams, those of links included."""
    return STREAMS * len(machine.devices) + len(machine.links)


class StreamTable:
    """Numbers of the streams of a machine: per device those of STREAMS, then the links.

    What is folded or copied within a device waits for nothing that others send. A CPU device has one stream for all:
    its one thread computes and communicates, and it is the receiver that copies, out of the sender's memory, so that
    sending costs the sender nothing. What comes and goes to a device that sends by link occupies links alone.

    What comes from the memory of the host, feeds among it, and what goes there are queues of their own (`crossing`).

    A collective occupies sending and receiving of all its devices and the links of the ring that they form: too many
    for a column each, so its row names the group of its devices instead. So collectives of one device go in order of
    issue. On a machine whose collectives are `behind` compute one occupies that, too.
    """

    def __init__(self, machine: MachineModel) -> None:
        count = len(machine.devices)
        self._rings: dict[bytes, tuple[int, ...]] = {}
        self._groups: dict[tuple[int, ...], Array] = {}
        self.one_thread = np.array([d.kind == "cpu" for d in machine.devices])
        self.compute = np.arange(count)
        self.by_link = np.array([d.sends_by_link for d in machine.devices]) & ~self.one_thread
        self.sending = np.where(self.one_thread | self.by_link, -1, count + self.compute)
        self.receiving = np.where(self.one_thread, self.compute, 2 * count + self.compute)
        self.host = np.where(self.one_thread, self.compute, 3 * count + self.compute)
        self.within = np.where(self.one_thread, self.compute, 4 * count + self.compute)
        self.leaving = np.where(self.one_thread, self.compute, 5 * count + self.compute)
        self.crossing = np.stack([self.leaving, self.host])  # AWAY, BACK
        self.of_device = np.stack(
            [self.compute, self.receiving, self.host, self.sending, self.within]
        )
        self.arriving = np.where(self.by_link, -1, self.receiving)  # of transfers
        rate = [d.memory_efficiency * d.memory_bandwidth for d in machine.devices]
        self.fold_rate = np.array(rate)
        self.host_number = np.array([d.host for d in machine.devices])
        overhead = np.array([d.overhead_seconds for d in machine.devices])
        self.fold_seconds = overhead + [d.half_bytes for d in machine.devices] / self.fold_rate
        self.count = count_streams(machine)
        self.machine = machine
        self.first_link = STREAMS * count

    def routes(self, source: Array, target: Array) -> Array:
        """(..., longest) links on the way from some devices to others, -1 behind the last."""
        routes = self.machine.ways.links(source, target)
        return np.where(routes < 0, -1, self.first_link + routes)

    def host_routes(self, crossing: Array, device: Array) -> Array:
        """(n, longest) links between some devices and the memory of their hosts, AWAY or BACK; n may be 0."""
        if not len(device):
            return np.zeros((0, 0), np.int64)
        routes = self.machine.host_ways.links[crossing, device]
        return np.where(routes < 0, -1, self.first_link + routes)

    def ends(self, source: Array, target: Array) -> Array:
        """(..., 2) streams of the devices between which transfers go, the receiver's first; -1 for none."""
        ends = np.empty((*np.broadcast_shapes(source.shape, target.shape), 2), np.int32)
        ends[..., 0], ends[..., 1] = self.arriving[target], self.sending[source]
        ends[source == target] = -1
        return ends

    def ports(self, source: Array, target: Array) -> Array:
        """The first link of transfers from devices that send by link; -1 for others."""
        first = self.machine.ways.links(source, target)[..., :1].max(axis=-1, initial=-1)
        return np.where(self.by_link[source] & (first >= 0), self.first_link + first, -1)

    def of_rows(
        self,
        kind: Array,
        source: Array,
        device: Array,
        crossing: Array,
        arg_ptr: Array,
        arg_device: Array,
        dtype: type[np.signedinteger[Any]] = np.int64,
    ) -> tuple[Array, Groups]:
        """(rows, n) stream numbers, -1 where there are fewer, -2 - g for those of group g; and the groups."""
        crossed = np.flatnonzero(crossing >= 0)
        links = self.host_routes(crossing[crossed], device[crossed])
        longest = max(1 + self.machine.ways.longest, links.shape[1])
        streams = np.full((len(kind), 1 + longest), -1, dtype)
        streams[:, 0] = self.compute[device]
        streams[crossed, 0] = self.crossing[crossing[crossed], device[crossed]]
        streams[crossed, 1 : 1 + links.shape[1]] = links
        moves = (kind == Kind.COPY) | (kind == Kind.FOLD)
        together = np.flatnonzero(kind == Kind.COLLECTIVE)
        streams[moves, 0] = self.within[device[moves]]
        streams[kind == Kind.FEED, 0] = self.host[device[kind == Kind.FEED]]
        remote = moves & (source != device)
        ways = source[remote], device[remote]
        between = np.concatenate([self.ends(*ways), self.routes(*ways)], axis=1)
        streams[remote, : between.shape[1]] = between
        numbers = dict[tuple[int, ...], int]()
        of_names = dict[bytes, int]()
        ends = zip(arg_ptr[together].tolist(), arg_ptr[together + 1].tolist(), strict=True)
        group = np.empty(len(together), np.int64)
        for k, (begin, end) in enumerate(ends):
            names = arg_device[begin:end]
            number = of_names.get(key := names.tobytes())
            if number is None:
                number = numbers.setdefault(self.ring(names), len(numbers))
                of_names[key] = number
            group[k] = number
        streams[together] = -1
        streams[together, 0] = -2 - group
        return streams, self._table(list(numbers))

    def ring(self, names: Array) -> tuple[int, ...]:
        """See `Exchange.ring`."""
        key = names.tobytes()
        if key not in self._rings:
            ring = in_order(names.astype(np.int64), tuple(self.machine.equals))
            self._rings[key] = tuple(ring.tolist())
        return self._rings[key]

    def _table(self, groups: list[tuple[int, ...]]) -> Groups:
        """The groups of a task graph, in the order of their numbers."""
        streams = [self.of_group(group) for group in groups]
        devices = groups
        none = np.zeros(0, np.int64)
        return Groups(
            pointers([len(s) for s in streams]),
            np.concatenate([none, *streams]),
            pointers([len(d) for d in devices]),
            np.concatenate([none, *devices]).astype(np.int64),
        )

    def of_group(self, ring: tuple[int, ...]) -> Array:
        """All streams of a collective among the devices of a ring, sorted."""
        if ring not in self._groups:
            is_used = np.zeros(self.count + 1, np.bool_)  # the last one for -1
            source, target = np.array(ring), np.array([*ring[1:], ring[0]])
            for streams in (self.of_devices(source), self.routes(source, target)):
                is_used[streams] = True
            self._groups[ring] = np.flatnonzero(is_used[:-1])
        return self._groups[ring]

    def of_devices(self, devices: Array) -> Array:
        """The streams that a collective takes of these devices, sorted."""
        taken = [self.sending[devices], self.receiving[devices]]
        taken += [self.compute[devices]] if self.machine.holds_compute else []
        streams = np.unique(np.concatenate(taken))
        return streams[streams >= 0]


class StreamSets:
    """Sets of streams and of links, numbered, since rows of a search that occupy the same streams are many.

    With d devices the set of a transfer from s to t is number `s * d + t`, that of copies and folds within t number
    `t * d + t`; behind those come host copies and compute of every device, what goes to the memory of its host, what
    comes from there, then collectives.

    A link that only one device sends over, or receives from, is left out: it is never busy when that device is not.

    Attributes:
        columns: `ptr`, `streams`, `hop_ptr` and `hop`: a row of set k occupies the streams
            `streams[ptr[k] : ptr[k + 1]]` and loads the links `hop[hop_ptr[k] : hop_ptr[k + 1]]` (HOP).
        count: number of streams.
    """

    def __init__(self, table: StreamTable) -> None:
        count = len(table.compute)
        machine = table.machine
        pairs = table.compute[:, None], table.compute[None, :]
        routes, ports, queues = table.routes(*pairs), table.ports(*pairs), table.ends(*pairs)
        queues[:, :, 1] = np.maximum(queues[:, :, 1], ports)
        queues[table.compute, table.compute, 0] = table.within
        flat = queues.reshape(count * count, -1)
        alone = 4 * count
        lengths = np.concatenate([(flat >= 0).sum(axis=1), np.ones(alone, np.int64)])
        self._table = table
        self._is_shared = _shared(table, routes)
        self._groups: dict[tuple[bytes, ...], int] = {}
        self.count = table.count
        self._ptr = Column(np.int64)
        self._streams = Column(np.int64)
        self._hop_ptr = Column(np.int64)
        self._hop = Column(HOP)
        self._ptr.add(pointers(lengths))
        crossing = table.crossing.reshape(-1)
        self._streams.add(np.concatenate([flat[flat >= 0], table.host, table.compute, crossing]))
        is_kept = (routes >= 0) & self._is_shared[routes] & (routes != ports[:, :, None])
        is_kept[table.compute, table.compute] = False
        source, target, k = np.nonzero(is_kept)
        links = machine.routes[source, target, k]
        latency = machine.latency_seconds[source, target]
        self._add_hops(
            links, machine.bandwidth[source, target] / machine.link_bandwidth[links], latency
        )
        hops = [*is_kept.sum(axis=2).reshape(-1), *[0] * (alone // 2)]
        if not machine.memories:
            self._hop_ptr.add(pointers([*hops, *[0] * (alone // 2)]))
            return
        ways = machine.host_ways
        direction, device, k = np.nonzero(ways.links >= 0)
        links = ways.links[direction, device, k]
        self._is_shared[table.first_link + links] = True
        bandwidth = ways.bandwidth[direction, device]
        latency = ways.latency[direction, device]
        self._add_hops(links, bandwidth / machine.link_bandwidth[links], latency)
        self._hop_ptr.add(pointers([*hops, *(ways.links >= 0).sum(axis=2).reshape(-1)]))

    @property
    def columns(self) -> tuple[Array, Array, Array, Array]:
        """See there, as they are now."""
        return self._ptr.data, self._streams.data, self._hop_ptr.data, self._hop.data

    @property
    def size_bytes(self) -> int:
        """Memory that the sets take."""
        return sum(column.nbytes for column in self.columns)

    @property
    def first_compute(self) -> int:
        """The set of points on the first device; those of the others follow."""
        count = len(self._table.compute)
        return count * count + count

    def of_group(self, ring: Sequence[int], links: Array, parts: Array) -> int:
        """The set of a collective among the devices of a ring, which takes these parts of these links."""
        key = bytes(np.array(ring)), links.tobytes(), parts.tobytes()
        if key not in self._groups:
            self._streams.add(self._table.of_devices(np.array(ring)))
            kept = self._is_shared[self._table.first_link + links]
            self._add_hops(links[kept], parts[kept], np.zeros(kept.sum()))
            self._hop_ptr.add(np.array([self._hop.length]))
            self._groups[key] = self._ptr.add(np.array([self._streams.length])) - 1
        return self._groups[key]

    def _add_hops(self, links: Array, parts: Array, latency: Array) -> None:
        hop = np.zeros(len(links), HOP)
        hop["link"] = self._table.first_link + links
        hop["part"] = parts
        hop["latency"] = latency
        self._hop.add(hop)


def _shared(table: StreamTable, routes: Array) -> Array:
    """Per stream, whether it is of a link that no one sending stream, and no one receiving stream, implies."""
    source, target, _ = np.nonzero(routes >= 0)
    used = routes[routes >= 0]
    is_shared = np.ones(table.count, np.bool_)
    for streams in (table.sending[source], table.arriving[target]):
        low = np.full(len(is_shared), np.iinfo(np.int64).max)
        high = np.full(len(is_shared), -1)
        np.minimum.at(low, used, streams)
        np.maximum.at(high, used, streams)
        is_shared &= (low != high) | (low < 0)
    return is_shared


def find_queues(task_graph: TaskGraph) -> tuple[Array, Array]:
    """Ascending rows and the streams that they occupy: those of devices, and where one sends by link a port per link.

    A port has the number of the link's stream.
    """
    rows, streams = task_graph.occupied()
    first_link = STREAMS * len(task_graph.machine.devices)
    moved = np.flatnonzero(task_graph.is_transfer)
    port, has_port = ports_of(task_graph, moved)
    kept = streams < first_link
    rows = rows[kept]
    streams = streams[kept]
    if not has_port.any():
        return rows, streams
    rows = np.concatenate([rows, moved[has_port]])
    order = np.argsort(rows, kind="stable")
    return rows[order], np.concatenate([streams, first_link + port[has_port]])[order]


def follows(rows: Array, streams: Array) -> tuple[Array, Array]:
    """Pairs of rows, the second the next one after the first on a stream, given ascending rows and their streams."""
    order = grouped(streams, int(streams.max(initial=-1)) + 1)[1]
    is_next = np.diff(streams[order]) == 0
    return rows[order[:-1]][is_next], rows[order[1:]][is_next]


def ports_of(task_graph: TaskGraph, moved: Array) -> tuple[Array, Array]:
    """The first link of transfers, and whether it is a port of their source."""
    source = task_graph.source[moved]
    devices = task_graph.machine.devices
    by_link = np.array([d.sends_by_link and d.kind != "cpu" for d in devices])
    links = task_graph.machine.ways.links(source, task_graph.device[moved])
    first = links[:, :1].max(axis=1, initial=-1)
    return first, by_link[source]


def describe_stream(machine: MachineModel, stream: int) -> tuple[int, str]:
    """The device of a stream and what it is, for people; those of links come after all devices."""
    devices = len(machine.devices)
    if stream < STREAMS * devices:
        return stream % devices, STREAM_NAMES[stream // devices]
    link = machine.links[stream - STREAMS * devices]
    return devices, f"link {link.ends[0]}->{link.ends[1]}"
