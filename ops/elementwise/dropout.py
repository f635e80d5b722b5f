"""Dropout and Gumbel noise: they depend on (seed, operator, step, global index), never on the partition.

The mask is not kept for the backward operator, which makes it again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ops.building import check_number, checked, distinct, first, launch_first, term, terms
from ops.cuda import kernels as gpu
from ops.elementwise.formula import formula
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def dropout(
    x: LogicalRegion, p: float = 0.5, training: bool = True, name: str | None = None
) -> LogicalRegion:
    """Zeroes each element with probability `p` and scales the others by 1 / (1 - p), as torch.nn.functional.dropout.

    Args:
        x: any shape, floating point.
        p: probability of zero, in [0, 1].
        training: when False, or p is 0, the result is `x` itself.
        name: of the operator; it is part of what the mask depends on.

    Raises:
        ValueError: `p` is not a probability, or `x` is of another dtype.
    """
    where = checked("dropout", name, x)
    share = check_number(where, "p", p, "a number in [0, 1]")
    if not training or share == 0:
        return x
    name = x.graph.unique_name(name or "dropout")
    axes = term(distinct(x.axes))
    kernel = _drop.bind(name=name, p=share, shape=x.shape)
    return launch_first(
        name,
        f"{axes} -> {axes}",
        [x],
        kernel=kernel,
        backward=_backward,
        flops=20,
    )


def dropout1d(
    x: LogicalRegion, p: float = 0.5, training: bool = True, name: str | None = None
) -> LogicalRegion:
    """`dropout2d` of sequences, (batch, channels, steps)."""
    return _drop_channels("dropout1d", x, p, training, name, 3)


def dropout2d(
    x: LogicalRegion, p: float = 0.5, training: bool = True, name: str | None = None
) -> LogicalRegion:
    """Zeroes each channel of each image with probability `p` and scales the others by 1 / (1 - p), as torch's.

    Args:
        x: (batch, channels, height, width), floating point; every axis may be split.
        p: probability of zero, in [0, 1].
        training: when False, or p is 0, the result is `x` itself.
        name: of the operator; the scales of the channels are `<name>.scales`, on whose name the mask depends.

    Raises:
        ValueError: `x` has not four dimensions or is of another dtype, or `p` is not a probability.
    """
    return _drop_channels("dropout2d", x, p, training, name, 4)


def dropout3d(
    x: LogicalRegion, p: float = 0.5, training: bool = True, name: str | None = None
) -> LogicalRegion:
    """`dropout2d` of volumes, (batch, channels, depth, height, width)."""
    return _drop_channels("dropout3d", x, p, training, name, 5)


def gumbel(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """x + Gumbel noise, -log(-log u) for u uniform in (0, 1), new in every step; the gradient is that of x.

    The largest of a row is then a draw from softmax(x) (Jang, Gu and Poole, ICLR 2017).

    Args:
        x: any shape, floating point.
        name: of the operator; it is part of what the noise depends on.

    Raises:
        ValueError: `x` is of another dtype.
    """
    checked("gumbel", name, x)
    name = x.graph.unique_name(name or "gumbel")
    axes = term(distinct(x.axes))
    kernel = _add_gumbel.bind(name=name, shape=x.shape)
    return launch_first(
        name,
        f"{axes} -> {axes}",
        [x],
        kernel=kernel,
        backward=lambda op, gy: gy,
        flops=20,
    )


def _drop_channels(
    kind: str,
    x: LogicalRegion,
    p: float,
    training: bool,
    name: str | None,
    ndim: int,
) -> LogicalRegion:
    p = check_number(checked(kind, name, x, ndim=(ndim,)), "p", p, "a number in [0, 1]")
    if not training or p == 0:
        return x
    name = x.graph.unique_name(name or kind)
    axes = distinct(x.axes)
    with x.graph.following(name):
        ones = x.graph.launch(
            f"{name}.ones",
            f"-> {term(axes[:2])}",
            [],
            kernel=_fill,
            sizes=dict(zip(axes, x.shape[:2])),
            dtype=x.dtype,
        )
        scales = dropout(first(ones), p, name=f"{name}.scales")
    return formula(
        name,
        "x * scale",
        {"x": (x, term(axes)), "scale": (scales, term(axes[:2]))},
        term(axes),
        backward=_channels_backward,
    )


def _channels_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, None]:
    (full, channels), _ = terms(op)
    inputs = {"g": (g, full), "scale": (op.inputs[1], channels)}
    return formula(f"{op.name}.dx", "g * scale", inputs, full), None


def _backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    """The same mask on the gradient: the kernel knows the name of the forward operator."""
    axes = terms(op)[1][0]
    return launch_first(
        f"{op.name}.dx",
        f"{axes} -> {axes}",
        [gy],
        kernel=op.kernel,
        backward=_backward,
        flops=20,
    )


def _uniform(ctx: Context, *args: Any) -> None:
    ctx.uniform(*args)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu.drop)
def _drop(ctx: Context, x: Array, y: Array, *, name: str, p: float, shape: tuple[int, ...]) -> None:
    number = ctx.scratch("number", y.shape, "float64")
    ctx.each_step(_uniform, number, name, shape, ctx.rect(1))
    kept = ctx.scratch("kept", y.shape, bool)
    ctx.xp.greater_equal(number, p, out=kept)
    ctx.xp.multiply(x, 1 / (1 - p) if p < 1 else 0.0, out=y)
    ctx.xp.multiply(y, kept, out=y)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu.gumbel)
def _add_gumbel(ctx: Context, x: Array, y: Array, *, name: str, shape: tuple[int, ...]) -> None:
    number = ctx.scratch("number", y.shape, "float64")
    ctx.each_step(_uniform, number, name, shape, ctx.rect(1))
    ctx.xp.maximum(number, 2.0**-54, out=number)
    ctx.xp.log(number, out=number)
    ctx.xp.negative(number, out=number)
    ctx.xp.log(number, out=number)
    ctx.xp.subtract(x, number, out=y, casting="same_kind")


@partial(Kernel, takes_mixed=True)
def _fill(ctx: Context, ones: Array) -> None:
    ones.fill(1)
