"""Cases: the ways to split a family, wherever its points are placed, and what operators take and lack in each of them.

A family is an operator that a strategy names with those that follow it; one configuration decides for all of them. A
case is a row of degrees and the most points that a device has of them. Sizes of tiles depend on it alone. So does what
moves at least: a device holds no more of a box than the best placed tiles of the operator that made it can share with
it. What is said here holds for each of the points of an operator, so the fastest of them is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import balanced_bounds
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.cost.rates import Rates, rate_number
from taskflow.graph.graph import Operator
from taskflow.tasks.exchange import SMALL_BYTES

TINY_SECONDS = 1e-300
MOST_PAIRS = (
    1 << 18
)  # of kinds of cases; of more (64 P100: 5 million) nothing is said to move, since it takes seconds


class Cases:
    """The cases of an operator.

    Attributes:
        operator: whose splits they are.
        degrees: axis -> (cases,) number of parts.
        crowd, spread: (cases,) the most points that a device has, and the number of devices.
    """

    def __init__(self, op: Operator, axes: Sequence[str], rows: Array, crowd: Array) -> None:
        self.operator, self.crowd, self.spread = op, crowd[:, 0], crowd[:, 1]
        self._named = rows.prod(axis=1)
        self.degrees = {a: rows[:, k] for k, a in enumerate(axes) if a in op.split_axes}
        self._whole = np.ones(len(rows), np.int64)

    def parts(self, axis: str) -> Array:
        """(cases,) number of parts along an axis."""
        return self.degrees.get(axis, self._whole)

    @cached_property
    def sizes(self) -> list[tuple[Array, Array]]:
        """Per term (cases, dimensions) the least and the largest extents of a tile."""
        bound, count, found = self.operator.bound, len(self._whole), []
        for term, shape in zip(bound.terms, bound.shapes, strict=True):
            dims = [
                self._dimension(names, extent)
                for names, extent in zip(term.dims, shape, strict=True)
            ]
            found.append(
                (
                    _columns([low for low, _ in dims], count),
                    _columns([high for _, high in dims], count),
                )
            )
        return found

    def _dimension(self, names: tuple[str, ...], extent: int) -> tuple[Array, Array]:
        bound = self.operator.bound
        if len(names) == 1 and names[0] in bound.windows:
            return self._window(names[0], extent)
        low, high = self._whole, self._whole
        for axis in names:
            low, high = low * self._least(axis), high * -(-bound.extents[axis] // self.parts(axis))
        return low, high

    def _window(self, name: str, extent: int) -> tuple[Array, Array]:
        window = self.operator.bound.windows[name]
        points, parts = self.operator.extents[window.axis], self.parts(window.axis)
        found = {}
        for degree in np.unique(parts).tolist():
            parts_of = pairwise(balanced_bounds(points, degree))
            read = [
                last - first
                for a, b in parts_of
                if a < b
                for first, last in [window.image((a, b), extent)]
            ]
            found[degree] = min(read), max(read)
        low, high = np.array([found[degree] for degree in parts.tolist()]).reshape(-1, 2).T
        return low, high

    def _least(self, axis: str) -> Array:
        least: Array = np.maximum(self.operator.extents[axis] // self.parts(axis), 1)
        return least

    @property
    def last(self) -> Array:
        """(cases,) so many points some device has at least."""
        found: Array = -(-self._product(self.degrees) // self.spread)
        return found

    def _product(self, axes: Iterable[str]) -> Array:
        """(cases,) how many parts there are along some axes; none is empty."""
        parts = [np.minimum(self.parts(a), self.operator.extents[a]) for a in axes]
        found: Array = np.prod([self._whole, *parts], axis=0)
        return found

    @cached_property
    def points(self) -> Array:
        """(cases,) how many there are at least, replicas included where every device has one point."""
        split = np.prod([self._whole, *self.degrees.values()], axis=0)
        found: Array = self._product(self.degrees) * np.where(
            self.crowd == 1, self._named // split, 1
        )
        return found

    @cached_property
    def devices(self) -> Array:
        """(cases,) on how many devices these are at least."""
        found: Array = -(-self.points // self.crowd)
        return found

    def summands(self, arg: int) -> Array:
        """(cases,) how many parts of every element of an argument that it makes have to be summed."""
        bound = self.operator.bound
        axes = bound.reduced_axes(bound.made.index(arg)) if arg in bound.made else frozenset[str]()
        return self._product(sorted(axes))

    def seconds(self, costs: AnalyticCosts) -> Array:
        """(cases,) seconds of a point at least: what it computes is certain, what it moves lies between two sizes."""
        op, flops, size = (
            self.operator,
            self.operator.flops * self._whole,
            np.zeros((2, len(self._whole))),
        )
        for axis in op.extents:
            flops = flops * self._least(axis)
        for region, (low, high) in zip(op.args, self.sizes, strict=True):
            size += np.stack([low.prod(axis=1), high.prod(axis=1)]) * region.itemsize
        dtype = rate_number([r.dtype for r in op.args], op.kernel)
        machine = costs.machine
        different = dict(
            zip(reversed(machine.devices), reversed(range(len(machine.devices))), strict=True)
        ).values()
        found: Array = np.min(
            [_least_on(d, flops, size, dtype, costs.rates) for d in different], axis=0
        )
        return found


def _least_on(device: int, flops: Array, size: Array, dtype: int, rates: Rates) -> Array:
    """`curve_seconds` and overhead, at least; the ramp of what only computes, or where the share of that is least."""
    compute, memory = flops / rates.flops[dtype, device], size / rates.bandwidth[device]
    share = compute / np.maximum(compute + memory[1], TINY_SECONDS)
    ramp = np.minimum(
        share * rates.compute_ramp[device] + (1.0 - share) * rates.ramp[device],
        rates.compute_ramp[device],
    )
    least: Array = np.maximum(compute, memory[0])
    least += rates.exposed[device] * np.minimum(compute, memory[0])
    least += np.where(compute + memory[0] > 0.0, ramp, 0.0) + rates.overhead[device]
    return least


def _columns(columns: Sequence[Array], count: int) -> Array:
    """(rows, columns), behind a column of ones, since a scalar has none."""
    return np.stack([np.ones(count, np.int64), *columns], axis=1)


# -- what a point waits for --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edge:
    """Operator number `reader` reads, as its argument `argument`, what `writer` made as its argument `output`."""

    writer: int
    output: int
    reader: int
    argument: int


def edges_of(operators: Sequence[Operator]) -> Iterator[Edge]:
    """Who reads what whom has made, in program order."""
    made: dict[str, tuple[int, int]] = {}
    for number, op in enumerate(operators):
        for k, region in enumerate(op.inputs):
            if region.name in made and k not in op.adds:  # of these, only the first part waits
                writer, output = made[region.name]
                yield Edge(writer, output, number, k)
        for k in (*op.writes, *range(len(op.inputs), len(op.args))):
            made[op.args[k].name] = number, k


def arrival_rates(rates: Rates) -> tuple[Array, Array]:
    """Per device the least latency and the largest throughput of transfers to it."""
    is_own = np.eye(len(rates.latency), dtype=np.bool_)
    return np.where(is_own, np.inf, rates.latency).min(axis=0), np.where(
        is_own, 0.0, rates.throughput
    ).max(axis=0)


class Arrival(NamedTuple):
    """Seconds between the first point that makes something and a point that reads it, at least.

    Attributes:
        seconds: (kinds of the writer's cases, kinds of the reader's).
        moves: the same, for which the device of the second point receives.
        writer, reader: (cases,) the kind of each.
    """

    seconds: Array
    moves: Array
    writer: Array
    reader: Array


class LinkRates(NamedTuple):
    """The least latency, and the bytes per second that a device receives at most; `links_of` a machine."""

    latency: float
    rate: float


def links_of(costs: CostModel) -> LinkRates:
    """A device with several doors receives by all at once; what a library takes for its collectives is not known."""
    machine = costs.machine
    if machine.library or len(machine.devices) == 1:
        return LinkRates(0.0, np.inf)
    latency, rates = arrival_rates(costs.rates)
    return LinkRates(float(latency.min()), float(rates.max()) * machine.ways.most_doors)


def arrival(
    edge: Edge, writer: Cases, reader: Cases, writer_seconds: Array, links: LinkRates
) -> Arrival:
    """What a device lacks of a box has to arrive there, all of it if it holds too few of the parts to be summed.

    Not before all tiles of the box are made, of which some device makes several, one after the other.

    Args:
        writer_seconds: (cases,) of each of its points, at least.
    """
    size, parts = reader.operator.args[edge.argument].itemsize, writer.summands(edge.output)
    columns = writer.sizes[edge.output][1], writer.crowd, writer.spread, parts, writer_seconds
    made, of_writer = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    read, of_reader = np.unique(reader.sizes[edge.argument][0], axis=0, return_inverse=True)
    of_writer, of_reader = of_writer.reshape(-1), of_reader.reshape(-1)
    if len(made) * len(read) > MOST_PAIRS:
        return Arrival(
            np.zeros((1, 1)), np.zeros((1, 1)), np.zeros_like(of_writer), np.zeros_like(of_reader)
        )
    crowd, spread, summands, seconds = made[:, -4:].T[:, :, None]
    held, tiles = np.repeat(crowd, len(read), axis=1), np.repeat(summands, len(read), axis=1)
    for k in range(read.shape[1]):
        held *= np.minimum(made[:, k, None], read[None, :, k])
        tiles *= np.ceil(read[None, :, k] / made[:, k, None])
    whole = read.prod(axis=1)[None].astype(float)
    lack = np.where(summands > crowd, whole, np.maximum(whole - held, 0.0)) * size
    moves = np.where(lack > SMALL_BYTES, lack / links.rate, 0.0)
    making = np.maximum(np.ceil(tiles / spread) - 1.0, 0.0) * seconds
    return Arrival(
        np.maximum(making, moves + np.where(lack > 0, links.latency, 0.0)),
        moves,
        of_writer,
        of_reader,
    )
