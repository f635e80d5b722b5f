"""The program: what a graph says, as tables; and whether launches and regions of a task graph are those of the graph.

Program order gives every argument the version that is read there and the one that is made. All that is said once for an
operator is held to the graph here: kernel, pattern, regions, how partial results combine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from taskflow.checking.rules import PlanError
from taskflow.checking.terms import ARGUMENT, BOUND, DIMENSION, LAUNCH, TERM, VERSION, GraphTables
from taskflow.core.columns import Array, pointers
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.pattern import BoundPattern
from taskflow.graph.window import Image, window_row
from taskflow.tasks.task_graph import Launch, Privilege, TaskGraph


def read_program(graph: Graph, task_graph: TaskGraph) -> tuple[GraphTables, Array]:
    """The tables of `graph`, in the numbers of `task_graph`; and the version that every region ends with.

    Raises:
        PlanError: launches or regions are not those of the graph.
    """
    number = _check_regions(graph, task_graph)
    _check_launches(graph, task_graph, number)
    arguments = list[tuple[int, ...]]()
    latest = _ProgramOrder(number)
    for launch, op in enumerate(graph.operators):
        arguments += _arguments(op, launch, latest)
    bounds = _Bounds()
    tables = GraphTables(
        _launches(graph, task_graph, [bounds.number(op.bound) for op in graph.operators]),
        _records(arguments, ARGUMENT),
        _spans(task_graph),
        *bounds.tables(),
        _records(latest.versions, VERSION),
        np.arange(len(number)),
        np.zeros((2, task_graph.arg_box.shape[2]), np.int64),
        bounds.images(),
    )
    return tables, np.array([*latest.of_region.values()], np.int64)


class _ProgramOrder:
    """The versions of regions in program order, as `VERSION` records, and the latest of each."""

    def __init__(self, number: Mapping[str, int]) -> None:
        self.number = number
        self.versions: list[tuple[int, ...]] = [(k, 0, 1, 0) for k in range(len(number))]
        self.of_region = dict(zip(number, range(len(number)), strict=True))

    def add(self, region: str) -> int:
        """A new version of a region."""
        before = self.versions[self.of_region[region]]
        self.versions.append((self.number[region], before[1] + 1, 1, 0))
        self.of_region[region] = len(self.versions) - 1
        return self.of_region[region]


def _launches(graph: Graph, task_graph: TaskGraph, bounds: Sequence[int]) -> Array:
    """`LAUNCH` records of operators, whose patterns have these numbers."""
    launches = np.zeros(len(bounds), LAUNCH)
    launches["bound"] = bounds
    launches["spans"] = pointers([launch.spans.size // 2 for launch in task_graph.launches])[:-1]
    launches["points"] = [len(launch.spans) for launch in task_graph.launches]
    launches["inputs"] = [len(op.inputs) for op in graph.operators]
    launches["outputs"] = [len(op.outputs) for op in graph.operators]
    launches["is_addition"] = [op.kernel.is_addition for op in graph.operators]
    launches["args"] = pointers(launches["inputs"] + launches["outputs"])[:-1]
    return launches


def _spans(task_graph: TaskGraph) -> Array:
    spans = [launch.spans.reshape(-1, 2) for launch in task_graph.launches]
    return np.ascontiguousarray(np.concatenate([np.zeros((0, 2), np.int64), *spans]))


def _arguments(op: Operator, launch: int, latest: _ProgramOrder) -> Iterator[tuple[int, ...]]:
    """`ARGUMENT` records of an operator; what it makes are new versions."""
    reads = [latest.of_region[region.name] for region in op.inputs] + [-1] * len(op.outputs)
    for k, region in enumerate(op.args):
        made = -1
        privilege = Privilege.READ
        if k >= len(op.inputs) or k in op.writes:
            made = latest.add(region.name)
            privilege = Privilege.WRITE if reads[k] < 0 else Privilege.READ_WRITE
        adds = k in op.adds
        yield (
            latest.number[region.name],
            reads[k],
            made,
            int(privilege),
            launch,
            adds or (k >= len(op.inputs) and op.kernel.accumulates),
            adds,
        )


def changed_regions(op: Operator) -> tuple[LogicalRegion, ...]:
    """The regions that an operator makes or updates."""
    return (*(op.inputs[k] for k in op.writes), *op.outputs)


def _records(rows: Sequence[tuple[int, ...]], dtype: np.dtype[np.void]) -> Array:
    flat = np.array(rows, np.int64).reshape(-1, len(dtype.names or ()))
    return np.ascontiguousarray(flat).view(dtype).reshape(-1)


# -- what is said once -------------------------------------------------------------------------------------------------


def _check_regions(graph: Graph, task_graph: TaskGraph) -> dict[str, int]:
    """Region name -> number."""
    for region in task_graph.regions:
        if graph.regions.get(region.name) != region:
            raise PlanError(
                f"plan, rule region: region '{region.name}' is {_region_text(region)}, {_of_graph(graph, region.name)}"
            )
    return {region.name: k for k, region in enumerate(task_graph.regions)}


def _of_graph(graph: Graph, name: str) -> str:
    region = graph.regions.get(name)
    return f"the graph has {_region_text(region)}" if region else "the graph has none of this name"


def _region_text(region: LogicalRegion) -> str:
    return f"{region.dtype}{list(region.shape)} ({region.role})"


def _check_names(planned: Sequence[str], wanted: Sequence[str]) -> None:
    if planned != wanted:
        k = next(
            (k for k, (a, b) in enumerate(zip(planned, wanted)) if a != b),
            min(len(planned), len(wanted)),
        )
        names = [f"'{x[k]}'" if k < len(x) else "none" for x in (planned, wanted)]
        raise PlanError(
            f"plan, rule operator: operator {k} is {names[0]} in the plan, {names[1]} in the graph"
        )


def _check_launches(graph: Graph, task_graph: TaskGraph, number: Mapping[str, int]) -> None:
    _check_names([n.name for n in task_graph.launches], [op.name for op in graph.operators])
    for launch, op in zip(task_graph.launches, graph.operators, strict=True):
        if what := _difference(launch, op, number):
            on = f"region '{op.args[-1].name}' " if op.args else ""
            raise PlanError(
                f"plan, rule operator: operator '{op.name}': {on}has {what} than in the graph"
            )
    _check_combine(graph, task_graph)
    if task_graph.uses_tf32 != (graph.precision.dtype == "tf32"):
        raise PlanError(
            f"plan, rule operator: uses_tf32 is {task_graph.uses_tf32}, the graph's precision differs"
        )


def _check_combine(graph: Graph, task_graph: TaskGraph) -> None:
    """The parts of every region are combined as by the last operator that makes it."""
    makers = _makers(graph)
    for region, how in task_graph.combine.items():
        name = task_graph.regions[region].name
        maker, wanted = makers.get(name, ("", "none"))
        if how != wanted:
            on = f"operator '{maker}': region '{name}'"
            raise PlanError(
                f"plan, rule operator: {on} combines its parts as '{how}', not '{wanted}'"
            )


def _makers(graph: Graph) -> dict[str, tuple[str, str]]:
    """Region -> the last operator that makes or adds to it, and how its parts are combined."""
    makers: dict[str, tuple[str, str]] = {}
    for op in graph.operators:
        makers |= {op.inputs[k].name: (op.name, "sum") for k in op.adds}
        for region, term in zip(op.outputs, op.bound.pattern.outputs, strict=True):
            makers[region.name] = op.name, term.reduction
    return makers


def _difference(launch: Launch, op: Operator, number: Mapping[str, int]) -> str:
    """What of a launch is not the operator's; empty for nothing."""
    said = (op.kernel.name, op.pattern, " ".join(r.dtype for r in op.args))
    checks = {
        "another kernel": launch.kernel is op.kernel or launch.kernel == op.kernel,
        "another pattern": launch.bound is op.bound or launch.bound == op.bound,
        "other axes": launch.axes == tuple(op.extents)
        and launch.spans.shape[1:] == (len(op.extents), 2),
        "other regions": [number.get(r.name) for r in op.args] == list(launch.args),
        "other members": launch.members == op.members,
        "another identity": all(text in launch.identity for text in said),
    }
    return next((what for what, is_equal in checks.items() if not is_equal), "")


