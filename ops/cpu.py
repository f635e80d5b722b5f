"""Compiled kernels for what NumPy lacks or does in many passes.

Kernels over the windows of images are in `cpu_windows`. Imported inside the kernels that need it, since importing numba
costs 0.3 s. Arrays are C-contiguous: one variant per dtype is compiled (and kept on disk). Not numba.vectorize: its
loops take a strided output for a contiguous one where the inputs are contiguous (numba 0.68, np/ufunc/wrappers.py,
`unit_strided`).
"""

from __future__ import annotations

import math
from typing import Any

import numba

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0


@numba.njit(cache=True)
def relu_gradient(gy: Any, y: Any, gx: Any) -> None:
    """gx = gy where y > 0, else 0, for arrays of one dimension."""
    for k in range(gx.size):
        gx[k] = gy[k] if y[k] > 0 else 0


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
