"""Lifetimes: how long every instance has its bytes.

By row order an instance lives from the first row that uses it to the last. Who takes over its bytes then may have to
wait for rows that run on other streams. A wait-free lifetime is longer, so that nobody waits: it begins when its first
users begin, and ends when its last ones are known to be over, both by the clock of the device, which is how far its own
stream has come. What is over when a row begins follows from dependences and the order of streams, as in a simulation.

Per row and device it is enough to know the last row of the device's stream that is over when the row begins, and the
first one that begins when the row is over (vector clocks: Mattern, "Virtual time and global states", 1989).
"""

from __future__ import annotations

import numpy as np

from taskflow.core.compiling import njit
from taskflow.tasks.reuse import Columns, folded
from taskflow.tasks.task_graph import STREAMS, Array, TaskGraph

DEVICES_AT_ONCE = 16  # whose clocks are held at a time, for all rows


def lifetimes_by_order(task_graph: TaskGraph, receive: Array) -> tuple[Array, Array, Array]:
    """First and last row of every instance, and whether it persists.

    `receive` are the rows before which receives are posted; who is never used begins after all rows and ends before.
    """
    count, rows = len(task_graph.instance_region), len(task_graph)
    first, last = np.full(count, rows, np.int64), np.full(count, -1, np.int64)
    row, instance = _uses(task_graph)
    np.minimum.at(first, instance, row)
    np.maximum.at(last, instance, row)
    transfers = np.flatnonzero(task_graph.is_transfer)
    np.minimum.at(first, task_graph.arg_instance[task_graph.arg_ptr[transfers] + 1], receive[transfers])
    persistent = np.zeros(count, np.bool_)
    for homes in task_graph.homes.values():
        persistent[[i for i, _ in homes]] = True
    fetched = [i for places in task_graph.fetches.values() for _, i, _ in places]
    last[fetched] = rows
    return first, last, persistent


def wait_free_lifetimes(task_graph: TaskGraph, first: Array, last: Array) -> Columns:
    """Those of `lifetimes_by_order`, made wait-free, in half rows: 2k is row k, and 2k + 1 the time until row k + 1."""
    graph, devices = task_graph, len(task_graph.machine.devices)
    edges, own = _edges(graph), np.where(graph.streams[:, 0] < devices, graph.streams[:, 0], -1)
    row, instance = _uses(graph)
    device, first, last = graph.instance_device[instance], 2 * first, 2 * last
    for low in range(0, devices, DEVICES_AT_ONCE):
        begun, heard = _clocks(*edges, own, low, DEVICES_AT_ONCE)
        here = np.flatnonzero((device >= low) & (device < low + DEVICES_AT_ONCE))
        used, k, is_own = instance[here], row[here], own[row[here]] == device[here]
        clock = k, device[here] - low
        np.minimum.at(first, used, np.where(is_own, 2 * k, np.maximum(2 * begun[clock] + 1, 0)))
        np.maximum.at(last, used, np.where(is_own, 2 * k, 2 * heard[clock] - 1))
    return first, last


def _uses(task_graph: TaskGraph) -> Columns:
    """Rows and the instances that they use: arguments, and sources of copies that a fold may read itself."""
    graph, (fold, _) = task_graph, folded(task_graph)
    copies = np.flatnonzero(fold >= 0)
    rows = np.concatenate([np.repeat(np.arange(len(graph)), np.diff(graph.arg_ptr)), fold[copies]])
    instances = np.concatenate([graph.arg_instance, graph.arg_instance[graph.arg_ptr[copies]]])
    return rows[instances >= 0], instances[instances >= 0]


def _edges(task_graph: TaskGraph) -> Columns:
    """Rows in their order, and a row that each waits for: one it depends on, or the one before it on a stream."""
    row, stream = task_graph.occupied()
    row, stream = (column[stream < STREAMS * len(task_graph.machine.devices)] for column in (row, stream))
    order = np.lexsort((row, stream))
    row, is_next = row[order], np.diff(stream[order]) == 0
    waiting = np.concatenate([np.repeat(np.arange(len(task_graph)), np.diff(task_graph.dep_ptr)), row[1:][is_next]])
    awaited = np.concatenate([task_graph.dep_row, row[:-1][is_next]])
    order = np.argsort(waiting, kind="stable")
    return waiting[order], awaited[order]


@njit
def _clocks(waiting: Array, awaited: Array, own: Array, low: int, count: int) -> Columns:
    """Per row and device, of `count` from `low` on: the last row of its stream that is over when the row begins (-1).

    And the first one that begins when the row is over (the number of rows). `own`: the device whose stream a row is on.
    """
    rows = len(own)
    begun, heard = np.full((rows, count), -1, np.int32), np.full((rows, count), rows, np.int32)
    for e in range(len(waiting)):
        row, before = waiting[e], awaited[e]
        for d in range(count):
            begun[row, d] = max(begun[row, d], begun[before, d])
        if low <= own[before] < low + count:
            begun[row, own[before] - low] = max(begun[row, own[before] - low], before)
    for e in range(len(waiting) - 1, -1, -1):
        row, before = waiting[e], awaited[e]
        for d in range(count):
            heard[before, d] = min(heard[before, d], heard[row, d])
        if low <= own[row] < low + count:
            heard[before, own[row] - low] = min(heard[before, own[row] - low], row)
    return begun, heard
