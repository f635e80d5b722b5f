"""Buckets: collectives that may wait for each other are put together in an order, so that they are one call.

```
 gathers of a layer leave with the first:   gather q . q . gather k . k    ->  gather q, k . q . k
 sums of gradients wait for the last:       dk . sum dk . dq . sum dq      ->  dk . dq . sum dk, dq
```

A bucket holds at most `TaskGraph.bucket_bytes` of one kind of collective in one group of devices. None of it waits for
another one, on whatever way. Where the parameters of a layer are gathered, its gradients are a bucket of their own, as
the units of FSDP are; else buckets are filled across layers, as those of DDP (Li et al., "PyTorch Distributed:
Experiences on accelerating data parallel training", VLDB 2020). `tasks.calls` finds what an order has put together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered
from taskflow.graph.phases import Phase
from taskflow.schedule.put_off import gathers, layer_of, no_earlier, no_later
from taskflow.tasks.calls import TOGETHER, groups_of, is_by_library, whole_bytes
from taskflow.tasks.task_graph import COLLECTIVES, Kind, TaskGraph

ALL_GATHER = COLLECTIVES.index("all-gather")


def in_buckets(task_graph: TaskGraph, order: Array) -> Array:
    """The order in which buckets are together.

    Args:
        task_graph: the rows.
        order: row numbers in issue order.
    """
    graph = task_graph
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    may = is_by_library(graph) & np.isin(graph.collective, TOGETHER)
    gathering = gathers(graph, position)
    gathering = gathering.only(may[gathering.row] & (graph.collective[gathering.row] == ALL_GATHER))
    summed = np.flatnonzero(may & _are_gradients(graph))
    is_member = np.zeros(len(graph), np.bool_)
    is_member[gathering.row] = is_member[summed] = True
    level = _levels(graph.dep_ptr, graph.dep_row, is_member)
    phase = np.array([launch.phase > Phase.FORWARD for launch in graph.launches])
    layers = _layers(graph)
    reader = gathering.reader
    unit = layers[graph.launch[reader]]
    made = layers[_makers(graph, summed)]
    keys = unit, phase[graph.launch[reader]], graph.ordinal[reader]
    position = _moved(graph, position, gathering.row, (*keys, level[gathering.row]), no_later)
    made = np.where(np.isin(made, unit), made, -1)
    keys = made, graph.collective[summed], graph.ordinal[summed]
    position = _moved(graph, position, summed, (*keys, level[summed]), no_earlier)
    bucketed: Array = np.argsort(position)
    return bucketed


def _layers(task_graph: TaskGraph) -> Array:
    """Per launch the number of its layer; the last one is that of no launch."""
    names = [layer_of(launch) for launch in task_graph.launches]
    number = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.array([*(number[name] for name in names), -1])


def _makers(task_graph: TaskGraph, rows: Array) -> Array:
    """Per row the launch of the last point that it waits for; -1: it waits for none."""
    latest = np.full(len(task_graph), -1)
    waiting = task_graph.waiting_row
    awaited = task_graph.dep_row
    is_point = task_graph.kind[awaited] == Kind.POINT
    np.maximum.at(latest, waiting[is_point], awaited[is_point])
    return np.where(latest[rows] >= 0, task_graph.launch[latest[rows]], -1)


def _moved(
    task_graph: TaskGraph,
    position: Array,
    rows: Array,
    keys: tuple[Array, ...],
    follow: Callable[[Array, Array, Array], None],
) -> Array:
    """Positions in which rows of equal keys in one group are together, as far as they fit into a bucket.

    `follow` is `no_later`: they are where the first is, and what they wait for is right before them; or `no_earlier`:
    they are where the last is, and what waits for them is right behind.
    """
    if not len(rows):
        return position
    rows, anchors = _anchors(task_graph, position, rows, keys, follow is no_later)
    wanted = position.copy()
    wanted[rows] = position[anchors]
    place = wanted.copy()
    follow(task_graph.dep_ptr, task_graph.dep_row, place)
    moved = np.empty_like(position)
    moved[np.lexsort((position, np.sign(place - wanted), place))] = np.arange(len(position))
    return moved


def _anchors(
    task_graph: TaskGraph,
    position: Array,
    rows: Array,
    keys: tuple[Array, ...],
    is_first: bool,
) -> tuple[Array, Array]:
    """The rows by their buckets, and for each the first or the last of its bucket."""
    keys = (groups_of(task_graph)[0][rows], *keys)
    order = np.lexsort((position[rows], *keys))
    rows = rows[order]
    bucket = _fill(
        np.stack([key[order] for key in keys]),
        whole_bytes(task_graph)[rows],
        task_graph.bucket_bytes,
    )
    ends = np.flatnonzero(np.diff(bucket, prepend=-1, append=-1))
    return rows, rows[ends[:-1] if is_first else ends[1:] - 1][bucket]


@tiered
def _fill(keys: Array, size: Array, most: int) -> Array:
    """The bucket of every column of keys; columns follow each other, and a bucket has `most` bytes or one member."""
    bucket = np.zeros(len(size), np.int64)
    held = 0
    for k in range(len(size)):
        is_new = k > 0 and ((keys[:, k] != keys[:, k - 1]).any() or held + size[k] > most)
        bucket[k] = bucket[k - 1] + is_new if k > 0 else 0
        held = size[k] if is_new else held + size[k]
    return bucket


def _are_gradients(task_graph: TaskGraph) -> Array:
    """Of which rows all that comes is read by updates alone."""
    is_point = task_graph.kind == Kind.POINT
    phase = [launch.phase for launch in task_graph.launches]
    is_update = is_point & (np.array([*phase, Phase.FORWARD])[task_graph.launch] == Phase.UPDATE)
    return _read_late(task_graph.dep_ptr, task_graph.dep_row, is_point, is_update)


@tiered
def _read_late(ptr: Array, awaited: Array, is_point: Array, is_update: Array) -> Array:
    """See `_are_gradients`; rows that move data hand on what reads them."""
    is_read = np.zeros(len(is_point), np.bool_)
    is_early = np.zeros(len(is_point), np.bool_)
    for row in range(len(is_point) - 1, -1, -1):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            is_read[before] |= is_update[row] if is_point[row] else is_read[row]
            is_early[before] |= not is_update[row] if is_point[row] else is_early[row]
    return is_read & ~is_early


@tiered
def _levels(ptr: Array, awaited: Array, is_member: Array) -> Array:
    """Per row the most members on a way to it: between rows of one level that are members there is no way."""
    level = np.zeros(len(is_member), np.int64)
    for row in range(len(level)):
        for before in awaited[ptr[row] : ptr[row + 1]]:
            level[row] = max(level[row], level[before] + is_member[before])
    return level
