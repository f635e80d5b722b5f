"""Convolution of images: columns of what every window reads, and one matrix product.

Kernels ask for channels-last memory: there the product is the output itself, and columns are copies of long stretches.
Windows of 3 by 3 go by `winograd`; a GPU has its own ways (`ops.cuda.convolution`).

Splits over `n` (Sample), over `o` and `c` (Parameter; `c` gives partial sums), over `h` and `w` (Attribute: each tile
reads a halo of its neighbours) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ops.building import (
    check_positive,
    checked,
    launch_first,
    layout_channels_last,
    pair,
    parameters,
    term,
    terms,
)
from ops.cpu import windows as cpu_windows
from ops.cuda import convolution as gpu_convolution
from ops.cuda import rows as gpu_rows
from ops.dense import winograd
from ops.elementwise.activation import RELU
from ops.elementwise.pointwise import computes
from ops.initializers import Init
from ops.tiles import channels_last, contiguous, deliver, reach, spatial, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Rect, Window

_BLOCK_BYTES = 2 << 20  # columns of as many outputs at a time as stay near the core
_REUSE = 4  # or of so many times the bytes of the weights, so that going through those costs little

Windows = tuple[Window, Window]
SPATIAL = {
    1: ("x", "w", "q"),
    2: ("yx", "hw", "pq"),
}  # axes of inputs, of outputs, and of outputs in the gradient


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
    where = checked("conv2d", name, x, ndim=(4,))
    windows = image_windows(where, x, kernel_size, stride, padding, dilation)
    inits = weight_init, bias_init
    return launch_convolution(
        where, name or "conv2d", x, windows, out_channels, groups, bias, inits, image_kernels()
    )


@dataclass(frozen=True)
class ConvolutionKernels:
    """The kernels of a convolution and of its gradients; the first three are told `windows` and `is_grouped`."""

    forward: Kernel
    of_x: Kernel
    of_weight: Kernel
    of_bias: Kernel


def launch_convolution(
    where: str,
    name: str,
    x: LogicalRegion,
    windows: Sequence[Window],
    out_channels: int,
    groups: int,
    bias: bool,
    inits: tuple[Init | None, Init | None],
    kernels: ConvolutionKernels,
    weights: Sequence[LogicalRegion] = (),
) -> LogicalRegion:
    """A convolution over the last one or two dimensions of `x`; ValueError: the channels do not fit.

    It has parameters of its own, unless `weights` are given: the weight, and the bias if there is one.
    """
    check_positive(where, out_channels=out_channels, groups=groups)
    for what, channels in (("channels", x.shape[1]), ("out_channels", out_channels)):
        if channels % groups:
            raise ValueError(
                f"{where}: {what} is {channels}, which does not divide into {groups} groups"
            )
    name = x.graph.unique_name(name)
    shape = (out_channels, x.shape[1] // groups, *(w.size for w in windows))
    c, o = ("c", "o") if groups == 1 else ("(g c)", "(g o)")
    read, made, _ = SPATIAL[len(windows)]
    elements = term([f"^k{axis}" for axis in made])
    pattern = (
        f"n {c} {term(read)}, {o} c {elements}{f', {o}' if bias else ''} -> n {o} {term(made)}"
    )
    return launch_first(
        name,
        pattern,
        [x, *(weights or parameters(x, name, shape, bias, *inits))],
        kernel=replace(
            kernels.forward.bind(windows=both(windows), is_grouped=groups > 1),
            window=_saving(windows, groups),
        ),
        sizes={"g": groups} if groups > 1 else {},
        windows=dict(zip(read, windows, strict=True)),
        backward=partial(_backward, kernels=kernels),
        layout=windows_layout(pattern, windows),
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


def both(windows: Sequence[Window]) -> Windows:
    """A sequence is an image of one line."""
    return (Window("h"), windows[0]) if len(windows) == 1 else (windows[0], windows[1])


def _saving(windows: Sequence[Window], groups: int) -> int:
    """The size of square windows of stride 1 over all channels of images, else 0; see `taskflow.Kernel`."""
    sizes = {w.size if (w.stride, w.dilation) == (1, 1) else 0 for w in windows}
    return sizes.pop() if groups == 1 and len(windows) == 2 and len(sizes) == 1 else 0


def windows_layout(pattern: str, windows: Sequence[Window]) -> str | None:
    """Channels last for images, any for sequences."""
    return layout_channels_last(pattern) if len(windows) == 2 else None


def _backward(
    op: Operator, gy: LogicalRegion, *, kernels: ConvolutionKernels
) -> tuple[LogicalRegion, ...]:
    (x_term, weight_term, *_), (y_term,) = terms(op)
    x, weight, *bias = op.inputs
    read, made, back = SPATIAL[x.ndim - 2]
    windows = [op.windows[axis] for axis in read]
    groups = {"g": op.extents["g"]} if "g" in op.extents else {}
    options = {"windows": both(windows), "is_grouped": bool(groups)}
    y_back, x_made = y_term.replace(term(made), term(back)), x_term.replace(term(read), term(made))
    x_pattern, weight_pattern = (
        f"{y_back}, {weight_term} -> {x_made}",
        f"{y_term}, {x_term} -> {weight_term}",
    )
    gradients = [
        launch_first(
            f"{op.name}.dx",
            x_pattern,
            [gy, weight],
            kernel=replace(kernels.of_x.bind(**options), window=_saving(windows, len(groups) + 1)),
            sizes={**groups, **dict(zip(made, x.shape[2:], strict=True))},
            windows={
                axis: replace(w, transposed=True) for axis, w in zip(back, windows, strict=True)
            },
            flops=2 * prod(op.extents[axis] for axis in made) / prod(x.shape[2:]),
            layout=windows_layout(x_pattern, windows),
        ),
        launch_first(
            f"{op.name}.dweight",
            weight_pattern,
            [gy, x],
            kernel=replace(
                kernels.of_weight.bind(**options), window=_saving(windows, len(groups) + 1)
            ),
            sizes={**groups, **{f"k{axis}": w.size for axis, w in zip(made, windows, strict=True)}},
            windows=op.windows,
            layout=windows_layout(weight_pattern, windows),
        ),
    ]
    if bias:
        pattern, kernel = f"{y_term} -> {terms(op)[0][2]}", kernels.of_bias
        gradients.append(
            launch_first(f"{op.name}.dbias", pattern, [gy], kernel=kernel, sizes=groups, flops=1)
        )
    return tuple(gradients)


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Arrays are channels-last here. Columns are (groups, images, h, w, kh, kw, channels of the group): what every window
# reads. As a matrix per group, outputs by elements of a window, they are one side of the products.


def _join_relu(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """A ReLU behind a convolution, whose channels are not split then; see `taskflow.Kernel`."""
    return (
        other.kernel.bind(is_rectified=True) if not is_kept and computes(op, RELU.value) else None
    )


@partial(Kernel, is_compiled=True, is_captured=True, takes_half_on_cuda=True, join=_join_relu)
def convolve(
    ctx: Context,
    x: Array,
    weight: Array,
    *rest: Array,
    windows: Windows,
    is_grouped: bool,
    is_rectified: bool = False,
) -> None:
    """y = x * weight + bias of one tile, perhaps with a ReLU; the bias, if there is one, and y are `rest`."""
    *biases, y = rest
    bias = (
        biases[0] if biases and ctx.interval("c")[0] == 0 else None
    )  # once among the partial sums
    groups, corner = (
        _groups(ctx, is_grouped),
        _corner(windows, ctx.rect(2 + len(biases)), ctx.rect(0)),
    )
    source, out = contiguous(ctx, "x", channels_last(x)), work_array(ctx, "y", channels_last(y))
    weight = contiguous(ctx, "weight", channels_last(weight))
    if ctx.is_cuda:
        gpu_convolution.forward(
            ctx, source, weight, bias, out, windows, corner, groups, is_rectified
        )
    elif winograd.fits(windows, groups, source, out):
        winograd.forward(ctx, source, weight, bias, out, corner)
    else:
        matrix = _by_output(weight, groups).transpose(0, 2, 1)
        for images, lines, columns in _blocks(ctx, out, groups, matrix.shape[1]):
            block = out[images, lines]
            read = _read(ctx, source[images], columns, block, lines, windows, corner)
            _multiply(ctx, read, matrix, _by_group(block, groups))
            if bias is not None:
                ctx.xp.add(block, bias, out=block)
    if is_rectified and not ctx.is_cuda:
        ctx.xp.maximum(out, 0, out=out)
    deliver(ctx, out, channels_last(y))


@partial(Kernel, is_compiled=True, is_captured=True, takes_half_on_cuda=True)
def gradient_x(
    ctx: Context, gy: Array, weight: Array, gx: Array, *, windows: Windows, is_grouped: bool
) -> None:
    """Columns of gradients, each added where it was read."""
    groups, corner = _groups(ctx, is_grouped), _corner(windows, ctx.rect(0), ctx.rect(2))
    gradient, out = (
        contiguous(ctx, "gy", channels_last(gy)),
        work_array(ctx, "gx", channels_last(gx)),
    )
    weight = contiguous(ctx, "weight", channels_last(weight))
    if ctx.is_cuda:
        gpu_convolution.gradient_x(ctx, gradient, weight, out, windows, corner, groups)
        deliver(ctx, out, channels_last(gx))
        return
    ctx.xp.copyto(out, 0)
    if winograd.fits(windows, groups, out, gradient):
        winograd.gradient_x(ctx, gradient, weight, out, corner)
    elif gradient.size:  # else no window reads this tile
        matrix = _by_output(weight, groups)
        for images, lines, columns in _blocks(ctx, gradient, groups, matrix.shape[2]):
            block = gradient[images, lines]
            _multiply(ctx, _by_group(block, groups), matrix, columns)
            top, left = corner[0] + lines.start * windows[0].stride, corner[1]
            ctx.call(
                cpu_windows.add_columns,
                _as_windows(columns, block, windows),
                out[images],
                top,
                left,
                *_steps(windows),
            )
    deliver(ctx, out, channels_last(gx))


@partial(Kernel, is_compiled=True, is_captured=True, takes_half_on_cuda=True)
def gradient_weight(
    ctx: Context, gy: Array, x: Array, gweight: Array, *, windows: Windows, is_grouped: bool
) -> None:
    """The weight's gradient of one tile: sums over its images and points."""
    groups, corner = _groups(ctx, is_grouped), _corner(windows, ctx.rect(0), ctx.rect(1))
    gradient, source = (
        contiguous(ctx, "gy", channels_last(gy)),
        contiguous(ctx, "x", channels_last(x)),
    )
    out = work_array(ctx, "gweight", channels_last(gweight))
    if ctx.is_cuda:
        gpu_convolution.gradient_weight(ctx, gradient, source, out, windows, corner, groups)
    elif winograd.fits(windows, groups, source, gradient):
        winograd.gradient_weight(ctx, gradient, source, out, corner)
    else:
        if out.dtype.itemsize == 2:  # sums over many pixels
            out = ctx.scratch("wide", out.shape, "float32")
        total = _by_output(out, groups)
        part = ctx.scratch("part", total.shape, total.dtype)
        ctx.xp.copyto(total, 0)
        for images, lines, columns in _blocks(ctx, gradient, groups, total.shape[2]):
            block = gradient[images, lines]
            read = _read(ctx, source[images], columns, block, lines, windows, corner)
            _multiply(ctx, _by_group(block, groups).transpose(0, 2, 1), read, part)
            ctx.xp.add(total, part, out=total)
    deliver(ctx, out, channels_last(gweight))


