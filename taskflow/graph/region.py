"""Logical regions: named arrays without storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from taskflow.core.dtypes import is_floating
from taskflow.core.geometry import Rect
from taskflow.core.random import Constant, Distribution, Values

_ZERO = Constant(0.0)


@dataclass(frozen=True, slots=True)
class LogicalRegion:
    """A named n-dimensional array without storage.

    Attributes:
        name: unique in its graph; a parameter is `<operator>.weight`, the output of an operator has its name.
        shape: extents in points.
        dtype: NumPy dtype name.
        role: `input` (fed each step), `parameter` (persistent, trained), `state` (persistent, not trained) or
            `value` (made by an operator within a step).
        init: the distribution of the first values of a persistent region.
        axes: names of the dimensions as the making operator calls them; elementwise operators take them over.
        drawn_as: the name by which its first values are drawn; empty: its own.
        is_on_host: whether it lies in the memory of the host of each device that has a part of it (see `offload`).
        graph: the graph that it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    axes: tuple[str, ...]
    init: Distribution = _ZERO
    drawn_as: str = ""
    is_on_host: bool = False
    graph: Any = field(repr=False, compare=False, hash=False, default=None)

    @property
    def is_persistent(self) -> bool:
        """True when the region keeps its value from one step to the next."""
        return self.role in ("parameter", "state")

    @property
    def is_constant(self) -> bool:
        """True when nothing updates it, see `Graph.constant`."""
        return isinstance(self.init, Values)

    @property
    def is_floating(self) -> bool:
        """Whether its elements are of floating point."""
        return is_floating(self.dtype)

    @property
    def rect(self) -> Rect:
        """The box of all its points."""
        return Rect.of_shape(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.dtype).itemsize

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole region."""
        return prod(self.shape) * self.itemsize

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"region '{self.name}' has no attribute '{name}': a region is not an array; use ops.*"
        )
