"""Boxes as rows of arrays, compiled by numba; see `geometry.Rect` for what they mean.

A box is the lower and the upper border of every dimension in turn.
"""

from __future__ import annotations

from typing import Any

from taskflow.core import geometry
from taskflow.core.compiling import leaf

border = leaf(geometry.border)
_PRIME = (1 << 31) - 1
_FACTOR = 40503  # of a hash of boxes; a product of both is far from 63 bits


@leaf
def same(a: Any, b: Any) -> bool:
    """True when the boxes are equal."""
    for k in range(len(a)):  # noqa: SIM110
        if a[k] != b[k]:
            return False
    return True


@leaf
def hash_of(box: Any, seed: int) -> int:
    """A number below a prime."""
    code = seed % _PRIME
    for k in range(len(box)):
        code = (code * _FACTOR + int(box[k]) % _PRIME) % _PRIME
    return code


@leaf
def is_empty(a: Any) -> bool:
    """True when no point lies inside."""
    for k in range(0, len(a), 2):  # noqa: SIM110
        if a[k + 1] <= a[k]:
            return True
    return False


@leaf
def covers(a: Any, b: Any) -> bool:
    """True when every point of the second box, which is not empty, lies in the first."""
    for k in range(0, len(a), 2):  # noqa: SIM110
        if b[k] < a[k] or b[k + 1] > a[k + 1]:
            return False
    return True


@leaf
def overlaps(a: Any, b: Any) -> bool:
    """True when the two boxes share a point."""
    for k in range(0, len(a), 2):  # noqa: SIM110
        if min(a[k + 1], b[k + 1]) <= max(a[k], b[k]):
            return False
    return True


@leaf
def volume(a: Any) -> int:
    """Number of points."""
    points = 1
    for k in range(0, len(a), 2):
        points *= max(a[k + 1] - a[k], 0)
    return points


@leaf
def put(out: Any, a: Any) -> None:
    """Copy a box."""
    for k in range(len(out)):
        out[k] = a[k]


@leaf
def intersect(out: Any, a: Any, b: Any) -> None:
    """The box of the shared points."""
    for k in range(0, len(out), 2):
        out[k], out[k + 1] = max(a[k], b[k]), min(a[k + 1], b[k + 1])


@leaf
def subtract(out: Any, n: int, a: Any, b: Any) -> int:
    """Append the first box without the second to the `n` of `out`, as disjoint boxes; the new number.

    Slabs along the first dimensions come first. Boxes beyond the length of `out` are counted but not stored.
    """
    if not overlaps(a, b):
        if not is_empty(a):
            if n < len(out):
                put(out[n], a)
            n += 1
        return n
    for k in range(0, len(a), 2):
        for side in range(2):
            low = a[k] if side == 0 else b[k + 1]
            high = b[k] if side == 0 else a[k + 1]
            if low < high:
                if n < len(out):
                    slab = out[n]
                    intersect(slab, a, b)
                    slab[k] = low
                    slab[k + 1] = high
                    for d in range(k + 2, len(a)):
                        slab[d] = a[d]
                n += 1
    return n


@leaf
def split_evenly(out: Any, a: Any, parts: int, is_scalar: int) -> None:
    """Cut a box into the first `parts` of `out`, disjoint and nearly equal; some may be empty.

    The first dimension long enough to give every part a point is cut, so that parts stay as contiguous in memory as
    they can be; where none is, the longest. A scalar goes to the first part.
    """
    longest = 0
    cut = -1
    for k in range(0, len(a), 2):
        extent = a[k + 1] - a[k]
        if cut < 0 and extent >= parts:
            cut = k
        if extent > a[longest + 1] - a[longest]:
            longest = k
    cut = longest if cut < 0 else cut
    low = a[cut]
    extent = a[cut + 1] - a[cut]
    for part in range(parts):
        put(out[part], a)
        if is_scalar:
            out[part, 0] = 0
            out[part, 1] = 1 if part == 0 else 0
        else:
            out[part, cut] = low + border(extent, parts, part)
            out[part, cut + 1] = low + border(extent, parts, part + 1)
