"""The columns of rows: of the points of operators, and of what moves regions.

Entries are all points, operator after operator, then all rows that move data, region after region; which row each entry
becomes is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskflow.core.columns import gather, pointers, spread
from taskflow.lowering.fragments import Found
from taskflow.lowering.pointstore import PointStore
from taskflow.strategy.partition import Points
from taskflow.tasks.task_graph import Kind, Privilege

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Shape:
    """What points have in common with those on other devices; boxes as in a task graph.

    Attributes:
        spans: see `Points`.
        arg_box, arg_privilege: of all arguments of the first point, then of the second, ...
    """

    spans: Array
    arg_box: Array
    arg_privilege: Array


def shape_of(points: Points, ndim: int) -> Shape:
    """Boxes are padded to `ndim` dimensions."""
    args, count = len(points.operator.args), len(points)
    boxes = np.stack([padded(points.box(k), ndim) for k in range(args)], axis=1)
    privileges = np.tile(np.array(_privileges(points), np.uint8), count)
    return Shape(points.spans, boxes.reshape(-1, 2, ndim), privileges)


def _privileges(points: Points) -> list[Privilege]:
    op = points.operator
    inputs = [Privilege.READ_WRITE if k in op.writes else Privilege.READ for k in range(len(op.inputs))]
    return inputs + [Privilege.REDUCE if p else Privilege.WRITE for p in points.partial]


def padded(boxes: Array, ndim: int) -> Array:
    """Boxes (n, dimensions, 2) as (n, 2, ndim); dimensions that a box lacks are (0, 0)."""
    found = np.zeros((len(boxes), 2, ndim), np.int64)
    found[:, :, : boxes.shape[1]] = boxes.transpose(0, 2, 1)
    return found


def point_columns(
    args: Array, numbers: Array, store: PointStore, shapes: Sequence[Shape], which: Array
) -> dict[str, Array]:
    """The entries of operators with so many arguments and points of these numbers, whose shape is `shapes[which]`."""
    table = store.table
    (first, count), model = table.record[numbers, :2].T, table.record[numbers, 8]
    place, at = table.place[spread(first, count)], spread(model, count)
    return {
        "kind": np.full(len(at), int(Kind.POINT), np.uint8),
        "launch": np.repeat(np.arange(len(args)), count),
        "point": spread(np.zeros_like(count), count),
        "region": np.full(len(at), -1, np.int64),
        "device": place,
        "source": place,
        "collective": np.zeros(len(at), np.uint8),
        "bytes": table.bytes[at],
        "flops": table.flops[at],
        "arg_count": np.repeat(args, count),
        "arg_instance": np.full((count * args).sum(), -1, np.int64),
        "arg_box": gather([shape.arg_box for shape in shapes], which)[0],
        "arg_privilege": gather([shape.arg_privilege for shape in shapes], which)[0],
    }


def move_columns(found: Found, regions: Array, itemsize: Array, first_instance: Array, ndim: int) -> dict[str, Array]:
    """The entries of the fragments of some regions, of which these are the first instances."""
    row, rows = found.gather(lambda f: f.row)
    arg, args = found.gather(lambda f: f.arg)
    version_rows, _ = found.gather(lambda f: np.diff(f.version_row))
    shift = np.repeat(found.shift, rows)
    return {
        "kind": row[:, 0].astype(np.uint8),
        "launch": np.full(len(row), -1, np.int64),
        "point": spread(np.zeros_like(version_rows), version_rows),
        "region": np.repeat(regions, rows),
        "device": row[:, 2] + shift,
        "source": row[:, 1] + shift,
        "collective": row[:, 5].astype(np.uint8),
        "bytes": row[:, 4] * np.repeat(itemsize[regions], rows),
        "flops": np.zeros(len(row)),
        "arg_count": found.gather(lambda f: np.diff(f.row[:, 3], prepend=0))[0],
        "arg_instance": arg[:, 0] + np.repeat(first_instance, args),
        "arg_box": found.gather(lambda f: padded(f.arg_box, ndim))[0],
        "arg_privilege": arg[:, 1].astype(np.uint8),
    }


def in_place(columns: dict[str, Array], row: Array) -> dict[str, Array]:
    """The columns of a task graph, where entry k becomes row `row[k]`."""
    count = columns.pop("arg_count")
    arg_ptr = pointers(_placed(count, row))
    arg = spread(arg_ptr[row], count)
    found = {name: _placed(values, arg if name.startswith("arg_") else row) for name, values in columns.items()}
    return found | {"arg_ptr": arg_ptr}


def _placed(values: Array, place: Array) -> Array:
    found = np.empty_like(values)
    found[place] = values
    return found