# -- patterns ----------------------------------------------------------------------------------------------------------


class _Bounds:
    """Patterns as tables; equal layers share one."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._bounds: list[tuple[int, ...]] = []
        self._extents: list[int] = []
        self._terms: list[tuple[int, ...]] = []
        self._dims: list[tuple[int, ...]] = []
        self._dim_axes: list[int] = []
        self._reduced: list[int] = []
        self._images: list[Array] = [np.zeros(0, np.int64)]

    def number(self, bound: BoundPattern) -> int:
        """The number of a pattern, which the graph keeps alive."""
        if id(bound) not in self._numbers:
            self._numbers[id(bound)] = len(self._bounds)
            self._add(bound)
        return self._numbers[id(bound)]

    def _add(self, bound: BoundPattern) -> None:
        axes = [*bound.extents]
        self._bounds.append((len(self._terms), len(self._extents), len(axes)))
        self._extents += bound.extents.values()
        for k, (term, shape) in enumerate(zip(bound.terms, bound.shapes, strict=True)):
            first = len(self._dims)
            reduced = len(self._reduced)
            for names, extent in zip(term.dims, shape, strict=True):
                self._add_dimension(bound, names, extent)
            if k in bound.made:
                self._reduced += sorted(map(axes.index, bound.reduced_axes(bound.made.index(k))))
            self._terms.append((first, len(self._dims), reduced, len(self._reduced)))

    def _add_dimension(self, bound: BoundPattern, names: Sequence[str], extent: int) -> None:
        window = bound.windows.get(names[0]) if len(names) == 1 else None
        first = len(self._dim_axes)
        axes = [*bound.extents]
        self._dim_axes += map(axes.index, [window.axis] if window else names)
        rule = window_row(window, sum(map(len, self._images)))
        if isinstance(window, Image):
            self._images.append(window.table)
        self._dims.append((first, len(self._dim_axes), extent, *rule))

    def images(self) -> Array:
        """The tables of all images."""
        return np.concatenate(self._images)

    def tables(self) -> tuple[Array, Array, Array, Array, Array, Array]:
        """As `GraphTables` wants them."""
        return (
            _records(self._bounds, BOUND),
            np.array(self._extents, np.int64),
            _records(self._terms, TERM),
            _records(self._dims, DIMENSION),
            np.array(self._dim_axes, np.int64),
            np.array(self._reduced, np.int64),
        )
