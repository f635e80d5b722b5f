"""A plan: all that may differ between two ways to run one step of a graph. What a search returns, and a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.homes import homes
from taskflow.graph.recompute import recompute
from taskflow.lowering import lower
from taskflow.machine import MachineModel
from taskflow.schedule.orders import reorder
from taskflow.schedule.schedule import Schedule
from taskflow.strategy.micro_batches import micro_batches
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import TaskGraph


@dataclass(frozen=True)
class Plan:
    """How one step of a graph runs.

    Attributes:
        strategy: of one micro-batch; it names updates and homes too, where these do not follow.
        parts: micro-batches of each device.
        schedule: the order of rows, or its name (`taskflow.schedule.NAMED`); None: as lowered.
        recomputed: forward operators that are computed again for the backward pass.
        homes: parameters that have a home (see `taskflow.homes`).
        gathers_again: whether the backward pass gathers what homes hold again.
        collectives: kind of collective -> algorithm, see `MachineModel.with_collectives`.
    """

    strategy: Strategy
    parts: int = 1
    schedule: Schedule | str | None = None
    recomputed: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    gathers_again: bool = True
    collectives: Mapping[str, str] = field(default_factory=dict)

    def transform(self, graph: Graph) -> Graph:
        """The graph whose rows run: with homes and with what is computed again."""
        if self.recomputed:
            graph = recompute(graph, self.recomputed)
        return homes(graph, self.homes, again=self.gathers_again) if self.homes else graph

    def apply(self, graph: Graph, machine: MachineModel, costs: CostModel) -> tuple[Graph, TaskGraph]:
        """The graph that runs, and its rows in their order.

        Raises:
            ValueError: the plan does not fit the graph or the machine.
        """
        graph = self.transform(graph)
        rows = lower(graph, micro_batches(graph, self.strategy, self.parts), machine, self.collectives)
        return graph, rows if self.schedule is None else reorder(rows, costs, self.schedule)
