"""Growing arrays: one, or several in a named tuple that compiled code fills."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Column:
    """An array of which `length` entries are in use."""

    def __init__(self, dtype: Any, *width: int) -> None:
        self.data: Array = np.zeros((1024, *width), dtype)
        self.length = 0

    def add(self, values: Array) -> int:
        """Append; where the values begin."""
        begin, end = self.length, self.length + len(values)
        if end > len(self.data):
            self.grow(end)
        self.data[begin:end] = values
        self.length = end
        return begin

    def grow(self, length: int = 0) -> None:
        """Make room for `length` entries, and for twice as many as before at least."""
        grown = np.zeros((max(length, 2 * len(self.data)), *self.data.shape[1:]), self.data.dtype)
        grown[: len(self.data)] = self.data
        self.data = grown


Table = TypeVar("Table", bound=NamedTuple)


def doubled(table: Table, names: Iterable[str]) -> Table:
    """The table with some columns twice as long."""
    return table._replace(**{name: _doubled(getattr(table, name)) for name in names})


def _doubled(data: Array) -> Array:
    """The data, and behind it room whose memory is not touched yet."""
    grown: Array = np.empty((2 * len(data), *data.shape[1:]), data.dtype)
    grown[: len(data)] = data
    return grown
