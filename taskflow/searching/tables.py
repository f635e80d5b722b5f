"""Tables: what every configuration of an operator costs by itself, and what two of adjacent operators delay each other.

Takes a space and costs; gives the columns on which the exhaustive search bounds and the dynamic programming adds up. A
family is an operator that a strategy names with those that follow it, as one configuration decides for all of them.
Nothing here is an estimate from above: seconds of points are those of the simulator, and the delay between a point that
makes a box and one that reads it is the least that a transfer between their devices can take, however it is arranged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.core.geometry import Rect
from taskflow.cost.model import CostModel, Rates
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import lower
from taskflow.searching.space import Space
from taskflow.strategy.partition import OperatorPoints, partition
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import Array, Kind

NEVER = -1.0  # the delay where one point does not wait for another


@dataclass(frozen=True)
class Edge:
    """Operator number `reader` reads, as its argument `argument`, what `writer` made as its argument `output`."""

    writer: int
    output: int
    reader: int
    argument: int


class SpaceTables:
    """The tables of a space whose operators have few configurations.

    Attributes:
        space, operators: operators of the graph, in program order.
        family: per operator the position of its leader in `space.names`.
        configs: per leader its configurations.
        seconds, device: per operator (configurations, points), padded with 0 and -1.
        edges: what each operator reads, in the order of the readers.
    """

    def __init__(self, space: Space, costs: CostModel) -> None:
        self.space, self.machine, self.costs = space, space.machine, costs
        self.operators = list(space.graph.operators)
        number = {name: k for k, name in enumerate(space.names)}
        self.family = [number[op.follows or op.name] for op in self.operators]
        self.configs = [list(space.configs(name)) for name in space.names]
        self.edges = list(_edges(self.operators))
        self.latency, self.throughput = arrival_rates(costs.rates)
        self.points = [
            [partition(op, config) for config in self.configs[f]]
            for op, f in zip(self.operators, self.family, strict=True)
        ]
        self.width = max(len(p) for each in self.points for p in each)
        self.device = [self._pad([p.devices for p in each]) for each in self.points]
        self.seconds = [np.zeros((len(each), self.width)) for each in self.points]
        for f in range(len(space.names)):
            self._lower_family(f)

    def _pad(self, rows: Sequence[Sequence[int]]) -> Array:
        return np.array([[*row, *[-1] * (self.width - len(row))] for row in rows], np.int64)

    def _lower_family(self, family: int) -> None:
        """Fill `seconds` from the family lowered alone, once for every configuration."""
        members = [k for k, f in enumerate(self.family) if f == family]
        graph = subgraph(self.space.graph, [self.operators[k] for k in members])
        for c, config in enumerate(self.configs[family]):
            task_graph = lower(graph, Strategy({self.space.names[family]: config}), self.machine)
            seconds = self.costs.seconds(task_graph)
            for j, k in enumerate(members):
                here = (task_graph.kind == Kind.POINT) & (task_graph.launch == j)
                self.seconds[k][c, task_graph.point[here]] = seconds[here]

    def delays(self, edge: Edge) -> Array:
        """(configurations of the writer, of the reader, points of the writer, of the reader): seconds, or NEVER.

        Within a family both have the same configuration; all others are NEVER.
        """
        writers, readers = self.points[edge.writer], self.points[edge.reader]
        result = np.full((len(writers), len(readers), self.width, self.width), NEVER)
        is_one = self.family[edge.writer] == self.family[edge.reader]
        for a, made in enumerate(writers):
            for b in [a] if is_one else range(len(readers)):
                for q, p, seconds in self._waits(edge, made, readers[b]):
                    result[a, b, q, p] = seconds
        return result

    def _waits(self, edge: Edge, made: OperatorPoints, read: OperatorPoints) -> Iterator[tuple[int, int, float]]:
        """(point that makes, point that reads, least seconds between them), for the points that wait.

        Of replicas that are all elsewhere any may serve, so no single one is waited for.
        """
        itemsize = read.args[edge.argument].region.itemsize
        is_partial, makers = _makers(made, edge.output)
        share = len(self.machine.devices) if is_partial else 1  # a sum may arrive in parts, one from each device
        for p, (box, device) in enumerate(zip(read.args[edge.argument].rects, read.devices, strict=True)):
            for tile, holders in makers:
                if not tile.overlaps(box):
                    continue
                if device in holders:
                    yield holders[device], p, 0.0
                elif len(holders) == 1:
                    size = tile.intersect(box).volume * itemsize / share
                    yield next(iter(holders.values())), p, float(self.latency[device] + size / self.throughput[device])


def _makers(made: OperatorPoints, output: int) -> tuple[bool, list[tuple[Rect, dict[int, int]]]]:
    """Whether the results are partial, and for every different result its tile and device -> point, its replicas."""
    found: dict[tuple[Rect, int], dict[int, int]] = {}
    results = zip(made.args[output].rects, made.colours_of(output).tolist(), strict=True)
    for q, (result, device) in enumerate(zip(results, made.devices, strict=True)):
        found.setdefault(result, {}).setdefault(device, q)
    return made.is_partial(output), [(tile, holders) for (tile, _), holders in found.items()]


def _edges(operators: Sequence[Operator]) -> Iterator[Edge]:
    """Who reads what whom has made, in program order."""
    made: dict[str, tuple[int, int]] = {}
    for number, op in enumerate(operators):
        for k, region in enumerate(op.inputs):
            if region.name in made:
                writer, output = made[region.name]
                yield Edge(writer, output, number, k)
        for k in (*op.writes, *range(len(op.inputs), len(op.args))):
            made[op.args[k].name] = number, k


def arrival_rates(rates: Rates) -> tuple[Array, Array]:
    """Per device the least latency and the largest throughput of transfers to it."""
    is_own = np.eye(len(rates.latency), dtype=np.bool_)
    return np.where(is_own, np.inf, rates.latency).min(axis=0), np.where(is_own, 0.0, rates.throughput).max(axis=0)


def subgraph(graph: Graph, operators: Sequence[Operator]) -> Graph:
    """These operators of `graph` and the regions that they touch."""
    part = Graph()
    part.operators = list(operators)
    touched = {r.name for op in operators for r in op.args}
    part.regions = {name: region for name, region in graph.regions.items() if name in touched}
    return part
