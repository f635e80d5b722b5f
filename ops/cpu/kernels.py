"""Compiled kernels for what NumPy lacks or does in many passes.

Kernels over rows are in `cpu_rows`, over the windows of images in `cpu_windows`, and
so on. Imported inside the kernels that need it, since importing numba costs 0.3 s. Arrays are C-contiguous: one variant
per dtype is compiled (and kept on disk). Not numba.vectorize: its loops take a strided output for a contiguous one
where the inputs are contiguous (numba 0.68, np/ufunc/wrappers.py, `unit_strided`).
"""

from __future__ import annotations

import math
from typing import Any

from ops.cpu.math import erf, exp
from taskflow import njit

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0


@njit(nogil=True)
def relu(x: Any, y: Any) -> None:
    """y = max(x, 0), NaN where x is, for arrays of one dimension: 2.5 times NumPy's maximum."""
    for k in range(x.size):
        y[k] = 0 if x[k] <= 0 else x[k]


@njit(nogil=True)
def relu_gradient(gy: Any, y: Any, gx: Any) -> None:
    """gx = gy where y > 0, else 0, for arrays of one dimension."""
    for k in range(gx.size):
        gx[k] = gy[k] if y[k] > 0 else 0


@njit(nogil=True, error_model="numpy")
def gelu(x: Any, y: Any) -> None:
    """y = x Φ(x) for arrays of one dimension."""
    half, scale = x.dtype.type(0.5), x.dtype.type(_SQRT_HALF)
    for k in range(x.size):
        y[k] = x[k] * (half + half * erf(x[k] * scale))


@njit(nogil=True, error_model="numpy")
def gelu_gradient(gy: Any, x: Any, gx: Any) -> None:
    """gx = gy (Φ(x) + x φ(x)) for arrays of one dimension."""
    half, scale, density = x.dtype.type(0.5), x.dtype.type(_SQRT_HALF), x.dtype.type(_DENSITY)
    for k in range(x.size):
        p = half + half * erf(x[k] * scale)
        gx[k] = gy[k] * (p + x[k] * (density * exp(-half * x[k] * x[k])))


@njit(nogil=True)
def scatter_add(rows: Any, index: Any, lo: int, table: Any) -> None:
    """table[index[k] - lo] += rows[k] for every index that lies in the table."""
    for k in range(index.shape[0]):
        at = index[k] - lo
        if 0 <= at < table.shape[0]:
            for e in range(table.shape[1]):
                table[at, e] += rows[k, e]


@njit(nogil=True)
def take_pairs(products: Any, i: Any, j: Any, y: Any) -> None:
    """y[n, p] = products[n, i[p], j[p]]."""
    for n in range(y.shape[0]):
        for p in range(y.shape[1]):
            y[n, p] = products[n, i[p], j[p]]


@njit(nogil=True)
def put_pairs(gy: Any, i: Any, j: Any, weights: Any) -> None:
    """The gradient of `take_pairs`, for both orders of a pair; zeros for what is no pair."""
    for n in range(gy.shape[0]):
        weights[n] = 0
        for p in range(gy.shape[1]):
            weights[n, i[p], j[p]] = weights[n, j[p], i[p]] = gy[n, p]
