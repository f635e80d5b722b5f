"""The choice of algorithms: every collective row of a task graph gets the one that the user named, or the fastest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from taskflow.collective.algorithms import BY_STEPS, serving
from taskflow.collective.price import CollectiveCosts
from taskflow.collective.twins import twins
from taskflow.core.columns import Array
from taskflow.machine import MachineModel
from taskflow.machine.library import COLLECTIVES, LIBRARY
from taskflow.machine.protocol import OWN
from taskflow.tasks.calls import is_by_library
from taskflow.tasks.own import Own
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
        is_called = machine.has_library and name in COLLECTIVES
        is_called |= any(times.collective == name for times in machine.library)
        library = [LIBRARY] if is_called else []
        able = [FASTEST, *serving(name), *library, *(["copies"] if name in BY_COPIES else [])]
        if algorithm not in able:
            names = sorted({"all-to-all", *BY_STEPS})
            there = ", ".join(able) if name in names else f"collectives are {', '.join(names)}"
            raise ValueError(
                f"machine '{machine.name}': collectives: '{name}' by {algorithm!r}: {there}"
            )


def with_own_steps(task_graph: TaskGraph, kept: Collection[int] = ()) -> TaskGraph:
    """The task graph whose calls of a library are the steps of own algorithms, but for the rows `kept`.

    That is for who has no such library: what he runs, and so what is predicted, are these steps.
    """
    rows = np.setdiff1d(np.flatnonzero(is_by_library(task_graph)), list(kept))
    if not len(rows):
        return task_graph
    if task_graph.own is not None and task_graph.own.wholes is not None:
        return _with_own_wholes(task_graph, task_graph.own, rows)
    machine = replace(task_graph.machine.with_library(OWN), library=())
    stepped = with_algorithms(task_graph, CollectiveCosts.of(machine))
    algorithm = task_graph.algorithm.copy()
    algorithm[rows] = len(task_graph.ways) + stepped.algorithm[rows]
    return replace(task_graph, algorithm=algorithm, ways=(*task_graph.ways, *stepped.ways))


def _with_own_wholes(task_graph: TaskGraph, part: Own[TaskGraph], rows: Array) -> TaskGraph:
    """The same of the rows of some devices, whose collectives have all their arguments elsewhere."""
    assert part.wholes is not None and part.whole is not None
    kept = np.setdiff1d(np.flatnonzero(is_by_library(part.wholes)), part.whole[rows])
    wholes = with_own_steps(part.wholes, kept.tolist())
    algorithm = task_graph.algorithm.copy()
    algorithm[rows] = wholes.algorithm[part.whole[rows]]
    return replace(
        task_graph, algorithm=algorithm, ways=wholes.ways, own=replace(part, wholes=wholes)
    )


def with_algorithms(task_graph: TaskGraph, costs: CollectiveCosts) -> TaskGraph:
    """The task graph with an algorithm for every regular collective (see `Exchange.is_regular`)."""
    rows = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    numbers: dict[tuple[int, bytes], int] = {}
    ways = list[Way]()
    column = task_graph.algorithm.copy()
    first, kinds, places = twins(task_graph, rows)
    of_kinds = [costs.way(task_graph, costs.look(task_graph, row)) for row in first.tolist()]
    for row, kind, place in zip(rows.tolist(), kinds.tolist(), places, strict=True):
        key = (kind, place)
        way = of_kinds[kind]
        if key not in numbers:
            numbers[key] = len(ways) if way else -1
            ways += [way] if way else []
        column[row] = numbers[key]
    return replace(task_graph, algorithm=column, ways=tuple(ways)) if len(rows) else task_graph
