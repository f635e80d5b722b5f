"""A pool of packed rows: what a search keeps of operators and regions that it has met.

An operator's points under a configuration, and a region's movement under those of the operators that touch it (its
fragment), are each packed once into flat columns: seconds and streams of every row, and dependences as runs.
A strategy is then one number for every operator and every region (`Index`). Equal layers have equal fragments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from taskflow.collective.price import Carried
from taskflow.core.columns import Array, Column, doubled, table_bytes
from taskflow.core.errors import InternalError
from taskflow.core.geometry import Rect
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.lowering import Lowering
from taskflow.lowering.pointstore import PointStore
from taskflow.machine.equal import in_order
from taskflow.searching.layout import BY_POINTS, Chosen, Layout
from taskflow.searching.memo import find_fragments, forget_last, refill
from taskflow.searching.packed import ARG_NUMBERS, GROWING, ROW, ROWS, SOURCE, TARGET, empty
from taskflow.simulation.sharing import paces_of
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.streams import StreamSets, StreamTable
from taskflow.tasks.task_graph import COLLECTIVES

COLLECTIVE_BYTES = 400  # of objects: a collective that is known


class Pool:
    """See the module."""

    def __init__(self, lowering: Lowering, costs: CostModel) -> None:
        from taskflow.searching.packing import pack_points  # numba: imported on first use

        self.lowering, self.costs = lowering, costs
        self._pack, self._rates = pack_points, tuple(costs.rates)
        self.packed = empty(len(lowering.machine.devices))
        self._column_bytes = table_bytes(self.packed)
        self.op_rows = Column(ROWS)
        self.sets = StreamSets(StreamTable(lowering.machine))
        self._ops: dict[tuple[int, int], int] = {}
        self._is_rated = isinstance(costs, AnalyticCosts)  # else every row is asked for
        self._settled = self.packed.filled.copy()
        # set of streams and seconds, by a digest of arguments
        self._collectives: dict[bytes, tuple[int, float]] = {}

    @property
    def size_bytes(self) -> int:
        """Memory that all takes, about."""
        known = COLLECTIVE_BYTES * len(self._collectives)
        return self._column_bytes + self.op_rows.data.nbytes + self.sets.size_bytes + known

    @property
    def fragments(self) -> int:
        """Number of fragments."""
        return int(self.packed.filled["fragments"][0])

    def add_points(self, ops: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """The numbers of the rows of operators with points of these numbers."""
        keys = [
            (self.lowering.cost_kind[op], number) for op, number in zip(ops, numbers, strict=True)
        ]
        new = {key: op for key, op in zip(keys, ops, strict=True) if key not in self._ops}
        if new:
            first = self.op_rows.add(
                self._pack_points(list(new.values()), [number for _, number in new])
            )
            self._ops.update(zip(new, range(first, first + len(new)), strict=True))
            self._settled = self.packed.filled.copy()
        return [self._ops[key] for key in keys]

    def _pack_points(self, ops: Sequence[int], numbers: Sequence[int]) -> Array:
        """Append the rows of operators with points of these numbers; ROWS of each."""
        dtypes = (self.lowering.compute_dtype[op] for op in ops)
        points = np.array(list(zip(numbers, dtypes, strict=True)), np.int64)
        known = tuple(self.lowering.store.table), self._rates, self.sets.first_compute
        found, done = np.zeros(len(points), ROWS), 0
        while done < len(points):
            done += self._pack(points[done:], *known, tuple(self.packed), found[done:])
            if done < len(points):
                self._grow(ROW)
        if not self._is_rated:
            rows = slice(found["first"][0], found["first"][-1] + found["count"][-1])
            sample = self.lowering.sample(list(zip(ops, numbers, strict=True)), [])
            self.packed.seconds[rows] = self.costs.seconds(sample)
        return found

    def add_fragments(self, regions: Array, numbers: Array, used: Array) -> None:
        """Append the fragments of some regions, given the points of all operators and the devices in use.

        Collectives take no seconds until `settle` finds what they do take; `drop` takes all out again that was appended
        since then.
        """
        row, pending = (int(self.packed.filled[name][0]) for name in ("rows", "pending"))
        self._pack_regions(regions, numbers, used)
        if self._is_rated:
            self._put_rings(pending)
            return
        self._price_collectives()
        made = [
            (int(k), self.lowering.mover.move(k, numbers, used, self.lowering.store))
            for k in regions.tolist()
        ]
        end = int(self.packed.filled["rows"][0])
        self.packed.seconds[row:end] = self.costs.seconds(self.lowering.sample([], made))

    def settle(self) -> None:
        """Keep what was appended."""
        self._price_collectives()
        self._settled = self.packed.filled.copy()

    def drop(self) -> None:
        """Take the fragments out that are not settled."""
        self.packed.filled[:] = self._settled

    def _pack_regions(self, regions: Array, numbers: Array, used: Array) -> None:
        from taskflow.lowering import moving  # numba: imported on first use
        from taskflow.searching import packing

        mover, done = self.lowering.mover, 0
        world, end = mover.world(numbers, used, self.lowering.store), -1
        while end != moving.DONE:
            args = regions[done:], world, mover.streams, mover.memory, mover.room
            end, at, more = packing.pack_regions(*args, tuple(self.packed), self._rates)
            done += at
            if end == packing.NO_POOL:
                self._grow(more)
            elif end == moving.NOBODY and more < 0:
                raise InternalError(
                    f"region {regions[done]}: points of one operator wait for each other"
                )
            else:
                mover.make_room(int(regions[min(done, len(regions) - 1)]), end, more)

    def _put_rings(self, first: int) -> None:
        """The streams of the devices of the collectives from number `first` on."""
        p, equals = self.packed, tuple(self.lowering.machine.equals)
        pending, none = p.pending[first : p.filled["pending"][0]], np.zeros(0, np.int64)
        for row, begin, count, width in pending[["row", "first", "args", "width"]].tolist():
            ring = in_order(p.arg[begin : begin + count * width : width], equals).tolist()
            p.streams[row] = self.sets.of_group(ring, none, none)

    def _price_collectives(self) -> None:
        """Seconds and streams of the collectives that were packed."""
        p = self.packed
        for row, name, itemsize, size, first, count, width in p.pending[
            : p.filled["pending"][0]
        ].tolist():
            args = p.arg[first : first + count * width].reshape(count, width)
            key = hashlib.blake2b(
                bytes([name, itemsize, width]) + args.tobytes(), digest_size=16
            ).digest()
            if key not in self._collectives:
                exchange = self._exchange(COLLECTIVES[name], args)
                carried = self.costs.carried(exchange, itemsize)
                self._collectives[key] = (
                    self._set_of(exchange.ring, size, carried),
                    carried.seconds,
                )
            p.streams[row], p.seconds[row] = self._collectives[key]
        p.filled["pending"] = p.filled["args"] = 0

    def _set_of(self, ring: Sequence[int], size: int, carried: Carried) -> int:
        """The set of streams and links of a collective of so many bytes among the devices of a ring."""
        machine, (seconds, links, parts) = self.lowering.machine, carried
        paces = paces_of(machine, links, parts, np.array([size / seconds if seconds > 0 else 0.0]))[
            0
        ]
        return self.sets.of_group(ring, links, paces / machine.link_bandwidth[links])

    def _exchange(self, name: str, args: Array) -> Exchange:
        """See `packed.Packed.arg`."""
        device, instance, role = args[:, :ARG_NUMBERS].T.tolist()
        boxes = args[:, ARG_NUMBERS:].reshape(len(args), -1, 2).transpose(2, 0, 1).tolist()
        rects = [Rect(tuple(lo), tuple(hi)) for lo, hi in zip(*boxes, strict=True)]
        counts, machine = (role.count(SOURCE), role.count(TARGET)), self.lowering.machine
        return Exchange(name, machine.equals, machine.ways.doors, device, instance, rects, *counts)

    def _grow(self, column: int) -> None:
        """Make columns twice as long."""
        self.packed = doubled(self.packed, GROWING[column])
        self._column_bytes = table_bytes(self.packed)


# -- strategies ------------------------------------------------------------------------------------------------------


class Index:
    """The strategy of a judge, and the one that is proposed, as numbers of points and of fragments.

    Attributes:
        layout: of the graph; `layout_columns`: as a plain tuple.
        current, proposed: what is chosen.
    """

    def __init__(self, layout: Layout, devices: int) -> None:
        self.layout, self.layout_columns = layout, tuple(layout)
        ops, regions = len(layout.region_ptr) - 1, len(layout.kind)
        self.current, self.proposed = (_nothing(ops, regions, devices) for _ in range(2))
        self._count = np.zeros(3, np.int64)
        self._ops, self._regions, self._missing = (
            np.zeros(n, np.int64) for n in (ops, regions, regions)
        )
        self._table = np.full(1024, -1, np.int64)
        self._key, self._key_ptr = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.size_bytes = 0  # memory that the keys of fragments take
        self._most = (
            len(layout.op) + regions + devices * int((layout.depends != BY_POINTS).sum())
        )  # of all keys

    def find(self, columns: Array, fragments: int, store: PointStore) -> Array:
        """Propose other points for operators: (3, n) operators, numbers of their points and of the rows of these.

        What changes is found; the regions are returned for which fragments have to be made, the first of them being
        number `fragments`.
        """
        self._make_room(fragments)
        find_fragments(
            columns,
            tuple(self.current),
            tuple(self.proposed),
            store.table.record,
            store.table.device,
            self.layout_columns,
            (self._table, self._key, self._key_ptr),
            fragments,
            (self._count, self._ops, self._regions, self._missing),
        )
        return self._missing[: self._count[2]]

    def forget(self, first: int, end: int) -> None:
        """Forget the fragments from number `first` to before `end`, the last, which were found but not made."""
        forget_last(self._table, self._key, self._key_ptr, first, end)

    @property
    def changed(self) -> tuple[Array, Array]:
        """Operators and regions that the proposed strategy has other than the current one."""
        return self._ops[: self._count[0]], self._regions[: self._count[1]]

    def accept(self) -> None:
        """The proposed strategy is the current one."""
        ops, regions = self.changed
        self.current.points[ops], self.current.rows[ops] = (
            self.proposed.points[ops],
            self.proposed.rows[ops],
        )
        self.current.fragment[regions] = self.proposed.fragment[regions]
        self.current.presence[:], self.current.used[:] = (
            self.proposed.presence,
            self.proposed.used,
        )

    def _make_room(self, fragments: int) -> None:
        """For a fragment of every region."""
        most = fragments + len(self.layout.kind) + 1
        if most > len(self._key_ptr):
            self._key_ptr = np.concatenate([self._key_ptr, np.zeros(most, np.int64)])
        if self._key_ptr[fragments] + self._most > len(self._key):
            self._key = np.concatenate([self._key, np.zeros(len(self._key) + self._most, np.int64)])
        if 2 * most > len(self._table):
            self._table = np.full(4 * most, -1, np.int64)
            refill(self._table, self._key, self._key_ptr, fragments)
        self.size_bytes = self._key.nbytes + self._key_ptr.nbytes + self._table.nbytes


def _nothing(ops: int, regions: int, devices: int) -> Chosen:
    points, rows, fragment = (np.full(n, -1, np.int64) for n in (ops, ops, regions))
    return Chosen(points, rows, fragment, np.zeros(devices, np.int64), np.full(devices, -1))
