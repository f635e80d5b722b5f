"""Philox4x32-10 in numba: 128 random bits for every 64-bit counter.

Reference: Salmon, Moraes, Dror, Shaw, SC 2011. Imported only by `random`, on first use.
"""

from __future__ import annotations

import math

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import njit

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_MASK, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_UNIT = 1.0 / 9007199254740992.0  # 2**-53


@njit(inline="always")
def _philox(counter: np.uint64, k0: np.uint32, k1: np.uint32) -> tuple[np.uint64, np.uint64]:
    """Two 64-bit words for one counter."""
    c0, c1 = np.uint32(counter & _MASK), np.uint32(counter >> _SHIFT)
    c2, c3 = np.uint32(0), np.uint32(0)
    for _ in range(10):
        p0, p1 = _M0 * np.uint64(c0), _M1 * np.uint64(c2)
        h0, l0 = np.uint32(p0 >> _SHIFT), np.uint32(p0 & _MASK)
        h1, l1 = np.uint32(p1 >> _SHIFT), np.uint32(p1 & _MASK)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return (np.uint64(c0) << _SHIFT) | np.uint64(c1), (np.uint64(c2) << _SHIFT) | np.uint64(c3)


@njit
def uniform(out: Array, offsets: Array, k0: np.uint32, k1: np.uint32) -> None:
    """`out[r, j]` = uniform in [0, 1) of the element with global index `offsets[r] + j`."""
    number = out.dtype.type
    largest = np.nextafter(number(1), number(0))  # what is nearer to 1 would be rounded to it
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, _ = _philox(np.uint64(offsets[r] + j), k0, k1)
            out[r, j] = min(number(np.float64(a >> np.uint64(11)) * _UNIT), largest)


@njit
def normal(out: Array, offsets: Array, k0: np.uint32, k1: np.uint32) -> None:
    """`out[r, j]` = standard normal (Box-Muller) of the element with global index `offsets[r] + j`."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, b = _philox(np.uint64(offsets[r] + j), k0, k1)
            u = (np.float64(a >> np.uint64(11)) + 1.0) * _UNIT
            v = np.float64(b >> np.uint64(11)) * _UNIT
            out[r, j] = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
