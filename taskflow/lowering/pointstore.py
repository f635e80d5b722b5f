"""The points of operators under configurations, numbered, as flat columns that compiled code fills and reads.

Configurations of equal degrees whose devices repeat in the same way have the same points but for the devices. So of
these, points are found once, the first being the model of all others, which share its boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskflow.core.columns import Array, doubled, table_bytes
from taskflow.graph.graph import Operator
from taskflow.lowering.pointtable import FAULT, FITS, GROWING, RECORD_DTYPE, PointTable, axis_names, kinds_of
from taskflow.strategy.partition import OperatorPoints, cuts, partition
from taskflow.strategy.strategy import Degree, ParallelConfig, parts

Degrees = tuple[tuple[str, Degree], ...]


ROOM = 1024  # of the columns, to begin with
NO_BORDERS = np.zeros((0, 0, 0), np.int64)  # all parts are balanced
SHORT = 64  # times as short is the column of records
RECORD_BYTES = 700  # of objects a record, here and in a search: 250 MB of 364,000 records of AlexNet on 64 devices


class PointStore:
    """Operators of a graph with the same kind share their points.

    Args:
        operators: of the graph.
        kind: per operator, a number; those that are partitioned alike have the same.

    Attributes:
        table: the columns.
    """

    def __init__(self, operators: tuple[Operator, ...], kind: list[int]) -> None:
        from taskflow.lowering.addpoints import add_points  # numba: imported on first use

        self.operators, self.kind, self._add_points = operators, kind, add_points
        self._names = axis_names(operators)
        first = {number: op for op, number in reversed(list(enumerate(kind)))}
        kinds = kinds_of([operators[op] for _, op in sorted(first.items())], self._names)
        self._kind_columns = tuple(kinds)
        length = np.zeros(6, np.int64)
        device, rank, size, colour, partial = (np.zeros(ROOM, np.int64) for _ in range(5))
        box, record = np.zeros(ROOM, _dtype_of_boxes(operators)), np.zeros(ROOM // SHORT, RECORD_DTYPE)
        self.table = PointTable(length, device, rank, np.zeros(ROOM), size, box, colour, partial, record, kinds.term)
        self._table_bytes = table_bytes(self.table)
        self._degrees: dict[Degrees, tuple[Array, Array, bool]] = {}
        self._models: dict[object, dict[int, int]] = {}  # by degrees and by which devices repeat, and by kind
        self._made: list[tuple[int, ParallelConfig]] = []
        self._model: list[int] = []  # per number
        self._points: dict[int, OperatorPoints] = {}
        self._numbers: dict[ParallelConfig, dict[int, int]] = {}  # and by kind

    def number(self, op: int, config: ParallelConfig) -> int:
        """The number of the points of operator number `op` under a configuration.

        Raises:
            ValueError: it cannot be split so.
        """
        return self.numbers([op], config)[0]

    def numbers(self, ops: Sequence[int], config: ParallelConfig) -> list[int]:
        """The numbers of the points of some operators under one configuration; raises as `number` does."""
        known = self._numbers.setdefault(config, {})
        kinds = [self.kind[op] for op in ops]
        new = {kind: op for kind, op in zip(kinds, ops, strict=True) if kind not in known}
        if new:
            self._add(new, config, known)
        return [known[kind] for kind in kinds]

    @property
    def size_bytes(self) -> int:
        """Memory that all takes, about."""
        return self._table_bytes + RECORD_BYTES * len(self._made)

    def span(self, number: int) -> slice:
        """Where they are in the column `device`."""
        found = self.table.record[number]
        return slice(int(found["first_device"]), int(found["first_device"] + found["points"]))

    def model(self, number: int) -> int:
        """The number of points that differ from these in their devices only."""
        return self._model[number]

    def config(self, number: int) -> ParallelConfig:
        """Their configuration."""
        return self._made[number][1]

    def points(self, number: int) -> OperatorPoints:
        """The points of this number."""
        if number not in self._points:
            op, config = self._made[number]
            self._points[number] = partition(self.operators[op], config)
        return self._points[number]

    def _add(self, new: Mapping[int, int], config: ParallelConfig, known: dict[int, int]) -> None:
        """Add the points of operators of new kinds (with their ops): of those that have a model, on other devices."""
        ranks: tuple[int, ...] = ()
        devices = distinct = np.array(config.devices, np.int64)
        if len(set(config.devices)) < len(config.devices):
            different = list(dict.fromkeys(config.devices))
            ranks, distinct = tuple(map(different.index, config.devices)), np.array(different, np.int64)
        models, left = self._models.setdefault((config.degrees, ranks), {}), list(new)
        if config.degrees not in self._degrees:
            self._degrees[config.degrees] = self._describe(config.degrees)
        names, counts, is_balanced = self._degrees[config.degrees]
        while left:
            of_kinds = np.array(left, np.int64), np.array([models.get(kind, -1) for kind in left], np.int64)
            borders = NO_BORDERS if is_balanced else self._borders([new[kind] for kind in left], config)
            args = *of_kinds, names, counts, borders, devices, distinct
            done, found = self._add_points(*args, self._kind_columns, tuple(self.table))
            for kind in left[:done]:
                known[kind] = len(self._made)
                self._model.append(models.setdefault(kind, len(self._made)))
                self._made.append((new[kind], config))
            left = left[done:]
            if found == FAULT:
                partition(self.operators[new[left[0]]], config)  # says what is wrong
            elif found != FITS:
                self.table = doubled(self.table, GROWING[found])
                self._table_bytes = table_bytes(self.table)

    def _describe(self, degrees: Degrees) -> tuple[Array, Array, bool]:
        """Numbers of the axes and of their parts, and whether all parts are balanced."""
        names = np.array([self._names.get(axis, len(self._names)) for axis, _ in degrees], np.int64)
        counts = np.array([parts(degree) for _, degree in degrees], np.int64)
        return names, counts, all(isinstance(degree, int) for _, degree in degrees)

    def _borders(self, ops: Sequence[int], config: ParallelConfig) -> Array:
        """Borders of the parts of every axis for every operator, see `addpoints.add_points`."""
        return np.stack([cuts(self.operators[op], config)[2] for op in ops])


def _dtype_of_boxes(operators: Sequence[Operator]) -> type[np.signedinteger[Any]]:
    """Boxes are most of the columns, so they are as small as regions allow."""
    most = max((extent for op in operators for region in op.args for extent in region.shape), default=0)
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64
