"""The judge of a search: a strategy as a whole -> the outcome of a step, which is what `simulate` says.

Every strategy is lowered and simulated once, one device of all that do the same. Where few orbits stand for all devices
that takes from a hundredth of a second to some seconds. What differs from a strategy in a few operators, `packed_judge`
ranks twenty to some hundred times as fast.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from taskflow.core.errors import CostError
from taskflow.core.tiers import Cold
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.lowering.limits import check_room
from taskflow.machine import MachineModel
from taskflow.schedule.orders import reorder
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome
from taskflow.simulation.simulate import simulate
from taskflow.strategy.orbits import orbits_of
from taskflow.strategy.strategy import ParallelConfig, Strategy, completed
from taskflow.tasks.task_graph import TaskGraph

_log = logging.getLogger(__name__)

HELD_BYTES = 2 << 30  # of points and fragments: all are forgotten when they take more
ORDERED = 2  # times the memory that rows take, for another order of them

Order = str | None  # of rows; None: as lowered


class Judge:
    """Judges strategies of one graph.

    Args:
        graph: as `plan` transforms it.
        plan: what its strategies are a part of.
    """

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel, plan: Plan) -> None:
        self.graph, self.machine, self.costs, self.plan = graph, machine, costs, plan
        self.lowering = Lowering(graph, machine)
        # By the identities of configurations: the strategy, which holds them, and its outcome in every order.
        self._known: dict[object, tuple[Strategy, dict[Order, Outcome]]] = {}
        self._seconds, self._devices = 0.0, 0  # that judging took so far, of so many devices

    def judge(self, strategy: Strategy, order: Order = None) -> Outcome:
        """The outcome of a strategy; see `outcomes`."""
        return next(self.outcomes(strategy, [order]))

    def outcomes(self, strategy: Strategy, orders: Sequence[Order]) -> Iterator[Outcome]:
        """Those of a strategy in some orders of its rows, one after the other as they are asked for.

        What is illegal, and what has too many rows for the memory here, is short of something as well.
        """
        strategy, known = self._of(strategy)
        rows: TaskGraph | None = None
        for order in orders:
            if order not in known:
                plan = replace(self.plan, strategy=strategy, schedule=order)
                begin = time.perf_counter() - Cold.seconds
                try:
                    rows = self._lowered(strategy) if rows is None else rows
                    known[order] = Outcome.of(
                        plan, simulate(self._ordered(rows, order), self.costs)
                    )
                    self._devices += _count_devices(rows)
                    self._seconds += time.perf_counter() - Cold.seconds - begin
                except CostError:
                    raise
                except (ValueError, MemoryError) as error:
                    _log.info("search: a strategy is left out: %s", error)
                    known[order] = Outcome.refused(plan, str(error) or "out of memory here")
            yield known[order]

    def is_known(self, strategy: Strategy, order: Order = None) -> bool:
        """Whether it was judged."""
        return order in self._of(strategy)[1]

    def seconds_of_judging(self, strategy: Strategy) -> float:
        """How long it takes to judge a strategy in one order, about: 0 until one was judged."""
        if not self._devices:
            return 0.0
        orbits = orbits_of(self.graph, strategy, self.machine)
        devices = len(orbits.of) if 2 * len(orbits) > len(orbits.of) else len(orbits)
        return self._seconds / self._devices * devices

    def _of(self, strategy: Strategy) -> tuple[Strategy, dict[Order, Outcome]]:
        key = frozenset((name, id(config)) for name, config in strategy.items())
        if key not in self._known:
            self._known[key] = strategy.copy(), {}  # who asks may change it
        return self._known[key]

    def _lowered(self, strategy: Strategy) -> TaskGraph:
        if self.lowering.size_bytes > HELD_BYTES:
            self.lowering = Lowering(self.graph, self.machine)
        return self.lowering.rows_to_simulate(completed(self.graph, strategy), self.costs)

    def _ordered(self, rows: TaskGraph, order: Order) -> TaskGraph:
        if order is None:
            return rows
        check_room(ORDERED * len(rows))
        return reorder(rows, self.costs, order)


def _count_devices(rows: TaskGraph) -> int:
    """Of how many devices these are the rows."""
    if rows.peers is not None:
        return len(rows.peers.orbits)
    return len(np.unique(rows.device))


class WholeChanges:
    """Judges changes of one current strategy as wholes: where there is no memory for all of its rows.

    Attributes:
        strategy: the current one.
    """

    def __init__(self, judge: Judge) -> None:
        self.graph, self.machine, self._judge = judge.graph, judge.machine, judge
        self.strategy = self._proposed = Strategy({})

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds."""
        self.strategy = strategy.copy()
        return self._judge.judge(strategy).with_room

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with these changes; infinite above the limit, or where it does not fit."""
        self._proposed = self.strategy.copy()
        self._proposed.update(changes)
        seconds = self._judge.judge(self._proposed).seconds
        return seconds if seconds <= limit else math.inf

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        self.strategy = self._proposed
