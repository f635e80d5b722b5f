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
    begin, finish = lives(graph, timeline.start, timeline.end)
    edges = np.linspace(0.0, timeline.seconds, COLUMNS + 1)
    sizes = graph.instance_bytes()
    classes = _classes(graph)
    in_use = []
    at = []
    most = []
    alive = []
    changes = bytes_in_use(graph, begin, finish)
    fullest = np.argsort([-int(held.max(initial=0)) for _, held in changes], kind="stable")
    devices = sorted(fullest[:MOST_DEVICES].tolist())
    for device, (seconds, held) in ((device, changes[device]) for device in devices):
        top = int(np.argmax(held)) if len(held) else 0
        moment = float(seconds[top]) if len(held) else 0.0
        in_use.append((_most_between(seconds, held, edges) >> 10).tolist())
        at.append(moment)
        most.append(int(held[top]) if len(held) else 0)
        instances = np.flatnonzero(
            (graph.instance_device == device) & (begin <= moment) & (finish > moment)
        )
        alive.append(_alive(graph, instances, sizes, classes))
    return {
        "devices": devices,
        "in_use_kib": in_use,
        "peak_seconds": at,
        "peak_in_use_bytes": most,
        "alive": alive,
    }


def _most_between(seconds: Array, held: Array, edges: Array) -> Array:
    """The most bytes in use between two edges."""
    most = np.zeros(len(edges) - 1, np.int64)
    if not len(held):
        return most
    before = np.searchsorted(seconds, edges[:-1], side="right") - 1
    most = np.where(before >= 0, held[before], 0)
    part = np.clip(np.searchsorted(edges, seconds, side="right") - 1, 0, len(most) - 1)
    np.maximum.at(most, part, held)
    return most


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
    order = np.argsort(-total, kind="stable")
    named = [int(k) for k in order[:MOST_ALIVE] if total[k]]
    by_class = dict.fromkeys(CLASSES, 0)
    for region in np.flatnonzero(total).tolist():
        by_class[classes[region]] += int(total[region])
    return {
        "name": [graph.regions[k].name for k in named],
        "class": [classes[k] for k in named],
        "bytes": [int(total[k]) for k in named],
        "others": int(np.count_nonzero(total)) - len(named),
        "others_bytes": int(total.sum() - total[named].sum()),
        "by_class": {name: size for name, size in by_class.items() if size},
    }
