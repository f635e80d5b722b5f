"""A pool of packed rows: what a search keeps of operators and regions that it has met.

An operator's points under a configuration, and a region's movement under those of the operators that touch it, are
each packed once into flat columns: seconds and streams of every row, and dependences as runs (`resimulate`).
A strategy is then one entry number for every operator and every region. Equal layers have equal entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskflow.cost import CostModel
from taskflow.errors import InternalError
from taskflow.lower import Lowering
from taskflow.lower.movement import Fragment
from taskflow.memory import ALIGNMENT
from taskflow.partition import Points
from taskflow.task import Array, TaskGraph


class Column:
    """A growing array."""

    def __init__(self, dtype: Any, *width: int) -> None:
        self.data, self.length = np.zeros((1024, *width), dtype), 0

    def add(self, values: Array) -> int:
        """Append; where the values begin."""
        begin, end = self.length, self.length + len(values)
        if end > len(self.data):
            grown = np.zeros((max(end, 2 * len(self.data)), *self.data.shape[1:]), self.data.dtype)
            grown[:begin] = self.data[:begin]
            self.data = grown
        self.data[begin:end] = values
        self.length = end
        return begin


class Pool:
    """See the module. `rows` are of operators and movements alike; all else is found by entry number."""

    def __init__(self, lowering: Lowering, costs: CostModel) -> None:
        self.lowering, self.costs = lowering, costs
        self.seconds, self.stream_ptr, self.streams = Column(np.float64), Column(np.int64), Column(np.int64)
        self.within_ptr, self.within = Column(np.int64), Column(np.int64)
        self.op_rows, self.version_rows = Column(np.int64, 2), Column(np.int64, 2)
        self.fragment_rows, self.fragment_runs = Column(np.int64), Column(np.int64)
        self.run_ptr, self.runs = Column(np.int64), Column(np.int64, 6)
        self.fragment_span = Column(np.int64, 2)  # first row and number, over all versions
        self.bytes: list[Array] = []  # per fragment: of instances, on every device
        self._ops: dict[tuple[int, int], int] = {}
        self._fragments: dict[tuple[object, ...], int] = {}
        self._kept: list[Points] = []  # whose identity is part of a key
        self.stream_ptr.add(np.zeros(1, np.int64))
        self.within_ptr.add(np.zeros(1, np.int64))

    @property
    def size_bytes(self) -> int:
        """Memory that the columns take."""
        return sum(c.data.nbytes for c in vars(self).values() if isinstance(c, Column))

    def enter(
        self, slots: Sequence[int], regions: Sequence[int], points: Sequence[Points], used: Array
    ) -> tuple[list[int], list[int]]:
        """The entries of some operators and regions, given the points of all operators; what is new is packed."""
        lowering = self.lowering
        op_keys = [(lowering.cost_kind[k], id(points[k])) for k in slots]
        keys = [(lowering.dtype_kind[k], *lowering.fragment_key(k, points, used)) for k in regions]
        new_ops = {key: k for key, k in zip(op_keys, slots, strict=True) if key not in self._ops}
        new = {key: k for key, k in zip(keys, regions, strict=True) if key not in self._fragments}
        if new_ops or new:
            self._pack(new_ops, new, points, used)
        return [self._ops[key] for key in op_keys], [self._fragments[key] for key in keys]

    def _pack(
        self,
        new_ops: dict[tuple[int, int], int],
        new: dict[tuple[object, ...], int],
        points: Sequence[Points],
        used: Array,
    ) -> None:
        made = [(k, self.lowering.make_fragment(k, points, used)) for k in new.values()]
        rows = self.lowering.sample([(k, points[k]) for k in new_ops.values()], made)
        row = self._add_rows(rows)
        for key, k in new_ops.items():
            self._ops[key] = self.op_rows.add(np.array([[row, len(points[k])]]))
            self._kept.append(points[k])
            self.within_ptr.add(np.full(len(points[k]), self.within.length))
            row += len(points[k])
        for name, (number, fragment) in zip(new, made, strict=True):
            self._fragments[name] = self._add_fragment(number, fragment, row)
            row += len(fragment.row)

    def _add_rows(self, rows: TaskGraph) -> int:
        """Seconds and streams of all rows; the number of the first."""
        row, stream = rows.occupied()
        order = np.argsort(row, kind="stable")
        self.stream_ptr.add(self.streams.length + np.cumsum(np.bincount(row, minlength=len(rows))))
        self.streams.add(stream[order])
        return self.seconds.add(self.costs.seconds(rows))

    def _add_fragment(self, number: int, fragment: Fragment, row: int) -> int:
        from taskflow.search.resimulate import bytes_of, pack_edges  # numba: imported on first use

        life = self.lowering.lives[number]
        ops, versions = len(life.ops), len(life.producer)
        runs, run_ptr, within_ptr, within = pack_edges(fragment.edges, ops + versions, ops, fragment.version_row)
        if not len(run_ptr):
            raise InternalError(f"region '{life.region.name}': points of one operator wait for each other")
        self.within_ptr.add(within_ptr[1:] + self.within.length)
        self.within.add(within)
        self.fragment_runs.add(np.array([self.run_ptr.add(run_ptr + self.runs.length)]))
        self.runs.add(runs)
        self.fragment_span.add(np.array([[row, len(fragment.row)]]))
        begin, end = fragment.version_row[:-1], fragment.version_row[1:]
        self.fragment_rows.add(np.array([self.version_rows.add(np.stack([begin + row, end - begin], axis=1))]))
        devices = len(self.lowering.machine.devices)
        size = bytes_of(fragment.instance_device, fragment.instance_box, life.region.itemsize, ALIGNMENT, devices)
        self.bytes.append(size)
        return len(self.bytes) - 1
