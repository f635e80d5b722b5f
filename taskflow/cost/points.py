"""What points cost that claim items while they run, or go to hosts; points without a cost are refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.core.errors import CostError
from taskflow.machine import MachineModel
from taskflow.tasks.task_graph import Array, TaskGraph


def check_costs(task_graph: TaskGraph, rows: Array, seconds: Array) -> None:
    """Refuse points without a cost."""
    for k in np.flatnonzero(~((seconds >= 0) & (seconds < np.inf)))[:1]:
        raise CostError(
            f"costs: {name_of_point(task_graph, int(rows[k]))} has no cost: {seconds[k]} seconds"
        )


def with_claims(
    find: Callable[[TaskGraph, Array], Array],
    task_graph: TaskGraph,
    rows: Array,
    is_timed_alone: bool,
) -> Array:
    """Seconds of points by `find`; those of an operator whose items are claimed are done when the last one of it is.

    A point has its share of all items, and waits for the longest one, which somebody else may have begun last (Graham,
    "Bounds on multiprocessing timing anomalies", 1969): share + (1 - share) longest of the seconds of all.

    Args:
        find: seconds of points as if they were alone.
        rows: points.
        is_timed_alone: a kernel was timed that claimed all items.
    """
    items = {k: x.kernel.claims for k, x in enumerate(task_graph.launches) if x.kernel.claims}
    if not items:
        return find(task_graph, rows)
    seconds = np.zeros(len(rows))
    launch = task_graph.launch[rows]
    is_asked = ~np.isin(launch, [number for number, claim in items.items() if claim.seconds])
    seconds[is_asked] = find(task_graph, rows[is_asked])
    for number, claim in items.items():
        here = np.flatnonzero(launch == number)
        share = task_graph.flops[rows[here]] / claim.flops
        alone = seconds[here] if is_timed_alone else seconds[here] / share
        seconds[here] = (claim.seconds or alone) * (share + (1 - share) * claim.longest)
    return seconds


def seconds_of_points(
    find: Callable[[TaskGraph, Array], Array],
    task_graph: TaskGraph,
    rows: Array,
    is_timed_alone: bool,
) -> Array:
    """See `with_claims`; what goes to the memory of a host or comes from there takes the seconds of the links."""
    crossing = task_graph.crossing[rows]
    crossed = np.flatnonzero(crossing >= 0)
    if not len(crossed):
        return with_claims(find, task_graph, rows, is_timed_alone)
    seconds = np.empty(len(rows))
    seconds[crossing < 0] = with_claims(find, task_graph, rows[crossing < 0], is_timed_alone)
    way = crossing[crossed], task_graph.device[rows[crossed]]
    ways = task_graph.machine.host_ways
    seconds[crossed] = ways.latency[way] + task_graph.bytes[rows[crossed]] / ways.bandwidth[way]
    return seconds


def rates_to_hosts(machine: MachineModel) -> tuple[Array, Array]:
    """(2, devices) seconds and bytes/s of `HostWays`; zeros where hosts have no memory for it."""
    none = np.zeros((2, len(machine.devices)))
    return machine.host_ways[1:] if machine.memories else (none, none)


def name_of_point(task_graph: TaskGraph, row: int) -> str:
    """How messages call the point of a row."""
    return f"point {task_graph.point[row]} of operator '{task_graph.name(row)}' on device {task_graph.device[row]}"
