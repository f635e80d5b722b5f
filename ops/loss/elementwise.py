"""Losses that compare two regions element by element; every axis may be split.

A loss with weights is composed of the losses of the elements and of their sum. Losses of classes are in `softmax`,
`cross_entropy` and `nll`.
"""

from __future__ import annotations

from math import exp

from ops.building import check_number, check_region, checked
from ops.elementwise.arithmetic import multiply
from ops.elementwise.broadcast import elementwise, launch
from ops.loss.pairwise import REDUCTIONS, check_reduction, pairwise
from ops.reduce.reductions import mean, sum
from taskflow import LogicalRegion

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
    "where(y == 0, 0, y * log(where(y == 0, 1, y))) - x * y",
    12,
    x="-g * y",
    y="g * (log(y) + y / y - x)",
)
_DIVERGENCE_OF_LOG = elementwise(
    "exp(y) * (y - x)", 12, x="-g * exp(y)", y="g * exp(y) * (y - x + 1)"
)
_SOFTPLUS = "(max(-x, 0) + log1p(exp(-abs(x))))"  # of -x
_WITH_LOGITS = elementwise(
    "max(x, 0) - x * y + log1p(exp(-abs(x)))", 20, x="g * (sigmoid(x) - y)", y="-g * x"
)
_BINARY = elementwise(  # logarithms from -100 on, as torch's
    "-(y * max(log(max(x, tiny)), -100) + (1 - y) * max(log(max(1 - x, tiny)), -100))",
    20,
    x="g * (x - y) / max(x * (1 - x), 9.999999960041972e-13)",
    y="g * (log(1 - x) - log(x))",
)
_POSITIVE = elementwise(
    f"(1 - y) * x + (1 + (p - 1) * y) * {_SOFTPLUS}",
    22,
    x="g * (1 - y - (1 + (p - 1) * y) * sigmoid(-x))",
    y=f"g * ((p - 1) * {_SOFTPLUS} - x)",
    p=f"g * y * {_SOFTPLUS}",
)


