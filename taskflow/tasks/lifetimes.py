"""Lifetimes: how long every instance has its bytes.

By row order an instance lives from the first row that uses it to the last. Who takes over its bytes then may have to
wait for rows that run on other streams. A wait-free lifetime is longer, so that nobody waits: it begins when its first
users begin, and ends when its last ones are known to be over, both by the clock of the device, which is how far its own
stream has come. What is over when a row begins follows from dependences and the order of streams, as in a simulation.

Per row and device it is enough to know the last row of the device's stream that is over when the row begins, and the
first one that begins when the row is over (vector clocks: Mattern, "Virtual time and global states", 1989). Most rows
compute on their device after rows of that device alone, and know no more of the others than those: they share a clock.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.core.compiling import tiered
from taskflow.core.grouping import grouped, turned
from taskflow.tasks.calls import calls_of
from taskflow.tasks.reuse import Columns, folded
from taskflow.tasks.streams import follows
from taskflow.tasks.task_graph import STREAMS, Array, TaskGraph

AT_ONCE = 16  # devices of which all clocks are held at a time


def lifetimes_by_order(
    task_graph: TaskGraph, receive: Array, other_uses: Columns
) -> tuple[Array, Array, Array]:
    """First and last row of every instance, and whether it persists.

    `receive` are the rows before which receives are posted, `other_uses` those of `uses_beside`; who is never used
    begins after all rows and ends before.
    """
    count = len(task_graph.instance_region)
    rows = len(task_graph)
    first = np.full(count, rows, np.int64)
    last = np.full(count, -1, np.int64)
    _widen(task_graph.arg_ptr, task_graph.arg_instance, *other_uses, first, last)
    transfers = np.flatnonzero(task_graph.is_transfer)
    np.minimum.at(
        first, task_graph.arg_instance[task_graph.arg_ptr[transfers] + 1], receive[transfers]
    )
    persistent = np.zeros(count, np.bool_)
    for homes in task_graph.homes.values():
        persistent[[i for i, _ in homes]] = True
    fetched = [i for places in task_graph.fetches.values() for _, i, _ in places]
    last[fetched] = rows
    return first, last, persistent


def wait_free_lifetimes(
    task_graph: TaskGraph, first: Array, last: Array, other_uses: Columns
) -> Columns:
    """Those of `lifetimes_by_order`, made wait-free, in half rows: 2k is row k, and 2k + 1 the time until row k + 1."""
    graph = task_graph
    rows = len(task_graph)
    devices = len(task_graph.machine.devices)
    computing = np.where(graph.first_stream < devices, graph.first_stream, -1)
    first = 2 * first
    last = 2 * last
    args = graph.arg_ptr, graph.arg_instance
    row, instance = _used_elsewhere(*args, *other_uses, computing, graph.instance_device)
    device = graph.instance_device[instance]
    ptr, follower = turned(graph.dep_ptr, graph.dep_row, *_next_on_streams(graph))
    begun = _last_over(*turned(ptr, follower), computing, row, device)
    ptr, follower = len(follower) - ptr[::-1], rows - 1 - follower[::-1]  # the same backwards
    heard = _last_over(ptr, follower, computing[::-1].copy(), rows - 1 - row, device)
    heard = rows - 1 - heard
    np.minimum.at(first, instance, np.maximum(2 * begun + 1, 0))
    np.maximum.at(last, instance, 2 * heard - 1)
    return first, last


def uses_beside(task_graph: TaskGraph) -> Columns:
    """Rows and the instances that they use beside their arguments: sources of copies that a fold may read itself.

    What a row of a call uses, the first and the last one do. An instance may be -1.
    """
    graph = task_graph
    (fold, _) = folded(task_graph)
    copies = np.flatnonzero(fold >= 0)
    uses = [(fold[copies], graph.arg_instance[graph.arg_ptr[copies]])]
    if graph.bucket_bytes:
        first, last = calls_of(graph)
        row = graph.arg_row
        called = np.flatnonzero((first < last)[row])
        uses += [(end[row[called]], graph.arg_instance[called]) for end in (first, last)]
    row, instance = (np.concatenate(column) for column in zip(*uses, strict=True))
    return row, instance


@tiered
def _widen(
    ptr: Array, argument: Array, row: Array, instance: Array, first: Array, last: Array
) -> None:
    """Lives from `first` to `last` become as long as uses need: rows of arguments, and pairs of rows and instances."""
    for k in range(len(ptr) - 1):
        for i in argument[ptr[k] : ptr[k + 1]]:
            if i >= 0:
                first[i] = min(first[i], k)
                last[i] = max(last[i], k)
    for k in range(len(row)):
        if instance[k] >= 0:
            first[instance[k]] = min(first[instance[k]], row[k])
            last[instance[k]] = max(last[instance[k]], row[k])


@tiered
def _used_elsewhere(
    ptr: Array, argument: Array, row: Array, instance: Array, computing: Array, device: Array
) -> Columns:
    """The uses by rows that do not compute on the device of the instance; see `_widen`."""
    count = 0
    user = np.empty(len(ptr), np.int64)
    used = np.empty(len(ptr), np.int64)
    for k in range(len(ptr) - 1):
        for i in argument[ptr[k] : ptr[k + 1]]:
            if i >= 0 and device[i] != computing[k]:
                if count == len(user):
                    user = np.concatenate((user, user))
                    used = np.concatenate((used, used))
                user[count] = k
                used[count] = i
                count += 1
    more = np.zeros(len(row), np.bool_)
    for k in range(len(row)):
        more[k] = instance[k] >= 0 and device[instance[k]] != computing[row[k]]
    return (
        np.concatenate((user[:count], row[more])),
        np.concatenate((used[:count], instance[more].astype(np.int64))),
    )


def _next_on_streams(task_graph: TaskGraph) -> Columns:
    """Rows, and the next ones on a stream of a device."""
    streams = task_graph.streams
    occupied = np.flatnonzero(np.bincount(streams[streams >= 0]))
    groups = task_graph.groups.without_twins(occupied)
    row, stream = replace(task_graph, groups=groups).occupied()
    kept = stream < STREAMS * len(task_graph.machine.devices)
    return follows(row[kept], stream[kept])


def _last_over(ptr: Array, awaited: Array, computing: Array, row: Array, device: Array) -> Array:
    """For every pair of a row and a device: the last row of the device's own stream that is over when the row begins.

    Args:
        ptr, awaited: row k waits for the rows `awaited[ptr[k] : ptr[k + 1]]`, all before it.
        computing: the device on whose own stream a row is, -1 for none.
        row, device: the pairs that are asked for.

    Returns:
        numbers of rows, -1 where none is.
    """
    clock, makers = _shared_clocks(ptr, awaited, computing)
    needed = _needed(ptr, awaited, clock, makers, row)
    clock = (np.cumsum(needed) - 1)[clock]
    makers = makers[needed]
    number = np.full(max(computing.max(initial=-1), device.max(initial=-1)) + 2, -1)  # -1: of none
    number[device] = 0
    asked = np.flatnonzero(number == 0)  # those of a rank are few
    number[asked] = np.arange(len(asked))
    place = number[device]
    number = number[np.maximum(computing, -1)]
    last = np.empty(len(row), np.int64)
    count = len(asked)
    first, order = grouped(place, count)
    for low in range(0, count, AT_ONCE):
        here = order[first[low] : first[min(low + AT_ONCE, count)]]
        last[here] = _clocks(ptr, awaited, number, clock, makers, low)[
            clock[row[here]], place[here] - low
        ]
    return last


@tiered
def _shared_clocks(ptr: Array, awaited: Array, computing: Array) -> Columns:
    """The number of the clock of every row, and the first row of every clock.

    Clock 0 is of rows that wait for nothing. A clock says nothing of the device on whose own stream its row is.
    """
    clock = np.zeros(len(computing), np.int64)
    makers = np.zeros(len(computing) + 1, np.int64)
    count = 1
    for row in range(len(computing)):
        is_known = True
        for other in awaited[ptr[row] : ptr[row + 1]]:
            is_known &= computing[other] >= 0 and computing[other] == computing[row]
            clock[row] = max(clock[row], clock[other])  # on one stream clocks only grow
        if not is_known:
            clock[row] = count
            makers[count] = row
            count += 1
    return clock, makers[:count]


@tiered
def _needed(ptr: Array, awaited: Array, clock: Array, makers: Array, row: Array) -> Array:
    """Which clocks are needed for some rows: theirs, those that these come from, and clock 0."""
    needed = np.zeros(len(makers), np.bool_)
    needed[0] = True
    needed[clock[row]] = True
    for k in range(len(makers) - 1, 0, -1):
        if needed[k]:
            needed[clock[awaited[ptr[makers[k]] : ptr[makers[k] + 1]]]] = True
    return needed


@tiered
def _clocks(
    ptr: Array, awaited: Array, computing: Array, clock: Array, makers: Array, low: int
) -> Array:
    """Of every clock, the last rows that are over of AT_ONCE devices from `low` on; -1: none."""
    clocks = np.full((len(makers), AT_ONCE), -1, np.int32)
    held = np.empty(AT_ONCE, np.int32)
    for k in range(1, len(makers)):
        held[:] = -1
        for e in range(ptr[makers[k]], ptr[makers[k] + 1]):
            other = awaited[e]
            passed = clocks[clock[other]]
            for d in range(AT_ONCE):
                held[d] = max(held[d], passed[d])
            if low <= computing[other] < low + AT_ONCE:
                held[computing[other] - low] = max(held[computing[other] - low], other)
        clocks[k] = held
    return clocks
