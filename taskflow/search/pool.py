"""A pool of packed rows: what a search keeps of operators and regions that it has met.

An operator's points under a configuration, and a region's movement under those of the operators that touch it, are
each packed once into flat columns: seconds and streams of every row, and dependences as runs (`resimulate`).
A strategy is then one entry number for every operator and every region. Equal layers have equal entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from taskflow.columns import Column, doubled
from taskflow.cost import AnalyticCosts, CostModel
from taskflow.exchange import ring_order
from taskflow.lower import Lowering
from taskflow.lower.movement import FEW
from taskflow.streams import Queues, StreamTable
from taskflow.task import COLLECTIVES, Array

if TYPE_CHECKING:
    from taskflow.lower.packing import Packed
    from taskflow.search.receiving import Links

# The columns of `packing.Packed` that grow together, by their place in its `length`.
GROWING = (
    ("seconds", "queue", "within_ptr"),
    ("within",),
    ("version",),
    ("run_ptr",),
    ("run",),
    ("entry", "bytes"),
    ("pending",),
    ("member",),
)
ROW, VERSION, RUN_PTR, ENTRY, PENDING, MEMBER = 0, 2, 3, 5, 6, 7
NOTHING = 0  # an entry of no rows
ROOM = 1024  # of every column, to begin with


class Pool:
    """See the module."""

    def __init__(self, lowering: Lowering, costs: CostModel) -> None:
        self.lowering, self.costs = lowering, costs
        self.rates = costs.rates()
        self.packed = _empty(len(lowering.machine.devices))
        self._add_nothing()
        self.op_rows = Column(np.int64, 2)
        self.queues = Queues(StreamTable(lowering.machine))
        self._hosts = [d.host for d in lowering.machine.devices]
        self._ops: dict[tuple[int, int], int] = {}
        self._models: dict[tuple[int, int], int] = {}  # first row of operators with points that others are like
        is_alike = len({replace(d, host=0) for d in lowering.machine.devices}) == 1
        self._are_moves_rated = isinstance(costs, AnalyticCosts)
        self._sketched_from = self.packed.length.copy()
        self._are_seconds_alike = is_alike and isinstance(costs, AnalyticCosts)
        self._groups: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}

    @property
    def size_bytes(self) -> int:
        """Memory that the columns take."""
        return sum(column.nbytes for column in self.packed)

    @property
    def entries(self) -> int:
        """Number of entries of regions."""
        return int(self.packed.length[ENTRY])

    def enter_ops(self, slots: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """The entries of operators with points of these numbers."""
        keys = [(self.lowering.cost_kind[slot], number) for slot, number in zip(slots, numbers, strict=True)]
        new = {key: slot for key, slot in zip(keys, slots, strict=True) if key not in self._ops}
        if self._are_seconds_alike:
            new = {key: slot for key, slot in new.items() if not self._add_like(key)}
        if new:
            self._add_ops(new)
        return [self._ops[key] for key in keys]

    def _add_like(self, key: tuple[int, int]) -> bool:
        """Append the rows of an operator that are those of another on other devices; False: there is none."""
        kind, number = key
        model = self._models.get((kind, self.lowering.store.model[number]))
        if model is None:
            return False
        place = self.lowering.store.table.place[self.lowering.store.span(number)]
        row = self._add_rows(place)
        self.packed.seconds[row : row + len(place)] = self.packed.seconds[model : model + len(place)]
        self._ops[key] = self.op_rows.add(np.array([[row, len(place)]]))
        return True

    def _add_rows(self, place: Array) -> int:
        """Append rows that compute on these devices; the first of them."""
        row, count = int(self.packed.length[ROW]), len(place)
        while row + count + 1 >= len(self.packed.seconds):
            self._grow(ROW)
        self.packed.queue[row : row + count] = self.queues.compute(place)
        self.packed.within_ptr[row : row + count + 1] = self.packed.within_ptr[row]
        self.packed.length[ROW] = row + count
        return row

    def _add_ops(self, new: dict[tuple[int, int], int]) -> None:
        """Append the rows of operators: (kind, number of the points) -> operator."""
        store = self.lowering.store
        spans = [store.span(number) for _, number in new]
        place = np.concatenate([store.table.place[span] for span in spans])
        seconds = self._seconds(new, spans, place)
        row = self._add_rows(place)
        self.packed.seconds[row : row + len(place)] = seconds
        for key, span in zip(new, spans, strict=True):
            self._ops[key] = self.op_rows.add(np.array([[row, span.stop - span.start]]))
            self._models.setdefault((key[0], store.model[key[1]]), row)
            row += span.stop - span.start

    def _seconds(self, new: dict[tuple[int, int], int], spans: Sequence[slice], place: Array) -> Array:
        """Seconds of the points of operators."""
        store, costs = self.lowering.store, self.costs
        if not isinstance(costs, AnalyticCosts):
            points = [(slot, store.points(number)) for (_, number), slot in new.items()]
            return costs.seconds(self.lowering.sample(points, []))
        dtypes = [self.lowering.compute_dtype[slot] for slot in new.values()]
        dtype = np.repeat(dtypes, [span.stop - span.start for span in spans])
        flops, size = (np.concatenate([column[span] for span in spans]) for column in store.table[2:4])
        return costs.task_seconds(place, dtype, flops, size)

    def enter(self, regions: Array, numbers: Array, used: Array) -> None:
        """Append the entries of some regions, given the points of all operators and the devices in use."""
        row = int(self.packed.length[ROW])
        args = regions, numbers, used, self.lowering.store
        self.lowering.mover.pack(*args, lambda: self.packed, self._grow, self.rates)
        self._settle_collectives()
        if not isinstance(self.costs, AnalyticCosts):
            made = [(int(k), self.lowering.mover.move(k, numbers, used, self.lowering.store)) for k in regions.tolist()]
            end = int(self.packed.length[ROW])
            self.packed.seconds[row:end] = self.costs.seconds(self.lowering.sample([], made))

    def sketch(self, regions: Array, numbers: Array) -> None:
        """Append sketches of some regions, until `drop_sketches`; arguments as for `enter`."""
        from taskflow.lower.packing import FITS  # numba: imported on first use
        from taskflow.search.sketch import sketch

        mover, done = self.lowering.mover, 0
        self._sketched_from = self.packed.length.copy()
        while done < len(regions):
            args = mover.table, self.lowering.store.table, self._links, self._are_moves_rated
            column, made = sketch(regions[done:], numbers, *args, self.packed)
            done += made
            if column != FITS:
                self._grow(column)

    def drop_sketches(self) -> None:
        """Take the sketches out again."""
        self.packed.length[:] = self._sketched_from

    @cached_property
    def _links(self) -> Links:
        from taskflow.search.receiving import links_of  # numba: imported on first use

        return links_of(self.rates, self.lowering.mover.hosts, FEW)

    def _add_nothing(self) -> None:
        """Entry NOTHING, of no rows and no dependences, for a region of any length."""
        lives = self.lowering.lives
        versions = max(len(life.producer) for life in lives)
        slots = versions + max(len(life.ops) for life in lives)
        for column, more in ((VERSION, versions), (RUN_PTR, slots + 1)):
            while more > len(getattr(self.packed, GROWING[column][0])):
                self._grow(column)
            getattr(self.packed, GROWING[column][0])[:more] = 0
            self.packed.length[column] = more
        self.packed.length[ENTRY] = 1

    def _settle_collectives(self) -> None:
        """Seconds and queues of the collectives that were packed."""
        p = self.packed
        for row, name, size, first, count in p.pending[: p.length[PENDING]].tolist():
            members = tuple(p.member[first : first + count].tolist())
            if members not in self._groups:
                self._groups[members] = tuple(ring_order(members, self._hosts)), self.queues.of_group(members)
            group, p.queue[row] = self._groups[members]
            p.seconds[row] = self.costs.collective_seconds(COLLECTIVES[name], group, size)
        p.length[PENDING] = p.length[MEMBER] = 0

    def _grow(self, column: int) -> None:
        """Make columns twice as long."""
        self.packed = doubled(self.packed, GROWING[column])


def _empty(devices: int) -> Packed:
    """Columns with room for a little."""
    from taskflow.lower.packing import Packed  # numba: imported on first use

    one = [np.zeros(ROOM, np.int64) for _ in range(5)]
    wide = [np.zeros((ROOM, n), np.int64) for n in (2, 6, 4, devices, 5)]
    return Packed(
        np.zeros(8, np.int64),
        np.zeros(ROOM),
        one[0],
        one[1],
        one[2],
        wide[0],
        one[3],
        wide[1],
        wide[2],
        wide[3],
        wide[4],
        one[4],
    )
