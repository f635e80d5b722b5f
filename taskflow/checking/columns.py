"""Columns: numbers that stand for nothing, rows before those that they wait for, and streams of other devices."""

from __future__ import annotations

import numpy as np

from taskflow.checking.rules import PlanError, task_text
from taskflow.core.columns import Array, pointers
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import STREAMS, Kind, TaskGraph


def check_columns(graph: TaskGraph) -> None:
    """Numbers lie in their ranges, and rows wait for earlier ones.

    Raises:
        PlanError: one does not.
    """
    _check_rows(graph)
    _check_numbers(graph)
    for name, ptr, column in (
        ("arguments", graph.arg_ptr, graph.arg_instance),
        ("waits", graph.dep_ptr, graph.dep_row),
    ):
        if (
            len(ptr) != len(graph) + 1
            or ptr[0] != 0
            or ptr[-1] != len(column)
            or np.any(np.diff(ptr) < 0)
        ):
            raise PlanError(f"plan, rule arguments: the {name} of rows do not follow each other")
    waiting = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    if np.any(graph.dep_row >= waiting):
        k = int(np.argmax(graph.dep_row >= waiting))
        row = int(waiting[k])
        other = int(graph.dep_row[k])
        raise PlanError(
            f"plan, rule order: {task_text(graph, row)}: {_first_box(graph, row)}: it stands before "
            f"{task_text(graph, other)}, for which it waits"
        )


def _check_rows(graph: TaskGraph) -> None:
    is_point = graph.kind == Kind.POINT
    devices = len(graph.machine.devices)
    launches = np.where(is_point, 0, -1), np.where(is_point, len(graph.launches), 0)
    regions = np.where(is_point, -1, 0), np.where(is_point, 0, len(graph.regions))
    _check_range(graph.kind, "kind", 0, len(Kind))
    _check_range(graph.launch, "operator", *launches)
    _check_range(graph.region, "region", *regions)
    _check_range(graph.device, "device", 0, devices)
    _check_range(graph.source, "source", 0, devices)


def _check_range(column: Array, name: str, low: Array | int, end: Array | int) -> None:
    numbers = column.astype(np.int64)
    for row in np.flatnonzero((numbers < low) | (numbers >= end)).tolist():
        raise PlanError(
            f"plan, rule arguments: row {row}: its {name} is {numbers[row]}, which stands for nothing"
        )


def _check_numbers(graph: TaskGraph) -> None:
    numbers = (
        ("an argument's instance", graph.arg_instance, -1, len(graph.instance_region)),
        ("an awaited row", graph.dep_row, 0, len(graph)),
        ("an instance's region", graph.instance_region, 0, len(graph.regions)),
        ("an instance's device", graph.instance_device, 0, len(graph.machine.devices)),
    )
    for name, column, least, end in numbers:
        if len(column) and (column.min() < least or column.max() >= end):
            raise PlanError(
                f"plan, rule arguments: {name} is {column.min()} or {column.max()}, not below {end}"
            )


def check_streams(graph: TaskGraph) -> None:
    """Rows are on the streams of their devices: an order of streams is one of what devices do.

    Raises:
        PlanError: a row is not.
    """
    table = StreamTable(graph.machine)
    is_remote = (graph.kind == Kind.COPY) | (graph.kind == Kind.FOLD)
    is_remote &= graph.source != graph.device
    others = graph.streams[:, 1:]
    is_foreign = (others >= 0) & (others < STREAMS * len(graph.machine.devices))
    is_foreign &= ~is_remote[:, None] | (others != table.sending[graph.source][:, None])
    bad = (graph.streams[:, 0] != _first_streams(graph, table, is_remote)) | is_foreign.any(axis=1)
    bad &= graph.kind != Kind.COLLECTIVE
    bad[_misplaced_collectives(graph, table)] = True
    for row in np.flatnonzero(bad).tolist():
        raise PlanError(
            f"plan, rule stream: {task_text(graph, row)}: {_first_box(graph, row)}: it is on other streams than those "
            "of its devices"
        )


def _first_streams(graph: TaskGraph, table: StreamTable, is_remote: Array) -> Array:
    """The first stream of every row but a collective, whose bytes come from another device if it is remote."""
    device = graph.device
    first = np.where(graph.kind == Kind.POINT, table.compute[device], table.within[device])
    first = np.where(graph.kind == Kind.FEED, table.host[device], first)
    crossed = np.flatnonzero(graph.crossing >= 0)
    first[crossed] = table.crossing[graph.crossing[crossed], device[crossed]]
    return np.where(is_remote, table.arriving[device], first)


def _misplaced_collectives(graph: TaskGraph, table: StreamTable) -> list[int]:
    """Collectives that are on other streams than those of their devices; of equal ones the first."""
    first = dict[tuple[int, bytes], int]()
    for row in np.flatnonzero(graph.kind == Kind.COLLECTIVE).tolist():
        group = -2 - int(graph.streams[row, 0])
        first.setdefault((group, _devices_of(graph, row).tobytes()), row)
    return [
        row
        for (group, _), row in first.items()
        if not 0 <= group < len(graph.groups)
        or graph.groups.streams_of(group)
        != table.of_group(table.ring(_devices_of(graph, row))).tolist()
    ]


def _devices_of(graph: TaskGraph, row: int) -> Array:
    """The devices of the arguments of a row."""
    args = slice(graph.arg_ptr[row], graph.arg_ptr[row + 1])
    devices: Array = graph.instance_device[graph.arg_instance[args]]
    return devices


def _first_box(graph: TaskGraph, row: int) -> str:
    """Region and box of the first argument."""
    k = int(graph.arg_ptr[row])
    launch = int(graph.launch[row])
    number = (
        graph.launches[launch].args[0]
        if launch >= 0 and graph.launches[launch].args
        else int(graph.region[row])
    )
    box = graph.args(row)[0][1] if k < int(graph.arg_ptr[row + 1]) else ""
    return f"region '{graph.regions[number].name}' {box}"


def occupied_streams(graph: TaskGraph) -> tuple[Array, Array]:
    """The streams of devices that rows are on, numbered from 0: `stream[ptr[k] : ptr[k + 1]]` for row k.

    A row on links alone has one of its own, or that of a row that it waits for: so nothing but its dependences is said.
    """
    row, stream = graph.occupied()
    is_device = stream < STREAMS * len(graph.machine.devices)
    row = row[is_device]
    stream = stream[is_device]
    alone = np.setdiff1d(np.arange(len(graph)), row)
    row = np.append(row, alone)
    stream = np.append(stream, stream.max(initial=-1) + 1 + _chains(graph, alone))
    by_row = np.argsort(row, kind="stable")
    _, numbers = np.unique(stream[by_row], return_inverse=True)
    return pointers(np.bincount(row, minlength=len(graph))), numbers.astype(np.int64)


def _chains(graph: TaskGraph, rows: Array) -> Array:
    """A number for each of the rows; those with equal numbers wait for each other in turn."""
    number_of: dict[int, int] = {}  # last row of a chain -> its number
    chain = np.zeros(len(rows), np.int64)
    count = 0
    for k, row in enumerate(rows.tolist()):
        before = next((other for other in graph.deps(row) if other in number_of), None)
        chain[k] = count if before is None else number_of.pop(before)
        count += before is None
        number_of[row] = int(chain[k])
    return chain


def dimensions(graph: TaskGraph) -> Array:
    """Dimensions of every instance."""
    dims: Array = np.array([r.ndim for r in graph.regions], np.int64)[graph.instance_region]
    return dims
