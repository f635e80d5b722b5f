"""Partial results as devices hold them, and the points of an addition that reads them so.

A sum of partial results is a partial result of the sum: an addition whose inputs all lie in parts on the same devices
is computed there, part by part, and what travels is its result alone.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.graph import Operator
from taskflow.graph.window import Interval
from taskflow.strategy.partition import OperatorPoints, number_colours
from taskflow.strategy.strategy import ParallelConfig


class HeldParts(NamedTuple):
    """What devices hold of a region that is in parts, those of one box and device added up.

    Attributes:
        device: (n,) of every part.
        box: (n, dimensions, 2).
        colour: (n,) parts of one box with equal colours are replicas.
    """

    device: Array
    box: Array
    colour: Array


def parts_of(points: OperatorPoints, made: int) -> HeldParts | None:
    """The parts that points leave of made term number `made`; None where every device that has some has all of them.

    None, too, where the parts that a device has of a box are on different devices, or in a different order: then they
    are not added up (see `lowering.tiles`).
    """
    boxes = points.box(points.operator.bound.made[made])
    colours = points.colours[:, made]
    if (colours == colours[:1]).all():
        return None
    table = np.stack([_tiles(boxes), points.device, colours], axis=1)
    once = np.unique(table, axis=0, return_index=True)[1]
    once = once[(boxes[once, :, 0] < boxes[once, :, 1]).all(axis=1)]
    tile, device, colour = table[once].T
    if not len(once):
        return None
    holder = _numbers(tile, device)
    by_colour = _numbers(tile, colour)
    group = _least(colour, holder)
    by_group = _numbers(tile, group)
    holders = np.bincount(by_group[np.unique(holder, return_index=True)[1]])
    turn = _turn(by_colour, once)
    is_together = (
        (_least(group, by_colour) == group)
        & (np.bincount(by_colour)[by_colour] == holders[by_group])
        & (_least(turn, holder) == turn)
    )
    if not is_together.all() or by_group.max() == _numbers(tile).max():
        return None
    kept = np.sort(once[colour == group])
    colours = colours[kept, None]
    number_colours(colours)
    return HeldParts(points.device[kept], boxes[kept], colours[:, 0])


def are_alike(one: HeldParts, other: HeldParts) -> bool:
    """Whether devices hold parts of the same boxes, replicas of each other in the same way."""
    return np.array_equal(_in_order(one), _in_order(other))


def of_parts(op: Operator, config: ParallelConfig, parts: HeldParts) -> OperatorPoints | None:
    """The points of an addition where partial results are; None if its axes cannot be split as these are.

    Args:
        op: its terms are all the same.
        config: of who makes the parts.
        parts: of each of its inputs.
    """
    tile = _tiles(parts.box)
    boxes = parts.box[np.unique(tile, return_index=True)[1]]
    spans = [_spans(op, box.tolist()) for box in boxes]
    if None in spans:
        return None
    return OperatorPoints(
        op,
        config,
        parts.device,
        np.array(spans, np.int64).reshape(len(boxes), len(op.extents), 2)[tile],
        np.tile(parts.box, (1, len(op.args), 1)),
        parts.colour[:, None],
        np.ones(1, np.bool_),
    )


def _spans(op: Operator, box: list[list[int]]) -> list[Interval] | None:
    """An interval of every axis such that each term of the operator is this box, or None."""
    spans = dict[str, Interval]()
    for axes, (low, high) in zip(op.bound.terms[0].dims, box, strict=True):
        for k, axis in enumerate(axes):
            behind = prod(op.extents[inner] for inner in axes[k + 1 :])
            begin = low // behind
            end = -(-high // behind)
            low = low - begin * behind
            high = high - (end - 1) * behind
            if end - begin > 1 and (low, high) != (0, behind):
                return None
            spans[axis] = begin, end
    return [spans[axis] for axis in op.extents]


def _numbers(*columns: Array) -> Array:
    """A number for every row of columns, equal ones for equal rows."""
    numbers: Array = np.unique(np.stack(columns), axis=1, return_inverse=True)[1].reshape(-1)
    return numbers


def _tiles(boxes: Array) -> Array:
    """Numbers of boxes (n, dimensions, 2); scalars have one."""
    return _numbers(
        np.zeros(len(boxes), np.int64), *boxes.reshape(len(boxes), 2 * boxes.shape[1]).T
    )


def _least(values: Array, group: Array) -> Array:
    """For each the least value of its group."""
    least_of = np.full(group.max() + 1, values.max())
    np.minimum.at(least_of, group, values)
    least: Array = least_of[group]
    return least


def _turn(group: Array, key: Array) -> Array:
    """For each how many of its group have a lesser key."""
    order = np.lexsort((key, group))
    count = np.bincount(group)
    turn = np.empty_like(order)
    turn[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    return turn


def _in_order(parts: HeldParts) -> Array:
    """Columns of box, device and the first device with a replica, by box and device."""
    same = _numbers(_tiles(parts.box), parts.colour)
    first = _least(parts.device, same)
    boxes = parts.box.reshape(len(parts.box), 2 * parts.box.shape[1]).T
    columns: Array = np.unique(np.stack([*boxes, parts.device, first]), axis=1)
    return columns
