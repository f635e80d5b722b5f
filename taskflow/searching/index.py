"""The strategy of a judge, and the one that is proposed, as numbers of points and of fragments."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.lowering.pointstore import PointStore
from taskflow.searching.layout import BY_POINTS, Chosen, Layout


class Index:
    """See the module.

    Attributes:
        layout: of the graph; `layout_columns`: as a plain tuple.
        current, proposed: what is chosen.
    """

    def __init__(self, layout: Layout, devices: int) -> None:
        from taskflow.searching.memo import find_fragments, forget_last, refill  # numba: imported on first use

        self._find_fragments, self._forget_last, self._refill = find_fragments, forget_last, refill
        self.layout, self.layout_columns = layout, tuple(layout)
        ops, regions = len(layout.region_ptr) - 1, len(layout.kind)
        self.current, self.proposed = (_nothing(ops, regions, devices) for _ in range(2))
        self._count = np.zeros(3, np.int64)
        self._ops, self._regions, self._missing = (np.zeros(n, np.int64) for n in (ops, regions, regions))
        self._table = np.full(1024, -1, np.int64)
        self._key, self._key_ptr = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.size_bytes = 0  # memory that the keys of fragments take
        self._most = len(layout.op) + regions + devices * int((layout.depends != BY_POINTS).sum())  # of all keys

    def find(self, columns: Array, fragments: int, store: PointStore) -> Array:
        """Propose other points for operators: (3, n) operators, numbers of their points and of the rows of these.

        What changes is found; the regions are returned for which fragments have to be made, the first of them being
        number `fragments`.
        """
        self._make_room(fragments)
        self._find_fragments(
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
        self._forget_last(self._table, self._key, self._key_ptr, first, end)

    @property
    def changed(self) -> tuple[Array, Array]:
        """Operators and regions that the proposed strategy has other than the current one."""
        return self._ops[: self._count[0]], self._regions[: self._count[1]]

    def accept(self) -> None:
        """The proposed strategy is the current one."""
        ops, regions = self.changed
        self.current.points[ops], self.current.rows[ops] = self.proposed.points[ops], self.proposed.rows[ops]
        self.current.fragment[regions] = self.proposed.fragment[regions]
        self.current.presence[:] = self.proposed.presence

    def _make_room(self, fragments: int) -> None:
        """For a fragment of every region."""
        most = fragments + len(self.layout.kind) + 1
        if most > len(self._key_ptr):
            self._key_ptr = np.concatenate([self._key_ptr, np.zeros(most, np.int64)])
        if self._key_ptr[fragments] + self._most > len(self._key):
            self._key = np.concatenate([self._key, np.zeros(len(self._key) + self._most, np.int64)])
        if 2 * most > len(self._table):
            self._table = np.full(4 * most, -1, np.int64)
            self._refill(self._table, self._key, self._key_ptr, fragments)
        self.size_bytes = self._key.nbytes + self._key_ptr.nbytes + self._table.nbytes


def _nothing(ops: int, regions: int, devices: int) -> Chosen:
    points, rows, fragment = (np.full(n, -1, np.int64) for n in (ops, ops, regions))
    return Chosen(points, rows, fragment, np.zeros(devices, np.int64))
