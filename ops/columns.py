"""Convolution by columns of what every window reads and one matrix product, a group of channels after the other.

Arrays are contiguous and channels-last: (images, height, width, channels), weights (outputs, kh, kw, channels of a
group). Columns are (images, h, w, kh, kw * channels): as a matrix, outputs by elements of a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ops.tiles import Array, Context, Frame, contiguous, deliver, work_array

_BLOCK_BYTES = 2 << 20  # columns of as many outputs at a time as stay near the core
_REUSE = 4  # or of so many times the bytes of the weights, so that going through those costs little


def fits(frame: Frame, x: Array, y: Array) -> bool:
    """Any convolution."""
    return True


def forward(ctx: Context, x: Array, weight: Array, bias: Array | None, y: Array, frame: Frame) -> None:
    """y = x convolved with weight, + bias."""
    for g, (source, matrix, out) in enumerate(_groups(x, weight, y, frame.groups)):
        source = contiguous(ctx, "channels", source)
        for images, lines, columns in _blocks(ctx, out, matrix, frame):
            read = _read(source[images], columns, lines, frame)
            ctx.xp.matmul(read, matrix.T, out=_by_pixel(out[images, lines]))
            if bias is not None:
                block = out[images, lines]
                ctx.xp.add(block, bias[g * len(matrix) : (g + 1) * len(matrix)], out=block)


def add_gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array, frame: Frame) -> None:
    """Columns of gradients, each added to gx where it was read."""
    from ops import cpu_windows

    for target, matrix, gradient in _groups(gx, weight, gy, frame.groups):
        out = work_array(ctx, "channels", target)
        if out is not target:
            out.fill(0)
        for images, lines, columns in _blocks(ctx, gradient, matrix, frame):
            block = _by_pixel(gradient[images, lines])
            if _are_points(frame, out[images], columns):
                ctx.xp.matmul(block, matrix, out=_by_pixel(out[images]))
                continue
            ctx.xp.matmul(block, matrix, out=_as_matrix(columns))
            cpu_windows.add_columns(_flat(columns), _flat(out[images]), *frame.below(lines.start))
        deliver(ctx, out, target)


def gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array, frame: Frame) -> None:
    """The gradient of the weights."""
    for source, total, gradient in _groups(x, gweight, gy, frame.groups):
        source = contiguous(ctx, "channels", source)
        part = ctx.scratch("part", total.shape, total.dtype)
        total.fill(0)
        for images, lines, columns in _blocks(ctx, gradient, total, frame):
            read = _read(source[images], columns, lines, frame)
            ctx.xp.matmul(_by_pixel(gradient[images, lines]).T, read, out=part)
            ctx.xp.add(total, part, out=total)


def _groups(x: Array, weight: Array, y: Array, groups: int) -> Iterator[tuple[Array, Array, Array]]:
    """Per group: its channels of the inputs, its weights (outputs by elements of a window), its channels of outputs."""
    matrices = weight.reshape(groups, len(weight) // groups, -1)
    for g, matrix in enumerate(matrices):
        ins, outs = x.shape[3] // groups, len(matrix)
        yield x[..., g * ins : (g + 1) * ins], matrix, y[..., g * outs : (g + 1) * outs]


def _blocks(ctx: Context, y: Array, matrix: Array, frame: Frame) -> Iterator[tuple[slice, slice, Array]]:
    """Images and lines of the outputs `y`, several images or some lines of one, and memory for their columns."""
    images, height, width, _ = y.shape
    elements = matrix.shape[1]
    outputs = max(_BLOCK_BYTES, _REUSE * matrix.nbytes) // max(elements * y.itemsize, 1)
    together = max(1, min(images, outputs // max(height * width, 1)))
    lines = height if together > 1 else max(1, min(height, outputs // max(width, 1)))
    memory = ctx.scratch("columns", (together * lines * width * elements,), y.dtype)
    kh, kw = (window.size for window in frame.windows)
    for n in range(0, images, together):
        for h in range(0, height, lines):
            block = slice(n, min(n + together, images)), slice(h, min(h + lines, height))
            shape = (block[0].stop - n, block[1].stop - h, width, kh, kw, elements // (kh * kw))
            yield *block, memory[: prod(shape)].reshape(shape)


def _read(x: Array, columns: Array, lines: slice, frame: Frame) -> Array:
    """The matrix of what the windows of the outputs on `lines` of these images read of `x`."""
    from ops import cpu_windows

    if _are_points(frame, x, columns):
        return _by_pixel(x)
    cpu_windows.to_columns(_flat(x), _flat(columns), *frame.below(lines.start))
    return _as_matrix(columns)


def _are_points(frame: Frame, x: Array, columns: Array) -> bool:
    """Whether the windows are the points of `x` itself."""
    are_alone = all(window.size == window.stride == 1 for window in frame.windows)
    return are_alone and frame.top == frame.left == 0 and x.shape[:3] == columns.shape[:3]


def _as_matrix(columns: Array) -> Array:
    return columns.reshape(prod(columns.shape[:3]), prod(columns.shape[3:]))


def _by_pixel(images: Array) -> Array:
    return images.reshape(-1, images.shape[3])


def _flat(a: Array) -> Array:
    """With the last two dimensions as one."""
    return a.reshape(*a.shape[:-2], a.shape[-2] * a.shape[-1])
