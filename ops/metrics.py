"""Metrics: what is fetched beside the loss and never differentiated."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.build import distinct, first, term
from ops.softmax import check_targets
from ops.tiles import Array, Context
from taskflow import LogicalRegion


def accuracy(y: LogicalRegion, t: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The fraction of rows whose largest score (the first, if several) is that of the right class.

    Args:
        y: (..., classes), floating point.
        t: (...), integers.
        name: of the operator.

    Returns:
        A scalar of the dtype of `y`, without gradient.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = f"accuracy '{name or 'accuracy'}'"
    check_targets(where, y, t)
    *lead, last = distinct(y.axes)
    kernel = partial(_accuracy, count=prod(t.shape))
    pattern = f"{term((*lead, f'^{last}'))}, {term(lead)} -> ."
    return first(y.graph.launch(name or "accuracy", pattern, [y, t], kernel=kernel, flops=1))


def _accuracy(ctx: Context, y: Array, t: Array, out: Array, *, count: int) -> None:
    out[...] = ctx.xp.count_nonzero(y.argmax(axis=-1) == t) / count
