"""The kernels of `batch_norm`: compiled ones over (points, channels); `gpu_rows` has those of GPUs."""

from __future__ import annotations

from functools import partial

from ops.cpu.tiles import Array, Context, deliver, rows, work_array
from ops.cuda import rows as gpu_rows
from taskflow import Kernel


def _channels(a: Array, ndim: int) -> Array:
    """A row of channels, shaped to broadcast along dimension 1."""
    return a.reshape(1, -1, *(1,) * (ndim - 2))


def _points(ctx: Context, slot: str, a: Array) -> Array:
    """A matrix of points by channels; a copy unless `a` lies channels-last."""
    return rows(ctx, slot, _channels_last(a))


def _channels_last(a: Array) -> Array:
    return a.transpose(0, *range(2, a.ndim), 1)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.batch_mean)
def mean(ctx: Context, x: Array, mean: Array, *, count: int) -> None:
    from ops.cpu import channels as cpu_channels

    ctx.call(cpu_channels.sums, _points(ctx, "x", x), mean, ctx.scratch("part", mean.shape, mean.dtype))
    ctx.xp.divide(mean, count, out=mean)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.batch_variance)
def variance(ctx: Context, x: Array, mean: Array, var: Array, *, count: int) -> None:
    from ops.cpu import channels as cpu_channels

    ctx.call(cpu_channels.squares, _points(ctx, "x", x), mean, var, ctx.scratch("part", var.shape, var.dtype))
    ctx.xp.divide(var, count, out=var)


@partial(Kernel, is_captured=True, cuda=gpu_rows.batch_move)
def move(
    ctx: Context,
    running_mean: Array,
    running_var: Array,
    mean: Array,
    var: Array,
    *,
    momentum: float,
    correction: float,
) -> None:
    share = ctx.scratch("share", mean.shape, mean.dtype)
    for running, batch, factor in ((running_mean, mean, momentum), (running_var, var, momentum * correction)):
        ctx.xp.multiply(running, 1 - momentum, out=running)
        ctx.xp.multiply(batch, factor, out=share)
        ctx.xp.add(running, share, out=running)


def _inverse_std(ctx: Context, var: Array, eps: float) -> Array:
    out = ctx.scratch("inverse_std", var.shape, var.dtype)
    ctx.xp.add(var, eps, out=out)
    ctx.xp.sqrt(out, out=out)
    return ctx.xp.divide(1, out, out=out)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.batch_normalize)
def normalize(
    ctx: Context, x: Array, mean: Array, var: Array, weight: Array, bias: Array, y: Array, *, eps: float
) -> None:
    from ops.cpu import channels as cpu_channels

    scale = _inverse_std(ctx, var, eps)
    ctx.xp.multiply(scale, weight, out=scale)
    target = _channels_last(y)
    work = work_array(ctx, "y", target)
    ctx.call(cpu_channels.normalize, _points(ctx, "x", x), mean, scale, bias, work.reshape(-1, x.shape[1]))
    deliver(ctx, work, target)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.batch_gradient_sums)
def gradient_sums(
    ctx: Context, gy: Array, x: Array, mean: Array, var: Array, gbias: Array, gweight: Array, *, eps: float
) -> None:
    from ops.cpu import channels as cpu_channels

    part = ctx.scratch("part", (2, *mean.shape), mean.dtype)
    ctx.call(cpu_channels.products, _points(ctx, "gy", gy), _points(ctx, "x", x), mean, gbias, gweight, part)
    ctx.xp.multiply(gweight, _inverse_std(ctx, var, eps), out=gweight)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=gpu_rows.batch_gradient)
def gradient_batch(
    ctx: Context,
    gy: Array,
    x: Array,
    mean: Array,
    var: Array,
    weight: Array,
    gbias: Array,
    gweight: Array,
    gx: Array,
    *,
    eps: float,
    count: int,
) -> None:
    from ops.cpu import channels as cpu_channels

    scale = _inverse_std(ctx, var, eps)
    slope, share = ctx.scratch("slope", scale.shape, scale.dtype), ctx.scratch("share", scale.shape, scale.dtype)
    ctx.xp.multiply(gweight, scale, out=slope)
    ctx.xp.divide(slope, -count, out=slope)
    ctx.xp.divide(gbias, count, out=share)
    ctx.xp.multiply(scale, weight, out=scale)
    target = _channels_last(gx)
    work = work_array(ctx, "gx", target)
    out = work.reshape(-1, x.shape[1])
    ctx.call(cpu_channels.gradient, _points(ctx, "gy", gy), _points(ctx, "x", x), mean, slope, share, scale, out)
    deliver(ctx, work, target)


@partial(Kernel, is_captured=True, cuda=gpu_rows.batch_gradient_running)
def gradient_running(ctx: Context, gy: Array, var: Array, weight: Array, gx: Array, *, eps: float) -> None:
    scale = _inverse_std(ctx, var, eps)
    ctx.xp.multiply(scale, weight, out=scale)
    ctx.xp.multiply(gy, _channels(scale, gy.ndim), out=gx)
