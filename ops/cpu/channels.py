"""Compiled kernels of batch norm over matrices (points, channels); see `cpu` for what holds for all of them.

Sums over points are taken in stretches of 256, whose sums are added up: two short sums are more exact than a long one.
"""

from __future__ import annotations

from typing import Any

from taskflow import njit

_STRETCH = 256


@njit(nogil=True)
def sums(x: Any, total: Any, part: Any) -> None:
    """total = the sum over points; `part` is scratch memory of the same shape."""
    total[:] = 0
    for first in range(0, x.shape[0], _STRETCH):
        part[:] = 0
        for r in range(first, min(first + _STRETCH, x.shape[0])):
            for c in range(x.shape[1]):
                part[c] += x[r, c]
        for c in range(x.shape[1]):
            total[c] += part[c]


@njit(nogil=True, fastmath={"contract"})
def squares(x: Any, mean: Any, total: Any, part: Any) -> None:
    """total = the sum over points of (x - mean)²."""
    total[:] = 0
    for first in range(0, x.shape[0], _STRETCH):
        part[:] = 0
        for r in range(first, min(first + _STRETCH, x.shape[0])):
            for c in range(x.shape[1]):
                part[c] += (x[r, c] - mean[c]) * (x[r, c] - mean[c])
        for c in range(x.shape[1]):
            total[c] += part[c]


@njit(nogil=True, fastmath={"contract"})
def products(gy: Any, x: Any, mean: Any, gbias: Any, gweight: Any, part: Any) -> None:
    """gbias = the sum over points of gy, gweight = that of gy (x - mean); `part` is scratch memory of two rows."""
    gbias[:] = 0
    gweight[:] = 0
    for first in range(0, x.shape[0], _STRETCH):
        part[:] = 0
        one, other = part[0], part[1]
        for r in range(first, min(first + _STRETCH, x.shape[0])):
            for c in range(x.shape[1]):
                one[c] += gy[r, c]
            for c in range(x.shape[1]):
                other[c] += gy[r, c] * (x[r, c] - mean[c])
        for c in range(x.shape[1]):
            gbias[c] += one[c]
        for c in range(x.shape[1]):
            gweight[c] += other[c]


@njit(nogil=True, fastmath={"contract"})
def normalize(x: Any, mean: Any, scale: Any, bias: Any, y: Any) -> None:
    """y = (x - mean) scale + bias."""
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            y[r, c] = (x[r, c] - mean[c]) * scale[c] + bias[c]


@njit(nogil=True, fastmath={"contract"})
def gradient(gy: Any, x: Any, mean: Any, slope: Any, share: Any, scale: Any, gx: Any) -> None:
    """gx = (gy + (x - mean) slope - share) scale."""
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            gx[r, c] = (gy[r, c] + (x[r, c] - mean[c]) * slope[c] - share[c]) * scale[c]
