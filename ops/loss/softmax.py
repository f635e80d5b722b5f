"""Softmax, and the loss that is made of it; the classes stay whole, every other axis may be split."""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import check_dim, check_integers, check_region, distinct, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.loss.composed_softmax import composed_softmax
from ops.tiles import check_classes, contiguous, deliver, last, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def softmax(x: LogicalRegion, dim: int = -1, name: str | None = None, *, composed: bool = False) -> LogicalRegion:
    """exp(x) / sum over `dim` of exp(x), as torch.nn.functional.softmax.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension that sums to one; it is never split unless the operator is composed.
        name: of the operator.
        composed: of maximum, sum and result, which read `x` three times, so that `dim` may be split.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    if composed:
        return composed_softmax("softmax", x, dim, name)
    where = f"softmax '{name or 'softmax'}'"
    check_region(where, x)
    dim = check_dim(where, dim, x.ndim)
    axes = term([f"^{a}" if k == dim else a for k, a in enumerate(distinct(x.axes))])
    return launch_first(
        name or "softmax",
        f"{axes} -> {axes}",
        [x],
        kernel=_softmax.bind(dim=dim),
        backward=partial(_softmax_backward, dim=dim),
        flops=10,
    )


def _softmax_backward(op: Operator, gy: LogicalRegion, *, dim: int) -> LogicalRegion:
    axes = terms(op)[1][0]
    kernel = _softmax_gradient.bind(dim=dim)
    pattern = f"{axes}, {axes} -> {axes}"
    return launch_first(f"{op.name}.dx", pattern, [gy, op.outputs[0]], kernel=kernel, flops=4)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.softmax)
def _softmax(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    from ops.cpu import rows as cpu_rows

    x, y = last(x, dim), last(y, dim)
    work = work_array(ctx, "y", y)
    ctx.call(cpu_rows.softmax, rows(ctx, "x", x), work.reshape(-1, x.shape[-1]))
    deliver(ctx, work, y)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.softmax_gradient)
def _softmax_gradient(ctx: Context, gy: Array, y: Array, gx: Array, *, dim: int) -> None:
    from ops.cpu import rows as cpu_rows

    gy, y, gx = (last(a, dim) for a in (gy, y, gx))
    work = work_array(ctx, "gx", gx)
    ctx.call(cpu_rows.softmax_gradient, rows(ctx, "gy", gy), rows(ctx, "y", y), work.reshape(-1, y.shape[-1]))
    deliver(ctx, work, gx)


def softmax_cross_entropy(y: LogicalRegion, t: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The mean over all rows of -log softmax(y)[t], as torch.nn.functional.cross_entropy with integer targets.

    Args:
        y: (..., classes), floating point: one row of scores per prediction.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        name: of the operator.

    Returns:
        A scalar of the dtype of `y`. Split over rows, each task holds the share of its rows in the mean of all.

    Raises:
        ValueError: the shapes do not agree, or a dtype is wrong.
    """
    where = f"softmax_cross_entropy '{name or 'softmax_cross_entropy'}'"
    check_targets(where, y, t)
    *lead, classes = distinct(y.axes)
    y_term = term((*lead, f"^{classes}"))
    return launch_first(
        name or "softmax_cross_entropy",
        f"{y_term}, {term(lead)} -> ., {y_term}",
        [y, t],
        kernel=_cross_entropy.bind(count=prod(t.shape)),
        backward=_cross_entropy_backward,
        flops=12,
    )


def check_targets(where: str, y: LogicalRegion, t: LogicalRegion) -> None:
    """ValueError unless `y` is (..., classes) of floating point and `t` is (...) of integers."""
    check_region(where, y, "y")
    check_integers(where, t, "t")
    if y.ndim == 0 or t.shape != y.shape[:-1]:
        raise ValueError(f"{where}: '{y.name}' is {y.shape} and '{t.name}' is {t.shape}, not {y.shape[:-1]}")


@partial(Kernel, is_compiled=True, float32_outputs=(1,), cuda=gpu_rows.cross_entropy)
def _cross_entropy(ctx: Context, y: Array, t: Array, loss: Array, probability: Array, *, count: int) -> None:
    from ops.cpu import rows as cpu_rows

    check_classes("softmax_cross_entropy: the target", t, y.shape[-1])
    work = work_array(ctx, "probability", probability)
    target = contiguous(ctx, "t", t).reshape(-1)
    loss[...] = cpu_rows.cross_entropy(rows(ctx, "y", y), target, work.reshape(-1, y.shape[-1])) / count
    deliver(ctx, work, probability)


def _cross_entropy_backward(
    op: Operator, gloss: LogicalRegion | None, gprobability: LogicalRegion | None
) -> tuple[LogicalRegion, None]:
    if gloss is None or gprobability is not None:
        raise ValueError(f"softmax_cross_entropy '{op.name}': only the loss can be differentiated")
    y, t = op.inputs
    (y_term, t_term), _ = terms(op)
    kernel = _cross_entropy_gradient.bind(count=prod(t.shape))
    pattern, inputs = f"., {y_term}, {t_term} -> {y_term}", [gloss, op.outputs[1], t]
    return launch_first(f"{op.name}.dx", pattern, inputs, kernel=kernel, flops=2, dtype=y.dtype), None


@partial(Kernel, is_compiled=True, cuda=gpu_rows.cross_entropy_gradient)
def _cross_entropy_gradient(ctx: Context, gloss: Array, probability: Array, t: Array, gy: Array, *, count: int) -> None:
    from ops.cpu import rows as cpu_rows

    work, target = work_array(ctx, "gy", gy), contiguous(ctx, "t", t).reshape(-1)
    scale = gy.dtype.type(gloss / count)
    cpu_rows.cross_entropy_gradient(
        scale, rows(ctx, "probability", probability), target, work.reshape(-1, gy.shape[-1])
    )
    deliver(ctx, work, gy)
