"""Softmax and its logarithm. Every axis may be split but, in one operator, the classes.

Composed, three operators read the scores: their maximum, the sum of exponentials, and the result; each combines the
partial results of its tiles. `softmax` in one operator reads them once.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ops.building import (
    check_dim,
    check_integers,
    check_positive,
    checked,
    distinct,
    is_integer,
    launch_first,
    term,
    terms,
)
from ops.cuda import rows as gpu_rows
from ops.elementwise.formula import Term, formula
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.tiles import deliver, last, rows, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_VALUES = {
    "softmax": "exp(x - largest) / total",
    "softmax of seen": "exp(x - largest) / (total + (total == 0))",
    "log_softmax": "x - largest - log(total)",
}
_SUMS = {"softmax": "g * z", "softmax of seen": "g * z", "log_softmax": "g"}
_GRADIENTS = {
    "softmax": "(g - row) * z",
    "softmax of seen": "(g - row) * z",
    "log_softmax": "g - row * exp(z)",
}
_SEEN = Expression.parse("where(x < least, 0, y)")


def _least(dtype: str) -> float:
    """The least finite number; half precision is computed in float32."""
    return -float(np.finfo("float64" if dtype == "float64" else "float32").max)


def softmax(
    x: LogicalRegion,
    dim: int = -1,
    name: str | None = None,
    *,
    composed: bool = False,
    zero_rows: bool = False,
) -> LogicalRegion:
    """exp(x) / sum over `dim` of exp(x), as torch.nn.functional.softmax.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension that sums to one; it is never split unless the operator is composed.
        name: of the operator.
        composed: of maximum, sum and result, which read `x` three times, so that `dim` may be split.
        zero_rows: whether nothing but minus infinity along `dim` gives zeros, without a gradient, as in torch's
            attention where a query sees no key; else NaN.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    if composed:
        return _composed("softmax of seen" if zero_rows else "softmax", x, dim, name)
    dim = check_dim(checked("softmax", name, x), dim, x.ndim)
    axes = term([f"^{a}" if k == dim else a for k, a in enumerate(distinct(x.axes))])
    return launch_first(
        name or "softmax",
        f"{axes} -> {axes}",
        [x],
        kernel=(_softmax_of_seen if zero_rows else _softmax).bind(dim=dim),
        backward=partial(_softmax_backward, dim=dim),
        flops=10,
    )


def _softmax_backward(op: Operator, gy: LogicalRegion, *, dim: int) -> LogicalRegion:
    axes = terms(op)[1][0]
    kernel = _softmax_gradient.bind(dim=dim)
    pattern = f"{axes}, {axes} -> {axes}"
    return launch_first(
        f"{op.name}.dx",
        pattern,
        [gy, op.outputs[0]],
        kernel=kernel,
        flops=4,
    )


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.softmax)
def _softmax(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    from ops.cpu import rows as cpu_rows

    x = last(x, dim)
    y = last(y, dim)
    work = work_array(ctx, "y", y)
    ctx.call(cpu_rows.softmax, rows(ctx, "x", x), work.reshape(-1, x.shape[-1]))
    deliver(ctx, work, y)


@partial(Kernel, takes_mixed=True)
def _softmax_of_seen_on_gpu(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    gpu_rows.softmax(ctx, x, y, dim=dim)
    cuda_source.evaluate(ctx, _SEEN, {"x": x, "y": y, "least": _least(x.dtype.name)}, y)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_softmax_of_seen_on_gpu)
def _softmax_of_seen(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    from ops.cpu import rows as cpu_rows

    x = last(x, dim)
    y = last(y, dim)
    read = rows(ctx, "x", x)
    work = work_array(ctx, "y", y)
    ctx.call(cpu_rows.softmax, read, work.reshape(-1, x.shape[-1]))
    ctx.call(cpu_rows.clear_unseen, read, work.reshape(-1, x.shape[-1]))
    deliver(ctx, work, y)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.softmax_gradient)
def _softmax_gradient(ctx: Context, gy: Array, y: Array, gx: Array, *, dim: int) -> None:
    from ops.cpu import rows as cpu_rows

    gy, y, gx = (last(a, dim) for a in (gy, y, gx))
    work = work_array(ctx, "gx", gx)
    ctx.call(
        cpu_rows.softmax_gradient,
        rows(ctx, "gy", gy),
        rows(ctx, "y", y),
        work.reshape(-1, y.shape[-1]),
    )
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
    public = kind.partition(" ")[0]
    dim = check_dim(checked(public, name, x), dim, x.ndim)
    axes = distinct(x.axes)
    row = term((*axes[:dim], *axes[dim + 1 :]))
    name = x.graph.unique_name(name or public)
    with x.graph.following(name):
        inputs = _with_sums(kind, name, x, term(axes), row)
    return formula(
        name,
        _VALUES[kind],
        inputs,
        term(axes),
        backward=partial(_composed_backward, kind=kind),
        flops=10,
    )


def _with_sums(kind: str, name: str, x: LogicalRegion, full: str, row: str) -> dict[str, Term]:
    """`x`, the maximum of each row, and the sum of its exponentials."""
    text = "x"
    numbers: dict[str, float] = {}
    if kind == "softmax of seen":
        text = "max(x, least)"
        numbers["least"] = _least(x.dtype)
    inputs = {"x": (x, full)}
    inputs["largest"] = formula(f"{name}.max", text, inputs, row, "max", numbers=numbers), row
    inputs["total"] = formula(f"{name}.total", "exp(x - largest)", inputs, row, flops=10), row
    return inputs


def _composed_backward(
    op: Operator, g: LogicalRegion, *, kind: str
) -> tuple[LogicalRegion, None, None]:
    """That of maximum and sum is in it already."""
    (full, row, _), _ = terms(op)
    flowing = {"g": (g, full), "z": (op.outputs[0], full)}
    sums = formula(
        f"{op.name}.sums", _SUMS[kind], {k: v for k, v in flowing.items() if k in _SUMS[kind]}, row
    )
    return (
        formula(f"{op.name}.dx", _GRADIENTS[kind], flowing | {"row": (sums, row)}, full),
        None,
        None,
    )


def check_columns(where: str, y: LogicalRegion, classes: int | None) -> int:
    """The number of classes, all columns where none is given; ValueError where there are more than columns."""
    count = y.shape[-1] if classes is None else classes
    check_positive(where, classes=count)
    if count > y.shape[-1]:
        raise ValueError(f"{where}: classes is {count}, '{y.name}' has {y.shape[-1]} columns")
    return count


def check_ignored(where: str, ignored: int | None) -> int | None:
    """`ignore_index` as an integer of Python; ValueError for what is none."""
    if ignored is not None and not is_integer(ignored):
        raise ValueError(f"{where}: ignore_index is {ignored!r}, an integer or None is needed")
    return None if ignored is None else int(ignored)


def check_targets(kind: str, name: str | None, y: LogicalRegion, t: LogicalRegion) -> str:
    """As `checked`: ValueError unless `y` is (..., classes) of floating point and `t` is (...) of integers."""
    where = checked(kind, name, y, "y")
    check_integers(where, t, "t")
    if y.ndim == 0 or t.shape != y.shape[:-1]:
        raise ValueError(
            f"{where}: '{y.name}' is {y.shape} and '{t.name}' is {t.shape}, not {y.shape[:-1]}"
        )
    return where
