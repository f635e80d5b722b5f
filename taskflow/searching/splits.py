"""What the splits of an operator in a space have in common; see `bound`."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from taskflow.core.geometry import balanced_bounds
from taskflow.graph.graph import Operator
from taskflow.graph.window import Interval
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
        self._degrees = {
            axis: degrees
            for axis, degrees in zip(axes, rows.T, strict=True)
            if axis in op.split_axes
        }
        part = np.ones(len(rows))
        points = np.ones(len(rows))
        for axis, degrees in self._degrees.items():
            extent = op.extents[axis]
            part *= np.maximum(extent // degrees, 1) / extent
            points *= np.minimum(degrees, extent)
        self.is_even = space.is_even(op)
        self.least = float(part.min()) if self.is_even else 0.0
        self.most = len(space.machine.devices)
        if self.is_even:
            self.most = int(min(points.max(), self.most))
        self.reads = list(map(self._least_read, range(len(op.inputs))))
        self.work = min([1.0, *self.reads])

    def _least_read(self, term: int) -> float:
        """A window may leave out points of its input, and a tile may be outside of it (concatenation, padding)."""
        bound = self.operator.bound
        dims = zip(bound.terms[term].dims, bound.shapes[term], strict=True)
        return prod(
            self._window_read(d[0], extent) for d, extent in dims if d and d[0] in bound.windows
        )

    def _window_read(self, name: str, extent: int) -> float:
        window = self.operator.bound.windows[name]
        points = self.operator.bound.extents[window.axis]
        if window.is_whole:
            return 1.0
        whole = _size(window.image((0, points), extent))
        if not self.is_even or whole <= 0:
            return 0.0
        least = 1.0
        for degree in np.unique(self._degrees.get(window.axis, np.ones(1, np.int64))).tolist():
            for part in pairwise(balanced_bounds(points, degree)):
                if _size(part) > 0:
                    read = _size(window.image(part, extent))
                    least = min(least, read / whole * points / _size(part))
        return least


def _size(interval: Interval) -> int:
    return interval[1] - interval[0]
