"""One step as columns for a page: lanes, tasks, what each waited for, the critical path; and figures of the whole step.

Times are ticks, of which a step has a million; columns that ascend hold differences, which are short in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from taskflow.graph.phases import Phase
from taskflow.report.page.links import link_columns
from taskflow.report.page.memory import memory_columns
from taskflow.report.page.shown import LANES, ShownTasks, choose_tasks, places_of
from taskflow.report.page.usage import usage_columns
from taskflow.tasks.streams import STREAM_NAMES
from taskflow.tasks.task_graph import COLLECTIVES, Array, Kind, TaskGraph
from taskflow.tasks.timeline import Timeline

TICKS = 1_000_000  # of a step
# What a task is, by number: the phases of points, then what moves data.
SORTS = (*(phase.name.lower() for phase in Phase), "communication", "feed")


def step_columns(
    timeline: Timeline, groups: Sequence[str], number: Array, name: str, role: str, most: int
) -> dict[str, Any]:
    """A step for the page.

    Args:
        timeline: predicted or measured.
        groups, number: as `group_rows` gives them.
        name: of the plan, for people.
        role: `plan`, `measured` or `compared`.
        most: tasks to show.
    """
    graph = timeline.task_graph
    shown = choose_tasks(timeline, most)
    return {
        "name": name,
        "role": role,
        "seconds": timeline.seconds,
        "rows": len(graph),
        "bytes_moved": timeline.bytes_moved,
        "class_bytes": timeline.class_bytes(),
        "peak_bytes": [*map(int, timeline.peak_bytes)],
        "memory_bytes": [device.memory_bytes for device in graph.machine.devices],
        "shown_devices": shown.devices.tolist(),
        "lanes": _lane_columns(shown),
        **_task_columns(timeline, shown, groups, number),
        "usage": usage_columns(timeline),
        "memory": memory_columns(timeline),
        "links": link_columns(timeline),
    }


def _lane_columns(shown: ShownTasks) -> dict[str, Any]:
    return {
        "device": (shown.lanes // LANES).tolist(),
        "stream": [STREAM_NAMES[k] for k in (shown.lanes % LANES).tolist()],
        "tasks": [differences(shown.lane_task[a:b]) for a, b in pairwise(shown.lane_ptr.tolist())],
    }


def differences(column: Array) -> list[int]:
    """The first number, then by how much each is more than the one before."""
    rises: list[int] = np.diff(column, prepend=0).astype(np.int64).tolist()
    return rises


def unless_zero(column: Array) -> list[int]:
    """A column; none where all of it is zero."""
    numbers: list[int] = column.tolist() if column.any() else []
    return numbers


def _task_columns(
    timeline: Timeline, shown: ShownTasks, groups: Sequence[str], number: Array
) -> Mapping[str, Any]:
    """`tasks`, a column each; `names`, which they count; `groups` of the strategy that they belong to."""
    graph = timeline.task_graph
    rows = shown.rows
    names, name = _names(timeline, number, rows)
    place = places_of(rows, len(graph))
    source = np.where(graph.source == graph.device, 0, graph.source + 1)  # 0: no other device
    path = place[timeline.critical_path()]
    return {
        "tasks": {
            "start": differences(_ticks(timeline, timeline.start[rows])),
            "length": _ticks(timeline, (timeline.end - timeline.start)[rows]).tolist(),
            "name": name.tolist(),
            "bytes": np.where(graph.kind == Kind.POINT, 0, graph.bytes)[rows].tolist(),
            "device": graph.device[rows].tolist(),
            "source": unless_zero(source[rows]),
            "part": unless_zero(graph.ordinal[rows]),
            "after": _how_far_back(place[timeline.awaited()[rows]]),
        },
        "names": names,
        "groups": [*groups, ""],
        "path": path[path >= 0].tolist(),
    }


def _ticks(timeline: Timeline, seconds: Array) -> Array:
    scale = TICKS / timeline.seconds if timeline.seconds else 0.0
    return np.rint(seconds * scale).astype(np.int64)


def _how_far_back(awaited: Array) -> list[int]:
    """How many places before its own lies the one that is awaited; 0: none is shown."""
    back: list[int] = np.where(awaited < 0, 0, np.arange(len(awaited)) - awaited).tolist()
    return back


def _sorts(timeline: Timeline) -> Array:
    """Per row the number of its sort."""
    graph = timeline.task_graph
    phases = np.array([*(launch.phase for launch in graph.launches), 0], np.int64)[graph.launch]
    moving = np.where(graph.kind == Kind.FEED, SORTS.index("feed"), SORTS.index("communication"))
    sorts: Array = np.where(graph.kind == Kind.POINT, phases, moving)
    return sorts


def _names(timeline: Timeline, number: Array, rows: Array) -> tuple[dict[str, Any], Array]:
    """What the rows are called, with sort and group, each once; and the number of its name for every row."""
    graph = timeline.task_graph
    what = np.where(graph.kind == Kind.POINT, graph.launch, graph.region)
    keys = np.stack([graph.kind, what, graph.collective, _sorts(timeline), number], axis=1)[rows]
    keys[keys[:, 0] == Kind.POINT, 2] = 0
    kinds, name = np.unique(keys, axis=0, return_inverse=True)
    return {
        "text": [_text(graph, *kind) for kind in kinds[:, :3].tolist()],
        "sort": kinds[:, 3].tolist(),
        "group": kinds[:, 4].tolist(),
    }, name.reshape(-1)


def _text(graph: TaskGraph, kind: int, which: int, collective: int) -> str:
    """What rows are called: points of an operator, or what moves a region."""
    if kind == Kind.POINT:
        return graph.launches[which].name
    return f"{COLLECTIVES[collective] or Kind(kind).name.lower()} {graph.regions[which].name}"
