"""Padding with a number, and turning dimensions around."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import (
    check_dim,
    check_number,
    checked,
    distinct,
    is_integer,
    launch_first,
    term,
    terms,
)
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Window


def pad(
    x: LogicalRegion, pad: Sequence[int], value: float = 0.0, name: str | None = None
) -> LogicalRegion:
    """`value` around `x`, as torch.nn.functional.pad with mode "constant". Every axis may be split.

    Args:
        x: any shape and dtype.
        pad: points before and behind the last dimension, then the one before it, and so on; none is negative.
        value: a number.
        name: of the operator.

    Raises:
        ValueError: `pad` is not made of pairs, has more of them than `x` dimensions, or a negative number.

    >>> import ops, taskflow
    >>> x = taskflow.Graph().input("x", (2, 3))
    >>> ops.pad(x, (1, 0, 2, 2)).shape
    (6, 4)
    """
    where = checked("pad", name, x, floating=False)
    value = check_number(where, "value", value)
    if len(pad) % 2 or len(pad) > 2 * x.ndim or not all(is_integer(n) and n >= 0 for n in pad):
        raise ValueError(
            f"{where}: pad is {tuple(pad)}: pairs of numbers from 0, at most {x.ndim} of them, are needed"
        )
    before, behind = _per_dimension(pad, x.ndim)
    if not any(pad):
        return x
    axes = distinct(x.axes)
    keys = distinct([f"{a}_in" for a in axes], axes)
    return launch_first(
        name or "pad",
        f"{term(keys)} -> {term(axes)}",
        [x],
        kernel=_surround.bind(before=before, value=value),
        sizes={a: n + b + e for a, n, b, e in zip(axes, x.shape, before, behind, strict=True)},
        windows={key: Window(a, padding=b) for key, a, b in zip(keys, axes, before, strict=True)},
        backward=partial(_pad_backward, before=before),
    )


def _per_dimension(pad: Sequence[int], ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Points before and behind each dimension, the first one first."""
    missing = (0,) * (ndim - len(pad) // 2)
    return (*missing, *pad[::2][::-1]), (*missing, *pad[1::2][::-1])


def _pad_backward(op: Operator, gy: LogicalRegion, *, before: Sequence[int]) -> LogicalRegion:
    """The inner part, under the names of the axes of the padded one."""
    axes = terms(op)[1][0].split()
    keys = distinct([f"{a}_out" for a in axes], axes)
    return launch_first(
        f"{op.name}.dx",
        f"{term(keys)} -> {term(axes)}",
        [gy],
        kernel=_copy,
        sizes=dict(zip(axes, op.inputs[0].shape, strict=True)),
        windows={key: Window(a, padding=-b) for key, a, b in zip(keys, axes, before, strict=True)},
    )


@partial(Kernel, takes_mixed=True)
def _copy(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x)


@partial(Kernel, takes_mixed=True)
def _surround(ctx: Context, x: Array, y: Array, *, before: Sequence[int], value: float) -> None:
    y.fill(value)
    if x.size:
        starts = [
            lo + b - first
            for lo, b, first in zip(ctx.rect(0).lo, before, ctx.rect(1).lo, strict=True)
        ]
        y[tuple(map(_run, starts, x.shape))] = x


def _run(start: int, count: int) -> slice:
    return slice(start, start + count)


def flip(x: LogicalRegion, dims: int | Sequence[int], name: str | None = None) -> LogicalRegion:
    """Dimensions turned around, as torch.flip. Every axis may be split; a turned one is read whole.

    Args:
        x: any shape and dtype.
        dims: one or several.
        name: of the operator.

    Raises:
        ValueError: a dimension is out of range or named twice.
    """
    where = checked("flip", name, x, floating=False)
    dims = tuple(dims) if isinstance(dims, Sequence) else (dims,)
    turned = tuple(check_dim(where, k, x.ndim) for k in dims)
    if len(set(turned)) < len(turned):
        raise ValueError(f"{where}: dims {dims} names a dimension of '{x.name}' twice")
    axes = distinct(x.axes)
    read = distinct([f"{axis}_in" for axis in axes], axes)
    return _launch_flip(
        x,
        term(axes),
        [read[k] if k in turned else axes[k] for k in range(x.ndim)],
        turned,
        name,
    )


reverse = flip


def _launch_flip(
    x: LogicalRegion, out: str, read: Sequence[str], turned: tuple[int, ...], name: str | None
) -> LogicalRegion:
    return launch_first(
        name or "flip",
        f"{term([f'^{a}' if k in turned else a for k, a in enumerate(read)])} -> {out}",
        [x],
        kernel=_turn.bind(dims=turned),
        sizes={a: x.shape[k] for k, a in enumerate(out.replace(".", "").split())},
        backward=partial(_flip_backward, turned=turned),
        flops=1,
    )


def _flip_backward(op: Operator, gy: LogicalRegion, *, turned: tuple[int, ...]) -> LogicalRegion:
    (x_term,), (y_term,) = terms(op)
    return _launch_flip(gy, y_term, x_term.replace("^", "").split(), turned, f"{op.name}.dx")


@partial(Kernel, takes_mixed=True)
def _turn(ctx: Context, x: Array, y: Array, *, dims: tuple[int, ...]) -> None:
    """The tile of the output from the far end of what it reads whole."""
    box = ctx.rect(1)
    where = [slice(None)] * x.ndim
    for k in dims:
        where[k] = slice(x.shape[k] - box.hi[k], x.shape[k] - box.lo[k])
    ctx.xp.copyto(y, ctx.xp.flip(x[tuple(where)], dims))
