"""The data of a report: everything that its page shows, as one JSON value; `taskflow report --json` prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    steps = 1 + (inputs.compared is not None) + (inputs.measured is not None)
    most = MOST_TASKS // steps
    progress(0, 1, "the plan")
    graph, rows = inputs.plan.apply(inputs.graph, machine, inputs.costs)
    strategy = inputs.plan.placement(graph, machine)
    labels = entry_labels(graph, strategy)
    group = group_of(labels)
    timeline = simulate(rows, inputs.costs)
    broken_down = break_down(timeline, graph, group)
    shown = [_step(timeline, graph, group, inputs.name, "plan", most, broken_down)]
    if inputs.measured is not None:
        measured = inputs.measured
        shown.append(
            _step(
                measured,
                graph,
                group,
                "last step",
                "measured",
                most,
                break_down(measured, graph, group),
            )
        )
    compared = None
    if inputs.compared is not None:
        name, plan = inputs.compared
        progress(0, 1, f"the plan {name}")
        other, other_rows = plan.apply(inputs.graph, inputs.machine, inputs.costs)
        other_timeline = simulate(other_rows, inputs.costs)
        compared = break_down(other_timeline, other, group)
        shown.append(_step(other_timeline, other, group, name, "compared", most, compared))
    model = model_columns(graph, strategy, len(machine.devices), broken_down, compared)
    if inputs.compared is not None:
        _add_other_splits(model, inputs.compared[1], inputs)
    return {
        "title": inputs.title,
        "plan": describe_plan(inputs.plan),
        "diagram": pipeline_diagram(timeline) if inputs.plan.schedule is not None else "",
        "ticks": TICKS,
        "columns": COLUMNS,
        "sorts": SORTS,
        "machine": machine_columns(machine),
        "steps": shown,
        "model": model,
        "choices": _choices(inputs, progress),
        "what_if": _what_if(inputs, progress) if inputs.with_what_if else None,
    }


def _step(
    timeline: Timeline,
    graph: Graph,
    group: Callable[[Operator], str],
    name: str,
    role: str,
    most: int,
    broken_down: Breakdown,
) -> dict[str, Any]:
    groups, number = group_rows(timeline.task_graph, graph, group)
    columns = step_columns(timeline, groups, number, name, role, most)
    exposed = {
        part: broken_down.path_seconds(part) for part in ("compute", "communication", "feed")
    }
    return {**columns, "path_seconds": exposed}


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
