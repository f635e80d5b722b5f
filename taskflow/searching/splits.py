"""What the splits of an operator in a space have in common; see `bound`."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from taskflow.core.geometry import balanced_bounds
from taskflow.graph.graph import Operator
from taskflow.searching.space import Space


class Splits:
    """What the splits of an operator in a space have in common.

    Attributes:
        most: the largest number of its points that run side by side.
        least: the smallest part of its work that one point has.
        reads: per input the least that a point reads, relative to its part of the operator; 0: perhaps nothing.
        work: that of the whole which all points together have for certain.
    """

    def __init__(self, op: Operator, space: Space) -> None:
        self.operator = op
        axes, rows = space.degrees(op.follows or op.name)
        self._degrees = {a: rows[:, k] for k, a in enumerate(axes) if a in op.split_axes}
        part = np.ones(len(rows))
        points = np.ones(len(rows))
        for axis, degrees in self._degrees.items():
            extent = op.extents[axis]
            part *= np.maximum(extent // degrees, 1) / extent
            points *= np.minimum(degrees, extent)
        self.is_even = space.is_even(op)
        self.least = float(part.min()) if self.is_even else 0.0
        self.most = (
            int(min(points.max(), len(space.machine.devices)))
            if self.is_even
            else len(space.machine.devices)
        )
        self.reads = [self._least_read(k) for k in range(len(op.inputs))]
        self.work = min([1.0, *self.reads])

    def _least_read(self, term: int) -> float:
        """A window may leave out points of its input, and a tile may be outside of it (concatenation, padding)."""
        bound = self.operator.bound
        dims = zip(bound.terms[term].dims, bound.shapes[term], strict=True)
        return prod(
            self._window_read(d[0], extent) for d, extent in dims if d and d[0] in bound.windows
        )

    def _window_read(self, name: str, extent: int) -> float:
        bound = self.operator.bound
        window = bound.windows[name]
        points = bound.extents[bound.windows[name].axis]
        if window.is_whole:
            return 1.0
        lo, hi = window.image((0, points), extent)
        if not self.is_even or hi <= lo:
            return 0.0
        least = 1.0
        for degree in np.unique(self._degrees.get(window.axis, np.ones(1, np.int64))).tolist():
            for a, b in pairwise(balanced_bounds(points, degree)):
                if b > a:
                    first, last = window.image((a, b), extent)
                    least = min(least, (last - first) / (hi - lo) * points / (b - a))
        return least
