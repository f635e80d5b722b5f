"""Compiled kernels for what NumPy lacks or does in many passes.

Imported inside the kernels that need it, since importing numba costs 0.3 s. Arrays are C-contiguous unless said.
Compiled once per dtype and cached on disk.
"""

from __future__ import annotations

import math
from typing import Any

import numba

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)  # of the normal distribution at 0


@numba.njit(cache=True)
def max_pool(x: Any, y: Any, index: Any, kh: int, kw: int, sh: int, sw: int) -> None:
    """Maximum and its position, row-major in its window, for every window of `x`, which holds the padding too."""
    for n in range(y.shape[0]):
        for c in range(y.shape[1]):
            for h in range(y.shape[2]):
                for w in range(y.shape[3]):
                    best, at = x[n, c, h * sh, w * sw], 0
                    for i in range(kh):
                        for j in range(kw):
                            value = x[n, c, h * sh + i, w * sw + j]
                            if value > best or value != value:
                                best, at = value, i * kw + j
                    y[n, c, h, w] = best
                    index[n, c, h, w] = at


@numba.njit(cache=True)
def max_pool_gradient(gy: Any, index: Any, gx: Any, kw: int, sh: int, sw: int, top: int, left: int) -> None:
    """Add each gradient where its maximum stood; window (0, 0) starts at (top, left) of `gx`, perhaps outside."""
    for n in range(gy.shape[0]):
        for c in range(gy.shape[1]):
            for h in range(gy.shape[2]):
                for w in range(gy.shape[3]):
                    at = index[n, c, h, w]
                    y, x = top + h * sh + at // kw, left + w * sw + at % kw
                    if 0 <= y < gx.shape[2] and 0 <= x < gx.shape[3]:
                        gx[n, c, y, x] += gy[n, c, h, w]


@numba.vectorize(cache=True)  # type: ignore[no-untyped-call]
def gelu(x: Any) -> Any:
    """x Φ(x), elementwise."""
    return 0.5 * x * (1.0 + math.erf(x * _SQRT_HALF))


@numba.vectorize(cache=True)  # type: ignore[no-untyped-call]
def gelu_gradient(gy: Any, x: Any) -> Any:
    """gy (Φ(x) + x φ(x)), elementwise."""
    return gy * (0.5 * (1.0 + math.erf(x * _SQRT_HALF)) + x * _DENSITY * math.exp(-0.5 * x * x))


@numba.njit(cache=True)
def scatter_add(rows: Any, index: Any, lo: int, table: Any) -> None:
    """table[index[k] - lo] += rows[k] for every index that lies in the table."""
    for k in range(index.shape[0]):
        at = index[k] - lo
        if 0 <= at < table.shape[0]:
            for e in range(table.shape[1]):
                table[at, e] += rows[k, e]
