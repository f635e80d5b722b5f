"""Losses that are one formula of two regions, element by element, and its derivatives; every axis may be split.

The mean is of all elements: split over any axis, each task holds the share of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from ops.building import check_region, checked, distinct, launch_first, term, terms
from ops.elementwise.broadcast import Elementwise, launch
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(where: str, reduction: str, reductions: Sequence[str] = REDUCTIONS) -> None:
    """ValueError for what is no reduction."""
    if reduction not in reductions:
        *others, last = (f"'{name}'" for name in reductions)
        raise ValueError(
            f"{where}: reduction is '{reduction}', it is {', '.join(others)} or {last}"
        )


def pairwise(
    kind: str,
    rule: Elementwise,
    x: LogicalRegion,
    y: LogicalRegion,
    name: str | None,
    reduction: str,
    numbers: Mapping[str, float] | None = None,
    reductions: Sequence[str] = REDUCTIONS,
) -> LogicalRegion:
    """The loss `kind` of two regions of equal shape: the rule's value of each pair of elements, reduced."""
    where = checked(kind, name, x)
    numbers = dict(numbers or {})
    check_reduction(where, reduction, reductions)
    check_region(where, y)
    if x.shape != y.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}")
    if reduction == "none":
        return launch(kind, rule, {"x": x, "y": y, **numbers}, name)
    axes = term(distinct(x.axes))
    count = {"mean": prod(x.shape), "batchmean": (*x.shape, 1)[0]}.get(reduction, 1)
    return launch_first(
        name or kind,
        f"{axes}, {axes} -> .",
        [x, y],
        kernel=_total.bind(expression=rule.value, numbers=numbers, count=count),
        backward=partial(_backward, rule=rule, numbers=numbers, count=count),
        flops=rule.flops,
    )


def _backward(
    op: Operator,
    gloss: LogicalRegion,
    *,
    rule: Elementwise,
    numbers: Mapping[str, float],
    count: int,
) -> tuple[LogicalRegion, ...]:
    axes = terms(op)[0][0]

    def launch_gradient(what: str, expression: Expression) -> LogicalRegion:
        kernel = _gradient.bind(expression=expression, numbers=numbers, count=count)
        pattern, inputs = f"., {axes}, {axes} -> {axes}", [gloss, *op.inputs]
        return launch_first(
            f"{op.name}.d{what}",
            pattern,
            inputs,
            kernel=kernel,
            flops=rule.flops,
        )

    return tuple(launch_gradient(what, expression) for what, expression in rule.gradients.items())


@partial(Kernel, takes_mixed_on_cuda=True)
def _total(
    ctx: Context,
    x: Array,
    y: Array,
    loss: Array,
    *,
    expression: Expression,
    numbers: Mapping[str, float],
    count: int,
) -> None:
    if ctx.is_cuda:
        out = loss[(*[None] * x.ndim, ...)]
        cuda_source.reduce(
            ctx,
            expression,
            {"x": x, "y": y, **numbers},
            out,
            tuple(range(x.ndim)),
            divisor=count,
        )
        return
    losses = ctx.scratch("each", x.shape, x.dtype)
    evaluate(ctx, expression, {"x": x, "y": y, **numbers}, losses)
    loss[...] = losses.sum() / count


@partial(Kernel, takes_mixed_on_cuda=True)
def _gradient(
    ctx: Context,
    gloss: Array,
    x: Array,
    y: Array,
    out: Array,
    *,
    expression: Expression,
    numbers: Mapping[str, float],
    count: int,
) -> None:
    share = ctx.scratch("share", gloss.shape, gloss.dtype)
    ctx.xp.divide(gloss, count, out=share)
    evaluate(ctx, expression, {"g": share, "x": x, "y": y, **numbers}, out)
