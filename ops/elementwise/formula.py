"""Operators that are one formula over named axes, with a sum or a maximum over those that the result lacks.

What is composed of such operators may be split along every axis: partial results are combined like any others. So
normalizations and softmax are exact however their features lie on the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ops.building import launch_first
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate, reduce
from taskflow import Array, Context, Kernel, LogicalRegion

Term = tuple[LogicalRegion, str]


def formula(
    name: str,
    text: str,
    inputs: Mapping[str, Term],
    out: str,
    reduction: str = "sum",
    backward: Callable[..., object] | None = None,
    sizes: Mapping[str, int] | None = None,
    numbers: Mapping[str, float] | None = None,
    flops: float | None = None,
) -> LogicalRegion:
    """Launch the operator `out` = `reduction` of the expression `text` over the axes that `out` lacks.

    Args:
        name: of the operator.
        text: see `ops.expressions.expression`.
        inputs: name in the expression -> region and its term. The first one has every axis, in their order, and the
            others and `out` some of them, in that order; an axis may be part of a group such as `(g c)`.
        out: term of the result.
        reduction: `sum` or `max`.
        backward: of the operator.
        sizes: extents of axes that stand in groups only.
        numbers: name in the expression -> number.
        flops: of one point; by default the number of functions in the expression.
    """
    expression = Expression.parse(text)
    regions = [region for region, _ in inputs.values()]
    read = [term for _, term in inputs.values()]
    full = axes_of(read[0])
    kernel = _evaluate.bind(
        expression=expression,
        names=tuple(inputs),
        layouts=tuple(_layout(full, term) for term in (*read, out)),
        numbers={key: float(number) for key, number in (numbers or {}).items()},
        reduction=reduction,
    )
    target = f"max[{out}]" if reduction == "max" else out
    return launch_first(
        name,
        f"{', '.join(read)} -> {target}",
        regions,
        kernel=kernel,
        backward=backward,
        sizes=sizes,
        flops=max(len(expression.steps), 1) if flops is None else flops,
    )


def axes_of(term: str) -> list[str]:
    """The axes of a term in order, those of groups one by one, without marks."""
    return [
        name
        for name in term.replace("(", " ").replace(")", " ").replace("^", "").split()
        if name not in ".1"
    ]


def _layout(full: Sequence[str], term: str) -> tuple[str | None, ...]:
    """Per axis of `full` its name, or None where the term lacks it."""
    kept = axes_of(term)
    return tuple(axis if axis in kept else None for axis in full)


@partial(Kernel, takes_mixed_on_cuda=True)
def _evaluate(
    ctx: Context,
    *arrays: Array,
    expression: Expression,
    names: Sequence[str],
    layouts: Sequence[Sequence[str | None]],
    numbers: Mapping[str, float],
    reduction: str,
) -> None:
    """Every array is seen with all axes, of one point where it lacks one: splitting a dimension copies nothing."""
    *inputs, out = (_aligned(ctx, a, layout) for a, layout in zip(arrays, layouts, strict=True))
    values: dict[str, Array | float] = {**numbers, **dict(zip(names, inputs, strict=True))}
    if None not in layouts[-1]:
        evaluate(ctx, expression, values, out)
        return
    axes = tuple(k for k, axis in enumerate(layouts[-1]) if axis is None)
    reduce(
        ctx,
        expression,
        values,
        inputs[0].shape,
        out,
        axes,
        reduction,
    )


def _aligned(ctx: Context, a: Array, layout: Sequence[str | None]) -> Array:
    spans = [(0, 1) if axis is None else ctx.interval(axis) for axis in layout]
    return a.reshape([hi - lo for lo, hi in spans])
