"""Convolution of images: columns of what every window reads, and one matrix product.

Splits over `n` (Sample), over `o` and `c` (Parameter; `c` gives partial sums), over `h` and `w` (Attribute: each tile
reads a halo of its neighbours) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ops.build import check_ndim, check_positive, check_region, first, pair, terms
from ops.initializers import Init, bias_of, fan_in_uniform
from ops.tiles import Array, Context, Image, deliver, overlap, pad_into, reach, spatial, work_array
from taskflow import LogicalRegion, Operator, Window

_BLOCK_BYTES = 1 << 20  # columns of as many images at a time as stay in the second-level cache

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
    return first(
        graph.launch(
            name,
            f"n {c} y x, {o} c ^kh ^kw{f', {o}' if bias else ''} -> n {o} h w",
            inputs,
            kernel=partial(_forward, windows=windows, is_grouped=groups > 1),
            sizes={"g": groups} if groups > 1 else {},
            windows={"y": windows[0], "x": windows[1]},
            backward=_backward,
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
    gradients = [
        first(
            launch(
                f"{op.name}.dx",
                f"{y_term.replace(' h w', ' p q')}, {weight_term} -> {x_term.replace(' y x', ' h w')}",
                [gy, weight],
                kernel=partial(_gradient_x, windows=windows, is_grouped=bool(groups)),
                sizes={**groups, "h": height, "w": width},
                windows={"p": replace(windows[0], transposed=True), "q": replace(windows[1], transposed=True)},
                flops=2 * op.extents["h"] * op.extents["w"] / (height * width),
            )
        ),
        first(
            launch(
                f"{op.name}.dweight",
                f"{y_term}, {x_term} -> {weight_term}",
                [gy, x],
                kernel=partial(_gradient_weight, windows=windows, is_grouped=bool(groups)),
                sizes={**groups, "kh": windows[0].size, "kw": windows[1].size},
                windows=op.windows,
            )
        ),
    ]
    if bias:
        bias_term = terms(op)[0][2]
        gradients.append(
            first(
                launch(
                    f"{op.name}.dbias", f"{y_term} -> {bias_term}", [gy], kernel=_gradient_bias, sizes=groups, flops=1
                )
            )
        )
    return tuple(gradients)


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Columns are (channels, kh, kw, images, h, w): what each window position reads. As a matrix per group, (channels of the
# group * kh * kw, images * h * w), they are one side of a single product for all images of a block.


def _forward(ctx: Context, x: Array, weight: Array, *rest: Array, windows: Windows, is_grouped: bool) -> None:
    *bias, y = rest
    groups = _groups(ctx, is_grouped)
    matrix = weight.reshape(groups, len(weight) // groups, -1)
    box = spatial(ctx.rect(2 + len(bias)))
    step = _images_per_block(x, y, windows)
    for block in _blocks(len(y), step):
        columns = _columns(ctx, x[block], spatial(ctx.rect(0)), windows, box, step)
        product = _place(ctx, y[block], step)
        ctx.xp.matmul(matrix, _as_matrices(columns, groups), out=product.reshape(groups, matrix.shape[1], -1))
        if not ctx.xp.may_share_memory(product, y):
            ctx.xp.copyto(y[block], product.transpose(1, 0, 2, 3))
    if bias and ctx.interval("c")[0] == 0:  # once among the partial sums
        ctx.xp.add(y, bias[0][:, None, None], out=y)


def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array, *, windows: Windows, is_grouped: bool) -> None:
    """Columns of gradients, each added where it was read."""
    from ops import cpu

    gx.fill(0)
    if gy.size == 0:  # no window reads this tile
        return
    groups = _groups(ctx, is_grouped)
    matrix = weight.reshape(groups, len(weight) // groups, -1).transpose(0, 2, 1)
    box = _reach(windows, spatial(ctx.rect(0)))
    into, of = overlap(spatial(ctx.rect(2)), box)
    step = _images_per_block(gx, gy, windows)
    for block in _blocks(len(gx), step):
        gradient = _channels_first(ctx, gy[block], step)
        shape = (gx.shape[1], windows[0].size, windows[1].size, *gradient.shape[1:])
        columns = _part(ctx, "columns", shape, 3, step, gx.dtype)
        _multiply(ctx, matrix, gradient.reshape(groups, matrix.shape[2], -1), _as_matrices(columns, groups))
        total = _part(ctx, "padded", (gradient.shape[1], gx.shape[1], *_extents(box)), 0, step, gx.dtype)
        total.fill(0)
        cpu.add_columns(columns, total, *_steps(windows))
        gx[block][(..., *into)] = total[(..., *of)]


def _multiply(ctx: Context, a: Array, b: Array, out: Array) -> None:
    """A product per group; where it sums nothing (one channel per group) NumPy's matmul is slow."""
    (ctx.xp.multiply if a.shape[2] == 1 else ctx.xp.matmul)(a, b, out=out)


