"""Boxes in arrays, compiled by numba: `a[i, k]` is the interval of box `i` in dimension `k`. See `geometry.Rect`."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True)
def same(a: Any, i: int, b: Any, j: int) -> bool:
    """True when the boxes are equal."""
    for k in range(a.shape[1]):
        if a[i, k, 0] != b[j, k, 0] or a[i, k, 1] != b[j, k, 1]:
            return False
    return True


@numba.njit(cache=True)
def is_empty(a: Any, i: int) -> bool:
    """True when no point lies inside."""
    for k in range(a.shape[1]):
        if a[i, k, 1] <= a[i, k, 0]:
            return True
    return False


@numba.njit(cache=True)
def covers(a: Any, i: int, b: Any, j: int) -> bool:
    """True when every point of `b[j]`, which is not empty, lies in `a[i]`."""
    for k in range(a.shape[1]):
        if b[j, k, 0] < a[i, k, 0] or b[j, k, 1] > a[i, k, 1]:
            return False
    return True


@numba.njit(cache=True)
def overlaps(a: Any, i: int, b: Any, j: int) -> bool:
    """True when the two boxes share a point."""
    for k in range(a.shape[1]):
        low, high = max(a[i, k, 0], b[j, k, 0]), min(a[i, k, 1], b[j, k, 1])
        if high <= low:
            return False
    return True


@numba.njit(cache=True)
def volume(a: Any, i: int) -> int:
    """Number of points."""
    points = 1
    for k in range(a.shape[1]):
        points *= max(a[i, k, 1] - a[i, k, 0], 0)
    return points


@numba.njit(cache=True)
def put(out: Any, n: int, a: Any, i: int) -> None:
    """Copy a box."""
    for k in range(a.shape[1]):
        out[n, k, 0], out[n, k, 1] = a[i, k, 0], a[i, k, 1]


@numba.njit(cache=True)
def intersect(out: Any, n: int, a: Any, i: int, b: Any, j: int) -> None:
    """The box of the shared points."""
    for k in range(a.shape[1]):
        out[n, k, 0], out[n, k, 1] = max(a[i, k, 0], b[j, k, 0]), min(a[i, k, 1], b[j, k, 1])


@numba.njit(cache=True)
def subtract(out: Any, n: int, a: Any, i: int, b: Any, j: int) -> int:
    """Append `a[i]` without `b[j]` to `out`, which holds `n`, as disjoint boxes, slabs along the first dimensions first.

    Returns the new length; what is beyond the end of `out` is counted but not stored.
    """
    if not overlaps(a, i, b, j):
        if not is_empty(a, i):
            if n < len(out):
                put(out, n, a, i)
            n += 1
        return n
    for k in range(a.shape[1]):
        for side in range(2):
            low = a[i, k, 0] if side == 0 else b[j, k, 1]
            high = b[j, k, 0] if side == 0 else a[i, k, 1]
            if low < high:
                if n < len(out):
                    for d in range(a.shape[1]):
                        if d < k:
                            out[n, d, 0], out[n, d, 1] = max(a[i, d, 0], b[j, d, 0]), min(a[i, d, 1], b[j, d, 1])
                        else:
                            out[n, d, 0], out[n, d, 1] = a[i, d, 0], a[i, d, 1]
                    out[n, k, 0], out[n, k, 1] = low, high
                n += 1
    return n


@numba.njit(cache=True)
def split_evenly(out: Any, a: Any, i: int, parts: int, is_scalar: bool) -> None:
    """Cut `a[i]` into `out[:parts]`; see `geometry.split_evenly`. A scalar goes to the first part."""
    longest, cut = 0, -1
    for k in range(a.shape[1]):
        extent = a[i, k, 1] - a[i, k, 0]
        if cut < 0 and extent >= parts:
            cut = k
        if extent > a[i, longest, 1] - a[i, longest, 0]:
            longest = k
    cut = longest if cut < 0 else cut
    low, extent = a[i, cut, 0], a[i, cut, 1] - a[i, cut, 0]
    for part in range(parts):
        put(out, part, a, i)
        if is_scalar:
            out[part, 0, 0], out[part, 0, 1] = 0, 1 if part == 0 else 0
        else:
            out[part, cut, 0] = low + extent * part // parts
            out[part, cut, 1] = low + extent * (part + 1) // parts
