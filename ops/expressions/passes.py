"""Expressions and programs over tiles by passes of NumPy; on a GPU as one kernel (`ops.expressions.cuda_source`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.expressions.program import Pass
from taskflow import Array, Context


def evaluate(
    ctx: Context, expression: Expression, values: Mapping[str, Array | float], out: Array
) -> None:
    """Write its value to `out`, whose shape all arrays among `values` broadcast to and whose memory none has."""
    if ctx.is_cuda:
        cuda_source.evaluate(ctx, expression, values, out)
        return
    if not expression.steps:
        ctx.xp.copyto(out, values[expression.text])
    slots = [out]
    for k in range(max((step.slot for step in expression.steps), default=0)):
        slots.append(ctx.scratch(("slot", k), out.shape, out.dtype))
    for step in expression.steps:
        arguments: list[Any] = [
            values[a] if isinstance(a, str) else a if isinstance(a, float) else slots[a]
            for a in step.arguments
        ]
        if step.function == "where":
            _choose(ctx, slots[step.slot], *arguments)
        else:
            getattr(ctx.xp, step.function)(*arguments, out=slots[step.slot])


def reduce(
    ctx: Context,
    expression: Expression,
    values: Mapping[str, Array | float],
    shape: Sequence[int],
    out: Array,
    axes: tuple[int, ...],
    kind: str = "sum",
) -> None:
    """`out` = the sum or maximum (`kind`) over `axes`, of which it has one point each or, leading ones, none.

    `shape` is what all arrays among `values` broadcast to.
    """
    if out.ndim < len(shape):
        out = out[(*[None] * (len(shape) - out.ndim), ...)]
    if ctx.is_cuda:
        cuda_source.reduce(
            ctx,
            expression,
            values,
            out,
            axes,
            kind,
        )
        return
    elements = values.get(expression.text)
    if elements is None:
        elements = ctx.scratch("product", shape, out.dtype)
        evaluate(ctx, expression, values, elements)
    getattr(ctx.xp, kind)(elements, axis=axes, keepdims=True, out=out)


def run(ctx: Context, one: Pass, arrays: Mapping[str, Array], numbers: Mapping[str, float]) -> None:
    """Run a pass on arrays and numbers by name."""
    values: dict[str, Array | float] = {**arrays, **numbers}
    shape = ctx.xp.broadcast_shapes(*(a.shape for a in arrays.values()))
    dtype = next(a.dtype for a in arrays.values() if a.shape == shape)
    sums = {a.target for a in one.assignments if a.is_sum}
    for k, a in enumerate(one.assignments):
        made = ctx.scratch(("assigned", k), shape, dtype)
        evaluate(ctx, a.value, values, made)
        if a.is_sum:
            total = arrays[a.target][(*[None] * (len(shape) - arrays[a.target].ndim), ...)]
            ctx.xp.sum(
                made,
                axis=tuple(d for d, n in enumerate(total.shape) if n == 1),
                keepdims=True,
                out=total,
            )
        else:
            values[a.target] = made
    for name in sorted(one.targets & arrays.keys() - sums):
        ctx.xp.copyto(arrays[name], values[name])


def _choose(
    ctx: Context, out: Array, condition: Array, yes: Array | float, no: Array | float
) -> None:
    """`yes` where the condition is not 0, else `no`; `out` may be any of them."""
    chosen = ctx.scratch("condition", out.shape, bool)
    ctx.xp.not_equal(condition, 0, out=chosen)
    if out is yes:
        ctx.xp.logical_not(chosen, out=chosen)
        yes, no = no, yes
    if out is not no:
        ctx.xp.copyto(out, no)
    ctx.xp.copyto(out, yes, where=chosen)