def mse_loss(
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
    return pairwise("mse_loss", _SQUARED, x, y, name, reduction)


def l1_loss(
    x: LogicalRegion, y: LogicalRegion, name: str | None = None, *, reduction: str = "mean"
) -> LogicalRegion:
    """The mean over all elements of |x - y|, as torch's l1_loss; args and errors as `mse_loss`."""
    return pairwise("l1_loss", _ABSOLUTE, x, y, name, reduction)


mean_squared_error = mse_loss
mean_absolute_error = l1_loss


def smooth_l1_loss(
    x: LogicalRegion,
    y: LogicalRegion,
    beta: float = 1.0,
    name: str | None = None,
    *,
    reduction: str = "mean",
) -> LogicalRegion:
    """The mean of d² / (2 beta) where |d| < beta, else |d| - beta / 2, d = x - y (Girshick, ICCV 2015), as torch's.

    Args, returns and raises as `mse_loss`; `beta` is finite, and 0 makes it `l1_loss`.
    """
    check_number(
        f"smooth_l1_loss '{name or 'smooth_l1_loss'}'", "beta", beta, "a finite number from 0 on"
    )
    return pairwise(
        "smooth_l1_loss",
        _SMOOTH,
        x,
        y,
        name,
        reduction,
        {"beta": beta, "divisor": beta or 1.0},
    )


def kl_div(
    x: LogicalRegion,
    t: LogicalRegion,
    name: str | None = None,
    *,
    reduction: str = "mean",
    log_target: bool = False,
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
    where = checked("kl_div", name, x)
    rule = _DIVERGENCE_OF_LOG if log_target else _DIVERGENCE
    if reduction == "batchmean" and x.ndim == 0:
        raise ValueError(
            f"{where}: '{x.name}' is a scalar, 'batchmean' divides by the extent of dimension 0"
        )
    return pairwise("kl_div", rule, x, t, name, reduction, reductions=(*REDUCTIONS, "batchmean"))


def huber_loss(
    x: LogicalRegion,
    y: LogicalRegion,
    delta: float = 1.0,
    name: str | None = None,
    *,
    reduction: str = "mean",
) -> LogicalRegion:
    """The mean of d² / 2 where |d| <= delta, else delta (|d| - delta / 2), d = x - y (Huber 1964), as torch's.

    Args, returns and raises as `mse_loss`; `delta` is positive.
    """
    check_number(f"huber_loss '{name or 'huber_loss'}'", "delta", delta, "a positive number")
    return pairwise("huber_loss", _HUBER, x, y, name, reduction, {"delta": delta})


def binary_cross_entropy_with_logits(
    x: LogicalRegion,
    t: LogicalRegion,
    name: str | None = None,
    *,
    reduction: str = "mean",
    weight: LogicalRegion | None = None,
    pos_weight: LogicalRegion | None = None,
) -> LogicalRegion:
    """The mean over all elements of -t log σ(x) - (1 - t) log(1 - σ(x)), as torch's function of this name.

    Args:
        x: scores before the sigmoid σ, any shape, floating point.
        t: targets in [0, 1] of the same shape, floating point; both get gradients.
        name: of the operator; with weights, of the losses of the elements, which `<name>.weighted` and `<name>.reduced`
            follow.
        reduction: "mean", "sum", or "none" for the errors themselves.
        weight: of each element, a region whose shape broadcasts to that of `x`; a mean is still that of all elements.
        pos_weight: factor of the first term, a region whose shape broadcasts to that of `x`.

    Returns:
        A scalar, or with "none" the shape of `x`.

    Raises:
        ValueError: the shapes do not agree, a dtype is wrong, or there is no such reduction.
    """
    kind = "binary_cross_entropy_with_logits"
    _check(kind, name, x, t, reduction, weight=weight, pos_weight=pos_weight)
    if weight is None and pos_weight is None:
        return pairwise(kind, _WITH_LOGITS, x, t, name, reduction)
    if pos_weight is None:
        losses = pairwise(kind, _WITH_LOGITS, x, t, name, "none")
    else:
        losses = launch(kind, _POSITIVE, {"x": x, "y": t, "p": pos_weight}, name)
    return _reduced(losses, weight, reduction)


def binary_cross_entropy(
    x: LogicalRegion,
    t: LogicalRegion,
    name: str | None = None,
    *,
    reduction: str = "mean",
    weight: LogicalRegion | None = None,
) -> LogicalRegion:
    """The mean over all elements of -t log x - (1 - t) log(1 - x), logarithms from -100 on, as torch's.

    Args, returns and raises as `binary_cross_entropy_with_logits`, but `x` are probabilities.
    """
    _check("binary_cross_entropy", name, x, t, reduction, weight=weight)
    numbers = {"tiny": exp(-103)}  # float32 has such a number, if not exp(-100) itself
    if weight is None:
        return pairwise("binary_cross_entropy", _BINARY, x, t, name, reduction, numbers)
    return _reduced(
        pairwise("binary_cross_entropy", _BINARY, x, t, name, "none", numbers), weight, reduction
    )


def _check(
    kind: str,
    name: str | None,
    x: LogicalRegion,
    t: LogicalRegion,
    reduction: str,
    **weights: LogicalRegion | None,
) -> None:
    where = checked(kind, name, x)
    check_reduction(where, reduction)
    check_region(where, t, "t")
    if x.shape != t.shape:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{t.name}' is {t.shape}")
    for role, weight in weights.items():
        if weight is not None:
            _check_weight(where, x, weight, role)


def _check_weight(where: str, x: LogicalRegion, weight: LogicalRegion, role: str) -> None:
    """ValueError unless it broadcasts to the shape of `x`."""
    check_region(where, weight, role)
    tail = x.shape[x.ndim - weight.ndim :] if weight.ndim <= x.ndim else ()
    if weight.ndim > x.ndim or any(
        n not in (1, m) for n, m in zip(weight.shape, tail, strict=True)
    ):
        raise ValueError(
            f"{where}: {role} '{weight.name}' is {weight.shape}, '{x.name}' is {x.shape}"
        )


def _reduced(losses: LogicalRegion, weight: LogicalRegion | None, reduction: str) -> LogicalRegion:
    name = losses.name
    with losses.graph.following(name):
        if weight is not None:
            losses = multiply(losses, weight, f"{name}.weighted")
        if reduction == "none":
            return losses
        return (mean if reduction == "mean" else sum)(losses, name=f"{name}.reduced")
