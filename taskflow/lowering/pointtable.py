"""Points of operators, and kinds of operators, as flat columns for compiled code; see `pointstore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers, record
from taskflow.graph.crossing import crossing
from taskflow.graph.graph import Operator
from taskflow.graph.pattern import PatternTable
from taskflow.graph.window import BY_TABLE
from taskflow.strategy.partition import split_numbers

FITS = -2
FAULT = -1  # what adding points may end with, see `pointstore.add_points`
DEVICE, BOX, COLOUR, PARTIAL, MODEL, RECORD = range(
    6
)  # columns that fill up, by their number in `length`

# Of some points: the first one's device and how many they are; their first box and the dimensions of all terms; their
# first colour and the made terms; the first of `partial` and of `term`; the first of what a model has; whether they
# read partial results, see `additions`.
RECORD_DTYPE = record(
    *(
        "first_device",
        "points",
        "first_box",
        "dims",
        "first_colour",
        "made",
        "first_partial",
        "first_term",
    ),
    *("first_model", "takes_parts"),
)


class PointTable(NamedTuple):
    """The columns, each with room for more; see `partition.OperatorPoints`.

    Attributes:
        length: how far the columns are filled; see `DEVICE` and so on.
        device: of every point.
        device_rank: of every point of a model, the number of its device among the different ones of its configuration.
        flops, bytes: of every point of a model; bytes of its arguments.
        box, colour: boxes of all terms and colours of all made terms, of every point of a model.
        partial: of the made terms of a model.
        record: where the columns of some points begin.
        term: per kind of operator the number of inputs, then the first dimension of every term.
    """

    length: Array
    device: Array
    device_rank: Array
    flops: Array
    bytes: Array
    box: Array
    colour: Array
    partial: Array
    record: Array
    term: Array


# The columns that grow together, by their number in `length`.
GROWING = (
    ("device",),
    ("box",),
    ("colour",),
    ("partial",),
    ("device_rank", "flops", "bytes"),
    ("record",),
)


class Kinds(NamedTuple):
    """The columns; operators of a kind are partitioned alike.

    Attributes:
        axis: (kinds, names + 1) which of an operator's axes has the name, -1: none that can be split.
        flops: of a point of all axes.
        work: of every dimension with an image, flops of a point of it and of all axes but that which it follows.
        first: (kinds + 1, 6) where these begin: extents, `dim_ptr`, `dim_axis`, dimensions, `reduced`, arguments.
        extents, dim_ptr, dim_axis, dim_extent, window, images, reduced: see `pattern.PatternTable`.
        made: number of made terms, see `BoundPattern.made`.
        itemsize: bytes of an element of every argument.
        picks: of every argument a bit for each argument that indexes its first dimension (see `Kernel.picks`).
        term, first_term: number of inputs, then the first dimension of every argument; where a kind's begin.
    """

    axis: Array
    flops: Array
    work: Array
    first: Array
    extents: Array
    dim_ptr: Array
    dim_axis: Array
    dim_extent: Array
    window: Array
    images: Array
    reduced: Array
    made: Array
    itemsize: Array
    picks: Array
    term: Array
    first_term: Array


def axis_names(operators: Sequence[Operator]) -> dict[str, int]:
    """The names of all axes, numbered."""
    return {
        name: k
        for k, name in enumerate(dict.fromkeys(name for op in operators for name in op.extents))
    }


def _picks(op: Operator, k: int) -> int:
    """The arguments that index argument `k`, a bit for each."""
    return sum(1 << other for other in op.kernel.picks.get(k, ()))


def _work(op: Operator) -> list[float]:
    """Of every dimension, flops of a point of it, where an image says which."""
    work = dict(op.work)
    names = (dim[0] if dim else "" for term in op.bound.terms for dim in term.dims)
    return [work.pop(name, 0.0) for name in names]  # once, where several inputs have it


def _windows(tables: Sequence[PatternTable]) -> Array:
    """Those of all tables in turn; what images begin with, too."""
    first = pointers([len(t.images) for t in tables])
    windows = np.concatenate([np.zeros((0, 6), np.int64), *(t.window for t in tables)])
    moved = np.repeat(first[:-1], [len(t.window) for t in tables])
    windows[:, 1] += np.where(windows[:, 0] == BY_TABLE, moved, 0)
    return windows


def _axes(operators: Sequence[Operator], names: Mapping[str, int]) -> Array:
    """(operators, names + 1) the number of the axis of a name that may be split; -1: there is none."""
    axis = np.full((len(operators), len(names) + 1), -1, np.int64)
    for k, op in enumerate(operators):
        for name, number in split_numbers(op).items():
            axis[k, names[name]] = number
    return axis


def _itemsizes(op: Operator) -> list[int]:
    """Bytes of an element of every argument; 0: it is not what crosses to the memory of a host, or from there."""
    is_here = crossing(op) < 0
    return [region.itemsize if is_here or region.is_on_host else 0 for region in op.args]


def kinds_of(operators: Sequence[Operator], names: Mapping[str, int]) -> Kinds:
    """The columns of one operator of every kind, in the order of their numbers."""
    tables = [op.bound.table for op in operators]
    columns: list[list[Array]] = [
        [t.extents for t in tables],
        [t.dim_ptr for t in tables],
        [t.dim_axis for t in tables],
        [t.dim_extent for t in tables],
        [t.reduced.reshape(-1) for t in tables],
        [np.array(_itemsizes(op), np.int64) for op in operators],
    ]
    terms = [
        np.array([len(op.inputs), *t.term_ptr], np.int64)
        for op, t in zip(operators, tables, strict=True)
    ]
    none = np.zeros(0, np.int64)
    extents, dim_ptr, dim_axis, dim_extent, reduced, itemsize = (
        np.concatenate([none, *c]) for c in columns
    )
    return Kinds(
        _axes(operators, names),
        np.array([float(op.flops) for op in operators]),
        np.array([work for op in operators for work in _work(op)], np.float64),
        np.stack([pointers([len(part) for part in column]) for column in columns], axis=1),
        extents,
        dim_ptr,
        dim_axis,
        dim_extent,
        _windows(tables),
        np.concatenate([none, *(t.images for t in tables)]),
        reduced.astype(np.bool_),
        np.array([len(op.bound.made) for op in operators], np.int64),
        itemsize,
        np.array([_picks(op, k) for op in operators for k in range(len(op.args))], np.int64),
        np.concatenate([none, *terms]),
        pointers([len(term) for term in terms]),
    )
