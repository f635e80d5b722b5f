"""Arrivals: how long the movement of a region keeps devices receiving, and when in it each point has what it reads.

The movement behind a version of a region (the value that one operator makes) depends on the configurations of those
that touch the region alone. Where these are one or two families, the movement is known as soon as both are decided:
lowering the two without the rest of the graph gives its very rows. A device receives them in their order, so a point
that waits for one of them waits for those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.lowering import lower
from taskflow.searching.tables import Edge, SpaceTables, subgraph
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import Array, Kind, TaskGraph


@dataclass(frozen=True)
class Movement:
    """The movement behind the version of `region` that operator number `writer` makes.

    Attributes:
        other: the family, besides the writer's, that touches the region; the writer's own if there is none.
        seconds: (configurations of the writer, of the other, devices) for which a device receives.
        waits: per edge that reads the version: (configurations of the writer, of the other, points), from the begin of
            the movement to the end of the last row that the point waits for. A family alone counts as (its own, 1).
    """

    writer: int
    region: str
    other: int
    seconds: Array
    waits: Mapping[Edge, Array]


def movements(tables: SpaceTables) -> list[Movement]:
    """The movements that one or two families determine, in the order of their writers."""
    found: list[Movement] = []
    for families, regions in sorted(_regions_by_families(tables).items()):
        found += _of_families(tables, families, regions)
    return sorted(found, key=lambda m: m.writer)


def _regions_by_families(tables: SpaceTables) -> dict[tuple[int, ...], list[str]]:
    touching: dict[str, set[int]] = {}
    for op, family in zip(tables.operators, tables.family, strict=True):
        for region in op.args:
            touching.setdefault(region.name, set()).add(family)
    fetched = {region.name for region in tables.space.graph.outputs.values()}
    found: dict[tuple[int, ...], list[str]] = {}
    for name, families in touching.items():
        if len(families) <= 2 and name not in fetched:
            found.setdefault(tuple(sorted(families)), []).append(name)
    return found


def _of_families(tables: SpaceTables, families: tuple[int, ...], regions: Sequence[str]) -> Iterator[Movement]:
    members = [k for k, family in enumerate(tables.family) if family in families]
    graph = subgraph(tables.space.graph, [tables.operators[k] for k in members])
    made: dict[tuple[int, str], Movement] = {}
    for k in members:
        op = tables.operators[k]
        for region in (*op.outputs, *(op.inputs[j] for j in op.writes)):
            if region.name in regions:
                made[k, region.name] = _empty(tables, k, region.name, families)
    for numbers in np.ndindex(*(len(tables.configs[f]) for f in families)):
        strategy = {tables.space.names[f]: tables.configs[f][c] for f, c in zip(families, numbers, strict=True)}
        task_graph = lower(graph, Strategy(strategy), tables.machine)
        rows = _Rows(task_graph, tables.costs.seconds(task_graph), members)
        for movement in made.values():
            own = numbers[families.index(tables.family[movement.writer])]
            at = (own, 0 if len(families) == 1 else numbers[families.index(movement.other)])
            rows.fill(movement, at)
    return iter(made.values())


def _empty(tables: SpaceTables, writer: int, region: str, families: tuple[int, ...]) -> Movement:
    own = tables.family[writer]
    other = next((f for f in families if f != own), own)
    shape = len(tables.configs[own]), len(tables.configs[other]) if other != own else 1
    edges = [
        e for e in tables.edges if e.writer == writer and tables.operators[e.reader].inputs[e.argument].name == region
    ]
    waits = {edge: np.zeros((*shape, tables.width)) for edge in edges}
    return Movement(writer, region, other, np.zeros((*shape, len(tables.machine.devices))), waits)


class _Rows:
    """A lowered task graph of a few operators, asked for the movements in it."""

    def __init__(self, task_graph: TaskGraph, seconds: Array, members: Sequence[int]) -> None:
        self.graph, self.seconds = task_graph, seconds
        is_point = task_graph.kind == Kind.POINT
        launch = np.where(is_point, task_graph.launch, -1)
        numbers = np.array([*members, -1])
        self.operator = numbers[launch]  # -1: no point
        self.behind = numbers[np.maximum.accumulate(launch)]
        self.number = {region.name: k for k, region in enumerate(task_graph.regions)}

    def fill(self, movement: Movement, at: tuple[int, int]) -> None:
        """Write what this task graph says about `movement` at the configurations `at`."""
        graph, done = self.graph, movement.seconds[at]
        rows = np.flatnonzero((graph.region == self.number[movement.region]) & (self.behind == movement.writer))
        until: dict[int, float] = {}
        for row in rows.tolist():
            done[graph.device[row]] += self.seconds[row]
            until[row] = done[graph.device[row]]
        for edge, waits in movement.waits.items():
            for row in np.flatnonzero(self.operator == edge.reader).tolist():
                waits[at][graph.point[row]] = max((until.get(d, 0.0) for d in graph.deps(row)), default=0.0)
