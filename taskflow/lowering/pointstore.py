"""The points of operators under configurations, numbered, as flat columns that compiled code fills and reads.

Configurations of equal degrees whose devices repeat in the same way have the same points but for the devices. So of
these, points are found once, the first being the model of all others, which share its boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from taskflow.core.columns import Array, doubled, table_bytes
from taskflow.core.compiling import inner, leaf, tiered
from taskflow.graph.graph import Operator
from taskflow.lowering.boxes import border
from taskflow.lowering.pointtable import (
    BOX,
    COLOUR,
    DEVICE,
    FAULT,
    FITS,
    GROWING,
    MODEL,
    PARTIAL,
    RECORD,
    RECORD_DTYPE,
    Kinds,
    PointTable,
    axis_names,
    kinds_of,
)
from taskflow.strategy.partition import OperatorPoints, cuts, make_points, partition, volume
from taskflow.strategy.parts import HeldParts, of_parts
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
        box_dtype: as narrow as the extents of regions allow.
    """

    def __init__(self, operators: tuple[Operator, ...], kind: list[int]) -> None:
        self.operators = operators
        self.kind = kind
        self._names = axis_names(operators)
        self.box_dtype = _dtype_of_boxes(operators)
        first = {number: op for op, number in reversed(list(enumerate(kind)))}
        kinds = kinds_of([operators[op] for _, op in sorted(first.items())], self._names)
        self._kind_columns = tuple(kinds)
        length = np.zeros(6, np.int64)
        device, rank, size, colour, partial = (np.zeros(ROOM, np.int64) for _ in range(5))
        box = np.zeros(ROOM, self.box_dtype)
        record = np.zeros(ROOM // SHORT, RECORD_DTYPE)
        self.table = PointTable(
            length, device, rank, np.zeros(ROOM), size, box, colour, partial, record, kinds.term
        )
        self._table_bytes = table_bytes(self.table)
        self._degrees: dict[Degrees, tuple[Array, Array, bool]] = {}
        self._models: dict[
            object, dict[int, int]
        ] = {}  # by degrees and by which devices repeat, and by kind
        self._made: list[tuple[int, ParallelConfig]] = []
        self._model: list[int] = []  # per number
        self._points: dict[int, OperatorPoints] = {}
        self._numbers: dict[ParallelConfig, dict[int, int]] = {}  # and by kind
        self._numbers_of_parts: dict[object, dict[bytes, int]] = {}  # by devices

    def number(self, op: int, config: ParallelConfig) -> int:
        """The number of the points of operator number `op` under a configuration.

        Raises:
            ValueError: it cannot be split so.
        """
        return self.numbers([op], config)[0]

    def numbers(self, ops: Sequence[int], config: ParallelConfig) -> list[int]:
        """The numbers of the points of some operators under one configuration; raises as `number` does."""
        numbers = self._numbers.setdefault(config, {})
        kinds = [self.kind[op] for op in ops]
        new = {kind: op for kind, op in zip(kinds, ops, strict=True) if kind not in numbers}
        if new:
            self._add(new, config, numbers)
        return [numbers[kind] for kind in kinds]

    def number_of_parts(self, op: int, parts: HeldParts, config: ParallelConfig) -> int:
        """The number of the points of an addition that are where partial results are; `config`: of who makes these.

        -1 where its axes cannot be split so.
        """
        distinct, rank = _in_turn(parts.device)
        key = self.kind[op], *(column.tobytes() for column in (rank, parts.box, parts.colour))
        numbers = self._numbers_of_parts.setdefault(key, {})
        if (devices := distinct.tobytes()) not in numbers:
            model = next(iter(numbers.values()), -1)
            points = (
                self.points(model) if model >= 0 else of_parts(self.operators[op], config, parts)
            )
            numbers[devices] = (
                -1 if points is None else self._add_parts(op, points, parts, distinct, model)
            )
        return numbers[devices]

    def _add_parts(
        self, op: int, points: OperatorPoints, parts: HeldParts, distinct: Array, model: int
    ) -> int:
        """Add the points of an addition, like those of a model, on the devices of its parts."""
        kind = self.kind[op]
        columns = (points.spans, points.boxes, points.colours)
        args = kind, model, parts.device, *columns, distinct, self._kind_columns
        while (fit := add_parts(*args, tuple(self.table))) != FITS:
            self._double(fit)
        number = len(self._made)
        self._model.append(number if model < 0 else model)
        self._made.append((op, points.config))
        self._points[number] = points if model < 0 else replace(points, device=parts.device)
        return number

    @property
    def size_bytes(self) -> int:
        """Memory that all takes, about."""
        return self._table_bytes + RECORD_BYTES * len(self._made)

    def span(self, number: int) -> slice:
        """Where they are in the column `device`."""
        record = self.table.record[number]
        return slice(int(record["first_device"]), int(record["first_device"] + record["points"]))

    def model(self, number: int) -> int:
        """The number of points that differ from these in their devices only."""
        return self._model[number]

    def config(self, number: int) -> ParallelConfig:
        """Their configuration."""
        return self._made[number][1]

    def points(self, number: int) -> OperatorPoints:
        """The points of this number, which are kept."""
        if number not in self._points:
            self._points[number] = self.made(number)
        return self._points[number]

    def made(self, number: int) -> OperatorPoints:
        """The points of this number, which are made if none are kept."""
        if number in self._points:
            return self._points[number]
        op, config = self._made[number]
        return partition(self.operators[op], config)

    def _add(self, new: Mapping[int, int], config: ParallelConfig, numbers: dict[int, int]) -> None:
        """Add the points of operators of new kinds (with their ops): of those that have a model, on other devices."""
        ranks, devices, distinct = _ranked(config.devices)
        models = self._models.setdefault((config.degrees, ranks), {})
        left = list(new)
        if config.degrees not in self._degrees:
            self._degrees[config.degrees] = self._describe(config.degrees)
        names, counts, is_balanced = self._degrees[config.degrees]
        while left:
            of_kinds = (
                np.array(left, np.int64),
                np.array([models.get(kind, -1) for kind in left], np.int64),
            )
            borders = (
                NO_BORDERS if is_balanced else self._borders([new[kind] for kind in left], config)
            )
            args = *of_kinds, names, counts, borders, devices, distinct
            done, fit = add_points(*args, self._kind_columns, tuple(self.table))
            for kind in left[:done]:
                numbers[kind] = len(self._made)
                self._model.append(models.setdefault(kind, len(self._made)))
                self._made.append((new[kind], config))
            left = left[done:]
            if fit == FAULT:
                partition(self.operators[new[left[0]]], config)  # says what is wrong
            elif fit != FITS:
                self._double(fit)

    def _double(self, column: int) -> None:
        """Twice as much room where there was too little."""
        self.table = doubled(self.table, GROWING[column])
        self._table_bytes = table_bytes(self.table)

    def _describe(self, degrees: Degrees) -> tuple[Array, Array, bool]:
        """Numbers of the axes and of their parts, and whether all parts are balanced."""
        names = np.array([self._names.get(axis, len(self._names)) for axis, _ in degrees], np.int64)
        counts = np.array([parts(degree) for _, degree in degrees], np.int64)
        return names, counts, all(isinstance(degree, int) for _, degree in degrees)

    def _borders(self, ops: Sequence[int], config: ParallelConfig) -> Array:
        """Borders of the parts of every axis for every operator, see `add_points`."""
        return np.stack([cuts(self.operators[op], config)[2] for op in ops])


@lru_cache(maxsize=64)  # operators that follow each other are on the same devices, often
def _ranked(devices: tuple[int, ...]) -> tuple[bytes, Array, Array]:
    """Which of the different devices each is, none if all are different; the devices, and those that are different."""
    rank = {device: k for k, device in enumerate(dict.fromkeys(devices))}
    ranks = [*map(rank.__getitem__, devices)] if len(rank) < len(devices) else []
    return (
        np.array(ranks, np.int64).tobytes(),
        np.array(devices, np.int64),
        np.array([*rank], np.int64),
    )


def _in_turn(devices: Array) -> tuple[Array, Array]:
    """The different devices in order of appearance, and which of them each is."""
    names, first, which = np.unique(devices, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return names[order], np.argsort(order)[which]


def _dtype_of_boxes(operators: Sequence[Operator]) -> type[np.signedinteger[Any]]:
    """Boxes are most of what columns take, so they are as small as regions allow."""
    most = max(
        (extent for op in operators for region in op.args for extent in region.shape), default=0
    )
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


# -- compiled ----------------------------------------------------------------------------------------------------------


@tiered
def add_points(
    kinds: Any,
    models: Any,
    names: Any,
    parts: Any,
    borders: Any,
    devices: Any,
    distinct: Any,
    tables: Any,
    store: Any,
) -> tuple[int, int]:
    """Append the points of operators of some kinds under one configuration.

    Args:
        kinds, models: of every operator; the model is the number of points to be copied, -1: none.
        names, parts: per axis of the configuration, its name by number and its number of parts.
        borders: (operators, axes of the configuration, parts + 1) of the parts; none: they are balanced.
        devices: of every point of the configuration, row-major.
        distinct: those that are different, in order of appearance.
        tables, store: `Kinds` and `PointTable` as plain tuples.

    Returns:
        Of how many operators points were added, and FITS, the column that has too little room, or FAULT: a group that
        is not contiguous.
    """
    k, t = Kinds(*tables), PointTable(*store)
    for i in range(len(kinds)):
        if models[i] >= 0:
            fit = add_like(models[i], distinct, t)
        else:
            axis, cut = split_axes(kinds[i], names, parts, k)
            fit = add_kind(
                kinds[i], axis, parts, borders[i] if len(borders) else cut, devices, distinct, k, t
            )
        if fit != FITS:
            return i, fit
    return len(kinds), FITS


@tiered
def add_parts(
    kind: int, model: int, where: Any, spans: Any, boxes: Any, colours: Any, distinct: Any, tables: Any, store: Any
) -> int:  # fmt: skip
    """Append the points of an addition of partial results: FITS; else nothing is appended. See `add_points`."""
    k, t = Kinds(*tables), PointTable(*store)
    if model >= 0:
        return int(add_like(model, distinct, t))
    groups = np.full(1, colours.max() + 1, np.int64)
    return int(put_points(kind, where, spans, boxes, colours, groups, True, distinct, k, t))


@leaf
def add_like(model: int, distinct: Any, t: PointTable) -> int:
    """Append the points of a model on other devices: FITS; else nothing is appended."""
    old = t.record[model]
    new = t.length[DEVICE]
    number = t.length[RECORD]
    count = old.points
    if new + count > len(t.device):
        return DEVICE
    if number >= len(t.record):
        return RECORD
    for i in range(count):
        t.device[new + i] = distinct[t.device_rank[old.first_model + i]]
    t.record[number] = old
    t.record[number].first_device = new
    t.length[DEVICE] = new + count
    t.length[RECORD] = number + 1
    share_devices(number, t)
    return FITS


@leaf
def share_devices(number: int, t: PointTable) -> None:
    """Points that were added last, on the devices of those before them, have no devices of their own."""
    if number == 0:
        return
    new = t.record[number]
    old = t.record[number - 1]
    if new.points != old.points:
        return
    for i in range(new.points):
        if t.device[new.first_device + i] != t.device[old.first_device + i]:
            return
    t.length[DEVICE] = new.first_device
    new.first_device = old.first_device


@inner
def split_axes(kind: int, names: Any, parts: Any, k: Kinds) -> tuple[Any, Any]:
    """The operator's own axis for each axis of a configuration, -1: makes replicas; and borders of balanced parts."""
    axis = np.empty(len(names), np.int64)
    cut = np.zeros((len(names), parts.max() + 1 if len(parts) else 1), np.int64)
    for j in range(len(names)):
        axis[j] = k.axis[kind, names[j]] if parts[j] > 1 else -1
        if axis[j] >= 0:
            extent = k.extents[k.first[kind, 0] + axis[j]]
            for part in range(parts[j] + 1):
                cut[j, part] = border(extent, parts[j], part)
    return axis, cut


@inner
def add_kind(
    kind: int, axis: Any, parts: Any, borders: Any, devices: Any, distinct: Any, k: Kinds, t: PointTable
) -> int:  # fmt: skip
    """Append the points of an operator: FITS; else nothing is appended. Arguments as for `add_points`, of one."""
    a = k.first[kind]
    b = k.first[kind + 1]
    made = k.made[kind]
    table = (
        k.extents[a[0] : b[0]],
        k.dim_ptr[a[1] : b[1]],
        k.dim_axis[a[2] : b[2]],
        k.dim_extent[a[3] : b[3]],
        k.window[a[3] : b[3]],
        k.images,
        k.reduced[a[4] : b[4]].reshape(made, b[0] - a[0]),
    )
    where, spans, boxes, colours, groups, fault = make_points(axis, parts, borders, devices, table)
    if fault >= 0:
        return FAULT
    return put_points(kind, where, spans, boxes, colours, groups, False, distinct, k, t)


@inner
def put_points(
    kind: int, where: Any, spans: Any, boxes: Any, colours: Any, groups: Any, takes_parts: bool, distinct: Any,
    k: Kinds, t: PointTable,
) -> int:  # fmt: skip
    """Append points that `make_points` made: FITS; else nothing is appended."""
    a = k.first[kind]
    b = k.first[kind + 1]
    dims = b[3] - a[3]
    arguments = b[5] - a[5]
    term = k.first_term[kind]
    count = len(where)
    made = k.made[kind]
    more = (count, 2 * count * dims, count * made, made, count, 1)
    room = (
        len(t.device),
        len(t.box),
        len(t.colour),
        len(t.partial),
        len(t.device_rank),
        len(t.record),
    )
    for column in range(6):
        if t.length[column] + more[column] > room[column]:
            return column
    put_record(t, count, dims, made, term)
    t.record[t.length[RECORD]].takes_parts = takes_parts
    rank_of = np.zeros(distinct.max() + 1, np.int64)
    for i in range(len(distinct)):
        rank_of[distinct[i]] = i
    for p in range(count):
        at = t.length[MODEL] + p
        t.device[t.length[DEVICE] + p], t.device_rank[at] = where[p], rank_of[where[p]]
    put_flops(t.flops[t.length[MODEL] :], kind, spans, k)
    put_sizes(t.bytes, t.length[MODEL], boxes, k, a[5], term + 1, arguments)
    put_pairs(t.box, t.length[BOX], boxes)
    for p in range(count):
        for j in range(made):
            t.colour[t.length[COLOUR] + p * made + j] = colours[p, j]
    for j in range(made):
        t.partial[t.length[PARTIAL] + j] = groups[j] > 1
    for column in range(6):
        t.length[column] += more[column]
    share_devices(t.length[RECORD] - 1, t)
    return FITS


@leaf
def put_flops(flops: Any, kind: int, spans: Any, k: Kinds) -> None:
    """Of the points with these intervals; more for what they read by a table."""
    a = k.first[kind]
    b = k.first[kind + 1]
    for p in range(len(spans)):
        flops[p] = k.flops[kind] * volume(spans, p)
    for d in range(a[3], b[3]):
        if k.work[d] > 0.0:
            axis = k.dim_axis[a[2] + k.dim_ptr[a[1] + d - a[3]]]
            first = k.window[d, 1]
            for p in range(len(spans)):
                low = spans[p, axis, 0]
                high = spans[p, axis, 1]
                read = k.images[first + high] - k.images[first + low]
                of_others = volume(spans, p) / (high - low)
                flops[p] += k.work[d] * (read * of_others)


@leaf
def put_record(t: PointTable, count: int, dims: int, made: int, term: int) -> None:
    """Say where the columns of points that are added begin."""
    new = t.record[t.length[RECORD]]
    new.first_device = t.length[DEVICE]
    new.points = count
    new.first_box = t.length[BOX]
    new.dims = dims
    new.first_colour = t.length[COLOUR]
    new.made = made
    new.first_partial = t.length[PARTIAL]
    new.first_term = term
    new.first_model = t.length[MODEL]


@leaf
def put_pairs(column: Any, begin: int, pairs: Any) -> None:
    """Write (points, n, 2) numbers in turn."""
    for p in range(pairs.shape[0]):
        for d in range(pairs.shape[1]):
            column[begin], column[begin + 1] = pairs[p, d, 0], pairs[p, d, 1]
            begin += 2


@leaf
def put_sizes(
    sizes: Any, begin: int, boxes: Any, k: Kinds, first: int, at: int, arguments: int
) -> None:
    """Write the bytes that every point touches of all arguments."""
    for p in range(boxes.shape[0]):
        total = 0
        for j in range(arguments):
            size = count_points(boxes, p, k.term[at + j], k.term[at + j + 1])
            if k.picks[first + j] and size:
                picked = 0
                for i in range(arguments):
                    if (k.picks[first + j] >> i) & 1:
                        picked += count_points(boxes, p, k.term[at + i], k.term[at + i + 1])
                rows = count_points(boxes, p, k.term[at + j], k.term[at + j] + 1)
                size = size // rows * min(rows, picked)
            total += size * k.itemsize[first + j]
        sizes[begin + p] = total


@leaf
def count_points(boxes: Any, p: int, first: int, end: int) -> int:
    """Of the box of dimensions `first` to `end` of point `p`."""
    size = 1
    for d in range(first, end):
        size *= max(boxes[p, d, 1] - boxes[p, d, 0], 0)
    return size
