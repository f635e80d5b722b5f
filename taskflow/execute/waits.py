"""What rows wait for by what they touch: who wrote what they read, and who wrote or read what they overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, distinct, pointers
from taskflow.tasks.task_graph import Privilege

_MOST_PAIRS = 1 << 20  # that are compared at once, where several memories can be


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
    found = [np.zeros(0, np.int64)]
    reads, writes = accesses.privilege != Privilege.WRITE, accesses.privilege != Privilege.READ
    which = np.concatenate(
        [np.flatnonzero(reads), np.flatnonzero(writes)]
    )  # a row reads before it writes
    is_write = np.arange(len(which)) >= reads.sum()
    order = np.lexsort((is_write, accesses.row[which], accesses.memory[which]))
    which, is_write = which[order], is_write[order]
    row, box = accesses.row[which], accesses.box[which]
    for later, earlier in _pairs(accesses.memory[which]):
        matters = is_write[later] | is_write[earlier]
        later, earlier = later[matters], earlier[matters]
        (low, high), (other_low, other_high) = (
            box[later].swapaxes(0, 1),
            box[earlier].swapaxes(0, 1),
        )
        is_common = (np.minimum(high, other_high) > np.maximum(low, other_low)).all(axis=1)
        covers = is_write[later] & ((low <= other_low) & (high >= other_high)).all(axis=1)
        covered = np.full(len(row), len(row))
        np.minimum.at(covered, earlier[covers], later[covers])
        waits = is_common & (later <= covered[earlier]) & (row[later] != row[earlier])
        found.append(row[later[waits]] * rows + row[earlier[waits]])
    edges = distinct(np.concatenate(found))
    return pointers(np.bincount(edges // rows, minlength=rows)), edges % rows


def _pairs(memory: Array) -> Iterator[tuple[Array, Array]]:
    """Every two accesses of one memory, the later and the earlier one; `memory` of each, in order."""
    first = np.flatnonzero(np.diff(memory, prepend=-1))
    size = np.diff(first, append=len(memory))
    before = np.arange(len(memory)) - np.repeat(first, size)
    part = np.repeat(np.cumsum(size * size) // (2 * _MOST_PAIRS), size)  # a memory is not divided
    for at in np.split(np.arange(len(memory)), np.flatnonzero(np.diff(part)) + 1):
        later = np.repeat(at, before[at])
        end = np.cumsum(before[at])
        yield later, later - 1 - (np.arange(len(later)) - np.repeat(end - before[at], before[at]))
