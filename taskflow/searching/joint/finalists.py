"""Finalists: pipelines that are lowered and judged by their rows, with memory as a hard limit.

Takes pipelines; keeps the plans that fit, and of those that do not which comes nearest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.found import held_bytes, search_schedule
from taskflow.schedule.orders import order_name, reorder
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Schedule
from taskflow.searching.budget import Budget
from taskflow.searching.joint.cells import CellTables
from taskflow.searching.joint.planned import PlannedPipeline, plan_of
from taskflow.searching.outcome import Outcome
from taskflow.simulation.simulate import simulate
from taskflow.tasks.task_graph import Array, TaskGraph
from taskflow.tasks.timeline import Timeline

POINT_SECONDS = 1e-4  # of lowering, ordering and simulating a point, until one was timed
SCHEDULE_SECONDS = 5.0  # of a search for a schedule
Order = Schedule | str | None


class Finalists:
    """Judges pipelines.

    Attributes:
        fitting: seconds, number and pipeline of every plan in `judged`.
        judged: the plans that fit.
        least: of those that do not, what the one that comes nearest needs.
        best_seconds: the least of all that fit.
    """

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        costs: CostModel,
        tables: CellTables,
        budget: Budget,
        seed: int,
    ) -> None:
        self.graph, self.machine, self.costs, self.tables = graph, machine, costs, tables
        self.budget, self.seed = budget, seed
        self.fitting: list[tuple[float, int, PlannedPipeline]] = []
        self.judged: list[Outcome] = []
        self.least, self._least_share = "none could be lowered", math.inf
        self.best_seconds, self._point_seconds = math.inf, POINT_SECONDS
        self._best: tuple[TaskGraph, Timeline]
        self._last_seconds, self._tried = 0.0, set[tuple[PlannedPipeline, Order]]()
        self._room = np.array([device.free_bytes for device in machine.devices], np.int64)

    def judge(self, pipeline: PlannedPipeline, orders: Iterable[Order]) -> bool:
        """Judge the rows of a pipeline in each of some orders, as far as there is time; whether one of them fits."""
        fits, rows = False, None
        points = pipeline.parts * sum(
            stage.devices
            * sum(self.tables.operators(k, k in stage.again) for k in range(stage.begin, stage.end))
            for stage in pipeline.stages
        )
        for order in orders:
            begun = time.perf_counter()
            if (pipeline, order and order_name(order)) in self._tried:
                continue
            self._tried.add((pipeline, order and order_name(order)))
            if points * self._point_seconds > self.budget.left_seconds:
                break
            with suppress(ValueError):  # such as a barrier, or samples that do not divide
                if rows is None:
                    plan = plan_of(self.graph, self.machine, self.tables, pipeline, None)
                    _, rows = plan.apply(self.graph, self.machine, self.costs)
                fits |= self._keep(rows, replace(plan, schedule=order), pipeline)
            self.budget.done += 1
            self._last_seconds = time.perf_counter() - begun
            self._point_seconds = self._last_seconds / points
        return fits

    def search(self) -> None:
        """Judge the fastest pipeline under a schedule that is searched for, in what memory it leaves."""
        number, pipeline = min(self.fitting)[1:]
        (rows, timeline), plan = self._best, self.judged[number].plan
        wanted = min(SCHEDULE_SECONDS, (self.budget.left_seconds - 2 * self._last_seconds) / 2)
        if len(pipeline.stages) < 2 or wanted <= 0:
            return
        held, free = held_bytes(rows), self._room - timeline.peak_bytes
        for memory in (held + np.maximum(free, 0), held):
            with suppress(ValueError):  # memory is too small for one micro-batch
                order = search_schedule(rows, self.costs, memory.tolist(), wanted, self.seed)
                if self._keep(rows, replace(plan, schedule=order), pipeline):
                    return

    def _keep(self, rows: TaskGraph, plan: Plan, pipeline: PlannedPipeline) -> bool:
        """Simulate rows, which are as lowered, in the order of a plan; whether they fit, and the plan is kept."""
        ordered = rows if plan.schedule is None else reorder(rows, self.costs, plan.schedule)
        timeline = simulate(ordered, self.costs)
        name = f"{pipeline}" + (
            f", {order_name(plan.schedule)}" if plan.schedule is not None else ""
        )
        outcome = Outcome.of(plan, timeline, name)
        if not outcome.fits:
            self._note(outcome, timeline.peak_bytes)
            return False
        self.fitting.append((timeline.seconds, len(self.judged), pipeline))
        self.judged.append(outcome)
        if timeline.seconds < self.best_seconds:
            self.best_seconds, self._best = timeline.seconds, (rows, timeline)
        return True

    def _note(self, outcome: Outcome, needed: Array) -> None:
        if (share := float((needed / self._room).max())) < self._least_share:
            self.least, self._least_share = f"{outcome.name}: {outcome.shortage}", share
