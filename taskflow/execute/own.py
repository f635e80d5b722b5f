"""The rows of a rank: those that touch the devices of its host, whose memory it may read in place.

Takes a task graph, of all devices or of at least these; gives the same rows on every rank of a host. Rows of different
hosts meet in transfers alone, which both hosts have in the same order: so messages are counted pair by pair of ranks,
and where all ranks stop at one place, that is a number among the rows of all devices (`TaskGraph.numbers`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.comm.transport import Transport
from taskflow.core.columns import pointers, spread
from taskflow.tasks.own import Own
from taskflow.tasks.task_graph import ROW_COLUMNS, Array, Kind, TaskGraph


def rows_of_host(
    task_graph: TaskGraph, transport: Transport, needs_all: bool = False
) -> tuple[TaskGraph, Array]:
    """The rows that touch a device of this rank's host, and which of `task_graph` they are.

    Args:
        task_graph: the rows of all devices, or of some.
        transport: who drives which device on which host.
        needs_all: those of all hosts.

    Raises:
        ValueError: rows of a device are missing, or the rows of some devices are in another order than all rows.
    """
    is_here = devices_of_host(transport, len(task_graph.machine.devices)) | needs_all
    _check(task_graph, is_here)
    kept = _touching(task_graph, is_here)
    if kept.all() and is_here[list(task_graph.devices_used)].all():
        return task_graph, np.arange(len(kept))
    devices = tuple(np.flatnonzero(is_here).tolist())
    return _some_rows(task_graph, kept, devices), np.flatnonzero(kept)


def devices_of_host(transport: Transport, devices: int) -> Array:
    """Of each of so many devices, whether a rank of this rank's host drives it."""
    hosts = np.array(transport.hosts)
    is_here: Array = hosts[transport.ranks_of(devices)] == hosts[transport.rank]
    return is_here


def _check(task_graph: TaskGraph, is_here: Array) -> None:
    """See `rows_of_host`."""
    if task_graph.is_complete:
        return
    used = np.flatnonzero(is_here[list(task_graph.devices_used)])
    given = task_graph.devices or ()
    wanted = np.array(task_graph.devices_used)[used]
    if missing := np.setdiff1d(wanted, given).tolist():
        raise ValueError(
            f"executor: a rank runs the rows of its host's devices {wanted.tolist()}; these are the rows of "
            f"{list(given)} (`lower(devices=)`), which lack device {missing[0]}"
        )
    if np.any(np.diff(task_graph.numbers) < 0):
        raise ValueError(
            "executor: the rows of some devices (`lower(devices=)`) run in the order of all rows"
        )


def _touching(task_graph: TaskGraph, is_here: Array) -> Array:
    """Of every row, whether it has an instance on these devices, or is a point on one."""
    graph = task_graph
    is_touching: Array = (graph.kind == Kind.POINT) & is_here[graph.device]
    row = graph.arg_row
    used = graph.arg_instance >= 0
    is_touching[row[used][is_here[graph.instance_device[graph.arg_instance[used]]]]] = True
    return is_touching


def _some_rows(task_graph: TaskGraph, kept: Array, devices: tuple[int, ...]) -> TaskGraph:
    """The rows that are marked, and what they wait for of each other; all instances stay."""
    graph = task_graph
    new = pointers(kept)
    rows = np.flatnonzero(kept)
    args = np.diff(graph.arg_ptr)[rows]
    waits = np.diff(graph.dep_ptr)[rows]
    arg = spread(graph.arg_ptr[rows], args)
    dep = spread(graph.dep_ptr[rows], waits)
    awaited = graph.dep_row[dep]
    waiting = np.repeat(np.arange(len(rows)), waits)
    is_kept = kept[awaited]
    ownership = graph.own or Own(np.arange(len(graph)))
    return replace(
        graph,
        **{name: getattr(graph, name)[rows] for name in ROW_COLUMNS},
        own=replace(ownership.only(rows), devices=devices),
        arg_ptr=pointers(args),
        arg_instance=graph.arg_instance[arg],
        arg_box=graph.arg_box[arg],
        arg_privilege=graph.arg_privilege[arg],
        dep_ptr=pointers(np.bincount(waiting[is_kept], minlength=len(rows))),
        dep_row=new[awaited[is_kept]],
    )
