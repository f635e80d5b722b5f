"""The choice of algorithms: every collective row of a task graph gets the one that the user named, or the fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.collective.algorithms import ALGORITHMS, serving
from taskflow.collective.price import CollectiveCosts, collectives_of
from taskflow.core.columns import Array
from taskflow.machine import MachineModel
from taskflow.tasks.steps import Way
from taskflow.tasks.task_graph import Kind, TaskGraph

FASTEST = "fastest"  # by cost, in a row of its own even among few devices


def check_collectives(machine: MachineModel) -> None:
    """Refuse algorithms that there are not.

    Raises:
        ValueError: which collective, and what there is for it.
    """
    for name, algorithm in machine.collectives.items():
        able = [FASTEST, *serving(name), *(["copies"] if name in ("all-reduce", "all-gather") else [])]
        if algorithm not in able:
            known = sorted({each for algorithm in ALGORITHMS.values() for each in algorithm.serves})
            there = ", ".join(able) if name in known else f"collectives are {', '.join(known)}"
            raise ValueError(f"machine '{machine.name}': collectives: '{name}' by {algorithm!r}: {there}")


def with_algorithms(task_graph: TaskGraph, costs: CollectiveCosts) -> TaskGraph:
    """The task graph with an algorithm for every regular collective (see `Exchange.is_regular`)."""
    rows = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)
    if not len(rows):
        return task_graph
    numbers: dict[tuple[object, ...], int] = {}
    ways, column = list[Way](), task_graph.algorithm.copy()
    alike: dict[tuple[object, ...], bool] = {}
    for row, (name, group, size) in zip(rows.tolist(), collectives_of(task_graph, rows), strict=True):
        shape = name, group, *_roles(task_graph, row)
        if shape not in alike:
            alike[shape] = task_graph.exchange(row).is_regular
        if not alike[shape]:
            continue
        if (name, group, size) not in numbers:
            algorithm = costs.choose(name, group, size)[1]
            numbers[name, group, size] = len(ways)
            ways.append(Way(algorithm, costs.messages(name, group, size, algorithm)))
        column[row] = numbers[name, group, size]
    return replace(task_graph, algorithm=column, ways=tuple(ways))


def _roles(graph: TaskGraph, row: int) -> tuple[bytes, ...]:
    """All that says whether an exchange is regular."""
    args = slice(int(graph.arg_ptr[row]), int(graph.arg_ptr[row + 1]))
    device: Array = graph.instance_device[graph.arg_instance[args]]
    return device.tobytes(), graph.arg_privilege[args].tobytes(), graph.arg_box[args].tobytes()
