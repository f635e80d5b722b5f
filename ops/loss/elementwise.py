"""Losses that compare two regions element by element; every axis may be split.

Each is one formula and its derivatives. The mean is of all elements: split over any axis, each task holds the share of
its elements. Losses of classes are in `softmax` and `cross_entropy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import exp, prod

from ops.building import check_region, checked, distinct, launch_first, term, terms
from ops.elementwise.broadcast import Elementwise, elementwise, launch
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

REDUCTIONS = ("mean", "sum", "none")

_SQUARED = elementwise("(x - y) * (x - y)", 3, x="2 * g * (x - y)", y="2 * g * (y - x)")
_ABSOLUTE = elementwise("abs(x - y)", 3, x="g * sign(x - y)", y="g * sign(y - x)")
_HUBER = elementwise(
    "min(abs(x - y), delta) * (abs(x - y) - 0.5 * min(abs(x - y), delta))",
    6,
    x="g * max(min(x - y, delta), -delta)",
    y="g * max(min(y - x, delta), -delta)",
)
_WITH_LOGITS = elementwise("max(x, 0) - x * y + log1p(exp(-abs(x)))", 20, x="g * (sigmoid(x) - y)", y="-g * x")
_BINARY = elementwise(  # logarithms from -100 on, as torch's
    "-(y * log(max(x, tiny)) + (1 - y) * log(max(1 - x, tiny)))",
    20,
    x="g * (x - y) / max(x * (1 - x), 1e-12)",
    y="g * (log(max(1 - x, tiny)) - log(max(x, tiny)))",
)


def mean_squared_error(
    x: LogicalRegion, y: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of (x - y)², as torch.nn.functional.mse_loss.

    Args:
        x, y: equal shapes, floating point; both get gradients.
        name: of the operator.
        reduction: "mean", "sum", or "none" for the errors themselves.

    Returns:
        A scalar, or with "none" the shape of `x`.

    Raises:
        ValueError: the shapes differ, a dtype is wrong, or there is no such reduction.
    """
    return _pairwise("mean_squared_error", _SQUARED, x, y, name, reduction)


def mean_absolute_error(
    x: LogicalRegion, y: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of |x - y|, as torch's l1_loss; args and errors as `mean_squared_error`."""
    return _pairwise("mean_absolute_error", _ABSOLUTE, x, y, name, reduction)


def huber_loss(
    x: LogicalRegion, y: LogicalRegion, delta: float = 1.0, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean of d² / 2 where |d| <= delta, else delta (|d| - delta / 2), d = x - y (Huber 1964), as torch's.

    Args, returns and raises as `mean_squared_error`; `delta` is positive.
    """
    if not delta > 0:
        raise ValueError(f"huber_loss '{name or 'huber_loss'}': delta is {delta}, it is positive")
    return _pairwise("huber_loss", _HUBER, x, y, name, reduction, {"delta": delta})


def binary_cross_entropy_with_logits(
    x: LogicalRegion, t: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of -t log σ(x) - (1 - t) log(1 - σ(x)), as torch's function of this name.

    Args:
        x: scores before the sigmoid σ, any shape, floating point.
        t: targets in [0, 1] of the same shape, floating point; both get gradients.
        name, reduction: as for `mean_squared_error`, as are what is returned and raised.
    """
    return _pairwise("binary_cross_entropy_with_logits", _WITH_LOGITS, x, t, name, reduction)


def binary_cross_entropy(
    x: LogicalRegion, t: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of -t log x - (1 - t) log(1 - x), logarithms from -100 on, as torch's.

    Args, returns and raises as `binary_cross_entropy_with_logits`, but `x` are probabilities.
    """
    return _pairwise("binary_cross_entropy", _BINARY, x, t, name, reduction, {"tiny": exp(-100)})


def check_reduction(where: str, reduction: str) -> None:
    """ValueError for what is no reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{where}: reduction is '{reduction}', it is 'mean', 'sum' or 'none'")


def _pairwise(
    kind: str,
    rule: Elementwise,
    x: LogicalRegion,
    y: LogicalRegion,
    name: str | None,
    reduction: str,
    numbers: Mapping[str, float] | None = None,
) -> LogicalRegion:
    where, numbers = checked(kind, name, x), dict(numbers or {})
    check_reduction(where, reduction)
    check_region(where, y)
    if x.shape != y.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}")
    if reduction == "none":
        return launch(kind, rule, {"x": x, "y": y, **numbers}, name)
    axes = term(distinct(x.axes))
    count = prod(x.shape) if reduction == "mean" else 1
    kernel = _total.bind(expression=rule.value, numbers=numbers, count=count)
    backward = partial(_backward, rule=rule, numbers=numbers, count=count)
    pattern = f"{axes}, {axes} -> ."
    return launch_first(name or kind, pattern, [x, y], kernel=kernel, backward=backward, flops=rule.flops)


def _backward(
    op: Operator, gloss: LogicalRegion, *, rule: Elementwise, numbers: Mapping[str, float], count: int
) -> tuple[LogicalRegion, ...]:
    axes = terms(op)[0][0]

    def launch_gradient(what: str, expression: Expression) -> LogicalRegion:
        kernel = _gradient.bind(expression=expression, numbers=numbers, count=count)
        pattern, inputs = f"., {axes}, {axes} -> {axes}", [gloss, *op.inputs]
        return launch_first(f"{op.name}.d{what}", pattern, inputs, kernel=kernel, flops=rule.flops)

    return tuple(launch_gradient(what, expression) for what, expression in rule.gradients.items())


@partial(Kernel, takes_half_on_cuda=True)
def _total(
    ctx: Context, x: Array, y: Array, loss: Array, *, expression: Expression, numbers: Mapping[str, float], count: int
) -> None:
    if ctx.is_cuda:
        out = loss[(*[None] * x.ndim, ...)]
        cuda_source.reduce(ctx, expression, {"x": x, "y": y, **numbers}, out, tuple(range(x.ndim)), divisor=count)
        return
    each = ctx.scratch("each", x.shape, x.dtype)
    evaluate(ctx, expression, {"x": x, "y": y, **numbers}, each)
    loss[...] = each.sum() / count


@partial(Kernel, takes_half_on_cuda=True)
def _gradient(ctx: Context, *arrays: Array, expression: Expression, numbers: Mapping[str, float], count: int) -> None:
    gloss, x, y, out = arrays
    share = ctx.scratch("share", gloss.shape, gloss.dtype)
    ctx.xp.divide(gloss, count, out=share)
    evaluate(ctx, expression, {"g": share, "x": x, "y": y, **numbers}, out)
