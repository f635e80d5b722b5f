"""The task graph: rows of tasks as columns, the one thing that `simulate` and `Executor` accept.

A row is one point of an operator, a copy, a fold (combining partial results), a feed or a collective among many
devices. Row order is issue order and a valid sequential execution; `dep_row[dep_ptr[i]:dep_ptr[i + 1]]` are the rows
that row i waits for. The graph knows kernels, and how threads may divide a point: below `lower` nothing else sees
patterns, or how an operator was split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import repeat

import numpy as np

from taskflow.core.columns import Array as Array
from taskflow.core.columns import pointers, spread, taken
from taskflow.core.errors import InternalError
from taskflow.core.geometry import Rect
from taskflow.core.grouping import sort_each
from taskflow.core.text import contents
from taskflow.graph.graph import LogicalRegion
from taskflow.machine import MachineModel
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.groups import Groups as Groups
from taskflow.tasks.launch import Launch as Launch
from taskflow.tasks.launch import crossing_of as crossing_of
from taskflow.tasks.own import Own
from taskflow.tasks.peers import Peers
from taskflow.tasks.steps import Way


class Kind(IntEnum):
    """What a row does."""

    POINT = 0  # a kernel on its tiles: arguments are the operator's inputs and outputs
    COPY = 1  # arguments: source box, target box
    FOLD = 2  # arguments: target box, then the partial results to combine; the target may be the first of them
    FEED = 3  # arguments: the box to fill from the caller's feed
    COLLECTIVE = 4  # arguments: sources, targets, then what the sums need (see `exchange`); each target = the result


class Privilege(IntEnum):
    """What a row may do with an argument."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2
    REDUCE = 3


_PRIVILEGES = tuple(Privilege)  # by number, faster than `Privilege(number)`


def access(privileges: Sequence[Privilege]) -> tuple[list[bool], list[bool]]:
    """Per argument of a kernel: whether it reads what is there, and whether it writes."""
    reads = [p in (Privilege.READ, Privilege.READ_WRITE) for p in privileges]
    return reads, [p != Privilege.READ for p in privileges]


# Streams of a device: compute, sending, receiving, what comes from the host, moves within, what goes to the host. Those
# of links come after all of these.
STREAMS = 6
JOINED = -2  # an algorithm, see `TaskGraph`

