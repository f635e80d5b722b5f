"""The data of a report: everything that its page shows, as one JSON value; `taskflow report --json` prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.machine import MachineModel
from taskflow.report.breakdown import Breakdown, break_down, group_rows
from taskflow.report.describe import describe_plan, describe_split
from taskflow.report.page.choices import (
    choice_columns,
    rule_outcomes,
    search_outcomes,
    what_if_columns,
)
from taskflow.report.page.links import machine_columns
from taskflow.report.page.model import entry_labels, group_of, model_columns
from taskflow.report.page.steps import SORTS, TICKS, step_columns
from taskflow.report.page.usage import COLUMNS
from taskflow.report.pipeline import pipeline_diagram
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult
from taskflow.searching.outcome import judged
from taskflow.simulation.simulate import simulate
from taskflow.tasks.timeline import Timeline

MOST_TASKS = 180_000  # in all steps of a page: they take about 4 MB

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class ReportInputs:
    """What a report is about.

    Attributes:
        title: of the page.
        graph, machine, costs: as for `search`.
        plan: what is reported.
        name: of the plan, for people.
        compared: another plan by name, that it is compared with.
        found: the search that found it.
        measured: a step of this plan that ran.
        with_baselines, with_what_if: whether strategies by rule, and other machines, are simulated too.
    """

    title: str
    graph: Graph
    machine: MachineModel
    costs: CostModel
    plan: Plan
    name: str
    compared: tuple[str, Plan] | None = None
    found: SearchResult | None = None
    measured: Timeline | None = None
    with_baselines: bool = True
    with_what_if: bool = True


def report_data(
    inputs: ReportInputs, progress: Progress = lambda done, total, what: None
) -> dict[str, Any]:
    """The data of a report, ready for JSON.

    Raises:
        ValueError: a plan does not fit the graph or the machine.
    """
    machine = inputs.machine.with_collectives(inputs.plan.collectives)
    steps = _steps(inputs, machine, progress)
    strategy = inputs.plan.placement(steps[0].graph, machine)
    group = group_of(entry_labels(steps[0].graph, strategy))
    breakdowns = [break_down(step.timeline, step.graph, group) for step in steps]
    model = model_columns(
        steps[0].graph,
        strategy,
        len(machine.devices),
        breakdowns[0],
        breakdowns[-1] if inputs.compared is not None else None,
    )
    if inputs.compared is not None:
        _add_other_splits(model, inputs.compared[1], inputs)
    return {
        "title": inputs.title,
        "plan": describe_plan(inputs.plan),
        "diagram": pipeline_diagram(steps[0].timeline) if inputs.plan.schedule is not None else "",
        "ticks": TICKS,
        "columns": COLUMNS,
        "sorts": SORTS,
        "machine": machine_columns(machine),
        "steps": [
            step.columns(group, breakdown, MOST_TASKS // len(steps))
            for step, breakdown in zip(steps, breakdowns, strict=True)
        ],
        "model": model,
        "choices": _choices(inputs, progress),
        "what_if": _what_if(inputs, progress) if inputs.with_what_if else None,
    }


class _Step(NamedTuple):
    """A step that the page shows, of the plan as it is predicted, as it was measured, or of another plan."""

    timeline: Timeline
    graph: Graph
    name: str
    role: str

    def columns(
        self, group: Callable[[Operator], str], breakdown: Breakdown, most: int
    ) -> dict[str, Any]:
        """With at most so many tasks."""
        groups, number = group_rows(self.timeline.task_graph, self.graph, group)
        exposed = {
            part: breakdown.path_seconds(part) for part in ("compute", "communication", "feed")
        }
        columns = step_columns(self.timeline, groups, number, self.name, self.role, most)
        return {**columns, "path_seconds": exposed}


def _steps(inputs: ReportInputs, machine: MachineModel, progress: Progress) -> list[_Step]:
    """The plan, what was measured of it, and last the plan that it is compared with."""
    progress(0, 1, "the plan")
    graph, rows = inputs.plan.apply(inputs.graph, machine, inputs.costs)
    steps = [_Step(simulate(rows, inputs.costs), graph, inputs.name, "plan")]
    if inputs.measured is not None:
        steps.append(_Step(inputs.measured, graph, "last step", "measured"))
    if inputs.compared is not None:
        name, plan = inputs.compared
        progress(0, 1, f"the plan {name}")
        other, rows = plan.apply(inputs.graph, inputs.machine, inputs.costs)
        steps.append(_Step(simulate(rows, inputs.costs), other, name, "compared"))
    return steps


def _add_other_splits(model: dict[str, Any], plan: Plan, inputs: ReportInputs) -> None:
    """How the compared plan splits the first operator of every vertex."""
    graph = plan.transform(inputs.graph)
    strategy = plan.placement(graph, inputs.machine)
    for vertex in model["vertices"]:
        name = vertex["operators"][0]
        vertex["compared_split"] = describe_split(strategy[name]) if name in strategy else ""


def _choices(inputs: ReportInputs, progress: Progress) -> dict[str, Any]:
    """Baselines by rule, or of a search, and the plan itself."""
    graph = inputs.graph
    machine = inputs.machine
    costs = inputs.costs
    progress(0, 1, "the plan among others")
    outcomes = [judged(graph, machine, costs, inputs.plan, inputs.name)]
    if inputs.found is not None:
        outcomes += search_outcomes(inputs.found, graph, machine, costs, progress)
    elif inputs.with_baselines:
        outcomes += rule_outcomes(graph, machine, costs, progress)
    return choice_columns(outcomes, inputs.found)


def _what_if(inputs: ReportInputs, progress: Progress) -> dict[str, Any] | None:
    plans = {inputs.name: inputs.plan, **(dict([inputs.compared]) if inputs.compared else {})}
    return what_if_columns(inputs.graph, inputs.machine, inputs.costs, plans, progress)
