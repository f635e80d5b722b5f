"""Convolution of images, by the method that is fastest for its windows: `winograd`, `depthwise` or `columns`.

Kernels ask for channels-last memory: there products of matrices make outputs in place, and windows read long stretches.

Splits over `n` (Sample), over `o` and `c` (Parameter; `c` gives partial sums), over `h` and `w` (Attribute: each tile
reads a halo of its neighbours) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType

from ops import columns, depthwise, winograd
from ops.build import check_ndim, check_positive, check_region, first, memory_channels_last, pair, terms
from ops.initializers import Init, bias_of, fan_in_uniform
from ops.tiles import Array, Context, Frame, channels_last, contiguous, deliver, reach, spatial, work_array
from taskflow import LogicalRegion, Operator, Rect, Window, compiled

Windows = tuple[Window, Window]


def conv2d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """Two-dimensional cross-correlation, as torch.nn.functional.conv2d.

    Args:
        x: (batch, channels, height, width), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, dilation: a number, or one each for height and width; padding is with zeros.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,).
        name: of the operator; `<name>.weight` is (out_channels, channels / groups, kernel height, kernel width).
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, height', width'), of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, the channels do not divide into the groups, or the windows do not fit.
    """
    where = f"conv2d '{name or 'conv2d'}'"
    check_region(where, x)
    check_ndim(where, x, (4,))
    check_positive(where, out_channels=out_channels, groups=groups)
    windows = image_windows(where, x, kernel_size, stride, padding, dilation)
    for what, channels in (("channels", x.shape[1]), ("out_channels", out_channels)):
        if channels % groups:
            raise ValueError(f"{where}: {what} is {channels}, which does not divide into {groups} groups")
    graph = x.graph
    name = graph.unique_name(name or "conv2d")
    shape = (out_channels, x.shape[1] // groups, windows[0].size, windows[1].size)
    inputs = [
        x,
        graph.parameter(f"{name}.weight", shape, fan_in_uniform if weight_init is None else weight_init, x.dtype),
    ]
    if bias:
        init = bias_of(shape) if bias_init is None else bias_init
        inputs.append(graph.parameter(f"{name}.bias", (out_channels,), init, x.dtype))
    c, o = ("c", "o") if groups == 1 else ("(g c)", "(g o)")
    pattern = f"n {c} y x, {o} c ^kh ^kw{f', {o}' if bias else ''} -> n {o} h w"
    return first(
        graph.launch(
            name,
            pattern,
            inputs,
            kernel=partial(_forward, windows=windows, is_grouped=groups > 1),
            sizes={"g": groups} if groups > 1 else {},
            windows={"y": windows[0], "x": windows[1]},
            backward=_backward,
            memory=memory_channels_last(pattern),
        )
    )


def image_windows(
    where: str,
    x: LogicalRegion,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
) -> Windows:
    """The windows of the axes `h` and `w` over the last two dimensions of `x`; ValueError when they do not fit."""
    sizes, strides = pair(where, "kernel_size", kernel_size), pair(where, "stride", stride)
    paddings, dilations = pair(where, "padding", padding), pair(where, "dilation", dilation)
    for k, extent in enumerate(x.shape[-2:]):
        check_positive(where, kernel_size=sizes[k], stride=strides[k], dilation=dilations[k])
        if paddings[k] < 0:
            raise ValueError(f"{where}: padding is {paddings[k]}, it cannot be negative")
        span = dilations[k] * (sizes[k] - 1) + 1
        if span > extent + 2 * paddings[k]:
            raise ValueError(
                f"{where}: a window of {span} points does not fit into the {extent} points of '{x.name}' "
                f"and a padding of {paddings[k]}"
            )
    return (
        Window("h", sizes[0], strides[0], paddings[0], dilations[0]),
        Window("w", sizes[1], strides[1], paddings[1], dilations[1]),
    )


def _backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *_), (y_term,) = terms(op)
    x, weight, *bias = op.inputs
    launch = x.graph.launch
    windows = op.windows["y"], op.windows["x"]
    groups = {"g": op.extents["g"]} if "g" in op.extents else {}
    height, width = x.shape[2:]
    x_pattern = f"{y_term.replace(' h w', ' p q')}, {weight_term} -> {x_term.replace(' y x', ' h w')}"
    weight_pattern = f"{y_term}, {x_term} -> {weight_term}"
    gradients = [
        first(
            launch(
                f"{op.name}.dx",
                x_pattern,
                [gy, weight],
                kernel=partial(_gradient_x, windows=windows, is_grouped=bool(groups)),
                sizes={**groups, "h": height, "w": width},
                windows={"p": replace(windows[0], transposed=True), "q": replace(windows[1], transposed=True)},
                flops=2 * op.extents["h"] * op.extents["w"] / (height * width),
                memory=memory_channels_last(x_pattern),
            )
        ),
        first(
            launch(
                f"{op.name}.dweight",
                weight_pattern,
                [gy, x],
                kernel=partial(_gradient_weight, windows=windows, is_grouped=bool(groups)),
                sizes={**groups, "kh": windows[0].size, "kw": windows[1].size},
                windows=op.windows,
                memory=memory_channels_last(weight_pattern),
            )
        ),
    ]
    if bias:
        pattern = f"{y_term} -> {terms(op)[0][2]}"
        gradients.append(first(launch(f"{op.name}.dbias", pattern, [gy], kernel=_gradient_bias, sizes=groups, flops=1)))
    return tuple(gradients)


# -- kernels -----------------------------------------------------------------------------------------------------------


@compiled
def _forward(ctx: Context, x: Array, weight: Array, *rest: Array, windows: Windows, is_grouped: bool) -> None:
    *biases, y = rest
    bias = biases[0] if biases and ctx.interval("c")[0] == 0 else None  # once among the partial sums
    frame = _frame(ctx, windows, is_grouped, ctx.rect(2 + len(biases)), ctx.rect(0))
    source, out = contiguous(ctx, "x", channels_last(x)), work_array(ctx, "y", channels_last(y))
    weight = contiguous(ctx, "weight", channels_last(weight))
    _method(frame, source, out).forward(ctx, source, weight, bias, out, frame)
    deliver(ctx, out, channels_last(y))


@compiled
def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array, *, windows: Windows, is_grouped: bool) -> None:
    frame = _frame(ctx, windows, is_grouped, ctx.rect(0), ctx.rect(2))
    gradient, out = contiguous(ctx, "gy", channels_last(gy)), work_array(ctx, "gx", channels_last(gx))
    weight = contiguous(ctx, "weight", channels_last(weight))
    out.fill(0)
    if gradient.size:  # else no window reads this tile
        _method(frame, out, gradient).add_gradient_x(ctx, gradient, weight, out, frame)
    deliver(ctx, out, channels_last(gx))


@compiled
def _gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array, *, windows: Windows, is_grouped: bool) -> None:
    frame = _frame(ctx, windows, is_grouped, ctx.rect(0), ctx.rect(1))
    gradient, source = contiguous(ctx, "gy", channels_last(gy)), contiguous(ctx, "x", channels_last(x))
    out = work_array(ctx, "gweight", channels_last(gweight))
    _method(frame, source, gradient).gradient_weight(ctx, gradient, source, out, frame)
    deliver(ctx, out, channels_last(gweight))


def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    """Per image first: two short sums are more exact than a long one."""
    by_image = ctx.scratch("by_image", gy.shape[:2], gy.dtype)
    ctx.xp.sum(gy, axis=(2, 3), out=by_image)
    ctx.xp.sum(by_image, axis=0, out=gbias)


def _method(frame: Frame, x: Array, y: Array) -> ModuleType:
    """Each has the same three functions of contiguous channels-last arrays."""
    return next(method for method in (winograd, depthwise, columns) if method.fits(frame, x, y))


def _frame(ctx: Context, windows: Windows, is_grouped: bool, outputs: Rect, tile: Rect) -> Frame:
    lo, hi = ctx.interval("g") if is_grouped else (0, 1)
    top, left = (reach(w, interval)[0] for w, interval in zip(windows, spatial(outputs), strict=True))
    return Frame(windows, hi - lo, top - tile.lo[2], left - tile.lo[3])
