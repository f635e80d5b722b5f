"""Normalization over the batch, exact under any split.

Batch statistics are operators of their own whose partial sums are combined like any others, so every device normalizes
by the mean and variance of the whole batch, or of its part. They follow the main operator, which carries the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ops.building import (
    check_number,
    check_positive,
    checked,
    distinct,
    launch_all,
    launch_first,
    layout_channels_last,
    parameters,
    term,
    terms,
)
from ops.expressions.assign import assign
from ops.expressions.program import Program, program
from ops.initializers import Init
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_INVERSE = "inverse = 1 / sqrt(var + eps)"
_OF_A_PART = {"mean", "var", "gbias", "gweight"}  # arrays (parts, channels)


def _each_part(ctx: Context, *arrays: Array, program: Program, axis: str) -> None:
    """A program on the samples of each part alone; `axis` is that of the parts."""
    low, high = ctx.interval(axis)
    kernel = assign.on_cuda if ctx.is_cuda else assign
    for k in range(high - low):
        parts = map(partial(_of_part, k=k, count=high - low), program.arguments, arrays)
        kernel(ctx, *parts, program=program)


def _of_part(name: str, a: Array, *, k: int, count: int) -> Array:
    """What part `k` has of an array."""
    if a.ndim == 1:
        return a
    rows = 1 if name in _OF_A_PART else len(a) // count
    part: Array = a[k] if name in _OF_A_PART else a[k * rows : (k + 1) * rows]
    return part


_by_part = Kernel(
    _each_part, is_compiled=True, is_captured=True, cuda=Kernel(_each_part, takes_mixed=True)
)


def _kernel(text: str, arguments: str, per: str, **numbers: float) -> Kernel:
    """The kernel of a program on arrays whose dimension 1 is that of the channels; statistics are of `per`."""
    parsed = program(
        text, arguments, {k: float(v) for k, v in numbers.items()}, along=1, contracts=True
    )
    axis, _, channel = per.partition(" ")
    return replace(
        _by_part.bind(program=parsed, axis=axis) if channel else assign.bind(program=parsed),
        apart="ops.batch_norm(..., parts={parts})",
    )


def batch_norm(
    x: LogicalRegion,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    name: str | None = None,
    *,
    parts: int = 1,
    weight_init: Init = 1.0,
    bias_init: Init = 0.0,
) -> LogicalRegion:
    """(x - mean) / sqrt(var + eps) weight + bias per channel (Ioffe and Szegedy, ICML 2015), as torch's batch_norm.

    Training uses mean and (biased) variance of the whole batch, in two passes, and moves the states
    `<name>.running_mean` and `<name>.running_var` (unbiased) towards them by `momentum`; otherwise the states are used.

    In several parts the batch is cut into as many equal runs of samples, each with statistics of its own (ghost batch
    norm: Hoffer, Hubara and Soudry, NIPS 2017). So micro-batches do not wait for each other, and the result depends on
    `parts`, but on no strategy. The states are moved once a step, towards the mean over the parts of their means and of
    their unbiased variances.

    Args:
        x: (batch, channels) or (batch, channels, height, width), floating point.
        training: which statistics are used.
        momentum: share of this batch in the running statistics.
        eps: added to the variance.
        name: of the operator; its parameters are `<name>.weight` and `<name>.bias`, of shape (channels,).
        parts: of the batch, an axis `m` of the pattern, left of the batch's. Outside of training it changes no number,
            and a batch that does not divide has one.
        weight_init, bias_init: first values.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: `x` has another number of dimensions, or training has one value per channel and part only; the batch
            does not divide into the parts; `momentum` is not in [0, 1], or `eps` is no positive finite number.
    """
    where = checked("batch_norm", name, x, ndim=(2, 4), eps=eps)
    check_positive(where, parts=parts)
    momentum = check_number(where, "momentum", momentum, "a number in [0, 1]")
    if x.shape[0] % parts:
        if training:
            raise ValueError(
                f"{where}: the {x.shape[0]} samples of '{x.name}' do not divide into {parts} parts"
            )
        parts = 1
    count = prod(x.shape) // x.shape[1] // parts
    if training and count == 1:
        of = "channel" if parts == 1 else f"channel in each of {parts} parts"
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape}: training needs more than one value per {of}"
        )
    graph = x.graph
    name = graph.unique_name(name or "batch_norm")
    weight_and_bias = parameters(x, name, x.shape[1:2], True, weight_init, bias_init)
    mean = graph.parameter(
        f"{name}.running_mean",
        x.shape[1:2],
        0.0,
        x.dtype,
        trainable=False,
    )
    var = graph.parameter(
        f"{name}.running_var",
        x.shape[1:2],
        1.0,
        x.dtype,
        trainable=False,
    )
    batch, c, *rest, m = distinct((*x.axes, "m"))
    x_term, sizes = (
        (term((f"({m} {batch})", c, *rest)), {m: parts})
        if parts > 1
        else (term((batch, c, *rest)), {})
    )
    per = f"{m} {c}" if training and parts > 1 else c
    if training:
        with graph.following(name):
            mean, var = _batch_statistics(name, x, x_term, per, [mean, var], momentum, count, sizes)
    pattern = f"{x_term}, {per}, {per}, {c}, {c} -> {x_term}"
    text = f"{_INVERSE}; y = (x - mean) * (inverse * weight) + bias"
    return launch_first(
        name,
        pattern,
        [x, mean, var, *weight_and_bias],
        kernel=_kernel(text, "x mean var weight bias y", per, eps=eps),
        sizes=sizes,
        backward=partial(_batch_norm_backward, eps=eps, count=count if training else 0),
        flops=4,
        layout=layout_channels_last(pattern),  # what the statistics' kernels are fast with, too
    )


def _batch_statistics(
    name: str,
    x: LogicalRegion,
    x_term: str,
    per: str,
    running: list[LogicalRegion],
    momentum: float,
    count: int,
    sizes: dict[str, int],
) -> tuple[LogicalRegion, LogicalRegion]:
    kernel = _kernel("mean += x * share", "x mean", per, share=1 / count)
    mean = launch_first(
        f"{name}.mean",
        f"{x_term} -> {per}",
        [x],
        kernel=kernel,
        sizes=sizes,
        flops=1,
    )
    kernel = _kernel("d = x - mean; var += d * d * share", "x mean var", per, share=1 / count)
    var = launch_first(
        f"{name}.var",
        f"{x_term}, {per} -> {per}",
        [x, mean],
        kernel=kernel,
        sizes=sizes,
        flops=3,
    )
    moments: Sequence[LogicalRegion] = (mean, var)
    c = per.split()[-1]
    if per != c:
        moments = _summed(f"{name}.of_parts", moments, per, 1 / mean.shape[0])
    launch_all(
        f"{name}.running",
        f"{c}, {c}, {c}, {c} ->",
        [*running, *moments],
        kernel=_kernel(
            "mean = kept * mean + momentum * m; var = kept * var + corrected * v",
            "mean var m v",
            c,
            kept=1 - momentum,
            momentum=momentum,
            corrected=momentum * count / (count - 1),
        ),
        writes=running,
        flops=6,
    )
    return mean, var


def _summed(
    name: str, two: Sequence[LogicalRegion], per: str, share: float
) -> Sequence[LogicalRegion]:
    """The sums over the parts, times a share."""
    c = per.split()[-1]
    kernel = _kernel("a += m * share; b += v * share", "m v a b", c, share=share)
    return launch_all(
        name,
        f"{per}, {per} -> {c}, {c}",
        two,
        kernel=kernel,
        flops=2,
    )


def _batch_norm_backward(
    op: Operator, gy: LogicalRegion, *, eps: float, count: int
) -> tuple[LogicalRegion | None, ...]:
    """Ioffe and Szegedy's gradient; that of mean and variance is in `dx` already. `count` is 0 outside of training."""
    (x_term, per, _, c, _), _ = terms(op)
    read = f"{x_term}, {x_term}, {per}, {per}"
    given = [gy, *op.inputs[:3]]
    sizes = op.bound.term_sizes(0)
    text = f"gbias += g\n{_INVERSE}; gweight += g * ((x - mean) * inverse)"
    sums = launch_all(
        f"{op.name}.sums",
        f"{read} -> {per}, {per}",
        given,
        kernel=_kernel(text, "g x mean var gbias gweight", per, eps=eps),
        sizes=sizes,
        flops=5,
    )
    if count:
        text = "gx = (g - (x - mean) * (gweight * inverse / count) - gbias / count) * (inverse * weight)"
        arguments = "g x mean var weight gbias gweight gx"
        gx = launch_first(
            f"{op.name}.dx",
            f"{read}, {c}, {per}, {per} -> {x_term}",
            [*given, op.inputs[3], *sums],
            kernel=_kernel(f"{_INVERSE}; {text}", arguments, per, eps=eps, count=count),
            sizes=sizes,
            flops=7,
        )
    else:
        text = f"{_INVERSE}; gx = g * (inverse * weight)"
        gx = launch_first(
            f"{op.name}.dx",
            f"{x_term}, {c}, {c} -> {x_term}",
            [gy, *op.inputs[2:4]],
            kernel=_kernel(text, "g var weight gx", c, eps=eps),
            sizes=sizes,
            flops=1,
        )
    gbias, gweight = sums if per == c else _summed(f"{op.name}.dparts", sums, per, 1.0)
    return gx, None, None, gweight, gbias