@partial(Kernel, is_captured=True, cuda=gpu_rows.sums_of_channels)
def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    """Per image first: two short sums are more exact than a long one."""
    by_image = ctx.scratch("by_image", gy.shape[:2], gy.dtype)
    ctx.xp.sum(gy, axis=(2, 3), out=by_image)
    ctx.xp.sum(by_image, axis=0, out=gbias)


def image_kernels() -> ConvolutionKernels:
    """The kernels of convolutions over two dimensions."""
    return ConvolutionKernels(convolve, gradient_x, gradient_weight, _gradient_bias)


def _multiply(ctx: Context, a: Array, b: Array, out: Array) -> None:
    """A product per group; where it sums nothing (one channel per group) NumPy's matmul is slow."""
    (ctx.xp.multiply if a.shape[2] == 1 else ctx.xp.matmul)(a, b, out=out)


def _groups(ctx: Context, is_grouped: bool) -> int:
    lo, hi = ctx.interval("g") if is_grouped else (0, 1)
    return int(hi - lo)


def _corner(windows: Windows, outputs: Rect, tile: Rect) -> tuple[int, int]:
    """Where the window of the first output starts in an array that holds `tile`, perhaps outside of it."""
    top, left = (
        reach(w, interval)[0] for w, interval in zip(windows, spatial(outputs), strict=True)
    )
    return top - tile.lo[2], left - tile.lo[3]


