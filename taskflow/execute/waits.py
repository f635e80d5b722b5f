"""What rows wait for by what they touch: who wrote what they read, and who wrote or read what they overwrite.

The accesses of a memory are passed in row order. Those are kept that a later one may have to wait for: a write drops
all that it covers, since who comes later waits for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct, pointers
from taskflow.core.compiling import leaf, tiered
from taskflow.tasks.task_graph import Privilege


class Accesses(NamedTuple):
    """What rows access, in row order.

    Attributes:
        row: of every access.
        memory: which memory it is of; what lies in two of them never overlaps.
        box: (accesses, 2, dims) of it; from 0 to 1 in the dimensions that it lacks.
        privilege: see `Privilege`.
    """

    row: Array
    memory: Array
    box: Array
    privilege: Array


def find_dependences(accesses: Accesses, rows: int) -> tuple[Array, Array]:
    """Row k waits for the rows `row[ptr[k] : ptr[k + 1]]`: all of them that no write in between has covered."""
    reads = accesses.privilege != Privilege.WRITE
    which = np.concatenate(
        [np.flatnonzero(reads), np.flatnonzero(accesses.privilege != Privilege.READ)]
    )  # a row reads before it writes
    is_write = np.arange(len(which)) >= reads.sum()
    order = np.lexsort((is_write, accesses.row[which], accesses.memory[which]))
    which = which[order]
    is_write = is_write[order]
    edges = distinct(
        _find_edges(
            accesses.row[which],
            accesses.memory[which],
            np.ascontiguousarray(accesses.box[which]),
            is_write,
            rows,
        )
    )
    return pointers(np.bincount(edges // rows, minlength=rows)), edges % rows


@tiered
def _find_edges(row: Array, memory: Array, box: Array, is_write: Array, rows: int) -> Array:
    """`rows` times a row, plus one for which it waits; some are found several times."""
    count = 0
    edges = np.empty(2 * len(row) + 1, np.int64)
    most = 0
    kept = np.empty(len(row), np.int64)
    for k in range(len(row)):
        if k == 0 or memory[k] != memory[k - 1]:
            most = 0
        if count + most > len(edges):
            edges = np.concatenate((edges, np.empty(len(edges) + most, np.int64)))
        left = 0
        for earlier in kept[:most]:
            matters = (is_write[k] or is_write[earlier]) and row[earlier] != row[k]
            if matters and _is_common(box[k], box[earlier]):
                edges[count] = row[k] * rows + row[earlier]
                count += 1
            if not (is_write[k] and _covers(box[k], box[earlier])):
                kept[left] = earlier
                left += 1
        kept[left] = k
        most = left + 1
    return edges[:count]


@leaf
def _is_common(one: Array, other: Array) -> bool:
    """Whether two boxes overlap."""
    overlaps = True
    for d in range(one.shape[1]):
        overlaps = overlaps and min(one[1, d], other[1, d]) > max(one[0, d], other[0, d])
    return overlaps


@leaf
def _covers(one: Array, other: Array) -> bool:
    """Whether a box has all of another."""
    covers = True
    for d in range(one.shape[1]):
        covers = covers and one[0, d] <= other[0, d] and other[1, d] <= one[1, d]
    return covers
