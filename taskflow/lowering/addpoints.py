"""Adding the points of operators to a store, compiled by numba; see `pointstore`."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf, njit
from taskflow.lowering.boxes import border
from taskflow.lowering.pointtable import BOX, COLOUR, DEVICE, FAULT, FITS, MODEL, PARTIAL, RECORD, Kinds, PointTable
from taskflow.strategy.grid import make_points, volume


@njit
def add_points(
    kinds: Any, models: Any, names: Any, parts: Any, borders: Any, devices: Any, distinct: Any, tables: Any, store: Any
) -> tuple[int, int]:
    """Append the points of operators of some kinds under one configuration.

    Args:
        kinds, models: of every operator; the model is the number of points to be copied, -1: none.
        names, parts: per axis of the configuration, its name by number and its number of parts.
        borders: (operators, axes of the configuration, parts + 1) of the parts; none: they are balanced.
        devices: of every point of the configuration, row-major.
        distinct: those that are different, in order of appearance.
        tables, store: `Kinds` and `PointTable` as plain tuples.

    Returns:
        Of how many operators points were added, and FITS, the column that has too little room, or FAULT: a group that
        is not contiguous.
    """
    k, t = Kinds(*tables), PointTable(*store)
    for i in range(len(kinds)):
        if models[i] >= 0:
            found = add_like(models[i], distinct, t)
        else:
            axis, cut = split_axes(kinds[i], names, parts, k)
            found = add_kind(kinds[i], axis, parts, borders[i] if len(borders) else cut, devices, distinct, k, t)
        if found != FITS:
            return i, found
    return len(kinds), FITS


@leaf
def add_like(model: int, distinct: Any, t: PointTable) -> int:
    """Append the points of a model on other devices: FITS; else nothing is appended."""
    old, new, number = t.record[model], t.length[DEVICE], t.length[RECORD]
    count = old.points
    if new + count > len(t.device):
        return DEVICE
    if number >= len(t.record):
        return RECORD
    for i in range(count):
        t.device[new + i] = distinct[t.device_rank[old.first_model + i]]
    t.record[number] = old
    t.record[number].first_device = new
    t.length[DEVICE], t.length[RECORD] = new + count, number + 1
    return FITS


@inner
def split_axes(kind: int, names: Any, parts: Any, k: Kinds) -> tuple[Any, Any]:
    """The operator's own axis for each axis of a configuration, -1: makes replicas; and borders of balanced parts."""
    axis, cut = np.empty(len(names), np.int64), np.zeros((len(names), parts.max() + 1 if len(parts) else 1), np.int64)
    for j in range(len(names)):
        axis[j] = k.axis[kind, names[j]] if parts[j] > 1 else -1
        if axis[j] >= 0:
            extent = k.extents[k.first[kind, 0] + axis[j]]
            for part in range(parts[j] + 1):
                cut[j, part] = border(extent, parts[j], part)
    return axis, cut


@inner
def add_kind(
    kind: int, axis: Any, parts: Any, borders: Any, devices: Any, distinct: Any, k: Kinds, t: PointTable
) -> int:  # fmt: skip
    """Append the points of an operator: FITS; else nothing is appended. Arguments as for `add_points`, of one."""
    a, b = k.first[kind], k.first[kind + 1]
    axes, dims, arguments, term = b[0] - a[0], b[3] - a[3], b[5] - a[5], k.first_term[kind]
    outputs = arguments - k.term[term]
    where, spans, boxes, colours, found, fault = make_points(
        axis,
        parts,
        borders,
        devices,
        k.extents[a[0] : b[0]],
        k.dim_ptr[a[1] : b[1]],
        k.dim_axis[a[2] : b[2]],
        k.dim_extent[a[3] : b[3]],
        k.window[a[3] : b[3]],
        k.reduced[a[4] : b[4]].reshape(outputs, axes),
    )
    if fault >= 0:
        return FAULT
    count = len(where)
    more = (count, 2 * count * dims, count * outputs, outputs, count, 1)
    room = (len(t.device), len(t.box), len(t.colour), len(t.partial), len(t.device_rank), len(t.record))
    for column in range(6):
        if t.length[column] + more[column] > room[column]:
            return column
    put_record(t, count, dims, outputs, term)
    rank_of = np.zeros(distinct.max() + 1, np.int64)
    for i in range(len(distinct)):
        rank_of[distinct[i]] = i
    for p in range(count):
        at = t.length[MODEL] + p
        t.device[t.length[DEVICE] + p], t.device_rank[at] = where[p], rank_of[where[p]]
        t.flops[at] = k.flops[kind] * volume(spans, p)
    put_sizes(t.bytes, t.length[MODEL], boxes, k.itemsize, a[5], k.term, term + 1, arguments)
    put_pairs(t.box, t.length[BOX], boxes)
    for p in range(count):
        for j in range(outputs):
            t.colour[t.length[COLOUR] + p * outputs + j] = colours[p, j]
    for j in range(outputs):
        t.partial[t.length[PARTIAL] + j] = found[j] > 1
    for column in range(6):
        t.length[column] += more[column]
    return FITS


@leaf
def put_record(t: PointTable, count: int, dims: int, outputs: int, term: int) -> None:
    """Say where the columns of points that are added begin."""
    new = t.record[t.length[RECORD]]
    new.first_device, new.points, new.first_box, new.dims = t.length[DEVICE], count, t.length[BOX], dims
    new.first_colour, new.outputs, new.first_partial = t.length[COLOUR], outputs, t.length[PARTIAL]
    new.first_term, new.first_model = term, t.length[MODEL]


@leaf
def put_pairs(column: Any, begin: int, pairs: Any) -> None:
    """Write (points, n, 2) numbers in turn."""
    for p in range(pairs.shape[0]):
        for d in range(pairs.shape[1]):
            column[begin], column[begin + 1] = pairs[p, d, 0], pairs[p, d, 1]
            begin += 2


@leaf
def put_sizes(
    sizes: Any, begin: int, boxes: Any, itemsize: Any, first: int, term: Any, at: int, arguments: int
) -> None:  # fmt: skip
    """Write the bytes of all arguments of every point."""
    for p in range(boxes.shape[0]):
        total = 0
        for j in range(arguments):
            size = 1
            for d in range(term[at + j], term[at + j + 1]):
                size *= max(boxes[p, d, 1] - boxes[p, d, 0], 0)
            total += size * itemsize[first + j]
        sizes[begin + p] = total
