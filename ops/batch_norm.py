"""Normalization over the batch, exact under any split.

Batch statistics are operators of their own whose partial sums are combined like any others, so every device normalizes
by the mean and variance of the whole batch. They follow the main operator, which carries the name.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.build import check_ndim, check_region, distinct, first, term, terms
from ops.initializers import Init
from ops.tiles import Array, Context
from taskflow import LogicalRegion, Operator


def batch_norm(
    x: LogicalRegion,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
) -> LogicalRegion:
    """(x - mean) / sqrt(var + eps) weight + bias per channel (Ioffe and Szegedy, ICML 2015), as torch's batch_norm.

    Training uses mean and (biased) variance of the whole batch, in two passes, and moves the states
    `<name>.running_mean` and `<name>.running_var` (unbiased) towards them by `momentum`; otherwise the states are used.

    Args:
        x: (batch, channels) or (batch, channels, height, width), floating point.
        training: which statistics are used.
        momentum: share of this batch in the running statistics.
        eps: added to the variance.
        name: of the operator; its parameters are `<name>.weight` and `<name>.bias`, of shape (channels,).
        weight_init, bias_init: first values.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: `x` has another number of dimensions, or training has one value per channel only.
    """
    where = f"batch_norm '{name or 'batch_norm'}'"
    check_region(where, x)
    check_ndim(where, x, (2, 4))
    count = prod(x.shape) // x.shape[1]
    if training and count == 1:
        raise ValueError(f"{where}: '{x.name}' is {x.shape}: training needs more than one value per channel")
    graph = x.graph
    name = graph.unique_name(name or "batch_norm")
    weight = graph.parameter(f"{name}.weight", x.shape[1:2], weight_init, x.dtype)
    bias = graph.parameter(f"{name}.bias", x.shape[1:2], bias_init, x.dtype)
    mean = graph.parameter(f"{name}.running_mean", x.shape[1:2], 0.0, x.dtype, trainable=False)
    var = graph.parameter(f"{name}.running_var", x.shape[1:2], 1.0, x.dtype, trainable=False)
    axes = distinct(x.axes)
    x_term, c = term(axes), axes[1]
    if training:
        with graph.following(name):
            mean, var = _batch_statistics(name, x, x_term, c, mean, var, momentum, count)
    return first(
        graph.launch(
            name,
            f"{x_term}, {c}, {c}, {c}, {c} -> {x_term}",
            [x, mean, var, weight, bias],
            kernel=partial(_normalize, eps=eps),
            backward=partial(_batch_norm_backward, eps=eps, count=count if training else 0),
            flops=4,
        )
    )


def _batch_statistics(
    name: str,
    x: LogicalRegion,
    x_term: str,
    c: str,
    running_mean: LogicalRegion,
    running_var: LogicalRegion,
    momentum: float,
    count: int,
) -> tuple[LogicalRegion, LogicalRegion]:
    launch = x.graph.launch
    mean = first(launch(f"{name}.mean", f"{x_term} -> {c}", [x], kernel=partial(_mean, count=count), flops=1))
    kernel = partial(_variance, count=count)
    var = first(launch(f"{name}.var", f"{x_term}, {c} -> {c}", [x, mean], kernel=kernel, flops=3))
    launch(
        f"{name}.running",
        f"{c}, {c}, {c}, {c} ->",
        [running_mean, running_var, mean, var],
        kernel=partial(_move, momentum=momentum, correction=count / (count - 1)),
        writes=[running_mean, running_var],
        flops=6,
    )
    return mean, var


def _batch_norm_backward(
    op: Operator, gy: LogicalRegion, *, eps: float, count: int
) -> tuple[LogicalRegion | None, ...]:
    """Ioffe and Szegedy's gradient; that of mean and variance is in `dx` already. `count` is 0 outside of training."""
    (x_term, c, *_), _ = terms(op)
    x, mean, var, weight, _ = op.inputs
    launch = gy.graph.launch
    sums = launch(
        f"{op.name}.sums",
        f"{x_term}, {x_term}, {c}, {c} -> {c}, {c}",
        [gy, x, mean, var],
        kernel=partial(_gradient_sums, eps=eps),
        flops=5,
    )
    assert isinstance(sums, tuple)
    gbias, gweight = sums
    if count:
        gx = launch(
            f"{op.name}.dx",
            f"{x_term}, {x_term}, {c}, {c}, {c}, {c}, {c} -> {x_term}",
            [gy, x, mean, var, weight, gbias, gweight],
            kernel=partial(_gradient_batch, eps=eps, count=count),
            flops=7,
        )
    else:
        gx = launch(
            f"{op.name}.dx",
            f"{x_term}, {c}, {c} -> {x_term}",
            [gy, var, weight],
            kernel=partial(_gradient_running, eps=eps),
            flops=1,
        )
    return first(gx), None, None, gweight, gbias