COLLECTIVES = (
    *("", "copy", "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"),
    *("reduce", "halo", "gather", "scatter"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """A readable view of one row, for people and tests."""

    row: int
    kind: Kind
    name: str
    point: int
    device: int
    source: int
    bytes: int
    flops: float
    args: tuple[tuple[int, Rect, Privilege], ...]
    dependences: tuple[int, ...]
    collective: str
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.source}->{self.device}" if self.source != self.device else f"@{self.device}"
        what = f"{self.collective or self.kind.name.lower()} {self.name}[{self.point}]{contents(self.members)}"
        return f"{self.row}: {what} {place} {self.bytes} B, after {list(self.dependences)}"


@dataclass(frozen=True, eq=False, repr=False)
class TaskGraph:
    """Rows, arguments, dependences and instances, all as NumPy columns; identical on every rank.

    Attributes:
        kind, launch, point, region, device, source, collective, bytes, flops: one entry per row; `launch` is -1 for
            rows that move data, `region` -1 for points; `device` is where the row ends, `source` where a copy starts.
        ordinal: one entry per row: which of the points of its operator on its device (see `lowering.ordinals`).
        algorithm: one entry per row: the number, in `ways`, of how a collective is carried out; -1: straight, or none;
            JOINED: a copy that travels in the message of the row before.
        streams: (rows, n) numbers of the streams a row occupies, -1 for none, `-2 - g` for all those of group g.
        arg_ptr, arg_instance, arg_box, arg_privilege: arguments; a box is ((lo), (hi)), zero-padded; instance -1 is an
            empty box. Boxes of rows of representatives, and of their instances, are `columns.Selected`; what numbers
            their points, regions, algorithms, streams and instances takes half the memory (int32).
        dep_ptr, dep_row: dependences.
        instance_region, instance_device, instance_box, instance_partial: the instances.
        homes: region name -> (instance, box) that hold it between steps.
        fetches: output name -> (device, instance, box).
        combine: region number -> `sum` or `max`.
        orders: region name -> order of its dimensions in memory, for those that are not row-major.
        groups: of the collectives.
        uses_tf32: whether GPUs may round the operands of float32 products to TensorFloat-32.
        repeat: so many steps of the model are one step of the task graph.
        bucket_bytes: collectives of a library that follow each other are one call of so much at most (see `calls`).
        own: what the rows of some devices know of the rows of all; None: these are all rows.
        peers: the rows for which these, of representatives, stand; None: these stand for themselves.
    """

    machine: MachineModel
    launches: tuple[Launch, ...]
    regions: tuple[LogicalRegion, ...]
    kind: Array
    launch: Array
    point: Array
    region: Array
    device: Array
    source: Array
    ordinal: Array
    collective: Array
    algorithm: Array
    bytes: Array
    flops: Array
    streams: Array
    arg_ptr: Array
    arg_instance: Array
    arg_box: Array
    arg_privilege: Array
    dep_ptr: Array
    dep_row: Array
    instance_region: Array
    instance_device: Array
    instance_box: Array
    instance_partial: Array
    homes: Mapping[str, tuple[tuple[int, Rect], ...]]
    fetches: Mapping[str, tuple[tuple[int, int, Rect], ...]]
    combine: Mapping[int, str]
    orders: Mapping[str, tuple[int, ...]]
    devices_used: tuple[int, ...] = field(default_factory=tuple)
    groups: Groups = field(default_factory=Groups)
    ways: tuple[Way, ...] = field(default_factory=tuple)
    uses_tf32: bool = False
    repeat: int = 1
    bucket_bytes: int = 0
    own: Own[TaskGraph] | None = None
    peers: Peers[TaskGraph] | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return f"TaskGraph({len(self)} rows on {len(self.devices_used)} devices, {self.bytes_moved} bytes moved)"

    def __getitem__(self, row: int) -> Task:
        row = range(len(self))[row]
        launch = int(self.launch[row])
        return Task(
            row,
            Kind(int(self.kind[row])),
            self.name(row),
            int(self.point[row]),
            int(self.device[row]),
            int(self.source[row]),
            int(self.bytes[row]),
            float(self.flops[row]),
            self.args(row),
            tuple(self.deps(row)),
            COLLECTIVES[int(self.collective[row])] if launch < 0 else "",
            self.launches[launch].members if launch >= 0 else (),
        )

    def name(self, row: int) -> str:
        """The operator of a point, the region of a row that moves data."""
        launch, region = int(self.launch[row]), int(self.region[row])
        return self.launches[launch].name if launch >= 0 else self.regions[region].name

    def args(self, row: int) -> tuple[tuple[int, Rect, Privilege], ...]:
        """Instance (-1: an empty box), box in global coordinates and privilege of every argument of a row."""
        launch, span = int(self.launch[row]), slice(*self.arg_ptr[row : row + 2].tolist())
        numbers = self.launches[launch].args if launch >= 0 else repeat(int(self.region[row]))
        columns = (c[span].tolist() for c in (self.arg_instance, self.arg_box, self.arg_privilege))
        arguments = []
        for number, instance, (lo, hi), privilege in zip(numbers, *columns, strict=False):
            ndim = self.regions[number].ndim
            arguments.append(
                (instance, Rect(tuple(lo[:ndim]), tuple(hi[:ndim])), _PRIVILEGES[privilege])
            )
        return tuple(arguments)

    def deps(self, row: int) -> list[int]:
        """The rows that `row` waits for."""
        rows: list[int] = self.dep_row[self.dep_ptr[row] : self.dep_ptr[row + 1]].tolist()
        return rows

    def streams_of(self, row: int) -> list[int]:
        """The streams that `row` occupies."""
        streams: list[int] = []
        for stream in self.streams[row].tolist():
            streams += (
                [stream]
                if stream >= 0
                else self.groups.streams_of(-2 - stream)
                if stream < -1
                else []
            )
        return streams

    def occupied(self) -> tuple[Array, Array]:
        """Rows, ascending, and a stream that each occupies, as two columns."""
        (row, k), (member, place) = np.nonzero(self.streams >= 0), np.nonzero(self.streams < -1)
        group = -2 - self.streams[member, place]
        count, begin = np.diff(self.groups.ptr)[group], self.groups.ptr[group]
        rows = np.concatenate([row, np.repeat(member, count)])
        together = self.groups.streams[spread(begin, count)]
        order = np.argsort(rows, kind="stable")
        return rows[order], np.concatenate([self.streams[row, k], together])[order]

    def instance_rect(self, instance: int) -> Rect:
        """The box that an instance holds."""
        return self._rect(
            self.instance_box[instance], self.regions[int(self.instance_region[instance])].ndim
        )

    @staticmethod
    def _rect(box: Array, ndim: int) -> Rect:
        return Rect(tuple(box[0, :ndim].tolist()), tuple(box[1, :ndim].tolist()))

    @property
    def devices(self) -> tuple[int, ...] | None:
        """The devices whose rows these are; None: all, or those of representatives."""
        return self.own.devices if self.own else None

    @property
    def is_complete(self) -> bool:
        """Whether these are all rows."""
        here = self.devices_used if self.devices is None else self.devices
        return self.peers is None and set(self.devices_used) <= set(here)

    @property
    def numbers(self) -> Array:
        """Which of the rows of all devices every row is; ValueError: rows of representatives are not counted so."""
        if self.peers is not None:
            raise ValueError("numbers: rows of representatives have none among all rows")
        return np.arange(len(self)) if self.own is None or self.is_complete else self.own.number

    def order(self, region: int) -> tuple[int, ...]:
        """The dimensions of a region as they lie in memory, slowest first."""
        logical = self.regions[region]
        return self.orders.get(logical.name, tuple(range(logical.ndim)))

    def instance_bytes(self) -> Array:
        """Bytes of every instance."""
        of_region = np.array([(r.itemsize, r.ndim) for r in self.regions], np.int64)
        itemsize, ndim = of_region[self.instance_region].T
        boxes = np.asarray(self.instance_box)
        extents = boxes[:, 1] - boxes[:, 0]
        extents[np.arange(extents.shape[1])[None, :] >= ndim[:, None]] = 1
        return np.asarray(np.prod(extents, axis=1) * itemsize)

    @property
    def arg_row(self) -> Array:
        """The row of every argument."""
        return np.repeat(np.arange(len(self)), np.diff(self.arg_ptr))

    @property
    def first_stream(self) -> Array:
        """The first stream of every row, see `streams`; int64."""
        return self.streams[:, 0].astype(np.int64)

    @property
    def waiting_row(self) -> Array:
        """Of every dependence the row that waits; `dep_row` is the one for which it does."""
        return np.repeat(np.arange(len(self)), np.diff(self.dep_ptr))

    @property
    def is_transfer(self) -> Array:
        """Which rows carry bytes from one device to another."""
        return np.asarray((self.kind == Kind.COPY) & (self.source != self.device))

    @property
    def crossing(self) -> Array:
        """Per row AWAY or BACK where a point carries something to the memory of its host, or from there; else -1."""
        return crossing_of(self.launches, self.launch)

    @property
    def is_on_host(self) -> Array:
        """Per instance, whether it lies in the memory of the host of its device."""
        return np.array([region.is_on_host for region in self.regions])[self.instance_region]

    @property
    def is_communication(self) -> Array:
        """Which rows carry bytes between devices: transfers and collectives."""
        return np.asarray(self.is_transfer | (self.kind == Kind.COLLECTIVE))

    @property
    def bytes_moved(self) -> int:
        """Bytes that cross between devices in one step."""
        if self.peers is not None:
            moved = self.peers.spans(lambda rows: rows.bytes * rows.is_communication)
            return sum(int(size[kind.span].sum()) * kind.regions for kind, size in moved)
        return int(self.bytes[self.is_communication].sum())

    def bytes_moved_by_device(self) -> Array:
        """Bytes that every device sends in one step."""
        source, _, size = self.carried()
        return np.bincount(source, size, len(self.machine.devices)).astype(np.int64)

    def carried(self) -> Array:
        """Source, device and bytes of all that goes between devices, of rows for which these stand too; (3, n)."""
        if self.peers is None:
            return self.hops()[1:]
        parts = []
        for kind, hops in self.peers.spans(lambda rows: rows.hops()):
            _, source, device, size = hops[:, slice(*np.searchsorted(hops[0], kind.ends))]
            parts.append(np.stack([source + kind.by, device + kind.by, size * kind.regions]))
        return np.concatenate(parts, axis=1)

    def to_hosts(self, values: Array) -> Array:
        """(2, devices) sums of what rows have that go to the memory of a device's host, and that come from there."""
        crossing = self.crossing
        rows = np.flatnonzero(crossing >= 0)
        sums = np.zeros((2, len(self.machine.devices)), values.dtype)
        np.add.at(sums, (crossing[rows], self.device[rows]), values[rows])
        if self.peers is None:
            return sums
        orbits = self.peers.orbits
        return sums[:, orbits.representative[orbits.of]]

    def hops(self) -> Array:
        """Row, source, device and bytes of all that goes between devices, within collectives too; (4, n), by row."""
        moved = np.flatnonzero(self.is_transfer)
        parts = [np.stack([moved, self.source[moved], self.device[moved], self.bytes[moved]])]
        parts += [
            self.hops_of(row) for row in np.flatnonzero(self.kind == Kind.COLLECTIVE).tolist()
        ]
        hops = np.concatenate(parts, axis=1)
        return hops[:, np.argsort(hops[0], kind="stable")]

    def hops_of(self, row: int) -> Array:
        """Row, source, device and bytes of all that goes from one device to another within a collective; (4, n)."""
        source, device, size = self.exchange(row).sent()
        size = size * self.regions[int(self.region[row])].itemsize
        return np.stack([np.full(len(size), row), source, device, size])

    def exchange(self, row: int) -> Exchange:
        """How the collective `row` is carried out; instances of others than own devices are negative numbers.

        Of the rows of representatives all are.
        """
        if self.peers is not None:
            rows, number, by = self.peers.place(row)
            peer = rows.exchange(number)
            instances = (-1 - np.array(peer.instances, np.int64)).tolist()
            return replace(peer, instances=instances, devices=[d + by for d in peer.devices])
        table, number = self.with_all_arguments(row)
        if table is not self:
            whole = table.exchange(number)
            here = self.arg_instance[self.arg_ptr[row] : self.arg_ptr[row + 1]]
            instances = -1 - np.array(whole.instances, np.int64)
            instances[np.isin(whole.devices, self.instance_device[here])] = here
            return replace(whole, instances=instances.tolist())
        args = slice(*self.arg_ptr[row : row + 2].tolist())
        ndim = self.regions[int(self.region[row])].ndim
        instances, rects = self.arg_instance[args], dict[bytes, Rect]()
        sources = int((self.arg_privilege[args] == Privilege.READ).sum())
        keyed = ((box.tobytes(), box) for box in self.arg_box[args])  # of many a box is one object
        boxes = [
            rects.get(key) or rects.setdefault(key, self._rect(box, ndim)) for key, box in keyed
        ]
        return Exchange(
            COLLECTIVES[int(self.collective[row])],
            self.machine.equals,
            self.machine.ways.doors,
            self.instance_device[instances].tolist(),
            instances.tolist(),
            boxes,
            sources,
            len(instances) - sources - int(self.instance_partial[instances[sources:]].sum()),
            self.ways[self.algorithm[row]].messages if self.algorithm[row] >= 0 else None,
        )

    def with_all_arguments(self, row: int) -> tuple[TaskGraph, int]:
        """The collective `row` where it has all its arguments: the rows to which it belongs there, and which it is."""
        if self.own is None or self.own.wholes is None or self.own.whole is None:
            return self, row
        return self.own.wholes, int(self.own.whole[row])

    def digest(self) -> str:
        """A hash of the rows; ranks compare it before the first step."""
        hasher = hashlib.blake2b(str(self.bucket_bytes).encode(), digest_size=16)
        hasher.update("\0".join(f"{n.name} {n.identity} {n.step}" for n in self.launches).encode())
        for launch in self.launches:
            hasher.update(launch.spans.tobytes())
        described = (
            f"{r.name} {r.shape} {r.dtype} {r.init} {self.order(k)}" + " on host" * r.is_on_host
            for k, r in enumerate(self.regions)
        )
        hasher.update("\0".join(described).encode())
        hasher.update("\0".join(way.algorithm for way in self.ways).encode())
        columns = (
            self.kind,
            self.launch,
            self.point,
            self.device,
            self.source,
            self.arg_instance,
            self.arg_box,
        )
        for column in (*columns, self.algorithm):
            hasher.update(np.ascontiguousarray(column).tobytes())
        hasher.update("\0".join(f"{n} {places}" for n, places in self.fetches.items()).encode())
        for column in (self.dep_ptr, self.dep_row, self.instance_device, self.instance_box):
            hasher.update(np.ascontiguousarray(column).tobytes())
        return hasher.hexdigest()

    def reordered(self, order: Sequence[int] | Array) -> TaskGraph:
        """The same tasks issued in another order: row i of the result is row `order[i]`.

        Raises:
            ValueError: `order` is no permutation or puts a row before one that it waits for.
        """
        order = np.asarray(order, np.int64)
        count, place = len(self), np.full(len(self), -1, np.int64)
        if len(order) == count:
            place[order] = np.arange(count)
        if count and place.min() < 0:
            raise ValueError(f"order: is no permutation of {count} rows")
        args = np.diff(self.arg_ptr)[order]
        deps = np.diff(self.dep_ptr)[order]
        awaited = place[self.dep_row[spread(self.dep_ptr[order], deps)]]
        dep_ptr, awaited = sort_each(pointers(deps), awaited)
        waiting = np.flatnonzero(np.diff(dep_ptr))
        last = awaited[dep_ptr[waiting + 1] - 1]
        if len(late := np.flatnonzero(last >= waiting)):
            first, then = order[waiting[late[0]]], order[last[late[0]]]
            raise ValueError(f"order: row {first} stands before row {then}, for which it waits")
        columns = {n: getattr(self, n)[order] for n in ROW_COLUMNS}
        flat = spread(self.arg_ptr[order], args)
        return replace(
            self,
            **columns,
            own=self.own and self.own.reordered(order),
            peers=self.peers and self.peers.only(order),
            arg_ptr=pointers(args),
            arg_instance=self.arg_instance[flat],
            arg_box=taken(self.arg_box, flat),
            arg_privilege=self.arg_privilege[flat],
            dep_ptr=dep_ptr,
            dep_row=awaited,
        )

    def check_complete(self, where: str) -> None:
        """Refuse the rows of some of the devices that are used, which `lower(devices=)` gives.

        Raises:
            ValueError: all rows are needed `where`.
        """
        if not self.is_complete:
            raise ValueError(
                f"{where}: these are the rows of some devices alone (`lower(devices=)`), all rows are needed"
            )

    def check(self) -> None:
        """Assert that every row waits only for earlier rows."""
        rows = self.waiting_row
        if np.any(self.dep_row >= rows):
            bad = int(np.argmax(self.dep_row >= rows))
            raise InternalError(f"row {rows[bad]} waits for the later row {self.dep_row[bad]}")


ROW_COLUMNS = (
    *("kind", "launch", "point", "region", "device", "source", "ordinal"),
    *("collective", "algorithm", "bytes", "flops", "streams"),
)
