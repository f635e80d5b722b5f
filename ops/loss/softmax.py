"""Softmax, its logarithm, and the loss that is made of it. Every axis may be split but, in one operator, the classes.

Composed, three operators read the scores: their maximum, the sum of exponentials, and the result; each combines the
partial results of its tiles. `softmax` in one operator reads them once.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import check_dim, check_integers, check_positive, checked, distinct, launch_first, term, terms
from ops.cuda import rows as gpu_rows
from ops.elementwise.formula import formula
from ops.tiles import check_classes, contiguous, deliver, last, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_VALUES = {"softmax": "exp(x - largest) / total", "log_softmax": "x - largest - log(total)"}
_SUMS = {"softmax": "g * z", "log_softmax": "g"}
_GRADIENTS = {"softmax": "(g - row) * z", "log_softmax": "g - row * exp(z)"}


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
        return _composed("softmax", x, dim, name)
    dim = check_dim(checked("softmax", name, x), dim, x.ndim)
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


def log_softmax(x: LogicalRegion, dim: int = -1, name: str | None = None) -> LogicalRegion:
    """x - log(sum over `dim` of exp(x)), as torch.nn.functional.log_softmax.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension whose exponentials sum to one; it may be split.
        name: of the operator; what it reads is made by `<name>.max` and `<name>.total`.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    return _composed("log_softmax", x, dim, name)


def _composed(kind: str, x: LogicalRegion, dim: int, name: str | None) -> LogicalRegion:
    """`kind` is a key of `_VALUES`."""
    dim = check_dim(checked(kind, name, x), dim, x.ndim)
    axes = distinct(x.axes)
    full, row = term(axes), term((*axes[:dim], *axes[dim + 1 :]))
    name = x.graph.unique_name(name or kind)
    with x.graph.following(name):
        largest = formula(f"{name}.max", "x", {"x": (x, full)}, row, "max")
        inputs = {"x": (x, full), "largest": (largest, row)}
        total = formula(f"{name}.total", "exp(x - largest)", inputs, row, flops=10)
    inputs["total"] = total, row
    return formula(name, _VALUES[kind], inputs, full, backward=partial(_composed_backward, kind=kind), flops=10)


def _composed_backward(op: Operator, g: LogicalRegion, *, kind: str) -> tuple[LogicalRegion, None, None]:
    """That of maximum and sum is in it already."""
    (full, row, _), _ = terms(op)
    flowing = {"g": (g, full), "z": (op.outputs[0], full)}
    sums = formula(f"{op.name}.sums", _SUMS[kind], {k: v for k, v in flowing.items() if k in _SUMS[kind]}, row)
    return formula(f"{op.name}.dx", _GRADIENTS[kind], flowing | {"row": (sums, row)}, full), None, None


def softmax_cross_entropy(
    y: LogicalRegion, t: LogicalRegion, name: str | None = None, *, classes: int | None = None
) -> LogicalRegion:
    """The mean over all rows of -log softmax(y)[t], as torch.nn.functional.cross_entropy with integer targets.

    Of the softmax it keeps one number of each row, the logarithm of the sum of exponentials; the gradient makes the
    probabilities anew.

    Args:
        y: (..., columns), floating point: one row of scores per prediction.
        t: (...), integers: the right class of each row. A class out of range is a ValueError when the step runs.
        name: of the operator.
        classes: the columns behind so many are padding, with no part in the loss and no gradient: a vocabulary whose
            size is a multiple of 64 makes for faster products. None: all columns are classes.

    Returns:
        A scalar of the dtype of `y`. Split over rows, each task holds the share of its rows in the mean of all.

    Raises:
        ValueError: the shapes do not agree, there are fewer columns than classes, or a dtype is wrong.
    """
    where = check_targets("softmax_cross_entropy", name, y, t)
    count = check_columns(where, y, classes)
    *lead, columns = distinct(y.axes)
    y_term, options = term((*lead, f"^{columns}")), {"classes": count, "count": prod(t.shape)}
    return launch_first(
        name or "softmax_cross_entropy",
        f"{y_term}, {term(lead)} -> ., {term(lead)}",
        [y, t],
        kernel=_cross_entropy.bind(**options),
        backward=partial(_cross_entropy_backward, classes=count, count=prod(t.shape)),
        flops=12,
    )


def check_columns(where: str, y: LogicalRegion, classes: int | None) -> int:
    """The number of classes, all columns where none is given; ValueError where there are more than columns."""
    count = y.shape[-1] if classes is None else classes
    check_positive(where, classes=count)
    if count > y.shape[-1]:
        raise ValueError(f"{where}: classes is {count}, '{y.name}' has {y.shape[-1]} columns")
    return count


def check_targets(kind: str, name: str | None, y: LogicalRegion, t: LogicalRegion) -> str:
    """As `checked`: ValueError unless `y` is (..., classes) of floating point and `t` is (...) of integers."""
    where = checked(kind, name, y, "y")
    check_integers(where, t, "t")
    if y.ndim == 0 or t.shape != y.shape[:-1]:
        raise ValueError(f"{where}: '{y.name}' is {y.shape} and '{t.name}' is {t.shape}, not {y.shape[:-1]}")
    return where


@partial(Kernel, is_compiled=True, float32_outputs=(0, 1), cuda=gpu_rows.cross_entropy)
def _cross_entropy(ctx: Context, y: Array, t: Array, loss: Array, levels: Array, *, classes: int, count: int) -> None:
    from ops.cpu import rows as cpu_rows

    check_classes("softmax_cross_entropy: the target", t, classes)
    work, row = work_array(ctx, "levels", levels), ctx.scratch("row", (classes,), y.dtype)
    target = contiguous(ctx, "t", t).reshape(-1)
    loss[...] = cpu_rows.cross_entropy(rows(ctx, "y", y), target, row, work.reshape(-1)) / count
    deliver(ctx, work, levels)


def _cross_entropy_backward(
    op: Operator, gloss: LogicalRegion | None, glevels: LogicalRegion | None, **options: int
) -> tuple[LogicalRegion, None]:
    if gloss is None or glevels is not None:
        raise ValueError(f"softmax_cross_entropy '{op.name}': only the loss can be differentiated")
    y, t = op.inputs
    (y_term, t_term), _ = terms(op)
    pattern, inputs = f"., {y_term}, {t_term}, {t_term} -> {y_term}", [gloss, y, op.outputs[1], t]
    kernel = _cross_entropy_gradient.bind(**options)
    return launch_first(f"{op.name}.dx", pattern, inputs, kernel=kernel, flops=10, dtype=y.dtype), None


@partial(Kernel, is_compiled=True, cuda=gpu_rows.cross_entropy_gradient)
def _cross_entropy_gradient(ctx: Context, *arrays: Array, classes: int, count: int) -> None:
    from ops.cpu import rows as cpu_rows

    gloss, y, levels, t, gy = arrays
    work, scale = work_array(ctx, "gy", gy), gy.dtype.type(gloss / count)
    flat = [contiguous(ctx, slot, a).reshape(-1) for slot, a in (("levels", levels), ("t", t))]
    cpu_rows.cross_entropy_gradient(scale, rows(ctx, "y", y), *flat, classes, work.reshape(-1, gy.shape[-1]))
    deliver(ctx, work, gy)
