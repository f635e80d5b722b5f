"""Boxes in flat arrays, compiled by numba; see `geometry.Rect` for what they mean.

A box of `w / 2` dimensions is the `w` numbers `a[i : i + w]`: lower and upper border of every dimension in turn. One
flat type for all means that every function is compiled once.
"""

from __future__ import annotations

from typing import Any

from taskflow.core.compiling import leaf

# Inner functions are never called from Python: an entry for it would be most of their code.


@leaf
def same(a: Any, i: int, b: Any, j: int, w: int) -> bool:
    """True when the boxes are equal."""
    for k in range(w):  # noqa: SIM110
        if a[i + k] != b[j + k]:
            return False
    return True


@leaf
def is_empty(a: Any, i: int, w: int) -> bool:
    """True when no point lies inside."""
    for k in range(0, w, 2):  # noqa: SIM110
        if a[i + k + 1] <= a[i + k]:
            return True
    return False


@leaf
def covers(a: Any, i: int, b: Any, j: int, w: int) -> bool:
    """True when every point of the second box, which is not empty, lies in the first."""
    for k in range(0, w, 2):  # noqa: SIM110
        if b[j + k] < a[i + k] or b[j + k + 1] > a[i + k + 1]:
            return False
    return True


@leaf
def overlaps(a: Any, i: int, b: Any, j: int, w: int) -> bool:
    """True when the two boxes share a point."""
    for k in range(0, w, 2):
        low, high = max(a[i + k], b[j + k]), min(a[i + k + 1], b[j + k + 1])
        if high <= low:
            return False
    return True


@leaf
def volume(a: Any, i: int, w: int) -> int:
    """Number of points."""
    points = 1
    for k in range(0, w, 2):
        points *= max(a[i + k + 1] - a[i + k], 0)
    return points


@leaf
def put(out: Any, n: int, a: Any, i: int, w: int) -> None:
    """Copy a box."""
    for k in range(w):
        out[n + k] = a[i + k]


@leaf
def intersect(out: Any, n: int, a: Any, i: int, b: Any, j: int, w: int) -> None:
    """The box of the shared points."""
    for k in range(0, w, 2):
        out[n + k], out[n + k + 1] = max(a[i + k], b[j + k]), min(a[i + k + 1], b[j + k + 1])


@leaf
def subtract(out: Any, base: int, n: int, room: int, a: Any, i: int, b: Any, j: int, w: int) -> int:
    """Append the first box without the second to the `n` at `out[base:]`, as disjoint boxes, slabs along the first
    dimensions first.

    Returns the new number; boxes beyond `room` are counted but not stored.
    """
    if not overlaps(a, i, b, j, w):
        if not is_empty(a, i, w):
            if n < room:
                put(out, base + n * w, a, i, w)
            n += 1
        return n
    for k in range(0, w, 2):
        for side in range(2):
            low = a[i + k] if side == 0 else b[j + k + 1]
            high = b[j + k] if side == 0 else a[i + k + 1]
            if low < high:
                if n < room:
                    at = base + n * w
                    put(out, at, a, i, w)
                    for d in range(0, k, 2):
                        out[at + d], out[at + d + 1] = max(a[i + d], b[j + d]), min(a[i + d + 1], b[j + d + 1])
                    out[at + k], out[at + k + 1] = low, high
                n += 1
    return n


@leaf
def split_evenly(out: Any, a: Any, i: int, parts: int, is_scalar: bool, w: int) -> None:
    """Cut a box into the first `parts` of `out`; see `geometry.split_evenly`. A scalar goes to the first part."""
    longest, cut = 0, -1
    for k in range(0, w, 2):
        extent = a[i + k + 1] - a[i + k]
        if cut < 0 and extent >= parts:
            cut = k
        if extent > a[i + longest + 1] - a[i + longest]:
            longest = k
    cut = longest if cut < 0 else cut
    low, extent = a[i + cut], a[i + cut + 1] - a[i + cut]
    for part in range(parts):
        put(out, part * w, a, i, w)
        if is_scalar:
            out[part * w], out[part * w + 1] = 0, 1 if part == 0 else 0
        else:
            out[part * w + cut] = low + extent * part // parts
            out[part * w + cut + 1] = low + extent * (part + 1) // parts
