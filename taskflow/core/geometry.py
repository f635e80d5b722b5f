"""Boxes of points: the only geometry the runtime knows.

Takes and gives integers. A `Rect` is half open, `lo <= p < hi`; a Rect without dimensions holds one point, which is
how a scalar region is a region like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from types import EllipsisType

Degree = int | tuple[float, ...]  # a number of equal parts, or the fraction of each
REPLICAS = "replicas"  # the axis that no operator has: parts along it are replicas


@dataclass(frozen=True, slots=True)
class Rect:
    """A half-open box of points, `lo[k] <= p[k] < hi[k]` in every dimension `k`."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @staticmethod
    def of_shape(shape: Sequence[int]) -> Rect:
        """The box of a whole array of `shape`, with its corner at the origin."""
        return Rect((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent in every dimension."""
        return tuple(h - l for l, h in zip(self.lo, self.hi, strict=True))

    @property
    def volume(self) -> int:
        """Number of points; 0 for an empty box."""
        return prod(max(h - l, 0) for l, h in zip(self.lo, self.hi, strict=True))

    @property
    def is_empty(self) -> bool:
        """True when no point lies inside."""
        # loops here and below, not any(): lowering asks millions of times, and a generator costs three times as much
        for l, h in zip(self.lo, self.hi, strict=True):  # noqa: SIM110
            if h <= l:
                return True
        return False

    def covers(self, other: Rect) -> bool:
        """True when every point of `other` lies in this box."""
        if self.lo == other.lo and self.hi == other.hi:
            return True
        for a, b, c, d in zip(self.lo, self.hi, other.lo, other.hi, strict=True):
            if c < a or d > b:
                return other.is_empty
        return True

    def overlaps(self, other: Rect) -> bool:
        """True when the two boxes share a point."""
        for a, b, c, d in zip(self.lo, self.hi, other.lo, other.hi, strict=True):
            if b <= c or d <= a or b <= a or d <= c:
                return False
        return True

    def intersect(self, other: Rect) -> Rect:
        """The box of the shared points (possibly empty)."""
        return Rect(tuple(map(max, self.lo, other.lo)), tuple(map(min, self.hi, other.hi)))

    def subtract(self, other: Rect) -> list[Rect]:
        """This box without `other`, as disjoint boxes, slabs along the first dimensions first."""
        if not self.overlaps(other):
            return [] if self.is_empty else [self]
        pieces: list[Rect] = []
        lo = list(self.lo)
        hi = list(self.hi)
        for k in range(len(lo)):
            if lo[k] < other.lo[k]:
                pieces.append(Rect(tuple(lo), (*hi[:k], other.lo[k], *hi[k + 1 :])))
                lo[k] = other.lo[k]
            if hi[k] > other.hi[k]:
                pieces.append(Rect((*lo[:k], other.hi[k], *lo[k + 1 :]), tuple(hi)))
                hi[k] = other.hi[k]
        return pieces

    def relative_to(self, origin: Sequence[int]) -> Rect:
        """The same box in coordinates whose zero is `origin`."""
        return Rect(
            tuple(l - o for l, o in zip(self.lo, origin, strict=True)),
            tuple(h - o for h, o in zip(self.hi, origin, strict=True)),
        )

    def slices(self, origin: Sequence[int] | None = None) -> tuple[EllipsisType | slice, ...]:
        """NumPy index of this box inside an array whose first element is the point `origin` (default: zero).

        It starts with an ellipsis, so that indexing gives a view for a scalar too.
        """
        if origin is None:
            return (..., *map(slice, self.lo, self.hi))
        return (
            ...,
            *(slice(l - o, h - o) for l, h, o in zip(self.lo, self.hi, origin, strict=True)),
        )

    def __str__(self) -> str:
        return "[" + ", ".join(f"{l}:{h}" for l, h in zip(self.lo, self.hi, strict=True)) + "]"


def subtract_all(rect: Rect, others: Iterable[Rect]) -> list[Rect]:
    """`rect` without any of `others`, as disjoint boxes."""
    left = [] if rect.is_empty else [rect]
    for other in others:
        if not left:
            break
        left = [piece for part in left for piece in part.subtract(other)]
    return left


def parts(degree: Degree) -> int:
    """Number of parts of a degree or a tuple of fractions."""
    return degree if isinstance(degree, int) else len(degree)


def part_bounds(extent: int, degree: Degree) -> list[int]:
    """The boundaries of the parts of `extent` points."""
    return (
        balanced_bounds(extent, degree)
        if isinstance(degree, int)
        else fraction_bounds(extent, degree)
    )


def balanced_bounds(extent: int, parts: int) -> list[int]:
    """The `parts + 1` boundaries of a balanced split of `extent` points: part sizes differ by at most one."""
    return [border(extent, parts, k) for k in range(parts + 1)]


def border(extent: int, parts: int, k: int) -> int:
    """Where part `k` of a balanced split begins; lowering compiles it."""
    return extent * k // parts


def fraction_bounds(extent: int, fractions: Sequence[float]) -> list[int]:
    """The boundaries of a split of `extent` points in proportion to `fractions` (which sum to one)."""
    bounds = [0]
    total = 0.0
    for fraction in fractions[:-1]:
        total += fraction
        bounds.append(min(max(round(total * extent), bounds[-1]), extent))
    return [*bounds, extent]
