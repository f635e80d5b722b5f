"""Memory over time for a page: bytes in use on every device, and what is alive when they are the most."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.graph.phases import Phase
from taskflow.report.page.usage import COLUMNS
from taskflow.tasks.occupancy import bytes_in_use, lives
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph
from taskflow.tasks.timeline import Timeline

MOST_DEVICES = 128  # each takes 2 kB
MOST_ALIVE = 20  # regions by name; the rest is added up
MADE = {
    Phase.FORWARD: "activation",
    Phase.BACKWARD: "gradient of an activation",
    Phase.WEIGHT: "gradient of a parameter",
    Phase.UPDATE: "value of an update",
}
CLASSES = "parameter", "state", "input", *MADE.values()


def memory_columns(timeline: Timeline) -> dict[str, Any]:
    """Per device the most bytes in use in each part of the step, when they are the most, and what is alive then.

    `devices` are those that the columns are of: the fullest, where there are many.
    """
    graph = timeline.task_graph
    lived = lives(graph, timeline.start, timeline.end)
    changes = bytes_in_use(graph, *lived)
    fullest = sorted(range(len(changes)), key=lambda k: -int(changes[k][1].max(initial=0)))
    devices = sorted(fullest[:MOST_DEVICES])
    peaks = [_peak(*changes[device]) for device in devices]
    return {
        "devices": devices,
        "in_use_kib": [
            (_most_between(*changes[device], timeline.seconds) >> 10).tolist() for device in devices
        ],
        "peak_seconds": [peak[0] for peak in peaks],
        "peak_in_use_bytes": [peak[1] for peak in peaks],
        "alive": _alive_at(graph, lived, devices, [peak[0] for peak in peaks]),
    }


def _peak(seconds: Array, held: Array) -> tuple[float, int]:
    """When the bytes in use are the most, and how many."""
    if not len(held):
        return 0.0, 0
    top = int(np.argmax(held))
    return float(seconds[top]), int(held[top])


def _most_between(seconds: Array, held: Array, end: float) -> Array:
    """The most bytes in use in every part of a step that ends then."""
    edges = np.linspace(0.0, end, COLUMNS + 1)
    most = np.zeros(COLUMNS, np.int64)
    if not len(held):
        return most
    before = np.searchsorted(seconds, edges[:-1], side="right") - 1
    most = np.where(before >= 0, held[before], 0)
    part = np.clip(np.searchsorted(edges, seconds, side="right") - 1, 0, len(most) - 1)
    np.maximum.at(most, part, held)
    return most


def _alive_at(
    graph: TaskGraph, lived: tuple[Array, Array], devices: list[int], moments: list[float]
) -> list[dict[str, Any]]:
    """What is alive on each device at its moment."""
    classes = _classes(graph)
    sizes = graph.instance_bytes()
    return [
        _alive(
            graph,
            np.flatnonzero(
                (graph.instance_device == device) & (lived[0] <= moment) & (lived[1] > moment)
            ),
            sizes,
            classes,
        )
        for device, moment in zip(devices, moments, strict=True)
    ]


def _classes(graph: TaskGraph) -> list[str]:
    """What every region is for: its role, or what the phase of the operator that makes it makes."""
    row = graph.arg_row
    is_made = (
        (graph.kind[row] == Kind.POINT)
        & (graph.arg_privilege != Privilege.READ)
        & (graph.arg_instance >= 0)
    )
    phase = np.array([*(launch.phase for launch in graph.launches), 0], np.int64)[
        graph.launch[row[is_made]]
    ]
    of_region = np.full(len(graph.regions), int(Phase.FORWARD))
    np.maximum.at(of_region, graph.instance_region[graph.arg_instance[is_made]], phase)
    pairs = zip(graph.regions, of_region.tolist(), strict=True)
    return [
        region.role if region.role != "value" else MADE[Phase(phase)] for region, phase in pairs
    ]


def _alive(graph: TaskGraph, instances: Array, sizes: Array, classes: list[str]) -> dict[str, Any]:
    """Regions and their bytes, the largest first; bytes by class; what is not named."""
    total = np.bincount(
        graph.instance_region[instances], sizes[instances], len(graph.regions)
    ).astype(np.int64)
    named = [int(k) for k in np.argsort(-total, kind="stable")[:MOST_ALIVE] if total[k]]
    by_class = dict.fromkeys(CLASSES, 0)
    for k in np.flatnonzero(total).tolist():
        by_class[classes[k]] += int(total[k])
    return {
        "name": [graph.regions[k].name for k in named],
        "class": [classes[k] for k in named],
        "bytes": [int(total[k]) for k in named],
        "others": int(np.count_nonzero(total)) - len(named),
        "others_bytes": int(total.sum() - total[named].sum()),
        "by_class": {name: by_class[name] for name in CLASSES if by_class[name]},
    }
