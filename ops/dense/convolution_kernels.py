"""Kernels of convolutions: columns of what every window reads, and one matrix product.

Kernels ask for channels-last memory: there the product is the output itself, and columns are copies of long stretches.
Windows of 3 by 3 go by `winograd`; a GPU has its own ways (`ops.cuda.convolution`). A sequence is an image of one line.

Arrays are channels-last here. Columns are (groups, images, h, w, kh, kw, channels of the group): what every window
reads. As a matrix per group, outputs by elements of a window, they are one side of the products.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ops.cpu import windows as cpu_windows
from ops.cuda import convolution as gpu_convolution
from ops.cuda import rows as gpu_rows
from ops.dense import winograd
from ops.elementwise.activation import RELU
from ops.elementwise.pointwise import computes
from ops.tiles import channels_last, contiguous, deliver, reach, work_array
from taskflow import Array, Context, Kernel, Operator, Rect, Window

_BLOCK_BYTES = 2 << 20  # columns of as many outputs at a time as stay near the core
_REUSE = 4  # or of so many times the bytes of the weights, so that going through those costs little

Windows = tuple[Window, Window]


def _join_relu(op: Operator, k: int, other: Operator, is_kept: bool) -> Kernel | None:
    """A ReLU behind a convolution, whose channels are not split then; see `taskflow.Kernel`."""
    return (
        other.kernel.bind(is_rectified=True) if not is_kept and computes(op, RELU.value) else None
    )


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True, join=_join_relu)
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
    groups = _groups(ctx, is_grouped)
    corner = _corner(windows, ctx.rect(2 + len(biases)), ctx.rect(0))
    source = contiguous(ctx, "x", channels_last(x))
    out = work_array(ctx, "y", channels_last(y))
    weight = contiguous(ctx, "weight", channels_last(weight))
    if ctx.is_cuda:
        gpu_convolution.forward(
            ctx,
            source,
            weight,
            bias,
            out,
            windows,
            corner,
            groups,
            is_rectified,
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


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def gradient_x(
    ctx: Context,
    gy: Array,
    weight: Array,
    gx: Array,
    *,
    windows: Windows,
    is_grouped: bool,
) -> None:
    """Columns of gradients, each added where it was read."""
    groups = _groups(ctx, is_grouped)
    corner = _corner(windows, ctx.rect(0), ctx.rect(2))
    gradient = contiguous(ctx, "gy", channels_last(gy))
    out = work_array(ctx, "gx", channels_last(gx))
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
            top = corner[0] + lines.start * windows[0].stride
            left = corner[1]
            ctx.call(
                cpu_windows.add_columns,
                _as_windows(columns, block, windows),
                out[images],
                top,
                left,
                *_steps(windows),
            )
    deliver(ctx, out, channels_last(gx))


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def gradient_weight(
    ctx: Context,
    gy: Array,
    x: Array,
    gweight: Array,
    *,
    windows: Windows,
    is_grouped: bool,
) -> None:
    """The weight's gradient of one tile: sums over its images and points."""
    groups = _groups(ctx, is_grouped)
    corner = _corner(windows, ctx.rect(0), ctx.rect(1))
    gradient = contiguous(ctx, "gy", channels_last(gy))
    source = contiguous(ctx, "x", channels_last(x))
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
def gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    """Per image first: two short sums are more exact than a long one."""
    by_image = ctx.scratch("by_image", gy.shape[:2], gy.dtype)
    ctx.xp.sum(gy, axis=tuple(range(2, gy.ndim)), out=by_image)
    ctx.xp.sum(by_image, axis=0, out=gbias)


def _multiply(ctx: Context, a: Array, b: Array, out: Array) -> None:
    """A product per group; where it sums nothing (one channel per group) NumPy's matmul is slow."""
    (ctx.xp.multiply if a.shape[2] == 1 else ctx.xp.matmul)(a, b, out=out)


def _groups(ctx: Context, is_grouped: bool) -> int:
    lo, hi = ctx.interval("g") if is_grouped else (0, 1)
    return int(hi - lo)


def _corner(windows: Windows, outputs: Rect, tile: Rect) -> tuple[int, int]:
    """Where the window of the first output starts in an array that holds `tile`, perhaps outside of it."""
    top, left = (
        reach(window, (lo, hi))[0] - start
        for window, (lo, hi), (start, _) in zip(windows, _lines(outputs), _lines(tile), strict=True)
    )
    return top, left


def _lines(box: Rect) -> list[tuple[int, int]]:
    """The intervals of height and width; a sequence has a height of 1."""
    spatial = list(zip(box.lo[2:], box.hi[2:], strict=True))
    return spatial if len(spatial) == 2 else [(0, 1), *spatial]


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
