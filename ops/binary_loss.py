"""The loss of yes-or-no predictions, and perplexity, which reads a loss."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.build import check_region, distinct, first, term, terms
from ops.tiles import Array, Context
from taskflow import LogicalRegion, Operator


def binary_cross_entropy_with_logits(x: LogicalRegion, t: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The mean over all elements of -t log σ(x) - (1 - t) log(1 - σ(x)), as torch's function of this name.

    Args:
        x: scores before the sigmoid σ, any shape, floating point.
        t: targets in [0, 1] of the same shape, floating point; both get gradients.
        name: of the operator.

    Returns:
        A scalar. Split over any axis, each task holds the share of its elements in the mean of all.

    Raises:
        ValueError: the shapes differ, or a dtype is wrong.
    """
    where = f"binary_cross_entropy_with_logits '{name or 'binary_cross_entropy_with_logits'}'"
    check_region(where, x)
    check_region(where, t, "t")
    if x.shape != t.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{t.name}' is {t.shape}")
    axes = term(distinct(x.axes))
    return first(
        x.graph.launch(
            name or "binary_cross_entropy_with_logits",
            f"{axes}, {axes} -> .",
            [x, t],
            kernel=partial(_loss, count=prod(x.shape)),
            backward=_backward,
            flops=20,
        )
    )


def _loss(ctx: Context, x: Array, t: Array, loss: Array, *, count: int) -> None:
    """max(x, 0) - x t + log(1 + exp(-|x|)): nothing overflows."""
    total, part = ctx.scratch("total", x.shape, x.dtype), ctx.scratch("part", x.shape, x.dtype)
    ctx.xp.abs(x, out=total)
    ctx.xp.negative(total, out=total)
    ctx.xp.exp(total, out=total)
    ctx.xp.log1p(total, out=total)
    ctx.xp.maximum(x, 0, out=part)
    ctx.xp.add(total, part, out=total)
    ctx.xp.multiply(x, t, out=part)
    ctx.xp.subtract(total, part, out=total)
    loss[...] = total.sum() / count


def _backward(op: Operator, gloss: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    axes = terms(op)[0][0]
    x, t = op.inputs
    launch, count = gloss.graph.launch, prod(x.shape)
    pattern = f"., {axes}, {axes} -> {axes}"
    gx = launch(f"{op.name}.dx", pattern, [gloss, x, t], kernel=partial(_gradient, count=count), flops=10)
    pattern = f"., {axes} -> {axes}"
    gt = launch(f"{op.name}.dt", pattern, [gloss, x], kernel=partial(_gradient_targets, count=count), flops=1)
    return first(gx), first(gt)


def _gradient(ctx: Context, gloss: Array, x: Array, t: Array, gx: Array, *, count: int) -> None:
    """(σ(x) - t) / count, with σ(x) = (1 + tanh(x / 2)) / 2"""
    ctx.xp.multiply(x, 0.5, out=gx)
    ctx.xp.tanh(gx, out=gx)
    ctx.xp.multiply(gx, 0.5, out=gx)
    ctx.xp.add(gx, 0.5, out=gx)
    ctx.xp.subtract(gx, t, out=gx)
    ctx.xp.multiply(gx, gloss / count, out=gx)


def _gradient_targets(ctx: Context, gloss: Array, x: Array, gt: Array, *, count: int) -> None:
    ctx.xp.multiply(x, -gloss / count, out=gt)


def perplexity(loss: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """exp(loss): the perplexity of a language model whose mean cross entropy, in nats, is `loss`.

    Args:
        loss: a scalar, floating point.
        name: of the operator.

    Returns:
        A scalar, without gradient.

    Raises:
        ValueError: `loss` is not a scalar, or of another dtype.
    """
    where = f"perplexity '{name or 'perplexity'}'"
    check_region(where, loss, "loss")
    if loss.shape != ():
        raise ValueError(f"{where}: '{loss.name}' has shape {loss.shape}, it is a scalar")
    return first(loss.graph.launch(name or "perplexity", ". -> .", [loss], kernel=_exp, flops=10))


def _exp(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.exp(x, out=y)
