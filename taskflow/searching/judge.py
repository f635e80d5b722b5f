"""The judge of a search: a plan as a whole -> the outcome of a step, which is what `simulate` says.

Every plan is lowered and simulated once, one device of all that do the same. Where few orbits stand for all devices
that takes from a hundredth of a second to some seconds. What differs from a strategy in a few operators, `packed_judge`
ranks twenty to some hundred times as fast.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from taskflow.core.errors import CostError
from taskflow.core.tiers import Cold
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.repeat import repeated
from taskflow.lowering import Lowering
from taskflow.lowering.limits import check_room
from taskflow.machine import MachineModel
from taskflow.schedule.batches import check_batches
from taskflow.schedule.orders import named, reorder
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome
from taskflow.searching.pool import HELD_BYTES
from taskflow.simulation.simulate import simulate
from taskflow.strategy.micro_batches import micro_batches
from taskflow.strategy.orbits import orbits_of
from taskflow.strategy.strategy import completed, in_steps
from taskflow.tasks.task_graph import TaskGraph

_log = logging.getLogger(__name__)

ORDERED = 2  # times the memory that rows take, for another order of them
ROW_SECONDS = 1e-5  # of judging for each row, where there are many; on a core of 2.5 GHz


class Judge:
    """Judges plans of one graph.

    Args:
        repeat: 1: a step alone. Else one in steady state, of so many in a row (`Timeline.steady_seconds`).
    """

    def __init__(
        self, graph: Graph, machine: MachineModel, costs: CostModel, repeat: int = 1
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.costs = costs
        self.repeat = repeat
        self._graphs: dict[object, Graph] = {}
        self._lowerings: dict[object, Lowering] = {}  # by what a plan says beside its strategy
        # By the identities of configurations: the plan, which holds them, and its outcome.
        self._known: dict[object, tuple[Plan, Outcome]] = {}
        self._rows: tuple[object, TaskGraph] | None = None  # of the last plan, as lowered
        self._count = 0  # rows of the last plan
        # Seconds of judging for each row: of the first plan, which has few, and the least of all.
        self._first = 0.0
        self._least = ROW_SECONDS

    def judge(self, plan: Plan) -> Outcome:
        """The outcome of a plan.

        What is illegal, and what has too many rows for the memory here, is short of something as well.
        """
        key = self._key(plan)
        if key not in self._known:
            plan = replace(plan, strategy=plan.strategy.copy())  # who asks may change it
            begin = time.perf_counter() - Cold.seconds
            try:
                outcome = self._simulated(plan, key[1:])
                seconds = time.perf_counter() - Cold.seconds - begin
                rate = seconds / self._count
                self._first = self._first or rate
                self._least = min(self._least, rate)
            except CostError:
                raise
            except (ValueError, MemoryError) as error:
                _log.info("search: a plan is left out: %s", error)
                outcome = Outcome.refused(plan, str(error) or "out of memory here")
            self._known[key] = plan, outcome
        return self._known[key][1]

    def _simulated(self, plan: Plan, key: tuple[object, ...]) -> Outcome:
        """What `simulate` says of a step."""
        rows = self._ordered(plan, key, 1)
        timeline = simulate(rows, self.costs)
        self._count = len(rows)
        if self.repeat == 1:
            return Outcome.of(plan, timeline)
        several = simulate(self._ordered(plan, key, self.repeat), self.costs)
        seconds = several.steady_seconds(timeline.seconds)
        outcome = Outcome.of(plan, replace(several, seconds=seconds))
        first_seconds = float(several.step_ends[0])
        return replace(outcome, bytes_moved=timeline.bytes_moved, first_seconds=first_seconds)

    def refuse(self, plan: Plan, why: str) -> None:
        """Note that a plan is not worth judging."""
        plan = replace(plan, strategy=plan.strategy.copy())
        self._known[self._key(plan)] = plan, Outcome.refused(plan, why)

    def is_known(self, plan: Plan) -> bool:
        """Whether it was judged, or refused."""
        return self.said(plan) is not None

    def said(self, plan: Plan) -> Outcome | None:
        """What it was judged to be; None: nobody judged it."""
        judged = self._known.get(self._key(plan))
        return judged and judged[1]

    def seconds_of_judging(self, plan: Plan | None) -> float:
        """About the least that judging a plan takes, by its points.

        Of None the most: of a plan in which all devices compute, and none does what another does.
        """
        if plan is None:
            return self._first * len(self.graph.operators) * len(self.machine.devices)
        orbits = orbits_of(self.lowering(plan).graph, plan.strategy, self.machine)
        operators = Counter(config.devices for config in plan.strategy.data.values())
        points = (n * len(np.unique(orbits.of[list(on)])) for on, n in operators.items())
        return self._least * sum(points) * plan.parts

    def _key(self, plan: Plan) -> tuple[object, ...]:
        configs = frozenset((name, id(config)) for name, config in plan.strategy.data.items())
        order = plan.schedule if isinstance(plan.schedule, str | None) else id(plan.schedule)
        return (order, plan.bucket_bytes), plan.parts, configs, _graph_key(plan)

    def _ordered(self, plan: Plan, key: tuple[object, ...], repeat: int) -> TaskGraph:
        """The rows of so many steps of a plan: those of representatives, where its order does not name devices."""
        is_named = plan.schedule is None or named(plan.schedule) is not None
        key = *key, repeat
        if self._rows is None or self._rows[0] != key or not is_named:
            self._rows = None
            check_batches(self.graph_of(plan), plan)
            strategy = micro_batches(self.lowering(plan).graph, plan.strategy, plan.parts)
            lowering = self.lowering(plan, repeat)
            strategy = completed(lowering.graph, in_steps(strategy, repeat))
            if not is_named:
                rows = lowering.lower(strategy)
                return reorder(rows, self.costs, plan.order, plan.bucket_bytes)
            self._rows = key, lowering.rows_to_simulate(strategy, self.costs)
        rows = self._rows[1]
        if plan.order is None:
            return rows
        check_room(ORDERED * len(rows))
        return reorder(rows, self.costs, plan.order, plan.bucket_bytes)

    def lowering(self, plan: Plan, repeat: int = 1) -> Lowering:
        """Of the graph that a plan runs, so many times in a row."""
        if sum(lowering.size_bytes for lowering in self._lowerings.values()) > HELD_BYTES:
            self._lowerings.clear()
        if (key := (*_graph_key(plan), repeat)) not in self._lowerings:
            machine = self.machine.with_collectives(plan.collectives)
            self._lowerings[key] = Lowering(repeated(self.graph_of(plan), repeat), machine)
        return self._lowerings[key]

    def graph_of(self, plan: Plan) -> Graph:
        """The graph that a plan runs."""
        if (key := transformed(plan)) not in self._graphs:
            self._graphs[key] = plan.transform(self.graph)
        return self._graphs[key]


def _graph_key(plan: Plan) -> tuple[object, ...]:
    """What decides the graph that runs, and how its collectives do."""
    return *transformed(plan), tuple(plan.collectives.items())


def transformed(plan: Plan) -> tuple[object, ...]:
    """What decides the graph that runs."""
    changes = plan.recomputed, plan.ring, plan.homes, plan.offloaded
    return *changes, plan.gathers_again, plan.gathers
