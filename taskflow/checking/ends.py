"""Ends: what lies in instances before the first row of a step, and must after the last: homes and fetches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.checking.pieces import box_table
from taskflow.checking.program import changed_regions
from taskflow.checking.rules import Ends, PlanError
from taskflow.checking.terms import GraphTables
from taskflow.checking.values import END, EndTables
from taskflow.core.columns import Array
from taskflow.core.geometry import Rect, subtract_all
from taskflow.graph.graph import Graph
from taskflow.tasks.task_graph import TaskGraph


def read_ends(
    task_graph: TaskGraph, graph: Graph, tables: GraphTables, latest: Array
) -> tuple[EndTables, Ends]:
    """What is there before and after a step, and the places of the latter with their names.

    `latest`: the version that every region ends with.
    """
    _check_complete(task_graph, graph)
    homes = _homes(task_graph, graph)
    held = [*homes, *_outputs(task_graph, graph)]
    ends = EndTables(
        *_end_records(task_graph, homes, tables.fed),
        *_end_records(task_graph, held, latest),
    )
    texts = [f"at the end, {places.where}" for places in held for _ in places.instance]
    return ends, Ends(texts, ends.last["instance"], ends.last_box)


class _Held(NamedTuple):
    """Instances that hold boxes of a region."""

    where: str
    region: int
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


def _homes(task_graph: TaskGraph, graph: Graph) -> list[_Held]:
    number = _numbers(task_graph)
    makers = _makers(graph)
    return [
        _held(task_graph, f"home of '{name}'{makers.get(name, '')}", number[name], places)
        for name, places in task_graph.homes.items()
    ]


def _outputs(task_graph: TaskGraph, graph: Graph) -> Iterator[_Held]:
    number = _numbers(task_graph)
    makers = _makers(graph)
    for name, fetches in task_graph.fetches.items():
        region = graph.outputs[name].name
        held = _held(
            task_graph,
            f"output '{name}'{makers.get(region, '')}",
            number[region],
            [fetch[1:] for fetch in fetches],
        )
        _check_fetches(task_graph, held, [fetch[0] for fetch in fetches])
        yield held


def _check_fetches(task_graph: TaskGraph, held: _Held, devices: list[int]) -> None:
    """Each of the devices has all of an output."""
    at = f"plan, rule fetch: {held.where}: region '{task_graph.regions[held.region].name}'"
    if (held.box != held.box[:1]).any():
        raise PlanError(f"{at}: an instance holds only a part")
    if task_graph.instance_device[held.instance].tolist() != devices:
        raise PlanError(f"{at}: an instance is on another device")


def _numbers(task_graph: TaskGraph) -> dict[str, int]:
    return {region.name: k for k, region in enumerate(task_graph.regions)}


def _makers(graph: Graph) -> dict[str, str]:
    """Region -> which operator makes it, for people."""
    return {r.name: f", made by '{op.name}'" for op in graph.operators for r in changed_regions(op)}


def _held(
    task_graph: TaskGraph, where: str, region: int, places: Sequence[tuple[int, Rect]]
) -> _Held:
    """Boxes of instances as arrays, which make up a whole region."""
    held = _Held(
        where,
        region,
        np.array([i for i, _ in places], np.int64),
        box_table([box for _, box in places], task_graph.arg_box),
    )
    is_within = _are_within(task_graph, held)
    whole = task_graph.regions[region]
    if not is_within.all():
        i, box = places[int(np.argmin(is_within))]
        raise PlanError(
            f"plan, rule instance: {where}: region '{whole.name}' {box} is not within instance {i}"
        )
    for box in subtract_all(whole.rect, dict.fromkeys(box for _, box in places)):
        raise PlanError(f"plan, rule unwritten: {where}: region '{whole.name}' {box} is nowhere")
    return held


def _are_within(task_graph: TaskGraph, held: _Held) -> Array:
    """Whether the boxes lie in their instances, which are some of their region."""
    around = task_graph.instance_box[held.instance]
    is_its = task_graph.instance_region[held.instance] == held.region
    is_within = (around[:, 0] <= held.box[:, 0]) & (held.box[:, 1] <= around[:, 1])
    are_within: Array = is_its & is_within.all(axis=1)
    return are_within


def _end_records(
    task_graph: TaskGraph, held: Sequence[_Held], versions: Array
) -> tuple[Array, Array]:
    """`END` records of the instances, whose regions have these versions, and their boxes."""
    table = np.zeros(sum(len(places.instance) for places in held), END)
    if not held:
        return table, np.zeros((0, *task_graph.arg_box.shape[1:]), np.int64)
    table["instance"] = np.concatenate([places.instance for places in held])
    table["region"] = np.repeat(
        [places.region for places in held], [len(places.instance) for places in held]
    )
    table["version"] = versions[table["region"]]
    return table, np.concatenate([places.box for places in held])
