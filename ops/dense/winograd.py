"""Convolution with windows of 3 by 3 by Winograd's algorithm: 16 multiplications instead of 36 for 2 by 2 outputs.

F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016: the outputs of a tile d
of 4 by 4 input points are Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A, where the product of elements, summed over channels, is a product
of matrices for all tiles. Both gradients are the transposes of its steps. Its rounding errors are about those of the
plain sum (larger tiles would multiply less, but lose digits).

Arrays are contiguous and channels-last: (images, height, width, channels), weights (outputs, 3, 3, channels).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ops.tiles import contiguous, read_only, zeros
from taskflow import Array, Context, Window, njit

_BLOCK_BYTES = 2 << 20  # transformed tiles of as many outputs at a time as stay near the core
_REUSE = 1  # or of so many times the bytes of the transformed weights, so that reading those costs little
# Channels: of fewer, the transforms cost more than the products that they save.
_LEAST_CHANNELS = 16
_LEAST_PIXELS = 4  # height and width of the outputs: of fewer, tiles are half empty


def fits(windows: tuple[Window, Window], groups: int, x: Array, y: Array) -> bool:
    """Whether the algorithm is for these windows, and fast for inputs and outputs like `x` and `y`."""
    return (
        groups == 1
        and all((w.size, w.stride, w.dilation) == (3, 1, 1) for w in windows)
        and min(x.shape[3], y.shape[3]) >= _LEAST_CHANNELS
        and min(y.shape[1:3]) >= _LEAST_PIXELS
    )


def forward(
    ctx: Context,
    x: Array,
    weight: Array,
    bias: Array | None,
    y: Array,
    corner: tuple[int, int],
) -> None:
    """y = x convolved with weight, + bias; the first window stands at `corner` of `x`."""
    out_channels = weight.shape[0]
    channels = weight.shape[3]
    nine = contiguous(ctx, "nine", weight.reshape(out_channels, 9, channels).transpose(1, 2, 0))
    matrices = ctx.scratch("matrices", (16, channels, out_channels), weight.dtype)
    ctx.xp.matmul(
        _weights_transform(weight.dtype), nine.reshape(9, -1), out=matrices.reshape(16, -1)
    )
    if bias is None:
        bias = zeros(ctx, "no bias", (y.shape[3],), y.dtype)
    line = _lines(ctx, "line", x, y)
    short_line = ctx.scratch("short line", (4, y.shape[3]), y.dtype)
    for images, lines, inputs, outputs in _blocks(ctx, x, y):
        ctx.call(read_tiles, _flat(x[images]), inputs, line, corner[0] + lines.start, corner[1])
        ctx.xp.matmul(_as_matrices(inputs), matrices, out=_as_matrices(outputs))
        ctx.call(write_outputs, outputs, _flat(y[images, lines]), short_line, read_only(bias))


def gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array, corner: tuple[int, int]) -> None:
    """Add to gx what follows from gy."""
    out_channels = weight.shape[0]
    channels = weight.shape[3]
    nine = weight.reshape(out_channels, 9, channels)
    matrices = ctx.scratch("matrices", (16, out_channels, channels), weight.dtype)
    ctx.xp.matmul(_weights_transform(weight.dtype), nine, out=matrices.transpose(1, 0, 2))
    line = _lines(ctx, "line", gx, gy)
    gradient_line = _lines(ctx, "gradient line", gy, gy)
    for images, lines, inputs, outputs in _blocks(ctx, gx, gy):
        ctx.call(spread_outputs, _flat(gy[images, lines]), outputs, gradient_line)
        ctx.xp.matmul(_as_matrices(outputs), matrices, out=_as_matrices(inputs))
        ctx.call(add_tiles, inputs, _flat(gx[images]), line, corner[0] + lines.start, corner[1])


def gradient_weight(
    ctx: Context, gy: Array, x: Array, gweight: Array, corner: tuple[int, int]
) -> None:
    """The gradient of the weights."""
    out_channels = gy.shape[3]
    channels = x.shape[3]
    total = ctx.scratch("total", (16, out_channels, channels), x.dtype)
    line = _lines(ctx, "line", x, gy)
    gradient_line = _lines(ctx, "gradient line", gy, gy)
    for k, (images, lines, inputs, outputs) in enumerate(_blocks(ctx, x, gy)):
        part = (
            ctx.scratch("part", total.shape, x.dtype) if k else total
        )  # of many channels it is large
        ctx.call(read_tiles, _flat(x[images]), inputs, line, corner[0] + lines.start, corner[1])
        ctx.call(spread_outputs, _flat(gy[images, lines]), outputs, gradient_line)
        ctx.xp.matmul(_as_matrices(outputs).transpose(0, 2, 1), _as_matrices(inputs), out=part)
        if k:
            ctx.xp.add(total, part, out=total)
    nine = gweight.reshape(out_channels, 9, channels)
    ctx.xp.matmul(_weights_transform(gweight.dtype).T, total.transpose(1, 0, 2), out=nine)


@cache
def _weights_transform(dtype: np.dtype[Any]) -> Array:
    """G ⊗ G: what makes G g Gᵀ of a g of nine elements."""
    g = np.array([(1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)], dtype)
    return np.kron(g, g)


def _blocks(ctx: Context, x: Array, y: Array) -> Iterator[tuple[slice, slice, Array, Array]]:
    """Images and lines of the outputs `y`, and memory for their transformed inputs and outputs.

    Several images, or an even number of lines of one, for tiles have two.
    """
    images, height, width, out_channels = y.shape
    channels = x.shape[3]
    rows = -(-height // 2)
    columns = -(-width // 2)
    weight_bytes = 16 * channels * out_channels * y.itemsize
    tiles = max(_BLOCK_BYTES, _REUSE * weight_bytes) // (
        16 * (channels + out_channels) * y.itemsize
    )
    together = max(1, min(images, tiles // (rows * columns)))
    rows = rows if together > 1 else max(1, min(rows, tiles // columns))
    inputs = ctx.scratch("inputs", (16 * together * rows * columns * channels,), y.dtype)
    outputs = ctx.scratch("outputs", (16 * together * rows * columns * out_channels,), y.dtype)
    for n in range(0, images, together):
        for h in range(0, height, 2 * rows):
            block = slice(n, min(n + together, images)), slice(h, min(h + 2 * rows, height))
            shape = (16, block[0].stop - n, -(-(block[1].stop - h) // 2), columns)
            yield (
                *block,
                _first(inputs, (*shape, channels)),
                _first(outputs, (*shape, out_channels)),
            )


def _lines(ctx: Context, slot: str, x: Array, y: Array) -> Array:
    """Scratch memory for four lines of `x`, as long as the tiles of the outputs `y` reach."""
    return ctx.scratch(slot, (4, (y.shape[2] + y.shape[2] % 2 + 2) * x.shape[3]), x.dtype)


def _first(memory: Array, shape: tuple[int, ...]) -> Array:
    return memory[: prod(shape)].reshape(shape)


def _flat(images: Array) -> Array:
    return images.reshape(*images.shape[:2], images.shape[2] * images.shape[3])


def _as_matrices(tiles: Array) -> Array:
    return tiles.reshape(16, prod(tiles.shape[1:4]), tiles.shape[4])


# -- compiled transforms -----------------------------------------------------------------------------------------------
#
# Images have the last two dimensions as one here, (images, height, width * channels). Tiles are (16, images, tile rows,
# tile columns, channels): the first dimension is row and column within a tile of 4 by 4. A transform is one of rows, on
# whole lines of an image in scratch memory `lines` (4, columns that the tiles span * channels), and one of columns. A
# loop makes one result of two or three stretches of memory: the compiler gives up vectorizing over more.

_B = ((0, 2, -1), (1, 2, 1), (2, 1, -1), (1, 3, -1))  # row k of Bᵀ d: d[a] + s d[b]
_A = ((0, 1, 2, 1), (1, 2, 3, -1))  # row k of Aᵀ m: m[a] + s (m[b] + m[c])
_A_ROWS = ((1, 0), (1, 1), (1, -1), (0, -1))  # A


@njit(nogil=True)
def _add(target: Array, source: Array, sign: Any, count: int) -> None:
    for c in range(count):
        target[c] += sign * source[c]


@njit(nogil=True)
def read_tiles(x: Array, tiles: Array, lines: Array, top: int, left: int) -> None:
    """tiles = Bᵀ d B for every tile d of 4 by 4 points of `x`, two apart; the first stands at (top, left)."""
    number = x.dtype.type
    rows, columns, channels = tiles.shape[2:]
    first = max(0, left) * channels
    count = min(x.shape[2], left * channels + lines.shape[1]) - first
    for n in range(tiles.shape[1]):
        for r in range(rows):
            lines[:] = 0
            for k in range(4):
                a, b, s = _B[k]
                for row, sign in ((top + 2 * r + a, number(1)), (top + 2 * r + b, number(s))):
                    if 0 <= row < x.shape[1]:
                        _add(lines[k, first - left * channels :], x[n, row, first:], sign, count)
            for w in range(columns):
                for i in range(4):
                    for k in range(4):
                        a, b, s = _B[k]
                        target = tiles[4 * i + k, n, r, w]
                        sign = number(s)
                        p = lines[i, (2 * w + a) * channels :]
                        q = lines[i, (2 * w + b) * channels :]
                        for c in range(channels):
                            target[c] = p[c] + sign * q[c]


@njit(nogil=True)
def add_tiles(tiles: Array, x: Array, lines: Array, top: int, left: int) -> None:
    """The transpose of `read_tiles`: B m Bᵀ of every tile m is added to `x` where the tile stands."""
    number = x.dtype.type
    rows, columns, channels = tiles.shape[2:]
    first = max(0, left) * channels
    count = min(x.shape[2], left * channels + lines.shape[1]) - first
    for n in range(tiles.shape[1]):
        for r in range(rows):
            lines[:] = 0
            for w in range(columns):
                for i in range(4):
                    for k in range(4):
                        a, b, s = _B[k]
                        source = tiles[4 * i + k, n, r, w]
                        sign = number(s)
                        p = lines[i, (2 * w + a) * channels :]
                        q = lines[i, (2 * w + b) * channels :]
                        for c in range(channels):
                            p[c] += source[c]
                        for c in range(channels):
                            q[c] += sign * source[c]
            for k in range(4):
                a, b, s = _B[k]
                for row, sign in ((top + 2 * r + a, number(1)), (top + 2 * r + b, number(s))):
                    if 0 <= row < x.shape[1]:
                        _add(x[n, row, first:], lines[k, first - left * channels :], sign, count)


@njit(nogil=True)
def write_outputs(tiles: Array, y: Array, lines: Array, bias: Array) -> None:
    """y = Aᵀ m A + bias for every tile m; outputs of a tile that are outside of `y` are dropped."""
    number = y.dtype.type
    _, images, rows, columns, channels = tiles.shape
    for n in range(images):
        for r in range(rows):
            for w in range(columns):
                for i in range(2):
                    a, b, d, s = _A[i]
                    if 2 * r + i < y.shape[1]:
                        for k in range(4):
                            target = lines[k]
                            sign = number(s)
                            p = tiles[4 * a + k, n, r, w]
                            q = tiles[4 * b + k, n, r, w]
                            t = tiles[4 * d + k, n, r, w]
                            for c in range(channels):
                                target[c] = p[c] + sign * (q[c] + t[c])
                        for k in range(2):
                            a, b, d, s = _A[k]
                            if (2 * w + k) * channels < y.shape[2]:
                                target = y[n, 2 * r + i, (2 * w + k) * channels :]
                                sign = number(s)
                                p = lines[a]
                                q = lines[b]
                                t = lines[d]
                                for c in range(channels):
                                    target[c] = p[c] + sign * (q[c] + t[c]) + bias[c]


@njit(nogil=True)
def spread_outputs(y: Array, tiles: Array, lines: Array) -> None:
    """The transpose of `write_outputs`: tiles = A g Aᵀ for the outputs g of every tile; those outside of `y` are 0."""
    number = y.dtype.type
    _, images, rows, columns, channels = tiles.shape
    for n in range(images):
        for r in range(rows):
            lines[:] = 0
            upper = y[n, 2 * r]
            is_even = 2 * r + 1 < y.shape[1]
            lower = y[n, 2 * r + 1] if is_even else upper
            for k in range(4):
                p = number(_A_ROWS[k][0])
                q = number(_A_ROWS[k][1] * is_even)
                target = lines[k]
                for c in range(y.shape[2]):
                    target[c] = p * upper[c] + q * lower[c]
            for w in range(columns):
                for i in range(4):
                    left = lines[i, 2 * w * channels :]
                    right = lines[i, (2 * w + 1) * channels :]
                    for k in range(4):
                        p = number(_A_ROWS[k][0])
                        q = number(_A_ROWS[k][1])
                        target = tiles[4 * i + k, n, r, w]
                        for c in range(channels):
                            target[c] = p * left[c] + q * right[c]