def _gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array, *, windows: Windows, is_grouped: bool) -> None:
    groups = _groups(ctx, is_grouped)
    total = work_array(ctx, "total", gweight).reshape(groups, len(gweight) // groups, -1)
    part = ctx.scratch("part", total.shape, total.dtype)
    step = _images_per_block(x, gy, windows)
    for k, block in enumerate(_blocks(len(gy), step)):
        columns = _columns(ctx, x[block], spatial(ctx.rect(1)), windows, spatial(ctx.rect(0)), step)
        gradient = _channels_first(ctx, gy[block], step).reshape(groups, total.shape[1], -1)
        ctx.xp.matmul(gradient, _as_matrices(columns, groups).transpose(0, 2, 1), out=part if k else total)
        if k:
            ctx.xp.add(total, part, out=total)
    deliver(ctx, total, gweight)


def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    ctx.xp.sum(gy, axis=(0, 2, 3), out=gbias)


def _groups(ctx: Context, is_grouped: bool) -> int:
    lo, hi = ctx.interval("g") if is_grouped else (0, 1)
    return int(hi - lo)


def _images_per_block(x: Array, y: Array, windows: Windows) -> int:
    bytes_per_image = x.shape[1] * windows[0].size * windows[1].size * y.shape[2] * y.shape[3] * x.itemsize
    return int(max(1, min(len(x), _BLOCK_BYTES // max(bytes_per_image, 1))))


def _blocks(images: int, step: int) -> Iterator[slice]:
    return (slice(lo, min(lo + step, images)) for lo in range(0, images, step))


def _part(ctx: Context, slot: str, shape: Sequence[int], dim: int, step: int, dtype: object) -> Array:
    """Scratch memory of `shape`, whose dimension `dim` is up to `step`: the last block may be smaller."""
    size = prod(shape)
    return ctx.scratch(slot, (size // shape[dim] * step,), dtype)[:size].reshape(shape)


def _columns(ctx: Context, x: Array, tile: Image, windows: Windows, box: Image, step: int) -> Array:
    """The columns of a block of images `x`, which lie at `tile`, for the outputs at `box`."""
    from ops import cpu

    read = _reach(windows, box)
    if read != tile or not x.flags.c_contiguous:
        padded = _part(ctx, "padded", (*x.shape[:2], *_extents(read)), 0, step, x.dtype)
        pad_into(padded, read, x, tile, 0)
        x = padded
    shape = (x.shape[1], windows[0].size, windows[1].size, len(x), *_extents(box))
    if len(x) == windows[0].size == windows[1].size == 1 and x.shape[2:] == _extents(box):
        return x.reshape(shape)
    columns = _part(ctx, "columns", shape, 3, step, x.dtype)
    cpu.to_columns(x, columns, *_steps(windows))
    return columns


def _reach(windows: Windows, box: Image) -> Image:
    return reach(windows[0], box[0]), reach(windows[1], box[1])


def _extents(box: Image) -> tuple[int, int]:
    (top, bottom), (left, right) = box
    return bottom - top, right - left


def _steps(windows: Windows) -> tuple[tuple[int, int], tuple[int, int]]:
    """Strides and dilations."""
    vertical, horizontal = windows
    return (vertical.stride, horizontal.stride), (vertical.dilation, horizontal.dilation)


def _as_matrices(columns: Array, groups: int) -> Array:
    rows = prod(columns.shape[:3]) // groups
    return columns.reshape(groups, rows, prod(columns.shape[3:]))


def _place(ctx: Context, y: Array, step: int) -> Array:
    """Where a block of `y` is held channels first: in place for one image, else in scratch memory."""
    if len(y) == 1 and y.flags.c_contiguous:
        return y.reshape(y.shape[1], 1, *y.shape[2:])
    return _part(ctx, "product", (y.shape[1], len(y), *y.shape[2:]), 1, step, y.dtype)


def _channels_first(ctx: Context, y: Array, step: int) -> Array:
    """A block of `y` as (channels, images, h, w)."""
    place = _place(ctx, y, step)
    if not ctx.xp.may_share_memory(place, y):
        ctx.xp.copyto(place, y.transpose(1, 0, 2, 3))
    return place
