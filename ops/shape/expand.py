"""Dimensions of one point made longer or taken away, and another dtype; every axis may be split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import (
    check_dim,
    check_region,
    checked,
    distinct,
    is_integer,
    launch_first,
    no_gradient,
    term,
    terms,
)
from ops.reduce.reductions import named_dims, sum_to
from ops.shape.rearrange import reshape
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def expand(x: LogicalRegion, shape: Sequence[int], name: str | None = None) -> LogicalRegion:
    """Dimensions of one point repeated, and new ones in front, as torch.Tensor.expand; each task copies its tile.

    Args:
        x: any shape and dtype; the gradient needs floating point.
        shape: extents; -1 stands for that of `x`.
        name: of the operator.

    Raises:
        ValueError: `x` does not broadcast to `shape`.
    """
    target = _target(checked("expand", name, x, floating=False), x, shape)
    if target == x.shape:
        return x
    lead = len(target) - x.ndim
    axes = distinct([*(f"a{k}" for k in range(lead)), *x.axes])
    read = ["1" if n != target[lead + k] else axes[lead + k] for k, n in enumerate(x.shape)]
    return launch_first(
        name or "expand",
        f"{term(read)} -> {term(axes)}",
        [x],
        kernel=_repeat,
        sizes=dict(zip(axes, target, strict=True)),
        backward=_expand_backward,
    )


def _target(where: str, x: LogicalRegion, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape without -1; ValueError unless `x` broadcasts to it."""
    if not all(map(is_integer, shape)):
        raise ValueError(f"{where}: the shape is {tuple(shape)}, integers are needed")
    lead = len(shape) - x.ndim
    target = tuple(x.shape[k - lead] if n == -1 and k >= lead else n for k, n in enumerate(shape))
    if (
        lead < 0
        or any(n not in (1, m) for n, m in zip(x.shape, target[lead:]))
        or any(n < 1 for n in target)
    ):
        raise ValueError(
            f"{where}: '{x.name}' has shape {x.shape}, which does not broadcast to {tuple(shape)}"
        )
    return target


@partial(Kernel, takes_mixed=True)
def _repeat(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x)


def _expand_backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    return sum_to(gy, op.inputs[0], f"{op.name}.dx")


def squeeze(
    x: LogicalRegion, dim: int | Sequence[int] | None = None, name: str | None = None
) -> LogicalRegion:
    """Without dimensions of one point, as torch.squeeze: those named, where they have one point, or all.

    Args:
        x: any shape and dtype.
        dim: one or several; None for every dimension of one point.
        name: of the operator, a `reshape`.

    Raises:
        ValueError: a dimension is out of range.
    """
    where = checked("squeeze", name, x, floating=False)
    dims = {check_dim(where, d, x.ndim) for d in named_dims(dim, x.ndim)}
    shape = [n for k, n in enumerate(x.shape) if n > 1 or k not in dims]
    return x if len(shape) == x.ndim else reshape(x, shape, name or "squeeze")


def unsqueeze(x: LogicalRegion, dim: int, name: str | None = None) -> LogicalRegion:
    """With a dimension of one point before dimension `dim` of the result, as torch.unsqueeze.

    Args:
        x: any shape and dtype.
        dim: the place of the new dimension in the result, counted from the end if it is negative.
        name: of the operator, a `reshape`.

    Raises:
        ValueError: `dim` is out of range.
    """
    where = checked("unsqueeze", name, x, floating=False)
    dim = check_dim(where, dim, x.ndim + 1)
    return reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]), name or "unsqueeze")


def cast(x: LogicalRegion, dtype: str, name: str | None = None) -> LogicalRegion:
    """The same values in another dtype, as NumPy's astype; `x` itself if it has that dtype.

    Args:
        x: any shape and dtype.
        dtype: NumPy dtype name.
        name: of the operator.

    Returns:
        The shape of `x`; between floating point dtypes it has a gradient.

    Raises:
        TypeError: `x` is no region, or there is no such dtype.
    """
    check_region(f"cast '{name or 'cast'}'", x, floating=False)
    if x.dtype == dtype:
        return x
    axes = term(distinct(x.axes))
    pattern = f"{axes} -> {axes}"
    backward = _cast_backward if x.is_floating and "float" in dtype else no_gradient
    return launch_first(
        name or "cast",
        pattern,
        [x],
        kernel=_cast,
        backward=backward,
        dtype=dtype,
    )


@partial(Kernel, takes_mixed=True)
def _cast(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x, casting="unsafe")


def _cast_backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    axes = terms(op)[1][0]
    dtype = op.inputs[0].dtype
    return launch_first(
        f"{op.name}.dx",
        f"{axes} -> {axes}",
        [gy],
        kernel=_cast,
        dtype=dtype,
    )


def detach(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The same values, of which no gradient passes to `x`, as torch.Tensor.detach.

    Args:
        x: any shape and dtype.
        name: of the operator.
    """
    checked("detach", name, x, floating=False)
    axes = term(distinct(x.axes))
    return launch_first(
        name or "detach",
        f"{axes} -> {axes}",
        [x],
        kernel=_repeat,
        backward=no_gradient,
        dtype=x.dtype,
    )
