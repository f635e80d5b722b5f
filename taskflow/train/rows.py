"""The rows of a plan that a rank trains with.

On one host, and on GPUs and emulated devices, these are all rows. CPU ranks of several hosts have those of their host's
devices alone, in the one order that rank 0 decides for all. Rank 0 alone makes all rows, where these decide the order,
or what a step takes: costs that are measured know them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.execute import Executor
from taskflow.execute.own import devices_of_host
from taskflow.execute.rehearsal import rehearse_own
from taskflow.graph.graph import Graph
from taskflow.lowering.like import RowOrder
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.tasks.memory import needed_bytes, plan_memory, with_reuse
from taskflow.tasks.task_graph import Array, TaskGraph
from taskflow.tasks.timeline import Timeline


def has_own_rows(machine: MachineModel, transport: Transport) -> bool:
    """Whether ranks have the rows of their host's devices alone."""
    is_cpu = all(device.kind == "cpu" for device in machine.devices)
    return is_cpu and len(set(transport.hosts)) > 1


@dataclass
class HostRows:
    """The rows of a plan on this rank's host, and what its rows are on all.

    Attributes:
        plan, graph, machine, costs: what `Plan.apply` takes.
        transport: of this rank.
    """

    plan: Plan
    graph: Graph
    machine: MachineModel
    costs: CostModel
    transport: Transport
    _orders: list[RowOrder] = field(default_factory=list)

    def lower(self) -> tuple[Graph, TaskGraph]:
        """The graph that runs, and the rows of this rank's host; all ranks call it."""
        if self.plan.schedule is not None and isinstance(self.costs, MeasuredCosts):
            self._lower(replace(self.plan, schedule=None))  # by what it takes rows are ordered
        return self._lower(self.plan)

    def _lower(self, plan: Plan) -> tuple[Graph, TaskGraph]:
        """Of a plan, whose rows are rehearsed where costs learn from that: rank 0's do."""
        graph, rows = self._apply(plan, self._here, self._decide)
        if isinstance(self.costs, MeasuredCosts):
            self._rehearse(self.costs, plan, rows)
        return graph, rows

    def lower_all(self) -> TaskGraph:
        """All rows, in the same order; any rank may call it."""
        everywhere = range(len(self.machine.devices))
        return self._apply(self.plan, lambda used: everywhere, lambda act: self._orders[0])[1]

    def _apply(
        self,
        plan: Plan,
        devices: Callable[[Sequence[int]], Sequence[int]],
        decide: Callable[[Callable[[], RowOrder]], RowOrder],
    ) -> tuple[Graph, TaskGraph]:
        return plan.apply(self.graph, self.machine, self.costs, devices, decide)

    def _rehearse(self, costs: MeasuredCosts, plan: Plan, rows: TaskGraph) -> None:
        @cache
        def whole() -> TaskGraph:
            return plan.apply(self.graph, self.machine, costs)[1]

        if not self.transport.on_rank_0(lambda: costs.is_rehearsed(whole())):
            rehearse_own(costs, rows, whole)

    def _here(self, used: Sequence[int]) -> list[int]:
        """The devices of this rank's host, under a plan that uses these."""
        transport = self.transport.over(used)
        return np.flatnonzero(devices_of_host(transport, len(self.machine.devices))).tolist()

    def _decide(self, act: Callable[[], RowOrder]) -> RowOrder:
        """What the function gives on rank 0."""
        self._orders = [self.transport.on_rank_0(act)]
        return self._orders[0]

    def predict(self) -> tuple[float, int]:
        """Seconds of a step, and bytes moved; all ranks call it."""

        def act() -> tuple[float, int]:
            timeline = self.plan.predict(self.graph, self.machine, self.costs)
            return timeline.seconds, timeline.bytes_moved

        return self.transport.on_rank_0(act)


def needed_everywhere(step: Executor, transport: Transport) -> Array:
    """Bytes that every device needs; all ranks call it."""
    needed = transport.gather(needed_bytes(step.task_graph, step.plan))
    most: Array = np.max(needed, axis=0)
    return most


def measured_everywhere(
    step: Executor, transport: Transport, lower_all: Callable[[], TaskGraph]
) -> Timeline | None:
    """The last step of all ranks, on rank 0; each counts from its own start. All ranks call it.

    Rows that no rank carries out stay unknown: copies whose source a fold reads in shared memory.
    """
    timeline = step.timeline
    parts = transport.gather(
        (timeline.task_graph.numbers, timeline.start, timeline.end, timeline.seconds)
    )
    if transport.rank != 0:
        return None
    if not timeline.task_graph.is_complete:
        rows = lower_all()
        plan = plan_memory(rows)
        timeline = replace(
            timeline, task_graph=with_reuse(rows, plan), peak_bytes=needed_bytes(rows, plan)
        )
    start, end = np.full((2, len(timeline.task_graph)), np.nan)
    for numbers, begun, done, _ in parts:
        start[numbers] = np.fmin(start[numbers], begun)
        end[numbers] = np.fmax(end[numbers], done)
    return replace(timeline, start=start, end=end, seconds=max(part[3] for part in parts))
