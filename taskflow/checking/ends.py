"""Ends: what lies in instances before the first row of a step, and must after the last: homes and fetches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.checking.pieces import box_table
from taskflow.checking.program import changed_regions
from taskflow.checking.rules import PlanError
from taskflow.checking.terms import GraphTables
from taskflow.checking.values import END, EndTables
from taskflow.core.columns import Array
from taskflow.core.geometry import Rect, subtract_all
from taskflow.graph.graph import Graph
from taskflow.tasks.task_graph import TaskGraph


def read_ends(
    task_graph: TaskGraph, graph: Graph, tables: GraphTables, latest: Mapping[str, int]
) -> tuple[EndTables, list[str]]:
    """What is there before and after a step, and the names of the latter."""
    _check_complete(task_graph, graph)
    number = {r.name: k for k, r in enumerate(task_graph.regions)}
    makers = {
        r.name: f", made by '{op.name}'" for op in graph.operators for r in changed_regions(op)
    }
    first = list[_Held]()
    last = list[_Held]()
    places = list[str]()
    for name, homes in task_graph.homes.items():
        where = f"home of '{name}'{makers.get(name, '')}"
        k = number[name]
        held = _held(task_graph, where, k, homes, False)
        first.append(held._replace(version=int(tables.fed[k])))
        last.append(held._replace(version=latest[name]))
        places += [f"at the end, {where}"] * len(homes)
    for name, fetches in task_graph.fetches.items():
        region = graph.outputs[name]
        where = f"output '{name}'{makers.get(region.name, '')}"
        held = _held(
            task_graph, where, number[region.name], [(i, box) for _, i, box in fetches], True
        )
        last.append(held._replace(version=latest[region.name]))
        places += [f"at the end, {where}"] * len(fetches)
        if [device for device, _, _ in fetches] != task_graph.instance_device[
            held.instance
        ].tolist():
            raise PlanError(
                f"plan, rule fetch: {where}: region '{region.name}': an instance is on another device"
            )
    return EndTables(*_end_records(task_graph, first), *_end_records(task_graph, last)), places


class _Held(NamedTuple):
    """Instances that hold boxes of a region, and the version."""

    region: int
    version: int
    instance: Array
    box: Array


def _check_complete(task_graph: TaskGraph, graph: Graph) -> None:
    used = {r.name for op in graph.operators for r in op.args if r.is_persistent}
    for name in sorted(used - task_graph.homes.keys()):
        raise PlanError(f"plan, rule home: region '{name}' has no home between steps")
    for name, region in graph.outputs.items():
        if name not in task_graph.fetches:
            raise PlanError(
                f"plan, rule fetch: output '{name}' of region '{region.name}' is not fetched"
            )


def _held(
    task_graph: TaskGraph,
    where: str,
    region: int,
    places: Sequence[tuple[int, Rect]],
    is_whole: bool,
) -> _Held:
    """Boxes of instances as arrays, which make up a whole region, or are it."""
    whole = task_graph.regions[region]
    numbers = dict[Rect, int]()
    which = [numbers.setdefault(box, len(numbers)) for _, box in places]
    instance = np.array([i for i, _ in places], np.int64)
    boxes = box_table(numbers, task_graph.arg_box)[which]
    around = task_graph.instance_box[instance]
    is_within = (task_graph.instance_region[instance] == region) & (
        around[:, 0] <= boxes[:, 0]
    ).all(axis=1)
    is_within &= (boxes[:, 1] <= around[:, 1]).all(axis=1)
    at = f"{where}: region '{whole.name}'"
    if not is_within.all():
        i, box = places[int(np.argmin(is_within))]
        raise PlanError(f"plan, rule instance: {at} {box} is not within instance {i}")
    if missing := subtract_all(whole.rect, numbers):
        raise PlanError(f"plan, rule unwritten: {at} {missing[0]} is nowhere")
    if is_whole and len(numbers) > 1:
        raise PlanError(f"plan, rule fetch: {at}: an instance holds only a part")
    return _Held(region, -1, instance, boxes)


def _end_records(task_graph: TaskGraph, held: Sequence[_Held]) -> tuple[Array, Array]:
    table = np.zeros(sum(len(part.instance) for part in held), END)
    if not held:
        return table, np.zeros((0, *task_graph.arg_box.shape[1:]), np.int64)
    count = [len(part.instance) for part in held]
    table["instance"] = np.concatenate([part.instance for part in held])
    table["version"] = np.repeat([part.version for part in held], count)
    table["region"] = np.repeat([part.region for part in held], count)
    return table, np.concatenate([part.box for part in held])
