"""An agenda: rows by the moment of their next event, compiled by numba; a heap in which every row knows its place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf

NONE = -1


class Agenda(NamedTuple):
    """Rows by the moment of their next event: a heap.

    Attributes:
        moment, row: of every place in the heap.
        place: of every row; NONE if it has no event.
        size: number of places in use.
    """

    moment: Array
    row: Array
    place: Array
    size: Array


@leaf
def put(a: Agenda, row: int, moment: float) -> None:
    """The next event of a row is at this moment."""
    at = a.place[row]
    if at == NONE:
        at = a.size[0]
        a.size[0] += 1
        a.moment[at] = np.inf
    _sift(a, row, moment, at)


@leaf
def pop(a: Agenda) -> int:
    """Take the row out whose event is next."""
    row: int = a.row[0]
    a.place[row] = NONE
    a.size[0] -= 1
    if a.size[0]:
        last = a.size[0]
        _sift(a, a.row[last], a.moment[last], 0)
    return row


@leaf
def _sift(a: Agenda, row: int, moment: float, at: int) -> None:
    """Bring a row to its place in the heap, from `at`, which is free, up or down."""
    while at and a.moment[(at - 1) // 2] > moment:
        _move(a, (at - 1) // 2, at)
        at = (at - 1) // 2
    while 2 * at + 1 < a.size[0]:
        child = 2 * at + 1
        if child + 1 < a.size[0] and a.moment[child + 1] < a.moment[child]:
            child += 1
        if a.moment[child] >= moment:
            break
        _move(a, child, at)
        at = child
    a.moment[at] = moment
    a.row[at] = row
    a.place[row] = at


@leaf
def _move(a: Agenda, at: int, to: int) -> None:
    a.moment[to], a.row[to] = a.moment[at], a.row[at]
    a.place[a.row[to]] = to
