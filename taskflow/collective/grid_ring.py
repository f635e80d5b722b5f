"""Rings of a grid, in four streams: a quarter of every piece each goes right then down, left then up, down then right,
up then left. On a torus all links carry as much at all times, which is the least that any algorithm can do there.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of

_STREAMS = ((1, 0), (-1, 0), (1, 1), (-1, 1))  # direction, and the axis that comes first


def grid_ring(group: Group, owners: Array) -> Steps:
    """The members stand row by row in the grid that is the nearest to a square."""
    rows = next(r for r in range(int(group.count**0.5), 0, -1) if group.count % r == 0)
    extent = (rows, group.count // rows)
    owner = list[Array]()
    messages = list[list[Array]]()
    for stream, (direction, axis) in enumerate(_STREAMS):
        place = owners % extent[1], owners // extent[1]  # along a row, along a column
        # what comes along together stands together
        order = np.lexsort((place[axis], place[1 - axis]))
        owner.append(owners[order])
        piece = stream * len(owners) + np.arange(len(owners))
        start = place[axis][order], place[1 - axis][order]
        messages += _two_ways(start, piece, extent, direction, axis)
    columns = (np.concatenate(column) for column in zip(*messages, strict=True))
    return steps_of(np.concatenate(owner), *columns)


def _two_ways(
    start: tuple[Array, Array], piece: Array, extent: tuple[int, int], direction: int, axis: int
) -> list[list[Array]]:
    """Columns of the messages of a stream: along the axis that comes first, then across it; `start`: of the pieces."""
    (first, other) = start
    inner = extent[1 - axis]
    outer = extent[axis]
    k = np.arange(inner - 1)[:, None]
    along = ((first + direction * (k + turn)) % inner for turn in (0, 1))
    messages = [_columns(k, *(_member(at, other, axis, extent[1]) for at in along), piece)]
    at = (first + direction * np.arange(inner)[:, None]) % inner
    k = np.arange(outer - 1)[:, None, None]
    across = ((other + direction * (k + turn)) % outer for turn in (0, 1))
    ends = (_member(at, to, axis, extent[1]) for to in across)
    return [*messages, _columns(inner - 1 + k, *ends, piece)]


def _member(first: Array, second: Array, axis: int, width: int) -> Array:
    """The member at a place; `first` is along a row for axis 0, along a column for axis 1."""
    column, row = (first, second) if axis == 0 else (second, first)
    return row * width + column


def _columns(*columns: Array) -> list[Array]:
    return [column.ravel() for column in np.broadcast_arrays(*columns)]
