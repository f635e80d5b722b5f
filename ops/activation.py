"""Activations: elementwise functions of one region; every axis may be split."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi, sqrt

from ops.build import check_region, distinct, first, term, terms
from ops.tiles import Array, Context, compiled_kernels, contiguous, deliver, in_memory_order, work_array
from taskflow import LogicalRegion, Operator, compiled


def relu(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """max(x, 0). `x`: any shape, floating point; ValueError for another dtype."""
    return _activation("relu", x, name, _relu, partial(_from_output, kernel=_relu_gradient), 1)


def sigmoid(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """1 / (1 + exp(-x)). `x`: any shape, floating point; ValueError for another dtype."""
    return _activation("sigmoid", x, name, _sigmoid, partial(_from_output, kernel=_sigmoid_gradient), 8)


def tanh(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Hyperbolic tangent. `x`: any shape, floating point; ValueError for another dtype."""
    return _activation("tanh", x, name, _tanh, partial(_from_output, kernel=_tanh_gradient), 8)


def gelu(x: LogicalRegion, approximate: str = "none", name: str | None = None) -> LogicalRegion:
    """x Φ(x) (Hendrycks and Gimpel 2016), as torch.nn.functional.gelu.

    Args:
        x: any shape, floating point.
        approximate: "none" for the normal distribution function itself (erf), "tanh" for its approximation.
        name: of the operator.

    Raises:
        ValueError: `approximate` is neither, or `x` is of another dtype.
    """
    kernels = {"none": (_gelu, _gelu_gradient), "tanh": (_gelu_tanh, _gelu_tanh_gradient)}
    if approximate not in kernels:
        raise ValueError(f"gelu '{name or 'gelu'}': approximate is '{approximate}', it is 'none' or 'tanh'")
    kernel, gradient = kernels[approximate]
    return _activation("gelu", x, name, kernel, partial(_from_input, kernel=gradient), 20)


def _activation(
    kind: str,
    x: LogicalRegion,
    name: str | None,
    kernel: Callable[..., None],
    backward: Callable[..., LogicalRegion],
    flops: float,
) -> LogicalRegion:
    check_region(f"{kind} '{name or kind}'", x)
    axes = term(distinct(x.axes))
    pattern = f"{axes} -> {axes}"
    return first(x.graph.launch(name or kind, pattern, [x], kernel=kernel, backward=backward, flops=flops))


def _from_output(op: Operator, gy: LogicalRegion, *, kernel: Callable[..., None]) -> LogicalRegion:
    """The gradient where the derivative is known from the output: the input need not be kept."""
    return _gradient(op, gy, op.outputs[0], kernel)


def _from_input(op: Operator, gy: LogicalRegion, *, kernel: Callable[..., None]) -> LogicalRegion:
    return _gradient(op, gy, op.inputs[0], kernel)


def _gradient(op: Operator, gy: LogicalRegion, known: LogicalRegion, kernel: Callable[..., None]) -> LogicalRegion:
    axes = terms(op)[1][0]
    pattern = f"{axes}, {axes} -> {axes}"
    return first(gy.graph.launch(f"{op.name}.dx", pattern, [gy, known], kernel=kernel, flops=op.flops))


def _relu(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.maximum(x, 0, out=y)


@compiled
def _relu_gradient(ctx: Context, gy: Array, y: Array, gx: Array) -> None:
    gx, gy, y = in_memory_order(gx, gy, y)
    work = work_array(ctx, "gx", gx)
    compiled_kernels(ctx).relu_gradient(
        contiguous(ctx, "gy", gy).reshape(-1), contiguous(ctx, "y", y).reshape(-1), work.reshape(-1)
    )
    deliver(ctx, work, gx)


def _sigmoid(ctx: Context, x: Array, y: Array) -> None:
    """(1 + tanh(x / 2)) / 2 does not overflow."""
    ctx.xp.multiply(x, 0.5, out=y)
    ctx.xp.tanh(y, out=y)
    ctx.xp.multiply(y, 0.5, out=y)
    ctx.xp.add(y, 0.5, out=y)


def _sigmoid_gradient(ctx: Context, gy: Array, y: Array, gx: Array) -> None:
    ctx.xp.subtract(1, y, out=gx)
    ctx.xp.multiply(gx, y, out=gx)
    ctx.xp.multiply(gx, gy, out=gx)


def _tanh(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.tanh(x, out=y)


def _tanh_gradient(ctx: Context, gy: Array, y: Array, gx: Array) -> None:
    ctx.xp.multiply(y, y, out=gx)
    ctx.xp.subtract(1, gx, out=gx)
    ctx.xp.multiply(gx, gy, out=gx)


@compiled
def _gelu(ctx: Context, x: Array, y: Array) -> None:
    x, y = in_memory_order(x, y)
    work = work_array(ctx, "y", y)
    compiled_kernels(ctx).gelu(contiguous(ctx, "x", x).reshape(-1), work.reshape(-1))
    deliver(ctx, work, y)


@compiled
def _gelu_gradient(ctx: Context, gy: Array, x: Array, gx: Array) -> None:
    x, gy, gx = in_memory_order(x, gy, gx)
    x, work = contiguous(ctx, "x", x), work_array(ctx, "gx", gx)
    if not ctx.is_cuda:
        ctx.xp.multiply(x, x, out=work)
        ctx.xp.multiply(work, -0.5, out=work)
        ctx.xp.exp(work, out=work)
    compiled_kernels(ctx).gelu_gradient(contiguous(ctx, "gy", gy).reshape(-1), x.reshape(-1), work.reshape(-1))
    deliver(ctx, work, gx)


_ROOT, _CUBIC = sqrt(2 / pi), 0.044715


def _gelu_tanh(ctx: Context, x: Array, y: Array) -> None:
    _tanh_of_cubic(ctx, x, y)
    ctx.xp.add(y, 1, out=y)
    ctx.xp.multiply(y, x, out=y)
    ctx.xp.multiply(y, 0.5, out=y)


def _tanh_of_cubic(ctx: Context, x: Array, out: Array) -> None:
    """tanh(sqrt(2/π) (x + 0.044715 x³))"""
    ctx.xp.multiply(x, x, out=out)
    ctx.xp.multiply(out, _CUBIC * _ROOT, out=out)
    ctx.xp.add(out, _ROOT, out=out)
    ctx.xp.multiply(out, x, out=out)
    ctx.xp.tanh(out, out=out)


def _gelu_tanh_gradient(ctx: Context, gy: Array, x: Array, gx: Array) -> None:
    """½ (1 + t) + ½ x (1 - t²) sqrt(2/π) (1 + 3 · 0.044715 x²)"""
    t, slope = ctx.scratch("t", x.shape, x.dtype), ctx.scratch("slope", x.shape, x.dtype)
    _tanh_of_cubic(ctx, x, t)
    ctx.xp.multiply(x, x, out=slope)
    ctx.xp.multiply(slope, 3 * _CUBIC * _ROOT, out=slope)
    ctx.xp.add(slope, _ROOT, out=slope)
    ctx.xp.multiply(slope, x, out=slope)
    ctx.xp.multiply(t, t, out=gx)
    ctx.xp.subtract(1, gx, out=gx)
    ctx.xp.multiply(gx, slope, out=gx)
    ctx.xp.add(gx, t, out=gx)
    ctx.xp.add(gx, 1, out=gx)
    ctx.xp.multiply(gx, 0.5, out=gx)
    ctx.xp.multiply(gx, gy, out=gx)
