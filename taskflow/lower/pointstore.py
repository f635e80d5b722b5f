"""The points of operators under configurations, numbered, as flat columns that compiled code fills and reads.

Configurations of equal degrees whose devices repeat in the same places have the same points but for the devices. So of
these, points are found once, the first being the model of all others, which share its boxes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.columns import doubled
from taskflow.operator import Operator
from taskflow.partition import Points, cuts, partition, split_numbers
from taskflow.strategy import Degree, ParallelConfig

Array = np.ndarray[Any, np.dtype[Any]]


class Places(NamedTuple):
    """The columns, each with room for more; see `partition.Points`.

    Attributes:
        length: how far the columns are filled; see `grid.PLACE` and so on.
        place, flops, bytes: of every point; bytes of its arguments.
        span, box, colour: intervals of all axes, boxes of all terms and colours of all outputs, of every point.
        partial: of the outputs.
        record: (n, 10) first of `place` and number of points, first of `box` and dimensions of all terms, first of
            `colour` and outputs, first of `partial`, first of `term`, first of `span` and axes.
        term: per kind of operator the number of inputs, then the first dimension of every term.
    """

    length: Array
    place: Array
    flops: Array
    bytes: Array
    box: Array
    colour: Array
    partial: Array
    span: Array
    record: Array
    term: Array


# The columns that grow together, by their place in `length`.
GROWING = (("place", "flops", "bytes"), ("box",), ("colour",), ("partial",), ("span",), ("record",))
PLACE, RECORD = 0, 5
ROOM = 1024  # of the columns, to begin with
SHORT = 64  # times as short is the column of records


class PointStore:
    """Operators of a graph with the same kind share their points.

    Args:
        operators: of the graph.
        kind: per operator, a number; those that are partitioned alike have the same.
    """

    def __init__(self, operators: tuple[Operator, ...], kind: list[int]) -> None:
        self.operators, self.kind = operators, kind
        length = np.zeros(6, np.int64)
        place, size, box, colour, partial, span = (np.zeros(ROOM, np.int64) for _ in range(6))
        record, term = np.zeros((ROOM // SHORT, 10), np.int64), np.zeros(0, np.int64)
        self.table = Places(length, place, np.zeros(ROOM), size, box, colour, partial, span, record, term)
        self._models: dict[tuple[object, ...], tuple[int, Array]] = {}
        self._seated: tuple[ParallelConfig, Array, tuple[int, ...]] | None = None  # of the last configuration
        self._made: list[tuple[int, ParallelConfig]] = []
        self._model: list[int] = []  # per number
        self._points: dict[int, Points] = {}
        self._numbers: dict[tuple[int, ParallelConfig], int] = {}
        self._cuts: dict[tuple[int, tuple[tuple[str, Degree], ...]], tuple[Array, Array, Array]] = {}
        self._kinds: dict[int, tuple[Any, ...]] = {}
        self._splits: dict[int, dict[str, int]] = {}

    def number(self, slot: int, config: ParallelConfig) -> int:
        """The number of the points of operator `slot` under a configuration.

        Raises:
            ValueError: it cannot be split so.
        """
        key = self.kind[slot], config
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._place(slot, config)
        return found

    def span(self, number: int) -> slice:
        """Where they are in the columns `place`, `flops` and `bytes`."""
        first, count = self.table.record[number, :2].tolist()
        return slice(first, first + count)

    def model(self, number: int) -> int:
        """The number of points that differ from these in their devices only."""
        return self._model[number]

    def config(self, number: int) -> ParallelConfig:
        """Their configuration."""
        return self._made[number][1]

    def points(self, number: int) -> Points:
        """The points of this number."""
        if number not in self._points:
            self._points[number] = self._read(number)
        return self._points[number]

    def _place(self, slot: int, config: ParallelConfig) -> int:
        """Add the points of a configuration: those of its model on other devices, if there is one."""
        devices, seats = self._seating(config)
        key = self.kind[slot], config.degrees, seats
        if key in self._models:
            model, seat = self._models[key]
            return self._add_like(model, slot, config, devices[seat])
        number, seat_of = self._add(slot, config), {d: k for k, d in enumerate(devices.tolist())}
        places = self.table.place[self.span(number)].tolist()
        self._models[key] = number, np.array([seat_of[d] for d in places], np.int64)
        return number

    def _seating(self, config: ParallelConfig) -> tuple[Array, tuple[int, ...]]:
        """The different devices of a configuration, and which of them each point has; () for the next one each."""
        if self._seated is None or self._seated[0] is not config:
            devices = tuple(dict.fromkeys(config.devices))
            seats = () if len(devices) == len(config.devices) else tuple(map(devices.index, config.devices))
            self._seated = config, np.array(devices, np.int64), seats
        return self._seated[1:]

    def _add_like(self, model: int, slot: int, config: ParallelConfig, place: Array) -> int:
        """Add the points of a model on other devices."""
        number, first, count = len(self._made), int(self.table.length[PLACE]), len(place)
        while first + count > len(self.table.place):
            self.table = doubled(self.table, GROWING[PLACE])
        if number >= len(self.table.record):
            self.table = doubled(self.table, GROWING[RECORD])
        table, old, new = self.table, self.span(model), slice(first, first + count)
        table.place[new], table.flops[new], table.bytes[new] = place, table.flops[old], table.bytes[old]
        table.record[number] = table.record[model]
        table.record[number, 0] = first
        table.length[PLACE], table.length[RECORD] = first + count, number + 1
        self._made.append((slot, config))
        self._model.append(model)
        return number

    def _add(self, slot: int, config: ParallelConfig) -> int:
        from taskflow.grid import FAULT, FITS, add_points  # numba: imported on first use

        kind, op = self.kind[slot], self.operators[slot]
        if kind not in self._kinds:
            self._kinds[kind], self._splits[kind] = self._describe(op), split_numbers(op)
        if (key := (kind, config.degrees)) not in self._cuts:
            self._cuts[key] = cuts(op, config, self._splits[kind])
        arguments: tuple[Any, ...] = *self._cuts[key], np.array(config.devices, np.int64), *self._kinds[kind]
        while (found := add_points(*(*arguments, *self.table[:9]))) != FITS:
            if found == FAULT:
                partition(op, config)  # says what is wrong
            self.table = doubled(self.table, GROWING[found])
        self._made.append((slot, config))
        self._model.append(len(self._model))
        return len(self._made) - 1

    def _describe(self, op: Operator) -> tuple[Any, ...]:
        """What `grid.add_points` wants of a kind of operators."""
        terms, first = op.bound.table.term_ptr, len(self.table.term)
        row = np.array([len(op.inputs), *terms], np.int64)
        self.table = self.table._replace(term=np.concatenate([self.table.term, row]))
        itemsize = np.array([r.itemsize for r in op.args], np.int64)
        return *op.bound.table.columns, first, terms, itemsize, float(op.flops)

    def _read(self, number: int) -> Points:
        t, (slot, config) = self.table, self._made[number]
        first, n, box, dims, colour, outputs, partial, _, span, axes = t.record[number].tolist()
        return Points(
            self.operators[slot],
            config,
            t.place[first : first + n].copy(),
            t.span[span : span + 2 * n * axes].reshape(n, axes, 2).copy(),
            t.box[box : box + 2 * n * dims].reshape(n, dims, 2).copy(),
            t.colour[colour : colour + n * outputs].reshape(n, outputs).copy(),
            t.partial[partial : partial + outputs] > 0,
        )
