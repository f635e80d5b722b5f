"""Normalization over the batch, exact under any split.

Batch statistics are operators of their own whose partial sums are combined like any others, so every device normalizes
by the mean and variance of the whole batch. They follow the main operator, which carries the name.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ops.building import checked, distinct, launch_all, launch_first, layout_channels_last, parameters, term, terms
from ops.expressions.assign import assign
from ops.expressions.program import program
from ops.initializers import Init
from taskflow import Kernel, LogicalRegion, Operator

_INVERSE = "inverse = 1 / sqrt(var + eps)"


def _kernel(text: str, arguments: str, **numbers: float) -> Kernel:
    """The kernel of a program on arrays whose dimension 1 is that of the channels."""
    return assign.bind(program=program(text, arguments, numbers, along=1, contracts=True))


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
    where = checked("batch_norm", name, x, ndim=(2, 4))
    count = prod(x.shape) // x.shape[1]
    if training and count == 1:
        raise ValueError(f"{where}: '{x.name}' is {x.shape}: training needs more than one value per channel")
    graph = x.graph
    name = graph.unique_name(name or "batch_norm")
    weight_and_bias = parameters(x, name, x.shape[1:2], True, weight_init, bias_init)
    mean = graph.parameter(f"{name}.running_mean", x.shape[1:2], 0.0, x.dtype, trainable=False)
    var = graph.parameter(f"{name}.running_var", x.shape[1:2], 1.0, x.dtype, trainable=False)
    axes = distinct(x.axes)
    x_term, c = term(axes), axes[1]
    if training:
        with graph.following(name):
            mean, var = _batch_statistics(name, x, x_term, c, [mean, var], momentum, count)
    pattern = f"{x_term}, {c}, {c}, {c}, {c} -> {x_term}"
    return launch_first(
        name,
        pattern,
        [x, mean, var, *weight_and_bias],
        kernel=_kernel(f"{_INVERSE}; y = (x - mean) * (inverse * weight) + bias", "x mean var weight bias y", eps=eps),
        backward=partial(_batch_norm_backward, eps=eps, count=count if training else 0),
        flops=4,
        layout=layout_channels_last(pattern),  # what the statistics' kernels are fast with, too
    )


def _batch_statistics(
    name: str, x: LogicalRegion, x_term: str, c: str, running: list[LogicalRegion], momentum: float, count: int
) -> tuple[LogicalRegion, LogicalRegion]:
    kernel = _kernel("mean += x * share", "x mean", share=1 / count)
    mean = launch_first(f"{name}.mean", f"{x_term} -> {c}", [x], kernel=kernel, flops=1)
    kernel = _kernel("d = x - mean; var += d * d * share", "x mean var", share=1 / count)
    var = launch_first(f"{name}.var", f"{x_term}, {c} -> {c}", [x, mean], kernel=kernel, flops=3)
    text = "mean = kept * mean + momentum * m; var = kept * var + corrected * v"
    numbers = {"kept": 1 - momentum, "momentum": momentum, "corrected": momentum * count / (count - 1)}
    kernel, inputs = _kernel(text, "mean var m v", **numbers), [*running, mean, var]
    launch_all(f"{name}.running", f"{c}, {c}, {c}, {c} ->", inputs, kernel=kernel, writes=running, flops=6)
    return mean, var


def _batch_norm_backward(
    op: Operator, gy: LogicalRegion, *, eps: float, count: int
) -> tuple[LogicalRegion | None, ...]:
    """Ioffe and Szegedy's gradient; that of mean and variance is in `dx` already. `count` is 0 outside of training."""
    (x_term, c, *_), _ = terms(op)
    x, mean, var, weight, _ = op.inputs
    read, known = f"{x_term}, {x_term}, {c}, {c}", [gy, x, mean, var]
    text = f"gbias += g\n{_INVERSE}; gweight += g * ((x - mean) * inverse)"
    kernel = _kernel(text, "g x mean var gbias gweight", eps=eps)
    gbias, gweight = launch_all(f"{op.name}.sums", f"{read} -> {c}, {c}", known, kernel=kernel, flops=5)
    if count:
        text = "gx = (g - (x - mean) * (gweight * inverse / count) - gbias / count) * (inverse * weight)"
        kernel = _kernel(f"{_INVERSE}; {text}", "g x mean var weight gbias gweight gx", eps=eps, count=count)
        pattern, inputs = f"{read}, {c}, {c}, {c} -> {x_term}", [*known, weight, gbias, gweight]
        gx = launch_first(f"{op.name}.dx", pattern, inputs, kernel=kernel, flops=7)
    else:
        kernel = _kernel(f"{_INVERSE}; gx = g * (inverse * weight)", "g var weight gx", eps=eps)
        pattern = f"{x_term}, {c}, {c} -> {x_term}"
        gx = launch_first(f"{op.name}.dx", pattern, [gy, var, weight], kernel=kernel, flops=1)
    return gx, None, None, gweight, gbias
