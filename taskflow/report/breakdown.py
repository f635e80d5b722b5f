"""Where the time and the bytes of a step go: a timeline, divided among the operators that caused them.

Takes a timeline, the graph it was lowered from, and the group that each operator is counted in (a strategy's entries,
as a rule: an operator with its backward and update). A row that moves a region counts for the operator that made the
value: its output, or the parameter that it updated. Times of a group and of the step are those of the device that
spends most. Every moment of a step is on the critical path, so the path says what a step waits for: what of it is
communication is exposed, the rest of the communication is hidden behind computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby

import numpy as np

from taskflow.graph.graph import Graph, Operator
from taskflow.tasks.task_graph import COLLECTIVES, Array, Kind, TaskGraph
from taskflow.tasks.timeline import Timeline

ROLES = dict.fromkeys(Kind, "communication") | {Kind.POINT: "compute", Kind.FEED: "feed"}
_IS_COMMUNICATION = [ROLES[kind] == "communication" for kind in Kind]


@dataclass(frozen=True)
class RegionMovement:
    """The transfers of one region.

    Attributes:
        region, producer, group: what is moved, the operator that made it (empty: nobody, it is fed) and its group.
        collective: what the transfers make up, as in `task.COLLECTIVES`.
        bytes: that cross between devices in a step.
    """

    region: str
    producer: str
    group: str
    collective: str
    bytes: int


@dataclass(frozen=True)
class Share:
    """What one group takes of a step.

    Attributes:
        compute_seconds: of its points, on the device that spends most.
        communication_seconds: of the copies and folds of what it made, on the receiving device that spends most.
        bytes_moved: between devices.
    """

    compute_seconds: float = 0.0
    communication_seconds: float = 0.0
    bytes_moved: int = 0


@dataclass(frozen=True)
class PathPart:
    """Rows of one operator, or of one region's movement, that follow each other on the critical path.

    Attributes:
        name: the operator, or the region that is moved.
        group: that it counts for (empty: what is fed).
        role: `compute`, `communication` or `feed`.
        tasks: number of rows.
        seconds: that they take.
    """

    name: str
    group: str
    role: str
    tasks: int
    seconds: float


@dataclass(frozen=True)
class Breakdown:
    """See the module.

    Attributes:
        seconds: of a step.
        compute_seconds, communication_seconds: of the step's points, and of its copies and folds, on the device that
            spends most.
        bytes_moved: between devices.
        peak_bytes: arena size per device.
        shares: group -> its part.
        movements: of every region that crosses between devices, most bytes first.
        path: the critical path; its seconds add up to those of the step.
    """

    seconds: float
    compute_seconds: float
    communication_seconds: float
    bytes_moved: int
    peak_bytes: tuple[int, ...]
    shares: Mapping[str, Share]
    movements: tuple[RegionMovement, ...]
    path: tuple[PathPart, ...]

    def path_seconds(self, role: str) -> float:
        """Seconds of the critical path that are `compute`, `communication` or `feed`."""
        return sum(part.seconds for part in self.path if part.role == role)

    @property
    def exposed_seconds(self) -> float:
        """Seconds of communication that no computation hides: those on the critical path."""
        return self.path_seconds("communication")


def break_down(timeline: Timeline, graph: Graph, group_of: Callable[[Operator], str]) -> Breakdown:
    """Divide a predicted timeline of `graph` among the groups of its operators."""
    rows = timeline.task_graph
    names, number = group_rows(rows, graph, group_of)
    compute = _by_device(timeline, number, rows.kind == Kind.POINT, len(names))
    communication = _by_device(timeline, number, np.take(_IS_COMMUNICATION, rows.kind), len(names))
    moved = np.bincount(number, np.where(rows.is_communication, rows.bytes, 0), len(names) + 1)
    return Breakdown(
        seconds=timeline.seconds,
        compute_seconds=float(compute.sum(axis=0).max()),
        communication_seconds=float(communication.sum(axis=0).max()),
        bytes_moved=rows.bytes_moved,
        peak_bytes=tuple(map(int, timeline.peak_bytes)),
        shares={
            name: Share(float(compute[k].max()), float(communication[k].max()), int(moved[k]))
            for k, name in enumerate(names)
        },
        movements=_movements(rows, graph, group_of),
        path=_path(timeline, [*names, ""], number),
    )


def group_rows(
    task_graph: TaskGraph, graph: Graph, group_of: Callable[[Operator], str]
) -> tuple[list[str], Array]:
    """The groups of the operators, and per row the number of its group; as many as there are: made by nobody."""
    groups = [group_of(op) for op in graph.operators]
    numbers = dict(zip(dict.fromkeys(groups), count()))
    maker = np.where(
        task_graph.launch >= 0, task_graph.launch, _makers(graph, task_graph)[task_graph.region]
    )
    of_row: Array = np.array([numbers[name] for name in groups] + [len(numbers)])[maker]
    return list(numbers), of_row


def _makers(graph: Graph, task_graph: TaskGraph) -> Array:
    """Per region the operator whose value is moved: the one that updates it last, else that makes it; -1 for none.

    An updated region moves only behind its update: before it, it lies where the step's first readers need it.
    """
    number = {region.name: k for k, region in enumerate(task_graph.regions)}
    makers = np.full(len(task_graph.regions), -1, np.int64)
    for position, op in enumerate(graph.operators):
        for region in op.written:
            makers[number[region.name]] = position
    return makers


def _by_device(timeline: Timeline, group: Array, counts: Array, groups: int) -> Array:
    """(groups + 1, devices) seconds of the rows that count."""
    devices = len(timeline.task_graph.machine.devices)
    cell = group[counts] * devices + timeline.task_graph.device[counts]
    seconds = (timeline.end - timeline.start)[counts]
    total: Array = np.bincount(cell, seconds, (groups + 1) * devices)
    return total.reshape(groups + 1, devices)


def _movements(
    task_graph: TaskGraph, graph: Graph, group_of: Callable[[Operator], str]
) -> tuple[RegionMovement, ...]:
    makers = _makers(graph, task_graph).tolist()
    movements = []
    for region, collective, size in _moved_bytes(task_graph):
        op = graph.operators[makers[region]] if makers[region] >= 0 else None
        movements.append(
            RegionMovement(
                task_graph.regions[region].name,
                op.name if op else "",
                group_of(op) if op else "",
                COLLECTIVES[collective],
                size,
            )
        )
    return tuple(sorted(movements, key=lambda movement: -movement.bytes))


def _moved_bytes(task_graph: TaskGraph) -> list[tuple[int, int, int]]:
    """Regions, by which collectives they are moved, and bytes, those of equal ones added up."""
    moved = task_graph.is_communication
    pairs = np.stack([task_graph.region[moved], task_graph.collective[moved]], axis=1)
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    sizes = np.bincount(which.reshape(-1), task_graph.bytes[moved], len(kinds)).astype(np.int64)
    return [(*kind, size) for kind, size in zip(kinds.tolist(), sizes.tolist(), strict=True)]


def _path(timeline: Timeline, names: Sequence[str], number: Array) -> tuple[PathPart, ...]:
    """The critical path of a timeline, given the names of the groups and the number of every row's."""
    task_graph = timeline.task_graph
    seconds = timeline.end - timeline.start

    def part_of(row: int) -> tuple[str, str, str]:
        return task_graph.name(row), names[number[row]], ROLES[Kind(int(task_graph.kind[row]))]

    runs = [(part, list(rows)) for part, rows in groupby(timeline.critical_path(), part_of)]
    return tuple(PathPart(*part, len(rows), float(seconds[rows].sum())) for part, rows in runs)
