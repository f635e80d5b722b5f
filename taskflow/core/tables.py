"""Tables in one memory: what compiled code knows of something, passed on as a single pointer.

A subclass of `Tables` names its numbers and its tables. In compiled code `s.need[k].next` is a field of a record,
`s.need_box[k]` a row of a 2-D array, and `s.rows += 1` counts; in Python the same names are NumPy views. The memory is
one array of int64: the numbers stand first, then, for every table, where it begins and how many rows it has. A tuple of
as many arrays would be two hundred arguments of every function; a pointer is one, and nobody counts references to it,
since whoever calls compiled code holds the memory.

Numba is imported when it meets a function that `viewer` has made (see `tables_type`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

NUMBER = np.dtype(np.int64)


class Tables:
    """What stands in one memory.

    Attributes:
        numbers: names of numbers that change.
        tables: per table the dtype of its rows, all of whose fields are int64; or the name of a number, which says how
            many int64 a row has.
    """

    numbers: ClassVar[tuple[str, ...]]
    tables: ClassVar[Mapping[str, Any]]
    _heads: ClassVar[Mapping[str, int]]  # of every table where it stands where it begins

    def __init_subclass__(cls) -> None:
        for k, name in enumerate(cls.numbers):
            setattr(cls, name, _number(k))
        cls._heads = {name: len(cls.numbers) + 2 * k for k, name in enumerate(cls.tables)}

    def __init__(self, memory: Any) -> None:
        """What stands in `memory`, where the tables are laid out already."""
        self.memory = memory

    def __getattr__(self, name: str) -> Any:
        """A view of a table, which is kept."""
        if name not in self.tables:
            raise AttributeError(name)
        row = self.tables[name]
        head = self._heads[name]
        begin, rows = self.memory[head : head + 2].tolist()
        width = getattr(self, row) if isinstance(row, str) else row.itemsize // NUMBER.itemsize
        table = self.memory[begin : begin + rows * width]
        view = table.reshape(rows, width) if isinstance(row, str) else table.view(row)
        vars(self)[name] = view
        return view

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Numbers are set."""


def _number(k: int) -> property:
    def get(tables: Tables) -> int:
        return int(tables.memory[k])

    def put(tables: Tables, value: int) -> None:
        tables.memory[k] = value

    return property(get, put)


class _Viewer:
    """See `viewer`."""

    def __init__(self, cls: type[Tables]) -> None:
        self._cls = cls

    def __call__(self, memory: Any) -> Any:
        return self._cls(memory)

    @cached_property
    def _numba_type_(self) -> Any:
        from taskflow.core.tables_type import type_of_viewer

        return type_of_viewer(self._cls)


def viewer(cls: type[Tables]) -> Any:
    """A function, for compiled code as well, that takes an array of int64 for the memory of tables."""
    return _Viewer(cls)
