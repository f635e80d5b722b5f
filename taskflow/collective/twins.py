"""Twins: collective rows that differ in the place of their boxes alone, as those of micro-batches do."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.tasks.task_graph import TaskGraph

ITEMS = 1 << 16  # arguments at a time


def twins(task_graph: TaskGraph, rows: Array) -> tuple[Array, Array, list[bytes]]:
    """The first of every kind of collective rows; of each row its kind, and the place of its boxes.

    Twins have equal devices, privileges, equal instances among theirs, and boxes counted from the lowest corner. That
    corner, and instances counted from the first, are the place.
    """
    many = np.diff(task_graph.arg_ptr)[rows]
    facts = _facts(task_graph, rows)
    numbers = dict[bytes, int]()
    kind = np.empty(len(rows), np.int64)
    first = list[int]()
    parts = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(pointers(many)[1:] // ITEMS)) + 1)
    place = [b""] * len(rows)
    for part in parts:
        keys = dict[int, bytes]()
        for count in np.unique(many[part]).tolist():
            at = part[many[part] == count]
            table, corners = _looks(task_graph, rows[at], facts[at], count)
            keys |= {k: row.tobytes() for k, row in zip(at.tolist(), table, strict=True)}
            for k, corner in zip(at.tolist(), corners, strict=True):
                place[k] = corner.tobytes()
        for k in part.tolist():
            kind[k] = numbers.setdefault(keys[k], len(first))
            if kind[k] == len(first):
                first.append(k)
    return rows[first], kind, place


def _facts(task_graph: TaskGraph, rows: Array) -> Array:
    """(rows, 2) the collective that each is, and the itemsize of its region."""
    regions, of = np.unique(task_graph.region[rows], return_inverse=True)
    itemsize = np.array([task_graph.regions[r].itemsize for r in regions.tolist()], np.int64)
    return np.stack([task_graph.collective[rows], itemsize[of]], axis=1)


def _looks(task_graph: TaskGraph, rows: Array, facts: Array, count: int) -> tuple[Array, Array]:
    """Of rows with so many arguments what twins have in common, and the place of their boxes; a line each."""
    args = task_graph.arg_ptr[rows, None] + np.arange(count)
    instance = task_graph.arg_instance[args]
    box = task_graph.arg_box[args]
    lowest = box[:, :, 0].min(axis=1)
    columns = (
        facts,
        task_graph.instance_device[instance],
        _alike(instance),
        task_graph.instance_partial[instance],
        task_graph.arg_privilege[args],
        (box - lowest[:, None, None]).reshape(len(rows), -1),
    )
    return (
        np.ascontiguousarray(np.concatenate(columns, axis=1)),
        np.concatenate([lowest, instance - instance[:, :1]], axis=1),
    )


def _alike(numbers: Array) -> Array:
    """(rows, n) of every number its rank among the different ones of its row."""
    order = np.argsort(numbers, axis=1, kind="stable")
    ranks = np.empty_like(numbers)
    ascending = np.take_along_axis(numbers, order, axis=1)
    rank = np.cumsum(np.diff(ascending, axis=1, prepend=ascending[:, :1]) != 0, axis=1)
    np.put_along_axis(ranks, order, rank, axis=1)
    return ranks
