"""Compiled kernels over the windows of images; see `ops.cpu` for what holds for all of them.

Images are channels-last, (images, height, width, channels): what a window reads of a row is one stretch of memory, and
loops over channels vectorize. `top` and `left` are where the first window starts in the array; what lies outside of it
is padding, or no part of this tile.
"""

from __future__ import annotations

import numpy as np

from taskflow import Array, njit

_Pair = tuple[int, int]  # of the vertical and the horizontal window


@njit(nogil=True)
def to_columns(
    x: Array,
    columns: Array,
    top: int,
    left: int,
    stride: _Pair,
    dilation: _Pair,
) -> None:
    """columns[g, n, h, w, i, j, c] = what position (i, j) of window (h, w) reads of channel c of group g of `x`."""
    groups, images, height, width, kh, kw, channels = columns.shape
    for n in range(images):
        for h in range(height):
            for w in range(width):
                for i in range(kh):
                    y = top + h * stride[0] + i * dilation[0]
                    for j in range(kw):
                        z = left + w * stride[1] + j * dilation[1]
                        is_inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
                        for g in range(groups):
                            target = columns[g, n, h, w, i, j]
                            if is_inside:
                                source = x[n, y, z, g * channels :]
                                for c in range(channels):
                                    target[c] = source[c]
                            else:
                                for c in range(channels):
                                    target[c] = 0


@njit(nogil=True)
def add_columns(
    columns: Array,
    x: Array,
    top: int,
    left: int,
    stride: _Pair,
    dilation: _Pair,
) -> None:
    """The transpose of `to_columns`: every column is added to `x` where it was read."""
    groups, images, height, width, kh, kw, channels = columns.shape
    for n in range(images):
        for h in range(height):
            for w in range(width):
                for i in range(kh):
                    y = top + h * stride[0] + i * dilation[0]
                    for j in range(kw):
                        z = left + w * stride[1] + j * dilation[1]
                        if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                            for g in range(groups):
                                source = columns[g, n, h, w, i, j]
                                target = x[n, y, z, g * channels :]
                                for c in range(channels):
                                    target[c] += source[c]


@njit(nogil=True)
def max_pool(
    x: Array,
    y: Array,
    index: Array,
    top: int,
    left: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
) -> None:
    """Maximum and its position, row-major in its window, for every window of `x`; padding is minus infinity.

    The first of equal values stands; a NaN makes the maximum NaN, as in torch. A window has a point in the array.
    """
    for n in range(y.shape[0]):
        for h in range(y.shape[1]):
            for w in range(y.shape[2]):
                best = y[n, h, w]
                at = index[n, h, w]
                is_first = True
                for i in range(max(0, -(top + h * sh)), min(kh, x.shape[1] - (top + h * sh))):
                    for j in range(max(0, -(left + w * sw)), min(kw, x.shape[2] - (left + w * sw))):
                        values = x[n, top + h * sh + i, left + w * sw + j]
                        k = np.int32(i * kw + j)
                        if is_first:
                            for c in range(best.size):
                                best[c] = values[c]
                                at[c] = k
                            is_first = False
                        else:
                            for c in range(best.size):
                                value = values[c]
                                most = best[c]
                                is_larger = (value > most) | (value != value)
                                best[c], at[c] = (
                                    value if is_larger else most,
                                    k if is_larger else at[c],
                                )


@njit(nogil=True)
def max_pool_gradient(
    gy: Array,
    index: Array,
    gx: Array,
    top: int,
    left: int,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
) -> None:
    """Add each gradient where its maximum stood."""
    for n in range(gy.shape[0]):
        for h in range(gy.shape[1]):
            for w in range(gy.shape[2]):
                gradient = gy[n, h, w]
                at = index[n, h, w]
                for i in range(max(0, -(top + h * sh)), min(kh, gx.shape[1] - (top + h * sh))):
                    for j in range(
                        max(0, -(left + w * sw)), min(kw, gx.shape[2] - (left + w * sw))
                    ):
                        target = gx[n, top + h * sh + i, left + w * sw + j]
                        k = np.int32(i * kw + j)
                        for c in range(gradient.size):
                            target[c] += gradient[c] if at[c] == k else 0
