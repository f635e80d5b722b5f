"""Compiled transforms of Winograd's convolution; `winograd` has the algorithm, `kernels` what holds for all.

Images are channels-last with the last two dimensions as one, (images, height, width * channels). Tiles are (16, images,
tile rows, tile columns, channels): the first dimension is row and column within a tile of 4 by 4. A transform is one of
rows, on whole lines of an image in scratch memory `lines` (4, columns that the tiles span * channels), and one of
columns. A loop makes one result of two or three stretches of memory: the compiler gives up vectorizing over more.
"""

from __future__ import annotations

from taskflow import Array, njit

_B = ((0, 2, -1), (1, 2, 1), (2, 1, -1), (1, 3, -1))  # row k of Bᵀ d: d[a] + s d[b]
_A = ((0, 1, 2, 1), (1, 2, 3, -1))  # row k of Aᵀ m: m[a] + s (m[b] + m[c])
_A_ROWS = ((1, 0), (1, 1), (1, -1), (0, -1))  # A


@njit(nogil=True)
def read_tiles(x: Array, tiles: Array, lines: Array, top: int, left: int) -> None:
    """tiles = Bᵀ d B for every tile d of 4 by 4 points of `x`, two apart; the first stands at (top, left)."""
    number = x.dtype.type
    _, images, rows, columns, channels = tiles.shape
    first = max(0, left) * channels
    count = min(x.shape[2], left * channels + lines.shape[1]) - first
    for n in range(images):
        for r in range(rows):
            lines[:] = 0
            for k in range(4):
                a, b, s = _B[k]
                for row, sign in ((top + 2 * r + a, number(1)), (top + 2 * r + b, number(s))):
                    if 0 <= row < x.shape[1]:
                        target, source = lines[k, first - left * channels :], x[n, row, first:]
                        for c in range(count):
                            target[c] += sign * source[c]
            for w in range(columns):
                for i in range(4):
                    for k in range(4):
                        a, b, s = _B[k]
                        target, sign = tiles[4 * i + k, n, r, w], number(s)
                        p, q = lines[i, (2 * w + a) * channels :], lines[i, (2 * w + b) * channels :]
                        for c in range(channels):
                            target[c] = p[c] + sign * q[c]


@njit(nogil=True)
def add_tiles(tiles: Array, x: Array, lines: Array, top: int, left: int) -> None:
    """The transpose of `read_tiles`: B m Bᵀ of every tile m is added to `x` where the tile stands."""
    number = x.dtype.type
    _, images, rows, columns, channels = tiles.shape
    first = max(0, left) * channels
    count = min(x.shape[2], left * channels + lines.shape[1]) - first
    for n in range(images):
        for r in range(rows):
            lines[:] = 0
            for w in range(columns):
                for i in range(4):
                    for k in range(4):
                        a, b, s = _B[k]
                        source, sign = tiles[4 * i + k, n, r, w], number(s)
                        p, q = lines[i, (2 * w + a) * channels :], lines[i, (2 * w + b) * channels :]
                        for c in range(channels):
                            p[c] += source[c]
                        for c in range(channels):
                            q[c] += sign * source[c]
            for k in range(4):
                a, b, s = _B[k]
                for row, sign in ((top + 2 * r + a, number(1)), (top + 2 * r + b, number(s))):
                    if 0 <= row < x.shape[1]:
                        source, target = lines[k, first - left * channels :], x[n, row, first:]
                        for c in range(count):
                            target[c] += sign * source[c]


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
                            target, sign = lines[k], number(s)
                            p, q, t = tiles[4 * a + k, n, r, w], tiles[4 * b + k, n, r, w], tiles[4 * d + k, n, r, w]
                            for c in range(channels):
                                target[c] = p[c] + sign * (q[c] + t[c])
                        for k in range(2):
                            a2, b2, d2, s2 = _A[k]
                            if (2 * w + k) * channels < y.shape[2]:
                                target, sign = y[n, 2 * r + i, (2 * w + k) * channels :], number(s2)
                                p, q, t = lines[a2], lines[b2], lines[d2]
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
                p, q, target = number(_A_ROWS[k][0]), number(_A_ROWS[k][1] * is_even), lines[k]
                for c in range(y.shape[2]):
                    target[c] = p * upper[c] + q * lower[c]
            for w in range(columns):
                for i in range(4):
                    left, right = lines[i, 2 * w * channels :], lines[i, (2 * w + 1) * channels :]
                    for k in range(4):
                        p, q, target = number(_A_ROWS[k][0]), number(_A_ROWS[k][1]), tiles[4 * i + k, n, r, w]
                        for c in range(channels):
                            target[c] = p * left[c] + q * right[c]
