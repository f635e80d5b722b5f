"""Calls: collectives of a library that follow each other and are one call of it (`ncclGroupStart`, `ncclGroupEnd`).

```
 sum a . sum b . sum c      rows that follow each other on every device of the group, bucket_bytes in all at most
 |--- one call ------|      begins when all may begin, is over as a whole, takes what a call of all the bytes takes
```

Takes the rows in their order, so an order decides what is one call (see `schedule.buckets`). Steps of own algorithms
are never one call: who has no library carries the rows out one after the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.core.columns import Array, distinct, pointers
from taskflow.machine.library import LIBRARY
from taskflow.tasks.task_graph import COLLECTIVES, Kind, TaskGraph

TOGETHER = [COLLECTIVES.index(name) for name in ("all-reduce", "reduce-scatter", "all-gather")]


def is_by_library(task_graph: TaskGraph) -> Array:
    """Which rows are collectives that a library carries out by itself: they cannot be spelled out."""
    ways = np.array([*(way.algorithm == LIBRARY for way in task_graph.ways), False])
    by_library: Array = (task_graph.kind == Kind.COLLECTIVE) & ways[task_graph.algorithm.clip(-1)]
    return by_library


def calls_of(task_graph: TaskGraph) -> tuple[Array, Array]:
    """Of every row the first and the last row of its call: itself where it is none, or one alone."""
    first = np.arange(len(task_graph))
    if not task_graph.bucket_bytes:
        return first, first
    before = _before(task_graph)
    size = whole_bytes(task_graph)
    call_bytes = size.copy()
    for row in np.flatnonzero(before >= 0).tolist():
        head = first[before[row]]
        is_full = call_bytes[head] + size[row] > task_graph.bucket_bytes
        if not is_full and not (first[task_graph.deps(row)] == head).any():
            first[row] = head
            call_bytes[head] += size[row]
    last = np.arange(len(task_graph))
    np.maximum.at(last, first, np.arange(len(task_graph)))
    return first, last[first]


def whole_bytes(task_graph: TaskGraph) -> Array:
    """Of every collective the bytes that it sums, or gathers; of other rows 0."""
    graph = task_graph
    size = np.zeros(len(task_graph), np.int64)
    of_region = np.array([(r.itemsize, r.ndim) for r in graph.regions], np.int64)
    at = np.flatnonzero(graph.kind[graph.arg_row] == Kind.COLLECTIVE)
    row = graph.arg_row[at]
    box = graph.arg_box[at]
    itemsize, ndim = of_region[graph.region[row]].T
    extents = box[:, 1] - box[:, 0]
    extents[np.arange(extents.shape[1]) >= ndim[:, None]] = 1
    np.maximum.at(size, row, extents.prod(axis=1) * itemsize)
    return size


def groups_of(task_graph: TaskGraph) -> tuple[Array, list[tuple[int, ...]]]:
    """Of every collective the number of its group, with all its devices; of other rows -1. And the groups."""
    graph = task_graph
    group_of = np.full(len(task_graph), -1)
    numbers = dict[tuple[int, ...], int]()
    for row in np.flatnonzero(graph.kind == Kind.COLLECTIVE).tolist():
        rows, place, by = (
            graph.peers.place(row) if graph.peers else (*graph.with_all_arguments(row), 0)
        )
        group = tuple(d + by for d in rows.groups.devices_of(-2 - int(rows.streams[place, 0])))
        group_of[row] = numbers.setdefault(group, len(numbers))
    return group_of, list(numbers)


def with_calls(task_graph: TaskGraph) -> TaskGraph:
    """The task graph whose calls wait for all that their rows wait for, and are waited for until they are over."""
    first, last = calls_of(task_graph)
    if (first == last).all():
        return task_graph
    rows = len(task_graph)
    waiting = task_graph.waiting_row
    awaited = task_graph.dep_row
    of_calls = first[waiting] * rows + last[awaited]
    key = distinct(np.concatenate([waiting * rows + awaited, of_calls]))
    return replace(
        task_graph, dep_ptr=pointers(np.bincount(key // rows, minlength=rows)), dep_row=key % rows
    )


def _before(task_graph: TaskGraph) -> Array:
    """Of a row that may continue a call the row before on all its devices, one of the same kind and group; else -1."""
    graph = task_graph
    previous = np.full(len(task_graph), -1)
    row, device = _touching(graph)
    order = np.lexsort((row, device))
    row = row[order]
    device = device[order]
    before = np.concatenate([[-1], row[:-1]])
    before[np.flatnonzero(np.diff(device, prepend=-1))] = -1
    least = np.full(len(graph), len(graph))
    most = np.full(len(graph), -1)
    np.minimum.at(least, row, before)
    np.maximum.at(most, row, before)
    may = is_by_library(graph) & np.isin(graph.collective, TOGETHER)
    at = np.flatnonzero(may & (least == most) & may[most])
    kinds = np.stack([graph.collective, groups_of(graph)[0]])
    at = at[(most[at] >= 0) & (kinds[:, at] == kinds[:, most[at]]).all(axis=0)]
    previous[at] = most[at]
    return previous


def _touching(task_graph: TaskGraph) -> tuple[Array, Array]:
    """Rows and the devices that they are on, of those devices of which all rows are there."""
    graph = task_graph
    is_together = task_graph.kind == Kind.COLLECTIVE
    together = np.flatnonzero(is_together)
    alone = np.flatnonzero(~is_together)
    devices = [
        graph.groups.devices_of(group) for group in (-2 - graph.streams[together, 0]).tolist()
    ]
    sent = np.flatnonzero(graph.is_transfer)
    row = np.concatenate([alone, sent, np.repeat(together, [len(members) for members in devices])])
    of_calls = np.array([device for members in devices for device in members], np.int64)
    device = np.concatenate([graph.device[alone], graph.source[sent], of_calls])
    is_there = np.ones(len(graph.machine.devices), np.bool_)
    if graph.peers is not None:
        is_there = graph.peers.orbits.is_first
    elif graph.devices is not None:
        is_there = np.isin(np.arange(len(is_there)), graph.devices)
    kept = is_there[device]
    return row[kept], device[kept]
