"""The choice of algorithms: every collective row of a task graph gets the one that the user named, or the fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.collective.algorithms import BY_STEPS, serving
from taskflow.collective.price import CollectiveCosts
from taskflow.machine import MachineModel
from taskflow.machine.library import LIBRARY
from taskflow.tasks.steps import Way
from taskflow.tasks.task_graph import Kind, TaskGraph

BY_COPIES = ("all-reduce", "all-gather", "all-to-all")  # these may be copies and folds
FASTEST = "fastest"  # by cost, in a row of its own even among few devices


def check_collectives(machine: MachineModel) -> None:
    """Refuse algorithms that there are not.

    Raises:
        ValueError: which collective, and what there is for it.
    """
    for name, algorithm in machine.collectives.items():
        library = [LIBRARY] if any(times.collective == name for times in machine.library) else []
        able = [FASTEST, *serving(name), *library, *(["copies"] if name in BY_COPIES else [])]
        if algorithm not in able:
            known = sorted({"all-to-all", *BY_STEPS})
            there = ", ".join(able) if name in known else f"collectives are {', '.join(known)}"
            raise ValueError(
                f"machine '{machine.name}': collectives: '{name}' by {algorithm!r}: {there}"
            )


def with_algorithms(task_graph: TaskGraph, costs: CollectiveCosts) -> TaskGraph:
    """The task graph with an algorithm for every regular collective (see `Exchange.is_regular`)."""
    rows = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    numbers: dict[tuple[int, bytes, bytes], int] = {}
    ways, column = list[Way](), task_graph.algorithm.copy()
    for row in rows.tolist():
        look = costs.look(task_graph, row)
        key = look.named.number, look.place, look.digest
        if key not in numbers:
            way = costs.way(task_graph, look)
            numbers[key] = len(ways) if way else -1
            ways += [way] if way else []
        column[row] = numbers[key]
    return replace(task_graph, algorithm=column, ways=tuple(ways)) if len(rows) else task_graph