def _channels(a: Array, ndim: int) -> Array:
    """A row of channels, shaped to broadcast along dimension 1."""
    return a.reshape(1, -1, *(1,) * (ndim - 2))


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _mean(ctx: Context, x: Array, mean: Array, *, count: int) -> None:
    ctx.xp.sum(x, axis=_all_but_channels(x), out=mean)
    ctx.xp.divide(mean, count, out=mean)


def _variance(ctx: Context, x: Array, mean: Array, var: Array, *, count: int) -> None:
    centred = ctx.scratch("centred", x.shape, x.dtype)
    ctx.xp.subtract(x, _channels(mean, x.ndim), out=centred)
    ctx.xp.multiply(centred, centred, out=centred)
    ctx.xp.sum(centred, axis=_all_but_channels(x), out=var)
    ctx.xp.divide(var, count, out=var)


def _move(
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


def _normalize(
    ctx: Context, x: Array, mean: Array, var: Array, weight: Array, bias: Array, y: Array, *, eps: float
) -> None:
    scale = _inverse_std(ctx, var, eps)
    ctx.xp.multiply(scale, weight, out=scale)
    ctx.xp.subtract(x, _channels(mean, x.ndim), out=y)
    ctx.xp.multiply(y, _channels(scale, x.ndim), out=y)
    ctx.xp.add(y, _channels(bias, x.ndim), out=y)


def _gradient_sums(
    ctx: Context, gy: Array, x: Array, mean: Array, var: Array, gbias: Array, gweight: Array, *, eps: float
) -> None:
    product = ctx.scratch("product", x.shape, x.dtype)
    ctx.xp.sum(gy, axis=_all_but_channels(x), out=gbias)
    ctx.xp.subtract(x, _channels(mean, x.ndim), out=product)
    ctx.xp.multiply(product, gy, out=product)
    ctx.xp.sum(product, axis=_all_but_channels(x), out=gweight)
    ctx.xp.multiply(gweight, _inverse_std(ctx, var, eps), out=gweight)


def _gradient_batch(
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
    """weight / std (gy - sum(gy) / count - x̂ sum(gy x̂) / count), where x̂ = (x - mean) / std."""
    scale = _inverse_std(ctx, var, eps)
    slope = ctx.scratch("slope", scale.shape, scale.dtype)
    ctx.xp.multiply(gweight, scale, out=slope)
    ctx.xp.divide(slope, -count, out=slope)
    ctx.xp.subtract(x, _channels(mean, x.ndim), out=gx)
    ctx.xp.multiply(gx, _channels(slope, x.ndim), out=gx)
    ctx.xp.add(gx, gy, out=gx)
    ctx.xp.divide(gbias, count, out=slope)
    ctx.xp.subtract(gx, _channels(slope, x.ndim), out=gx)
    ctx.xp.multiply(scale, weight, out=scale)
    ctx.xp.multiply(gx, _channels(scale, x.ndim), out=gx)


def _gradient_running(ctx: Context, gy: Array, var: Array, weight: Array, gx: Array, *, eps: float) -> None:
    scale = _inverse_std(ctx, var, eps)
    ctx.xp.multiply(scale, weight, out=scale)
    ctx.xp.multiply(gy, _channels(scale, gy.ndim), out=gx)
