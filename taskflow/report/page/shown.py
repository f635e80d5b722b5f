"""What of a timeline a page shows: lanes, a device times what it does at once, and the tasks in them.

A page of all rows of a thousand devices would be too large to open. So rows are shown device by device, the
telling ones first (that of the critical path, the busiest, the fullest, the idlest), until there are enough; the page
says which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskflow.core.grouping import grouped
from taskflow.tasks.streams import STREAM_NAMES
from taskflow.tasks.task_graph import STREAMS, Array, Kind, TaskGraph
from taskflow.tasks.timeline import Timeline

LANES = len(STREAM_NAMES)  # of a device


@dataclass(frozen=True, eq=False)
class ShownTasks:
    """Lanes and their tasks.

    Attributes:
        devices: that are shown, ascending.
        rows: that are shown, by start.
        lanes: number of a lane, ascending: `LANES * device + k`, where k counts STREAM_NAMES.
        lane_ptr, lane_task: the tasks of lane k are `lane_task[lane_ptr[k] : lane_ptr[k + 1]]`, positions in `rows`.
    """

    devices: Array
    rows: Array
    lanes: Array
    lane_ptr: Array
    lane_task: Array


def choose_tasks(timeline: Timeline, most: int) -> ShownTasks:
    """The tasks to show, not many more than `most`; a task in several lanes counts as several."""
    row, lane = lanes_of(timeline.task_graph)
    is_timed = ~np.isnan(timeline.start[row])
    row = row[is_timed]
    lane = lane[is_timed]
    count = np.bincount(lane // LANES, minlength=len(timeline.task_graph.machine.devices))
    order = _telling(timeline)
    order = order[count[order] > 0]
    enough = int(np.searchsorted(np.cumsum(count[order]), most, side="right"))
    devices = np.sort(order[: max(enough, 1)])
    kept = np.isin(lane // LANES, devices)
    row = row[kept]
    lane = lane[kept]
    if len(row) > most:  # one device alone
        longest = np.argsort(-(timeline.end - timeline.start)[row], kind="stable")[:most]
        row = row[longest]
        lane = lane[longest]
    rows = np.unique(row)
    rows = rows[np.lexsort((rows, timeline.start[rows]))]
    place = np.zeros(len(timeline.start), np.int64)
    place[rows] = np.arange(len(rows))
    lanes, number = np.unique(lane, return_inverse=True)
    task = place[row]
    by_start = np.argsort(task, kind="stable")
    ptr, within = grouped(number.reshape(-1)[by_start], len(lanes))
    return ShownTasks(devices, rows, lanes, ptr, task[by_start][within])


def lanes_of(task_graph: TaskGraph) -> tuple[Array, Array]:
    """Rows and the lanes that they are in, each pair once: those of their streams.

    A link that begins or ends at a device is a lane of it, too: some devices send by links alone.
    """
    machine = task_graph.machine
    devices = len(task_graph.machine.devices)
    row, stream = task_graph.occupied()
    first_link = STREAMS * devices
    of_device = stream < first_link
    parts = [(row[of_device], (stream[of_device] % devices) * LANES + stream[of_device] // devices)]
    ends = np.array(
        [[x if isinstance(x, int) else -1 for x in k.ends] for k in machine.links], np.int64
    ).reshape(-1, 2)
    for end, what in enumerate(("sending", "receiving")):
        device = ends[stream[~of_device] - first_link, end]
        kept = device >= 0
        if machine.devices[0].kind != "cpu":  # the one thread of a CPU device has a stream already
            parts.append((row[~of_device][kept], device[kept] * LANES + STREAM_NAMES.index(what)))
    pairs = np.unique(np.concatenate([np.stack(part, axis=1) for part in parts]), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _telling(timeline: Timeline) -> Array:
    """All devices, those that say most first."""
    graph = timeline.task_graph
    devices = len(timeline.task_graph.machine.devices)
    seconds = np.nan_to_num(timeline.end - timeline.start)
    points = graph.kind == Kind.POINT
    busy = np.bincount(graph.device[points], seconds[points], devices)
    path = np.array(timeline.critical_path(), np.int64)
    on_path = np.bincount(graph.device[path], seconds[path], devices)
    first = [np.argmax(on_path), np.argmax(busy), np.argmax(timeline.peak_bytes), np.argmin(busy)]
    return np.array(list(dict.fromkeys([*map(int, first), *range(devices)])), np.int64)
