"""What a trainer says of a run: strategy, predicted and measured time, bytes and memory; as text, and as a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taskflow.checkpoint.history import History
from taskflow.comm.transport import Transport
from taskflow.core.text import describe_memory, in_ms
from taskflow.cost.model import CostModel
from taskflow.execute import Executor
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.report.console import print_table
from taskflow.report.describe import describe_bytes, describe_plan
from taskflow.report.page import ReportInputs, report_data, save_page
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult
from taskflow.searching.at_home import ALONE
from taskflow.strategy.rules import data_parallel
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import TaskGraph
from taskflow.train.rows import measured_everywhere, needed_everywhere

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Summary:
    """A run, as far as a report tells of it.

    Attributes:
        graph, machine, costs, plan: of the trainer.
        search: what a search gave, if there was one.
        runs: the graph that the plan has made.
        task_graph, step: its rows, and what runs them.
        predicted_seconds, bytes_moved: of a step.
        lower_all: makes the rows of all devices, if `task_graph` has those of some.
        is_recorded: whether steps have timelines.
        console, transport: where it is printed, and who takes part.
    """

    graph: Graph
    machine: MachineModel
    costs: CostModel
    plan: Plan
    search: SearchResult | None
    runs: Graph
    task_graph: TaskGraph
    step: Executor
    predicted_seconds: float
    bytes_moved: int
    lower_all: Callable[[], TaskGraph]
    is_recorded: bool
    console: Console
    transport: Transport

    @property
    def strategy(self) -> Strategy:
        """That of the plan."""
        return self.plan.strategy

    def print(self, page: str | Path | None, history: History | None) -> None:
        """See `Trainer.report`."""
        rows = [
            (op.name, str(self.strategy[op.name]), op.pattern)
            for op in self.runs.operators
            if op.name in self.strategy
        ]
        print_table(self.console, [("operator", "split", "pattern"), *rows])
        if more := describe_plan(self.plan):
            self.console.print(f"plan: {more}")
        if self.search:
            self.console.print(f"search: {self.search}")
            if (alone := self.search.baseline_seconds.get(ALONE)) is not None:
                self.console.print(f"one device alone:    {in_ms(alone)}, predicted")
        measured = history.step_seconds if history else self.step.seconds
        measured = max(self.transport.gather(measured))
        self.console.print(f"predicted step time: {in_ms(self.predicted_seconds)}")
        ratio = measured / self.predicted_seconds
        self.console.print(f"measured step time:  {in_ms(measured)} ({ratio:.2f} of predicted)")
        if self.transport.size < len(self.task_graph.devices_used):
            self.console.print(
                "  (one process runs several devices one after the other; the prediction is for a rank each)"
            )
        elif not 1 / 1.3 < ratio < 1.3:
            self.console.print(
                "  (off by more than 30 %: other work on this machine, or costs measured elsewhere?)"
            )
        peaks = needed_everywhere(self.step, self.transport).tolist()
        self.console.print(f"bytes moved a step:  {self.bytes_moved}")
        for device, size in enumerate(peaks):
            self.console.print(f"peak memory of device {device}: {describe_memory(size)}")
        if page is not None:
            self._write_page(page)

    def _write_page(self, page: str | Path) -> None:
        """The page of the plan, with the last step of all ranks if it was recorded."""
        measured = None
        if self.is_recorded and self.step.seconds:
            measured = measured_everywhere(self.step, self.transport, self.lower_all)
        plain = Plan(data_parallel(self.graph, self.machine))
        inputs = ReportInputs(
            title=f"A run on {len(self.machine.devices)} devices",
            graph=self.graph,
            machine=self.machine,
            costs=self.costs,
            plan=self.plan,
            name="plan",
            compared=None if plain == self.plan else ("data parallel", plain),
            found=self.search,
            measured=measured,
            with_baselines=False,
        )
        size = self.transport.on_rank_0(lambda: save_page(page, report_data(inputs)))
        self.console.print(f"written: {page} ({describe_bytes(size)})")
