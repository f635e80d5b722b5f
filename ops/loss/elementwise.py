"""Losses that compare two regions element by element; every axis may be split.

Each is one formula and its derivatives. The mean is of all elements: split over any axis, each task holds the share of
its elements. Losses of classes are in `softmax` and `cross_entropy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, prod

from ops.building import check_number, check_region, checked, distinct, launch_first, term, terms
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
_SMOOTH = elementwise(
    "where(abs(x - y) < beta, 0.5 * (x - y) * (x - y) / divisor, abs(x - y) - 0.5 * beta)",
    8,
    x="where(abs(x - y) < beta, g * (x - y) / divisor, g * sign(x - y))",
    y="where(abs(x - y) < beta, g * (y - x) / divisor, g * sign(y - x))",
)
_DIVERGENCE = elementwise(
    "where(y == 0, 0, y * log(where(y == 0, 1, y))) - x * y", 12, x="-g * y", y="g * (log(y) + y / y - x)"
)
_DIVERGENCE_OF_LOG = elementwise("exp(y) * (y - x)", 12, x="-g * exp(y)", y="g * exp(y) * (y - x + 1)")
_WITH_LOGITS = elementwise("max(x, 0) - x * y + log1p(exp(-abs(x)))", 20, x="g * (sigmoid(x) - y)", y="-g * x")
_BINARY = elementwise(  # logarithms from -100 on, as torch's
    "-(y * log(max(x, tiny)) + (1 - y) * log(max(1 - x, tiny)))",
    20,
    x="g * (x - y) / max(x * (1 - x), 1e-12)",
    y="g * (log(max(1 - x, tiny)) - log(max(x, tiny)))",
)


def mse_loss(x: LogicalRegion, y: LogicalRegion, name: str | None = None, *, reduction: str = "mean") -> LogicalRegion:
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
    return _pairwise("mse_loss", _SQUARED, x, y, name, reduction)


def l1_loss(x: LogicalRegion, y: LogicalRegion, name: str | None = None, *, reduction: str = "mean") -> LogicalRegion:
    """The mean over all elements of |x - y|, as torch's l1_loss; args and errors as `mse_loss`."""
    return _pairwise("l1_loss", _ABSOLUTE, x, y, name, reduction)


mean_squared_error, mean_absolute_error = mse_loss, l1_loss


def smooth_l1_loss(
    x: LogicalRegion, y: LogicalRegion, beta: float = 1.0, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean of d² / (2 beta) where |d| < beta, else |d| - beta / 2, d = x - y (Girshick, ICCV 2015), as torch's.

    Args, returns and raises as `mse_loss`; `beta` is finite, and 0 makes it `l1_loss`.
    """
    check_number(f"smooth_l1_loss '{name or 'smooth_l1_loss'}'", "beta", beta, "a finite number from 0 on")
    return _pairwise("smooth_l1_loss", _SMOOTH, x, y, name, reduction, {"beta": beta, "divisor": beta or 1.0})


def kl_div(
    x: LogicalRegion, t: LogicalRegion, name: str | None = None, *, reduction: str = "mean", log_target: bool = False
) -> LogicalRegion:
    """The mean of t (log t - x): the Kullback-Leibler divergence of the distribution exp(x) from t, as torch's.

    Args:
        x: logarithms of probabilities, any shape, floating point.
        t: probabilities, from 0 on, of the same shape; both get gradients.
        name: of the operator.
        reduction: "mean" over all elements, "batchmean": the sum divided by the extent of dimension 0, as the
            mathematics has it, "sum", or "none" for the elements.
        log_target: whether `t` holds logarithms, too.

    Returns:
        A scalar, or with "none" the shape of `x`.

    Raises:
        ValueError: the shapes differ, a dtype is wrong, or there is no such reduction.
    """
    where, rule = checked("kl_div", name, x), _DIVERGENCE_OF_LOG if log_target else _DIVERGENCE
    if reduction == "batchmean" and x.ndim == 0:
        raise ValueError(f"{where}: '{x.name}' is a scalar, 'batchmean' divides by the extent of dimension 0")
    return _pairwise("kl_div", rule, x, t, name, reduction, reductions=(*REDUCTIONS, "batchmean"))


def huber_loss(
    x: LogicalRegion, y: LogicalRegion, delta: float = 1.0, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean of d² / 2 where |d| <= delta, else delta (|d| - delta / 2), d = x - y (Huber 1964), as torch's.

    Args, returns and raises as `mse_loss`; `delta` is positive.
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
        name, reduction: as for `mse_loss`, as are what is returned and raised.
    """
    return _pairwise("binary_cross_entropy_with_logits", _WITH_LOGITS, x, t, name, reduction)


def binary_cross_entropy(
    x: LogicalRegion, t: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of -t log x - (1 - t) log(1 - x), logarithms from -100 on, as torch's.

    Args, returns and raises as `binary_cross_entropy_with_logits`, but `x` are probabilities.
    """
    return _pairwise("binary_cross_entropy", _BINARY, x, t, name, reduction, {"tiny": exp(-100)})


def check_reduction(where: str, reduction: str, known: Sequence[str] = REDUCTIONS) -> None:
    """ValueError for what is no reduction."""
    if reduction not in known:
        *others, last = (f"'{each}'" for each in known)
        raise ValueError(f"{where}: reduction is '{reduction}', it is {', '.join(others)} or {last}")


def _pairwise(
    kind: str,
    rule: Elementwise,
    x: LogicalRegion,
    y: LogicalRegion,
    name: str | None,
    reduction: str,
    numbers: Mapping[str, float] | None = None,
    reductions: Sequence[str] = REDUCTIONS,
) -> LogicalRegion:
    where, numbers = checked(kind, name, x), dict(numbers or {})
    check_reduction(where, reduction, reductions)
    check_region(where, y)
    if x.shape != y.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{y.name}' is {y.shape}")
    if reduction == "none":
        return launch(kind, rule, {"x": x, "y": y, **numbers}, name)
    axes = term(distinct(x.axes))
    count = {"mean": prod(x.shape), "batchmean": (*x.shape, 1)[0]}.get(reduction, 1)
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
