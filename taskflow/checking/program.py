"""The program: what a graph says, as tables; and whether launches and regions of a task graph are those of the graph.

Program order gives every argument the version that is read there and the one that is made. All that is said once for an
operator is held to the graph here: kernel, pattern, regions, how partial results combine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskflow.checking.rules import PlanError
from taskflow.checking.terms import ARGUMENT, BOUND, DIMENSION, LAUNCH, TERM, VERSION, GraphTables
from taskflow.core.columns import Array, pointers
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.pattern import BoundPattern
from taskflow.graph.window import Image, window_row
from taskflow.tasks.task_graph import Launch, Privilege, TaskGraph


def read_program(graph: Graph, task_graph: TaskGraph) -> tuple[GraphTables, dict[str, int]]:
    """The tables of `graph`, in the numbers of `task_graph`; and the version that every region ends with.

    Raises:
        PlanError: launches or regions are not those of the graph.
    """
    number = _check_regions(graph, task_graph)
    _check_launches(graph, task_graph, number)
    versions: list[tuple[int, ...]] = [(k, 0, 1, 0) for k in range(len(number))]
    latest = dict(zip(number, range(len(number)), strict=True))
    arguments: list[tuple[int, ...]] = []
    for k, op in enumerate(graph.operators):
        arguments += _arguments(op, k, number, latest, versions)
    bounds = _Bounds()
    which = [bounds.number(op.bound) for op in graph.operators]
    spans = [launch.spans.reshape(-1, 2) for launch in task_graph.launches]
    launches = np.zeros(len(which), LAUNCH)
    launches["bound"], launches["spans"] = which, pointers([len(s) for s in spans])[:-1]
    launches["points"] = [len(launch.spans) for launch in task_graph.launches]
    launches["inputs"] = [len(op.inputs) for op in graph.operators]
    launches["outputs"] = [len(op.outputs) for op in graph.operators]
    launches["is_addition"] = [op.kernel.is_addition for op in graph.operators]
    launches["args"] = pointers(launches["inputs"] + launches["outputs"])[:-1]
    bound, extent, term, dim, dim_axis, reduced = bounds.tables()
    tables = GraphTables(
        launches,
        _records(arguments, ARGUMENT),
        np.ascontiguousarray(np.concatenate([np.zeros((0, 2), np.int64), *spans])),
        *(bound, extent, term, dim, dim_axis, reduced),
        _records(versions, VERSION),
        np.arange(len(number)),
        np.zeros((2, task_graph.arg_box.shape[2]), np.int64),
        bounds.images(),
    )
    return tables, latest


def _arguments(
    op: Operator,
    launch: int,
    number: Mapping[str, int],
    latest: dict[str, int],
    versions: list[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """`ARGUMENT` records of an operator; what it makes are new versions."""
    reads = [latest[r.name] for r in op.inputs] + [-1] * len(op.outputs)
    records: list[tuple[int, ...]] = []
    for k, region in enumerate(op.args):
        is_made = k >= len(op.inputs) or k in op.writes
        made = -1
        adds = k in op.adds
        if is_made:
            before = latest.get(region.name, -1)
            made = latest[region.name] = len(versions)
            versions.append((number[region.name], versions[before][1] + 1, 1, 0))
        privilege = (
            Privilege.READ
            if not is_made
            else Privilege.WRITE
            if reads[k] < 0
            else Privilege.READ_WRITE
        )
        accumulates = adds or (k >= len(op.inputs) and op.kernel.accumulates)
        records.append(
            (number[region.name], reads[k], made, int(privilege), launch, accumulates, adds)
        )
    return records


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
    makers: dict[int, tuple[str, str]] = {}
    for launch, op in zip(task_graph.launches, graph.operators, strict=True):
        if what := _difference(launch, op, number):
            on = f"region '{op.args[-1].name}' " if op.args else ""
            raise PlanError(
                f"plan, rule operator: operator '{op.name}': {on}has {what} than in the graph"
            )
        terms = zip(op.outputs, op.bound.pattern.outputs, strict=True)
        makers |= {number[op.inputs[k].name]: (op.name, "sum") for k in op.adds} | {
            number[r.name]: (op.name, term.reduction) for r, term in terms
        }
    for region, how in task_graph.combine.items():
        maker, wanted_how = makers.get(region, ("", "none"))
        if how != wanted_how:
            on = f"operator '{maker}': region '{task_graph.regions[region].name}'"
            raise PlanError(
                f"plan, rule operator: {on} combines its parts as '{how}', not '{wanted_how}'"
            )
    if task_graph.uses_tf32 != (graph.precision.dtype == "tf32"):
        raise PlanError(
            f"plan, rule operator: uses_tf32 is {task_graph.uses_tf32}, the graph's precision differs"
        )


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
        axes = {axis: k for k, axis in enumerate(bound.extents)}
        self._bounds.append((len(self._terms), len(self._extents), len(axes)))
        self._extents += bound.extents.values()
        for k, (term, shape) in enumerate(zip(bound.terms, bound.shapes, strict=True)):
            first = len(self._dims)
            reduced = len(self._reduced)
            for names, extent in zip(term.dims, shape, strict=True):
                window = bound.windows.get(names[0]) if len(names) == 1 else None
                begin = len(self._dim_axes)
                self._dim_axes += [axes[window.axis]] if window else [axes[n] for n in names]
                rule = window_row(window, sum(map(len, self._images)))
                if isinstance(window, Image):
                    self._images.append(window.table)
                self._dims.append((begin, len(self._dim_axes), extent, *rule))
            if k in bound.made:
                self._reduced += sorted(axes[a] for a in bound.reduced_axes(bound.made.index(k)))
            self._terms.append((first, len(self._dims), reduced, len(self._reduced)))

    def images(self) -> Array:
        """The tables of all images."""
        return np.concatenate(self._images)

    def tables(self) -> tuple[Array, ...]:
        """As `GraphTables` wants them."""
        return (
            _records(self._bounds, BOUND),
            np.array(self._extents, np.int64),
            _records(self._terms, TERM),
            _records(self._dims, DIMENSION),
            np.array(self._dim_axes, np.int64),
            np.array(self._reduced, np.int64),
        )