def _by_output(weight: Array, groups: int) -> Array:
    """Per group: output channels by elements of a window."""
    return weight.reshape(groups, len(weight) // groups, -1)


def _by_group(pixels: Array, groups: int) -> Array:
    """Per group: pixels by channels of the group."""
    return pixels.reshape(-1, groups, pixels.shape[3] // groups).transpose(1, 0, 2)


def _blocks(
    ctx: Context, y: Array, groups: int, elements: int
) -> Iterator[tuple[slice, slice, Array]]:
    """Images and lines of the outputs `y`, several images or some lines of one, and memory for their columns."""
    images, height, width, out_channels = y.shape
    least_bytes = _REUSE * out_channels * elements * y.itemsize
    outputs = max(_BLOCK_BYTES, least_bytes) // max(groups * elements * y.itemsize, 1)
    together = max(1, min(images, outputs // max(height * width, 1)))
    lines = height if together > 1 else max(1, min(height, outputs // max(width, 1)))
    memory = ctx.scratch("columns", (groups * together * lines * width * elements,), y.dtype)
    for n in range(0, images, together):
        for h in range(0, height, lines):
            block = slice(n, min(n + together, images)), slice(h, min(h + lines, height))
            count = (block[0].stop - n) * (block[1].stop - h) * width
            yield *block, memory[: groups * count * elements].reshape(groups, count, elements)


def _read(
    ctx: Context,
    x: Array,
    columns: Array,
    block: Array,
    lines: slice,
    windows: Windows,
    corner: tuple[int, int],
) -> Array:
    """The matrices of what the windows of the outputs `block`, the lines `lines` of these images, read of `x`."""
    if (
        corner == (0, 0)
        and all(w.size == w.stride == 1 for w in windows)
        and x.shape[:3] == block.shape[:3]
    ):
        return _by_group(x, len(columns))
    top = corner[0] + lines.start * windows[0].stride
    ctx.call(
        cpu_windows.to_columns,
        x,
        _as_windows(columns, block, windows),
        top,
        corner[1],
        *_steps(windows),
    )
    return columns


def _as_windows(columns: Array, block: Array, windows: Windows) -> Array:
    vertical, horizontal = windows
    return columns.reshape(len(columns), *block.shape[:3], vertical.size, horizontal.size, -1)


def _steps(windows: Windows) -> tuple[tuple[int, int], tuple[int, int]]:
    """Strides and dilations."""
    vertical, horizontal = windows
    return (vertical.stride, horizontal.stride), (vertical.dilation, horizontal.dilation)
