"""Tables: what every configuration of an operator costs by itself, and what two of adjacent operators delay each other.

Takes a space and costs; gives the columns on which the exhaustive search bounds. A family is an operator that a
strategy names with those that follow it, as one configuration decides for all of them.
Nothing here is an estimate from above: seconds of points are those of the simulator, and the delay between a point that
makes a box and one that reads it is the least that a transfer between their devices can take, however it is arranged.

Arrivals say how long the movement of a region keeps devices receiving, and when in it each point has what it reads.
The movement behind a version of a region (the value that one operator makes) depends on the configurations of those
that touch the region alone. Where these are one or two families, the movement is known as soon as both are decided:
lowering the two without the rest of the graph gives its very rows. A device receives them in their order, so a point
that waits for one of them waits for those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taskflow.core.geometry import Rect
from taskflow.cost.model import CostModel
from taskflow.cost.rates import Rates
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import lower
from taskflow.searching.bound import least_seconds, whole_seconds
from taskflow.searching.space import Space
from taskflow.searching.splits import Splits
from taskflow.strategy.partition import OperatorPoints, partition
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

NEVER = -1.0  # the delay where one point does not wait for another


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
        self.edges = list(edges_of(self.operators))
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

    def _waits(
        self, edge: Edge, made: OperatorPoints, read: OperatorPoints
    ) -> Iterator[tuple[int, int, float]]:
        """(point that makes, point that reads, least seconds between them), for the points that wait.

        Of replicas that are all elsewhere any may serve, so no single one is waited for.
        """
        itemsize = read.args[edge.argument].region.itemsize
        is_partial, makers = _makers(made, edge.output)
        share = (
            len(self.machine.devices) if is_partial else 1
        )  # a sum may arrive in parts, one from each device
        for p, (box, device) in enumerate(
            zip(read.args[edge.argument].rects, read.devices, strict=True)
        ):
            for tile, holders in makers:
                if not tile.overlaps(box):
                    continue
                if device in holders:
                    yield holders[device], p, 0.0
                elif len(holders) == 1:
                    size = tile.intersect(box).volume * itemsize / share
                    yield (
                        next(iter(holders.values())),
                        p,
                        float(self.latency[device] + size / self.throughput[device]),
                    )


def _makers(made: OperatorPoints, output: int) -> tuple[bool, list[tuple[Rect, dict[int, int]]]]:
    """Whether the results are partial, and for every different result its tile and device -> point, its replicas."""
    found: dict[tuple[Rect, int], dict[int, int]] = {}
    results = zip(made.args[output].rects, made.colours_of(output).tolist(), strict=True)
    for q, (result, device) in enumerate(zip(results, made.devices, strict=True)):
        found.setdefault(result, {}).setdefault(device, q)
    return made.is_partial(output), [(tile, holders) for (tile, _), holders in found.items()]


@dataclass(frozen=True)
class Edge:
    """Operator number `reader` reads, as its argument `argument`, what `writer` made as its argument `output`."""

    writer: int
    output: int
    reader: int
    argument: int


def edges_of(operators: Sequence[Operator]) -> Iterator[Edge]:
    """Who reads what whom has made, in program order."""
    made: dict[str, tuple[int, int]] = {}
    for number, op in enumerate(operators):
        for k, region in enumerate(op.inputs):
            if region.name in made and k not in op.adds:  # of these, only the first part waits
                writer, output = made[region.name]
                yield Edge(writer, output, number, k)
        for k in (*op.writes, *range(len(op.inputs), len(op.args))):
            made[op.args[k].name] = number, k


def arrival_rates(rates: Rates) -> tuple[Array, Array]:
    """Per device the least latency and the largest throughput of transfers to it."""
    is_own = np.eye(len(rates.latency), dtype=np.bool_)
    return np.where(is_own, np.inf, rates.latency).min(axis=0), np.where(
        is_own, 0.0, rates.throughput
    ).max(axis=0)


def subgraph(graph: Graph, operators: Sequence[Operator]) -> Graph:
    """These operators of `graph` and the regions that they touch."""
    part = Graph()
    part.operators[:] = operators
    touched = {r.name for op in operators for r in op.args}
    part.regions = {name: region for name, region in graph.regions.items() if name in touched}
    return part


def content(operators: Sequence[Operator]) -> tuple[object, ...]:
    """What costs depend on: patterns, extents, kernels and how operators share regions; not names."""
    numbers: dict[str, int] = {}
    parts = []
    for op in operators:
        shared = tuple(numbers.setdefault(r.name, len(numbers)) for r in op.args)
        dtypes = tuple((r.dtype, r.role) for r in op.args)
        parts.append(
            (
                op.pattern,
                tuple(op.extents.items()),
                tuple(op.windows.items()),
                op.flops,
                op.work,
                shared,
                dtypes,
            )
        )
    return tuple(parts)


# -- columns that compiled code reads (`boundpass`) -------------------------------------------------------------------


class BoundTables(NamedTuple):
    """Operators, the edges between them, and the movements that one or two families determine.

    The edges of a reader, and the movements behind a writer, stand one after the other. Where one has fewer
    configurations than another the rest is padding, which nobody looks at.

    Attributes:
        family: per operator the number of its leader.
        seconds, device: (operators, configurations, points); no device: -1.
        least, whole: per operator the least seconds of a point, and of all of it on one device.
        most: per operator, how many points run side by side at most.
        floor: (operators, devices) the least seconds that it occupies a device, whatever its configuration.
        edge_ptr: per reader its first edge.
        writer: per edge the operator that makes what is read.
        is_sure: per edge, whether every point reads something of it.
        delays: (edges, configurations of the writer, of the reader, points of the writer, of the reader); see
            `SpaceTables.delays`.
        movement: per edge the movement between both, or -1.
        waits: (edges, configurations of the writer, of the other family, points); see `Movement.waits`.
        move_ptr: per writer its first movement.
        other: per movement the family, besides the writer's, that it depends on.
        moving: (movements, configurations of the writer, of the other, devices) seconds.
        receiving: the stream in which each device receives; that of its computing where one thread does both.
    """

    family: Array
    seconds: Array
    device: Array
    least: Array
    whole: Array
    most: Array
    floor: Array
    edge_ptr: Array
    writer: Array
    is_sure: Array
    delays: Array
    movement: Array
    waits: Array
    move_ptr: Array
    other: Array
    moving: Array
    receiving: Array


def bound_tables(tables: SpaceTables) -> BoundTables:
    """What `boundpass.bound_children` reads."""
    machine, costs, edges, found = tables.machine, tables.costs, tables.edges, movements(tables)
    splits = [Splits(op, tables.space) for op in tables.operators]
    whole = whole_seconds(tables.space.graph, machine, costs)
    whole *= np.array([split.work for split in splits])[:, None]
    operators, devices = np.arange(len(splits) + 1), np.arange(len(machine.devices))
    movement_of = {edge: k for k, movement in enumerate(found) for edge in movement.waits}
    none = np.zeros((0, 0, 0))
    return BoundTables(
        family=np.array(tables.family, np.int64),
        seconds=_padded(tables.seconds, 2),
        device=_padded(tables.device, 2, np.int64),
        least=least_seconds(splits, whole, machine, costs),
        whole=whole.min(axis=1),
        most=np.array([float(split.most) for split in splits]),
        floor=_floor(tables),
        edge_ptr=np.searchsorted([e.reader for e in edges], operators),
        writer=np.array([e.writer for e in edges], np.int64),
        is_sure=np.array([splits[e.reader].reads[e.argument] > 0 for e in edges], np.bool_),
        delays=_padded([tables.delays(edge) for edge in edges], 4),
        movement=np.array([movement_of.get(e, -1) for e in edges], np.int64),
        waits=_padded(
            [found[movement_of[e]].waits[e] if e in movement_of else none for e in edges], 3
        ),
        move_ptr=np.searchsorted([m.writer for m in found], operators),
        other=np.array([m.other for m in found], np.int64),
        moving=_padded([m.seconds for m in found], 3),
        receiving=np.where(StreamTable(machine).one_thread, devices, len(devices) + devices),
    )


def _floor(tables: SpaceTables) -> Array:
    count = len(tables.machine.devices)
    rows = zip(tables.device, tables.seconds, strict=True)
    busy = [
        [np.bincount(d + 1, s, count + 1)[1:] for d, s in zip(*each, strict=True)] for each in rows
    ]
    return np.array([np.min(each, axis=0) for each in busy])


def _padded(parts: Sequence[Array], axes: int, dtype: DTypeLike = np.float64) -> Array:
    """One array of all parts, each of so many axes."""
    shapes = np.array([part.shape for part in parts], np.int64).reshape(-1, axes)
    found = np.zeros((len(parts), *shapes.max(axis=0, initial=0).tolist()), dtype)
    for whole, part in zip(found, parts, strict=True):
        whole[tuple(map(slice, part.shape))] = part
    return found


# -- arrivals --------------------------------------------------------------------------------------------------------


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


def _of_families(
    tables: SpaceTables, families: tuple[int, ...], regions: Sequence[str]
) -> Iterator[Movement]:
    members = [k for k, family in enumerate(tables.family) if family in families]
    graph = subgraph(tables.space.graph, [tables.operators[k] for k in members])
    made: dict[tuple[int, str], Movement] = {}
    for k in members:
        op = tables.operators[k]
        for region in op.written:
            if region.name in regions:
                made[k, region.name] = _empty(tables, k, region.name, families)
    for numbers in np.ndindex(*(len(tables.configs[f]) for f in families)):
        strategy = {
            tables.space.names[f]: tables.configs[f][c]
            for f, c in zip(families, numbers, strict=True)
        }
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
        e
        for e in tables.edges
        if e.writer == writer and tables.operators[e.reader].inputs[e.argument].name == region
    ]
    waits = {edge: np.zeros((*shape, tables.width)) for edge in edges}
    return Movement(writer, region, other, np.zeros((*shape, len(tables.machine.devices))), waits)


class _Rows:
    """A lowered task graph of a few operators, asked for the movements in it."""

    def __init__(self, task_graph: TaskGraph, seconds: Array, members: Sequence[int]) -> None:
        self.graph, self.seconds = task_graph, seconds
        self.receiving = StreamTable(task_graph.machine).receiving.tolist()
        is_point = task_graph.kind == Kind.POINT
        launch = np.where(is_point, task_graph.launch, -1)
        numbers = np.array([*members, -1])
        self.operator = numbers[launch]  # -1: no point
        self.behind = numbers[np.maximum.accumulate(launch)]
        self.number = {region.name: k for k, region in enumerate(task_graph.regions)}

    def fill(self, movement: Movement, at: tuple[int, int]) -> None:
        """Write what this task graph says about `movement` at the configurations `at`."""
        graph, done = self.graph, movement.seconds[at]
        rows = np.flatnonzero(
            (graph.region == self.number[movement.region]) & (self.behind == movement.writer)
        )
        until, free = dict[int, float](), dict[int, float]()  # by row, by stream
        for row in rows.tolist():
            stream = int(graph.streams[row, 0])
            begin = max((until.get(d, 0.0) for d in graph.deps(row)), default=0.0)
            if stream >= 0:  # else it comes by a link alone, beside others
                begin = max(begin, free.get(stream, 0.0))
            until[row] = free[stream] = begin + self.seconds[row]
            if stream == self.receiving[graph.device[row]]:
                done[graph.device[row]] += self.seconds[row]
        for edge, waits in movement.waits.items():
            for row in np.flatnonzero(self.operator == edge.reader).tolist():
                waits[at][graph.point[row]] = max(
                    (until.get(d, 0.0) for d in graph.deps(row)), default=0.0
                )
