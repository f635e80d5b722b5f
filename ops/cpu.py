"""Compiled kernels for what NumPy lacks or does in many passes.

Imported inside the kernels that need it, since importing numba costs 0.3 s. Arrays are C-contiguous: one variant
per dtype is compiled (and kept on disk). Not numba.vectorize: its loops take a strided output for a contiguous one
where the inputs are contiguous (numba 0.68, np/ufunc/wrappers.py, `unit_strided`).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0


@numba.njit(cache=True)
def max_pool(x: Any, y: Any, index: Any, kh: int, kw: int, sh: int, sw: int) -> None:
    """Maximum and its position, row-major in its window, for every window of `x`, which holds the padding too.

    The first of equal values stands; a NaN makes the maximum NaN, as in torch.

    The usual window, 2 by 2, is written out: with constants for sizes the compiler vectorizes (18 times).
    """
    if kh == kw == sh == sw == 2:
        _max_pool_two(x, y, index)
        return
    for n in range(y.shape[0]):
        for c in range(y.shape[1]):
            for h in range(y.shape[2]):
                rows, best, at = x[n, c, h * sh :], y[n, c, h], index[n, c, h]
                for w in range(best.size):
                    top, k, nans = rows[0, w * sw], 0, 0
                    for i in range(kh):
                        for j in range(kw):
                            value = rows[i, w * sw + j]
                            is_larger = value > top
                            top, k = value if is_larger else top, i * kw + j if is_larger else k
                            nans += value != value  # counting is off the chain of comparisons: twice as fast
                    best[w], at[w] = top if nans == 0 else np.nan, k


@numba.njit(cache=True)
def _max_pool_two(x: Any, y: Any, index: Any) -> None:
    for n in range(y.shape[0]):
        for c in range(y.shape[1]):
            for h in range(y.shape[2]):
                best, at = y[n, c, h], index[n, c, h]
                upper, lower = x[n, c, 2 * h], x[n, c, 2 * h + 1]
                for w in range(best.size):
                    top, k = _larger(upper[2 * w], 0, upper[2 * w + 1], 1)
                    top, k = _larger(top, k, lower[2 * w], 2)
                    best[w], at[w] = _larger(top, k, lower[2 * w + 1], 3)


@numba.njit(cache=True, inline="always")
def _larger(top: Any, k: int, value: Any, position: int) -> Any:
    is_larger = (value > top) | (value != value)
    return value if is_larger else top, position if is_larger else k


@numba.njit(cache=True, error_model="numpy")
def max_pool_gradient(gy: Any, index: Any, gx: Any, kw: int, sh: int, sw: int, top: int, left: int) -> None:
    """Add each gradient where its maximum stood; window (0, 0) starts at (top, left) of `gx`, perhaps outside."""
    for n in range(gy.shape[0]):
        for c in range(gy.shape[1]):
            for h in range(gy.shape[2]):
                gradient, at = gy[n, c, h], index[n, c, h]
                for w in range(gradient.size):
                    i = at[w] // kw
                    y, x = top + h * sh + i, left + w * sw + at[w] - i * kw
                    if 0 <= y < gx.shape[2] and 0 <= x < gx.shape[3]:
                        gx[n, c, y, x] += gradient[w]


@numba.njit(cache=True, error_model="numpy")
def gelu(x: Any, y: Any) -> None:
    """y = x Φ(x) for arrays of one dimension."""
    half, scale = x.dtype.type(0.5), x.dtype.type(_SQRT_HALF)
    if x.itemsize == 4:
        for k in range(x.size):
            y[k] = x[k] * (half + half * _erf_single(x[k] * scale))
    else:
        for k in range(x.size):
            y[k] = x[k] * (half + half * math.erf(x[k] * scale))


@numba.njit(cache=True, error_model="numpy")
def gelu_gradient(gy: Any, x: Any, gx: Any) -> None:
    """gx = gy (Φ(x) + x φ(x)) for arrays of one dimension; `gx` holds exp(-x² / 2)."""
    half, scale, density = x.dtype.type(0.5), x.dtype.type(_SQRT_HALF), x.dtype.type(_DENSITY)
    if x.itemsize == 4:
        for k in range(x.size):
            gx[k] = gy[k] * (half + half * _erf_single(x[k] * scale) + x[k] * density * gx[k])
    else:
        for k in range(x.size):
            gx[k] = gy[k] * (half + half * math.erf(x[k] * scale) + x[k] * density * gx[k])


@numba.njit(cache=True, error_model="numpy", inline="always")
def _erf_single(x: Any) -> Any:
    """erf in float32 to 4e-7 as a ratio of polynomials (Eigen's `erf_float`), which vectorizes: 25 times math.erf."""
    f = numba.float32
    x = min(max(x, f(-4)), f(4))
    s = x * x
    p = f(-2.72614225801306e-10) * s + f(2.77068142495902e-08)
    p = p * s + f(-2.10102402082508e-06)
    p = p * s + f(-5.69250639462346e-05)
    p = p * s + f(-7.34990630326855e-04)
    p = p * s + f(-2.95459980854025e-03)
    p = p * s + f(-1.60960333262415e-02)
    q = f(-1.45660718464996e-05) * s + f(-2.13374055278905e-04)
    q = q * s + f(-1.68282697438203e-03)
    q = q * s + f(-7.37332916720468e-03)
    q = q * s + f(-1.42647390514189e-02)
    return x * p / q


@numba.njit(cache=True)
def scatter_add(rows: Any, index: Any, lo: int, table: Any) -> None:
    """table[index[k] - lo] += rows[k] for every index that lies in the table."""
    for k in range(index.shape[0]):
        at = index[k] - lo
        if 0 <= at < table.shape[0]:
            for e in range(table.shape[1]):
                table[at, e] += rows[k, e]


@numba.njit(cache=True)
def to_columns(x: Any, columns: Any, stride: Any, dilation: Any) -> None:
    """columns[c, i, j, n, h, w] = what position (i, j) of window (h, w) reads of `x` (n, c, y, x), padding included.

    Rows are views and their indices start at 0: so the compiler sees that none is negative, and vectorizes (4 times).
    """
    for c in range(columns.shape[0]):
        for i in range(columns.shape[1]):
            for j in range(columns.shape[2]):
                for n in range(columns.shape[3]):
                    for h in range(columns.shape[4]):
                        source = x[n, c, h * stride[0] + i * dilation[0], j * dilation[1] :]
                        target = columns[c, i, j, n, h]
                        if stride[1] == 1:
                            for w in range(target.size):
                                target[w] = source[w]
                        else:
                            for w in range(target.size):
                                target[w] = source[w * stride[1]]


@numba.njit(cache=True)
def add_columns(columns: Any, x: Any, stride: Any, dilation: Any) -> None:
    """The transpose of `to_columns`: every column is added to `x` where it was read."""
    for c in range(columns.shape[0]):
        for i in range(columns.shape[1]):
            for j in range(columns.shape[2]):
                for n in range(columns.shape[3]):
                    for h in range(columns.shape[4]):
                        source = columns[c, i, j, n, h]
                        target = x[n, c, h * stride[0] + i * dilation[0], j * dilation[1] :]
                        if stride[1] == 1:
                            for w in range(source.size):
                                target[w] += source[w]
                        else:
                            for w in range(source.size):
                                target[w * stride[1]] += source[w]


@numba.njit(cache=True)
def sgd(p: Any, g: Any, v: Any, rate: Any, momentum: Any, nesterov: bool, decay: Any) -> None:
    """One step of stochastic gradient descent in one pass; an empty `v` is no momentum."""
    if v.size == 0:
        for k in range(p.size):
            p[k] -= rate * (g[k] + decay * p[k])
        return
    for k in range(p.size):
        gradient = g[k] + decay * p[k]
        v[k] = momentum * v[k] + gradient
        p[k] -= rate * (gradient + momentum * v[k] if nesterov else v[k])


@numba.njit(cache=True, error_model="numpy")  # the check for zero divisors would keep it from vectorizing
def adam(
    p: Any, g: Any, m: Any, v: Any, rate: Any, beta1: Any, beta2: Any, root: Any, eps: Any, decay: Any, keep: Any
) -> None:
    """One step of Adam in one pass: `rate` is corrected for m, `root` corrects that of v, AdamW scales by `keep`."""
    one = p.dtype.type(1)
    for k in range(p.size):
        gradient = g[k] + decay * p[k]
        m[k] = beta1 * m[k] + (one - beta1) * gradient
        v[k] = beta2 * v[k] + (one - beta2) * (gradient * gradient)
        p[k] = keep * p[k] - rate * (m[k] / (math.sqrt(v[k]) / root + eps))
