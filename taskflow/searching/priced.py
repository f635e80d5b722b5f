"""Prices: what some operators of a graph take by themselves under given configurations, from a pool of packed rows.

The rows are those of the judge of a search: points, and the movement of the regions that these operators alone touch.
Prices that are asked for side by side leave no trace but points, so that all configurations of two operators can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.laying import Rows
from taskflow.searching.packed import Packed
from taskflow.searching.pool import Pool
from taskflow.searching.resimulate import add_work
from taskflow.searching.tables import subgraph
from taskflow.strategy.strategy import ParallelConfig


class Price(NamedTuple):
    """Seconds of the busiest device's points, of the stream or link that moves most, and bytes of the fullest device.

    Bytes are those of the regions that are moved.
    """

    points: float
    moves: float
    bytes: float


class Prices:
    """Some operators of a graph, and the regions whose movement counts.

    Args:
        operators: those of one or more families.
        regions: names.
    """

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        costs: CostModel,
        operators: Sequence[Operator],
        regions: set[str],
    ) -> None:
        self.lowering = Lowering(subgraph(graph, operators), machine)
        self.pool = Pool(self.lowering, costs, evenly=True)
        self._ops = {op.name: k for k, op in enumerate(operators)}
        self._leaders = [op.follows or op.name for op in operators]
        self._regions = np.array(
            [k for k, r in enumerate(self.lowering.regions) if r.name in regions], np.int64
        )
        self._columns: dict[tuple[str, ParallelConfig], tuple[Array, Array, float]] = {}

    def price(self, configs: dict[str, ParallelConfig]) -> Price:
        """The price of a configuration for every leader."""
        numbers, points = np.zeros(len(self._ops), np.int64), 0.0
        for name, config in configs.items():
            ops, found, seconds = self._points(name, config)
            numbers[ops] = found
            points += seconds
        return Price(points, *self._moves(numbers))

    def _points(self, name: str, config: ParallelConfig) -> tuple[Array, Array, float]:
        """The operators of a family, the numbers of their points, and how long they occupy the busiest device."""
        if (name, config) not in self._columns:
            ops = [k for k, leader in enumerate(self._leaders) if leader == name]
            numbers = self.lowering.store.numbers(ops, config)
            added = self.pool.add_points(ops, numbers)
            rows = self.pool.op_rows.data[added]
            busy = np.zeros(len(self.lowering.machine.devices))
            for (first, count, _), number in zip(rows.tolist(), numbers, strict=True):
                device = self.lowering.store.table.device[self.lowering.store.span(number)]
                np.add.at(busy, device, self.pool.packed.seconds[first : first + count])
            self._columns[name, config] = np.array(ops), np.array(numbers), float(busy.max())
        return self._columns[name, config]

    def _moves(self, numbers: Array) -> tuple[float, float]:
        """Seconds of the busiest stream or link, and bytes of the fullest device."""
        if not len(self._regions):
            return 0.0, 0.0
        pool, store = self.pool, self.lowering.store
        before = pool.packed.filled.copy()
        used = np.unique(
            np.concatenate([store.table.device[store.span(k)] for k in numbers.tolist()])
        )
        pool.add_fragments(self._regions, numbers, used)
        first, rows = (
            int(before["fragments"][0]),
            (int(before["rows"][0]), int(pool.packed.filled["rows"][0])),
        )
        work = np.zeros(pool.sets.count)
        work_of_rows(*rows, (pool.op_rows.data, *pool.sets.columns), tuple(pool.packed), work)
        held = pool.packed.bytes[first : pool.fragments].sum(axis=0)
        pool.packed.filled[:] = before
        return float(work.max()), float(held.max())


@tiered
def work_of_rows(
    first: int,
    end: int,
    of_rows: tuple[Array, Array, Array, Array, Array],
    of_pool: tuple[Array, ...],
    work: Array,
) -> None:
    """Add what rows of the pool take to the work of their streams; see `resimulate`."""
    add_work(work, 1.0, first, end - first, Rows(of_rows[0], Packed(*of_pool), *of_rows[1:]))
