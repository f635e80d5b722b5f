"""Where persistent regions live and who fetches outputs on all devices, whichever devices' rows a task graph has."""

from __future__ import annotations

from taskflow.core.geometry import Rect
from taskflow.tasks.task_graph import TaskGraph


def homes_of(task_graph: TaskGraph, name: str) -> tuple[tuple[int, Rect], ...]:
    """Device and box of every home of a region."""
    if task_graph.own and task_graph.own.homes is not None:
        return task_graph.own.homes[name]
    device = task_graph.instance_device
    return tuple((int(device[instance]), box) for instance, box in task_graph.homes[name])


def fetched(task_graph: TaskGraph, name: str) -> tuple[int, tuple[int, ...]]:
    """The region of an output, by number, and the devices that have it."""
    if task_graph.own and task_graph.own.fetches is not None:
        return task_graph.own.fetches[name]
    places = task_graph.fetches[name]
    region = int(task_graph.instance_region[places[0][1]])
    return region, tuple(device for device, _, _ in places)
