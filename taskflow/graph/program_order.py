"""Operators in program order, found by their names and by the regions that they read and make; and new names.

A graph is built in linear time: nobody who appends an operator looks through all others. So the list keeps an index.
It grows, when somebody asks, by what was appended since, and is made anew where the list has changed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any, Protocol, SupportsIndex, TypeVar


class HasName(Protocol):
    """What has a name: a region."""

    @property
    def name(self) -> str:
        """Unique in its graph."""


class Launched(HasName, Protocol):
    """What is listed: an operator."""

    @property
    def inputs(self) -> Sequence[HasName]:
        """The regions that it reads."""

    @property
    def outputs(self) -> Sequence[HasName]:
        """The regions that it makes."""


T = TypeVar("T", bound=Launched)


class ProgramOrder(list[T]):
    """A list of operators with an index."""

    def __init__(self, operators: Sequence[T] = ()) -> None:
        super().__init__(operators)
        self._latest = 0  # where that stands behind which one was moved
        self._forget()

    def _forget(self) -> None:
        self._named, self._by_name, self._makers = (
            0,
            dict[str, T](),
            dict[str, T](),
        )  # of so many operators
        self._forget_readers()

    def _forget_readers(self) -> None:
        self._read = 0
        self._readers = dict[str, list[tuple[T, int]]]()

    def _learn(self, op: T) -> None:
        self._by_name.setdefault(op.name, op)
        for region in op.outputs:
            self._makers.setdefault(region.name, op)
        self._named += 1

    def _name(self) -> None:
        for op in self[self._named :]:
            self._learn(op)

    def called(self, name: str) -> T | None:
        """The operator of that name."""
        self._name()
        return self._by_name.get(name)

    def maker(self, region: HasName) -> T | None:
        """The operator that makes a region."""
        self._name()
        return self._makers.get(region.name)

    def readers(self, region: HasName) -> list[tuple[T, int]]:
        """The operators that read a region, in program order, and as which input."""
        for op in self[self._read :]:
            for k, read in enumerate(op.inputs):
                self._readers.setdefault(read.name, []).append((op, k))
        self._read = len(self)
        return self._readers.get(region.name, [])

    def move_last_behind(self, maker: T) -> None:
        """Put the last operator behind another one; who does so in program order looks at each operator once."""
        self._name()
        op = super().pop()
        size = len(self)
        around = (n % size for n in range(self._latest, self._latest + size))
        self._latest = next(k for k in around if self[k] is maker)
        super().insert(self._latest + 1, op)
        self._forget_readers()

    # -- changes -------------------------------------------------------------------------------------------------------

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        if not isinstance(at, int) or at % len(self) < max(self._named, self._read):
            self._forget()

    def __delitem__(self, at: SupportsIndex | slice) -> None:
        super().__delitem__(at)
        self._forget()

    def insert(self, at: SupportsIndex, op: T) -> None:
        """As of a list."""
        super().insert(at, op)
        self._forget()

    def pop(self, at: SupportsIndex = -1) -> T:
        """As of a list."""
        popped = super().pop(at)
        self._forget()
        return popped

    def remove(self, op: T) -> None:
        """As of a list."""
        super().remove(op)
        self._forget()

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """As of a list."""
        super().sort(key=key, reverse=reverse)
        self._forget()

    def reverse(self) -> None:
        """As of a list."""
        super().reverse()
        self._forget()

    def clear(self) -> None:
        """As of a list."""
        super().clear()
        self._forget()


def _is_free(name: str, parts: Sequence[str], taken: Sequence[Collection[str]]) -> bool:
    wanted = (name, *(f"{name}.{part}" for part in parts))
    return not any(candidate in names for names in taken for candidate in wanted)


class Numbers:
    """The numbers of names that are asked for again and again; names are taken, and never free again."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, ...], int] = {}

    def unique(self, base: str, parts: Sequence[str], taken: Sequence[Collection[str]]) -> str:
        """`base`, or `base_2`, `base_3`, ...: the first of which neither it nor `<name>.<part>` is taken."""
        key = (base, *parts)
        for number in count(self._latest.get(key, 1)):  # none below is free
            name = f"{base}_{number}" if number > 1 else base
            if _is_free(name, parts, taken):
                break
        self._latest[key] = number
        return name
