"""Losses that compare two regions element by element (that of softmax is in `softmax`)."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.build import check_region, distinct, first, term, terms
from ops.tiles import Array, Context
from taskflow import LogicalRegion, Operator


def mean_squared_error(x: LogicalRegion, y: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The mean over all elements of (x - y)², as torch.nn.functional.mse_loss.

    Args:
        x, y: equal shapes, floating point; both get gradients.
        name: of the operator.

    Returns:
        A scalar. Split over any axis, each task holds the share of its elements in the mean of all.

    Raises:
        ValueError: the shapes differ, or a dtype is wrong.
    """
    where = f"mean_squared_error '{name or 'mean_squared_error'}'"
    check_region(where, x)
    check_region(where, y, "y")
    if x.shape != y.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}")
    axes = term(distinct(x.axes))
    return first(
        x.graph.launch(
            name or "mean_squared_error",
            f"{axes}, {axes} -> .",
            [x, y],
            kernel=partial(_squared, count=prod(x.shape)),
            backward=_backward,
            flops=3,
        )
    )


def _squared(ctx: Context, x: Array, y: Array, loss: Array, *, count: int) -> None:
    difference = ctx.scratch("difference", x.shape, x.dtype)
    ctx.xp.subtract(x, y, out=difference)
    ctx.xp.multiply(difference, difference, out=difference)
    loss[...] = difference.sum() / count


def _backward(op: Operator, gloss: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    axes = terms(op)[0][0]

    def launch(what: str, factor: float) -> LogicalRegion:
        kernel = partial(_gradient, factor=factor)
        pattern = f"., {axes}, {axes} -> {axes}"
        return first(gloss.graph.launch(f"{op.name}.{what}", pattern, [gloss, *op.inputs], kernel=kernel, flops=2))

    factor = 2 / prod(op.inputs[0].shape)
    return launch("dx", factor), launch("dy", -factor)


def _gradient(ctx: Context, gloss: Array, x: Array, y: Array, out: Array, *, factor: float) -> None:
    ctx.xp.subtract(x, y, out=out)
    ctx.xp.multiply(out, gloss * factor, out=out)
