"""What of a timeline a page shows: lanes, a device times what it does at once, and the tasks in them.

A page of all rows of a thousand devices would be too large to open. So rows are shown device by device, the
telling ones first (that of the critical path, the busiest, the fullest, the idlest), until there are enough; the page
says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taskflow.core.grouping import grouped
from taskflow.machine import MachineModel
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
    devices = _shown_devices(timeline, lane[is_timed] // LANES, most)
    shown = np.flatnonzero(is_timed & np.isin(lane // LANES, devices))
    if len(shown) > most:  # one device alone
        seconds = (timeline.end - timeline.start)[row[shown]]
        shown = shown[np.argsort(-seconds, kind="stable")[:most]]
    shown = shown[np.lexsort((row[shown], timeline.start[row[shown]]))]
    return _in_lanes(timeline, devices, row[shown], lane[shown])


def _shown_devices(timeline: Timeline, device: Array, most: int) -> Array:
    """The devices to show, ascending, where these are the devices of all tasks."""
    count = np.bincount(device, minlength=len(timeline.task_graph.machine.devices))
    order = _telling(timeline)
    order = order[count[order] > 0]
    enough = int(np.searchsorted(np.cumsum(count[order]), most, side="right"))
    return np.sort(order[: max(enough, 1)])


def _in_lanes(timeline: Timeline, devices: Array, row: Array, lane: Array) -> ShownTasks:
    """Rows in the order of their starts, and the lanes that they are in."""
    rows = np.unique(row)
    rows = rows[np.lexsort((rows, timeline.start[rows]))]
    lanes, number = np.unique(lane, return_inverse=True)
    ptr, within = grouped(number.reshape(-1), len(lanes))
    return ShownTasks(devices, rows, lanes, ptr, places_of(rows, len(timeline.start))[row[within]])


def places_of(rows: Array, count: int) -> Array:
    """Of each of so many rows its place among some, -1 if it is none of them; behind them -1, for none."""
    place = np.full(count + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return place


def lanes_of(task_graph: TaskGraph) -> tuple[Array, Array]:
    """Rows and the lanes that they are in, each pair once: those of their streams.

    A link that begins or ends at a device is a lane of it, too: some devices send by links alone.
    """
    devices = task_graph.machine.devices
    row, stream = task_graph.occupied()
    link = stream - STREAMS * len(devices)
    on_device = link < 0
    lane = stream % len(devices) * LANES + stream // len(devices)
    parts = [(row[on_device], lane[on_device])]
    if devices[0].kind != "cpu":  # the one thread of a CPU device has a stream already
        parts += _lanes_of_links(task_graph.machine, row[~on_device], link[~on_device])
    pairs = np.unique(np.concatenate([*map(np.column_stack, parts)]), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _lanes_of_links(
    machine: MachineModel, row: Array, link: Array
) -> Iterator[tuple[Array, Array]]:
    ends = [[x if isinstance(x, int) else -1 for x in k.ends] for k in machine.links]
    devices = np.array(ends, np.int64).reshape(-1, 2)[link]
    for end, what in enumerate(("sending", "receiving")):
        is_device = devices[:, end] >= 0
        yield row[is_device], devices[is_device, end] * LANES + STREAM_NAMES.index(what)


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
