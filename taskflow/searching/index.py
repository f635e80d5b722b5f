"""The strategy of a judge, and the one that is proposed, as numbers of points and of pool entries."""

from __future__ import annotations

import numpy as np

from taskflow.lowering.pointstore import PointStore
from taskflow.searching.stretches import Layout
from taskflow.tasks.task_graph import Array


class Index:
    """See the module.

    Attributes:
        numbers, op, fragment: the current strategy's points of operators (numbers of a `PointStore`), entries of
            operators and of regions; -1 where there is none yet. `new_...`: those of the proposed one.
        presence, new_presence: per device, how many operators have points there.
    """

    def __init__(self, layout: Layout, devices: int) -> None:
        from taskflow.searching.entries import find_entries, forget_last  # numba: imported on first use

        self.layout, self._find_entries, self._forget_last = layout, find_entries, forget_last
        ops, regions = len(layout.region_ptr) - 1, len(layout.kind)
        self.numbers, self.new_numbers = np.full(ops, -1, np.int64), np.full(ops, -1, np.int64)
        self.op, self.new_op = np.full(ops, -1, np.int64), np.full(ops, -1, np.int64)
        self.fragment, self.new_fragment = np.full(regions, -1, np.int64), np.full(regions, -1, np.int64)
        self.presence, self.new_presence = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
        self._counts = np.zeros(3, np.int64)
        self._slots, self._regions, self._missing = (np.zeros(n, np.int64) for n in (ops, regions, regions))
        self._table = np.full(1024, -1, np.int64)
        self._keys, self._key_ptr = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.size_bytes = 0  # memory that the keys of entries take
        self._most = len(layout.op) + regions + devices * int((layout.keyed > 0).sum())  # numbers of all keys

    def find(self, columns: Array, entries: int, store: PointStore) -> Array:
        """Propose other points for operators: (3, n) operators, numbers of their points and their entries.

        What changes is found; the regions are returned for which entries have to be made, the first of them being
        number `entries`.
        """
        self._make_room(entries)
        layout, table = self.layout, store.table
        self._find_entries(
            columns,
            self.numbers,
            self.new_numbers,
            self.op,
            self.new_op,
            self.fragment,
            self.new_fragment,
            self.presence,
            self.new_presence,
            table.record,
            table.device,
            layout.region_ptr,
            layout.region,
            layout.op_ptr,
            layout.op,
            layout.kind,
            layout.keyed,
            entries,
            self._table,
            self._keys,
            self._key_ptr,
            self._counts,
            self._slots,
            self._regions,
            self._missing,
        )
        return self._missing[: self._counts[2]]

    def forget(self, first: int, end: int) -> None:
        """Forget the entries from number `first` to before `end`, the last, which were found but not made."""
        self._forget_last(self._table, self._keys, self._key_ptr, first, end)

    @property
    def changed(self) -> tuple[Array, Array]:
        """Operators and regions that the proposed strategy has other than the current one."""
        return self._slots[: self._counts[0]], self._regions[: self._counts[1]]

    def accept(self) -> None:
        """The proposed strategy is the current one."""
        slots, regions = self.changed
        self.numbers[slots], self.op[slots] = self.new_numbers[slots], self.new_op[slots]
        self.fragment[regions] = self.new_fragment[regions]
        self.presence[:] = self.new_presence

    def _make_room(self, entries: int) -> None:
        """For an entry of every region."""
        from taskflow.searching.entries import refill  # numba: imported on first use

        most = entries + len(self.layout.kind) + 1
        if most > len(self._key_ptr):
            self._key_ptr = np.concatenate([self._key_ptr, np.zeros(most, np.int64)])
        if self._key_ptr[entries] + self._most > len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros(len(self._keys) + self._most, np.int64)])
        if 2 * most > len(self._table):
            self._table = np.full(4 * most, -1, np.int64)
            refill(self._table, self._keys, self._key_ptr, entries)
        self.size_bytes = self._keys.nbytes + self._key_ptr.nbytes + self._table.nbytes
