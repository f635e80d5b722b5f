"""A pool of packed rows: what a search keeps of operators and regions that it has met.

An operator's points under a configuration, and a region's movement under those of the operators that touch it (its
fragment), are each packed once into flat columns: seconds and streams of every row, and what it waits for.
A strategy is then one number for every operator and every region. Equal layers have equal fragments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from taskflow.collective.price import Carried
from taskflow.core.columns import Array, Column, doubled, table_bytes
from taskflow.core.geometry import Rect
from taskflow.core.numbers import GIB
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.lowering import Lowering, moving
from taskflow.searching import packing
from taskflow.searching.packed import (
    ARG,
    GROWING,
    ROW,
    ROWS,
    SOURCE,
    TARGET,
    OpenCollective,
    empty,
)
from taskflow.simulation.sharing import paces_of
from taskflow.tasks.exchange import Exchange
from taskflow.tasks.streams import StreamSets, StreamTable
from taskflow.tasks.task_graph import COLLECTIVES

HELD_BYTES = 2 * GIB  # all that is known is forgotten when it takes more
OBJECT_BYTES = 400  # that something takes which is known by a key


class Pool:
    """See the module.

    Attributes:
        packed, op_rows: rows of fragments, and ROWS of the points of operators.
        known: what a fragment depends on -> its number.
    """

    def __init__(self, lowering: Lowering, costs: CostModel) -> None:
        self.lowering = lowering
        self.costs = costs
        self._rates = tuple(costs.rates)
        self.packed = empty(len(lowering.regions), len(lowering.machine.devices))
        self.op_rows = Column(ROWS)
        self.sets = StreamSets(StreamTable(lowering.machine))
        self.known: dict[Hashable, int] = {}
        self._ops: dict[tuple[int, int], int] = {}
        self._is_rated = isinstance(costs, AnalyticCosts)  # else every row is asked for
        self._settled = self.packed.filled.copy()
        # set of streams and seconds, by the arguments
        self._collectives: dict[bytes, tuple[int, float]] = {}

    @property
    def size_bytes(self) -> int:
        """Memory that all takes, about."""
        by_key = OBJECT_BYTES * (len(self._collectives) + len(self.known))
        return table_bytes(self.packed) + self.op_rows.data.nbytes + self.sets.size_bytes + by_key

    @property
    def fragments(self) -> int:
        """Number of fragments."""
        return int(self.packed.filled["fragments"][0])

    @property
    def _rows(self) -> int:
        """Number of rows."""
        return int(self.packed.filled["rows"][0])

    def add_points(self, ops: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """The numbers of the rows of operators with points of these numbers."""
        kinds = self.lowering.cost_kind
        keys = [(kinds[op], number) for op, number in zip(ops, numbers, strict=True)]
        new = {key: (op, key[1]) for key, op in zip(keys, ops, strict=True) if key not in self._ops}
        if new:
            rows = self._pack_points(list(new.values()))
            self._ops.update(
                zip(new, range(self.op_rows.add(rows), self.op_rows.length), strict=True)
            )
            self._settled = self.packed.filled.copy()
        return [self._ops[key] for key in keys]

    def _pack_points(self, configured: list[tuple[int, int]]) -> Array:
        """Append the rows of operators with points of some number; ROWS of each."""
        points = np.array(
            [(number, self.lowering.compute_dtype[op]) for op, number in configured], np.int64
        )
        tables = tuple(self.lowering.store.table), self._rates, self.sets.first_compute
        rows = np.zeros(len(points), ROWS)
        first = self._rows
        done = 0
        while done < len(points):
            done += packing.pack_points(points[done:], *tables, tuple(self.packed), rows[done:])
            if done < len(points):
                self._grow(ROW)
        if not self._is_rated:
            seconds = self.costs.seconds(self.lowering.sample(configured, []))
            self.packed.seconds[first : self._rows] = seconds
        return rows

    def add_fragments(self, regions: Array, numbers: Array, used: Sequence[Array]) -> None:
        """Append the fragments of some regions, given the points of all operators and the devices of every job.

        Collectives take nothing until `settle` finds what they do take; `drop` takes all out again that was appended
        since then.
        """
        first = self._rows
        self._pack_regions(regions, numbers, used)
        if self._is_rated:
            return
        self._price_collectives()
        mover = self.lowering.mover
        store = self.lowering.store
        world = mover.world(numbers, used, store)
        made = [(k, mover.move(k, world, used, store)) for k in regions.tolist()]
        self.packed.seconds[first : self._rows] = self.costs.seconds(self.lowering.sample([], made))

    def settle(self, new: Mapping[Hashable, int]) -> None:
        """Keep what was appended: fragments, by what they depend on."""
        self._price_collectives()
        self.known.update(new)
        self._settled = self.packed.filled.copy()

    def drop(self) -> None:
        """Take the fragments out that are not settled."""
        self.packed.filled[:] = self._settled

    def _pack_regions(self, regions: Array, numbers: Array, used: Sequence[Array]) -> None:
        mover = self.lowering.mover
        done = 0
        world = mover.world(numbers, used, self.lowering.store)
        end = -1
        while end != moving.DONE:
            end, at, more = packing.pack_regions(
                regions[done:],
                world,
                mover.memory,
                mover.room,
                tuple(self.packed),
                self._rates,
            )
            done += at
            if end == packing.NO_POOL:
                self._grow(more)
            else:
                mover.make_room(int(regions[min(done, len(regions) - 1)]), end, more)

    def _price_collectives(self) -> None:
        """Seconds and streams of the collectives that were packed."""
        p = self.packed
        for fields in p.pending[: p.filled["pending"][0]].tolist():
            pending = OpenCollective(*fields)
            args = p.arg[pending.first :][: pending.args * pending.width]
            key = bytes([pending.name, pending.itemsize, pending.width]) + args.tobytes()
            key = hashlib.sha256(key).digest()
            if key not in self._collectives:
                self._collectives[key] = self._price(pending, args.reshape(pending.args, -1))
            p.streams[pending.row], p.seconds[pending.row] = self._collectives[key]
        p.filled["pending"] = p.filled["args"] = 0

    def _price(self, pending: OpenCollective, args: Array) -> tuple[int, float]:
        """The set of streams of a collective, and its seconds."""
        exchange = self._exchange(COLLECTIVES[pending.name], args)
        carried = self.costs.carried(exchange, pending.itemsize)
        return self._set_of(exchange.ring, pending.bytes, carried), carried.seconds

    def _set_of(self, ring: Sequence[int], size: int, carried: Carried) -> int:
        """The set of streams and links of a collective of so many bytes among the devices of a ring."""
        machine = self.lowering.machine
        (seconds, links, parts) = carried
        pace = np.array([size / seconds if seconds > 0 else 0.0])
        (paces,) = paces_of(machine, links, parts, pace)
        return self.sets.of_group(ring, links, paces / machine.link_bandwidth[links])

    def _exchange(self, name: str, args: Array) -> Exchange:
        """See `packed.Packed.arg`."""
        device, instance, role = args[:, : len(ARG)].T.tolist()
        machine = self.lowering.machine
        boxes = args[:, len(ARG) :].reshape(len(args), -1, 2).transpose(0, 2, 1)
        return Exchange(
            name,
            machine.equals,
            machine.ways.doors,
            device,
            instance,
            [Rect(tuple(lo), tuple(hi)) for lo, hi in boxes.tolist()],
            role.count(SOURCE),
            role.count(TARGET),
        )

    def _grow(self, column: int) -> None:
        """Make columns twice as long."""
        self.packed = doubled(self.packed, GROWING[column])
