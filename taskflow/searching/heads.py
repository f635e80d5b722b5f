"""Bounds along chains of operators, case by case: what is computed and what moves are minimised together.

`Heads` says when the first point of every operator can start at the soonest, by induction in program order: of each
case of its family the soonest that what it reads can be there, over the cases of those that made it.

`weighed_bounds` takes one chain of operators of which each reads from the one before. For weights that sum to one a
step takes at least the weighted sum of three times, each of which it cannot beat: that of the chain, the mean over
devices of what they compute, and of what they receive. All three are sums over operators and over the edges between two
of them, so the smallest sum is found by dynamic programming over the cases along the chain (min-plus products).
Splitting more shortens the chain and adds work and movement: whatever a strategy does, it pays for one of them. An
operator beside the chain goes with the last one of its family on it before it; those of other families are minimised
alone. An operator that is in several cases along the chain is only cheaper. What a device receives it receives one by
one, so overlapping and over-decomposition make nothing of this less; what two points of a device read alike comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from taskflow.core.columns import Array
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.graph.graph import Operator
from taskflow.searching.cases import Arrival, Cases, Edge, arrival, edges_of, links_of
from taskflow.searching.space import Space
from taskflow.searching.splits import Splits

Item = TypeVar("Item")

# Of the chain, of work and of what moves: points of a concave function, the largest of which counts.
WEIGHTS = (
    (0.25, 0.75, 0.0),
    (0.5, 0.5, 0.0),
    (0.75, 0.25, 0.0),
    (1.0, 0.0, 0.0),
    (0.25, 0.5, 0.25),
    (0.5, 0.25, 0.25),
)


class OutOfTime(Exception):
    """It is late, and what was begun is of no use."""


def in_time(items: Iterable[Item], is_late: Callable[[], bool]) -> Iterator[Item]:
    """The items, until it is late.

    Raises:
        OutOfTime: it is.
    """
    for item in items:
        if is_late():
            raise OutOfTime
        yield item


class Heads:
    """When the first points of operators can start, family by family and case by case (see `cases`).

    A point of an operator in one case starts when the first point of each operator that it is sure to read from is
    done, in the case in which that is soonest, what it lacks included. Operators of a family have the same case. Of one
    that may be named by itself, or have uneven parts, nothing is known but its `least` seconds.
    """

    def __init__(
        self,
        space: Space,
        splits: Sequence[Splits],
        costs: CostModel,
        least: Array,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_late = is_late
        self._space, self.splits, self._costs, self._links = space, splits, costs, links_of(costs)
        self.devices = len(space.machine.devices)
        self._least = least
        self._cases: dict[object, Cases] = {}
        self._arrivals: dict[object, Arrival] = {}
        self._seconds: dict[int, Array] = {}
        self.edges = list(edges_of([split.operator for split in splits]))
        self._first = np.searchsorted(
            [e.reader for e in self.edges], np.arange(len(splits) + 1)
        ).tolist()
        self._latest: list[Edge | None] = []

    def of_operators(self) -> tuple[Array, Array]:
        """When the first point of each can start, and when the last one of its busiest device can end."""
        done: list[Array] = []
        starts, ends = np.zeros(len(self.splits)), np.zeros(len(self.splits))
        for k, split in enumerate(in_time(self.splits, self.is_late)):
            cases, seconds = self.case(split), self.point_seconds(k)
            start, latest = np.zeros(len(cases.crowd)), None
            for edge in self.edges[self._first[k] : self._first[k + 1]]:
                if split.reads[edge.argument] > 0:
                    arrived = self.arrived(edge, done[edge.writer])
                    latest = edge if latest is None or arrived.min() > start.min() else latest
                    np.maximum(start, arrived, out=start)
            self._latest.append(latest)
            done.append(start + seconds)
            starts[k] = start.min()
            ends[k] = float((start + seconds * (cases.last if split.is_even else 1)).min())
        return starts, ends

    def case(self, split: Splits) -> Cases:
        """The cases of an operator; equal ones share them."""
        op = split.operator
        rows = self._space.cases(op.follows or op.name)
        key = (
            op.bound.key,
            op.flops,
            op.work,
            (op.kernel.window, op.kernel.work),
            tuple(r.dtype for r in op.args),
            op.overwrites,
            id(rows[1]),
        )
        if key not in self._cases:
            self._cases[key] = Cases(op, *rows)
        return self._cases[key]

    def point_seconds(self, k: int) -> Array:
        """(cases,) seconds of a point of operator number `k`, at least."""
        cases = self.case(self.splits[k])
        if not (self.splits[k].is_even and isinstance(self._costs, AnalyticCosts)):
            return np.full(len(cases.crowd), self._least[k])
        if id(cases) not in self._seconds:
            self._seconds[id(cases)] = cases.seconds(self._costs)
        return self._seconds[id(cases)]

    def chain_to(self, k: int) -> list[Edge]:
        """What operator number `k` waits for longest, what that waits for, and so on; after `of_operators`."""
        edges: list[Edge] = []
        while (edge := self._latest[k]) is not None:
            edges.append(edge)
            k = edge.writer
        return edges[::-1]

    def arrived(
        self, edge: Edge, done: Array, weight: float = 1.0, more: Array | float = 0.0
    ) -> Array:
        """(cases of the reader,) when what a point reads of the writer can have arrived.

        Args:
            done: (cases of the writer,) when it has been made.
            weight, more: what seconds count, and what seconds of receiving count by the cases of the reader.
        """
        both = self.splits[edge.writer], self.splits[edge.reader]
        is_one = leader_of(both[0].operator) == leader_of(both[1].operator)
        if not (both[0].is_even and both[1].is_even):
            return done if is_one else np.full(len(self.case(both[1]).crowd), done.min())
        found = self.arrival(edge)
        if is_one:
            w, r = found.writer, found.reader
            return done + weight * found.seconds[w, r] + more * found.moves[w, r]
        soonest = np.full(len(found.seconds), np.inf)
        np.minimum.at(soonest, found.writer, done)
        if not np.any(more):
            least: Array = (soonest[:, None] + weight * found.seconds).min(axis=0)
            return least[found.reader]
        kinds, at = np.unique(np.column_stack([found.reader, more]), axis=0, return_inverse=True)
        k = kinds[:, 0].astype(np.int64)
        each: Array = (
            soonest[:, None] + weight * found.seconds[:, k] + kinds[:, 1] * found.moves[:, k]
        ).min(axis=0)
        return each[at.reshape(-1)]

    def arrival(self, edge: Edge) -> Arrival:
        """See `cases.arrival`."""
        writer, reader = self.case(self.splits[edge.writer]), self.case(self.splits[edge.reader])
        key = id(writer), edge.output, id(reader), edge.argument
        if key not in self._arrivals:
            self._arrivals[key] = arrival(
                edge, writer, reader, self.point_seconds(edge.writer), self._links
            )
        return self._arrivals[key]


def leader_of(op: Operator) -> str:
    """The operator that it follows, or itself."""
    return op.follows or op.name


# -- weighed -----------------------------------------------------------------------------------------------------------


def weighed_bounds(heads: Heads, ends: Array, whole: Array) -> Iterator[float]:
    """See the module; `whole`: seconds of every operator in all, at least, however it is split."""
    last = int(ends.argmax())
    chain = _Chain(heads, last, whole)
    for weights in WEIGHTS:
        yield chain.least(*weights)


class _Chain:
    """The operators of a chain, and per case what goes with them on average over the devices."""

    def __init__(self, heads: Heads, last: int, whole: Array) -> None:
        self._heads, self._edges = heads, heads.chain_to(last)
        self._numbers = [*(e.writer for e in self._edges), last]
        self._devices = heads.devices
        leaders = [leader_of(split.operator) for split in heads.splits]
        at = self._places(leaders)
        on_chain = {(e.writer, e.output) for e in self._edges}
        self._costs: dict[int | str, list[Array]] = {}
        for k, place in enumerate(in_time(at, heads.is_late)):
            self._add(place, 0, self._work(k, whole[k]))
        for edge in in_time(heads.edges, heads.is_late):
            if (
                leaders[edge.writer] == leaders[edge.reader]
                and (edge.writer, edge.output) not in on_chain
            ):
                on_chain.add((edge.writer, edge.output))
                self._add(at[edge.reader], 1, self._moved(edge))

    def _places(self, leaders: Sequence[str]) -> list[int | str]:
        """With which operator of the chain each goes, or with which family."""
        latest: dict[str, int] = {}
        for k in reversed(self._numbers):
            latest[leaders[k]] = k
        on_chain, found = set(self._numbers), list[int | str]()
        for k, leader in enumerate(leaders):
            if k in on_chain:
                latest[leader] = k
            found.append(latest.get(leader, leader))
        return found

    def _add(self, place: int | str, what: int, seconds: Array) -> None:
        held = self._costs.setdefault(place, [np.zeros(len(seconds)), np.zeros(len(seconds))])
        held[what] = held[what] + seconds / self._devices

    def _work(self, k: int, whole: float) -> Array:
        """(cases,) seconds of all points of operator number `k`."""
        split = self._heads.splits[k]
        cases = self._heads.case(split)
        if not split.is_even:
            return np.full(len(cases.crowd), whole)
        work: Array = np.maximum(whole, cases.points * self._heads.point_seconds(k))
        return work

    def _moved(self, edge: Edge) -> Array:
        """(cases,) seconds that all devices receive of what operators of one family read."""
        writer, reader = self._heads.splits[edge.writer], self._heads.splits[edge.reader]
        cases, found = self._heads.case(reader), self._heads.arrival(edge)
        if not (writer.is_even and reader.is_even and reader.reads[edge.argument] > 0):
            return np.zeros(len(cases.crowd))
        moved: Array = found.moves[found.writer, found.reader] * cases.devices
        return moved

    def least(self, chain: float, work: float, moves: float) -> float:
        """The smallest weighted sum."""
        costs = {place: work * held[0] + moves * held[1] for place, held in self._costs.items()}
        value: Array = self._point(0, chain, costs)
        for i, edge in enumerate(in_time(self._edges, self._heads.is_late), 1):
            reader = self._heads.case(self._heads.splits[edge.reader])
            value = self._heads.arrived(edge, value, chain, moves * reader.devices / self._devices)
            value = value + self._point(i, chain, costs)
        return float(
            value.min() + sum(cost.min() for place, cost in costs.items() if isinstance(place, str))
        )

    def _point(self, i: int, chain: float, costs: dict[int | str, Array]) -> Array:
        number = self._numbers[i]
        found: Array = chain * self._heads.point_seconds(number) + costs[number]
        return found
