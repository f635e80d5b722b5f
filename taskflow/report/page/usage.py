"""Utilisation: what share of a step each device computes, only communicates and idles, and how many do so when."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.grouping import grouped
from taskflow.report.page.shown import LANES, lanes_of
from taskflow.tasks.task_graph import Array, Kind
from taskflow.tasks.timeline import Timeline

COLUMNS = 300  # equal parts of a step


def usage_columns(timeline: Timeline) -> dict[str, Any]:
    """Per device the seconds that it computes, and those in which it communicates and does not compute.

    `computing` and `communicating` are the mean number of devices that do so in each of COLUMNS parts of the step.
    """
    row, lane = lanes_of(timeline.task_graph)
    is_timed = ~np.isnan(timeline.start[row])
    row = row[is_timed]
    device = lane[is_timed] // LANES
    is_point = timeline.task_graph.kind[row] == Kind.POINT
    compute, computing = _usage(timeline, row[is_point], device[is_point])
    _, communicating = _usage(timeline, row[~is_point], device[~is_point])
    return {
        "compute_seconds": compute,
        "communication_seconds": np.subtract(_usage(timeline, row, device)[0], compute).tolist(),
        "computing": np.round(computing, 3).tolist(),
        "communicating": np.round(communicating, 3).tolist(),
    }


def _usage(timeline: Timeline, row: Array, device: Array) -> tuple[list[float], Array]:
    """Per device the seconds in which one of these rows runs; how many devices do so in each part of the step."""
    intervals = [
        _union(timeline.start[rows], timeline.end[rows])
        for rows in _by_device(row, device, len(timeline.task_graph.machine.devices))
    ]
    under_way = _mean_count(
        np.concatenate([start for start, _ in intervals]),
        np.concatenate([end for _, end in intervals]),
        np.linspace(0.0, timeline.seconds, COLUMNS + 1),
    )
    return [float((end - start).sum()) for start, end in intervals], under_way


def _by_device(row: Array, device: Array, devices: int) -> list[Array]:
    ptr, order = grouped(device, devices)
    return [row[order[ptr[k] : ptr[k + 1]]] for k in range(devices)]


def _union(start: Array, end: Array) -> tuple[Array, Array]:
    """Intervals that cover the same and do not overlap."""
    order = np.argsort(start, kind="stable")
    start = start[order]
    end = np.maximum.accumulate(end[order]) if len(end) else end
    is_first = np.ones(len(start), bool)
    is_first[1:] = start[1:] > end[:-1]
    is_last = np.append(is_first[1:], True)[: len(start)]
    return start[is_first], end[is_last]


def _mean_count(start: Array, end: Array, edges: Array) -> Array:
    """How many intervals are under way, on average, between two edges."""
    start = np.sort(start)
    end = np.sort(end)
    passed = _summed(start, edges) - _summed(
        end, edges
    )  # seconds of all intervals before each edge
    width = np.diff(edges)
    mean: Array = np.divide(np.diff(passed), width, out=np.zeros(len(width)), where=width > 0)
    return mean


def _summed(moments: Array, edges: Array) -> Array:
    """Sum over moments of the seconds since then, at each edge."""
    count = np.searchsorted(moments, edges)
    total = np.concatenate([[0.0], np.cumsum(moments)])[count]
    seconds: Array = count * edges - total
    return seconds
