"""Stragglers: a plan on the same machine with one slow device, each in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.machine.scaling import DEVICE, scale_machine
from taskflow.report.whatif import check_costs
from taskflow.schedule.plan import Plan
from taskflow.tasks.timeline import Timeline

MOST = 8  # devices that are tried


@dataclass(frozen=True)
class Straggler:
    """What one slow device costs.

    Attributes:
        device: its number; it stands for all that do the same.
        seconds: of a step in which all that it does takes `slower` times as long.
        path_seconds: what the device has of the critical path of a step in which none is slow. So the path says that
            the step takes (slower - 1) path_seconds longer, or more where another path is as long.
    """

    device: int
    seconds: float
    path_seconds: float


def stragglers(
    graph: Graph,
    plan: Plan,
    machine: MachineModel,
    costs: CostModel,
    slower: float,
    most: int = MOST,
) -> list[Straggler]:
    """A step for each device as the slow one: the `most` that compute longest, those that cost most first.

    Raises:
        ValueError: `slower` is no positive number, or costs are measured.
    """
    check_costs(costs, {f"{DEVICE}:0": slower})
    as_it_is = plan.predict(graph, machine, costs)
    busy = _computing(as_it_is)
    on_path = _computing(as_it_is, as_it_is.critical_path())
    slow = []
    for device in sorted(busy, key=busy.__getitem__, reverse=True)[:most]:
        scaled = scale_machine(machine, {f"{DEVICE}:{device}": slower})
        seconds = plan.predict(graph, scaled, costs.on(scaled)).seconds
        slow.append(Straggler(device, seconds, on_path.get(device, 0.0)))
    return sorted(slow, key=lambda straggler: -straggler.seconds)


def _computing(timeline: Timeline, rows: Sequence[int] | None = None) -> dict[int, float]:
    """Device -> seconds of what it does itself, of all rows or of some."""
    task_graph = timeline.task_graph
    here = ~task_graph.is_communication
    if rows is not None:
        here &= np.isin(np.arange(len(here)), rows)
    spent = np.bincount(task_graph.device[here], (timeline.end - timeline.start)[here])
    return {device: float(s) for device, s in enumerate(spent) if s > 0}
