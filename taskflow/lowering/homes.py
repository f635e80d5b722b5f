"""The homes of a task graph: where persistent regions live between steps. On many devices there are a million."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from taskflow.core.columns import Array
from taskflow.core.geometry import Rect


class Homes(Mapping[str, tuple[tuple[int, Rect], ...]]):
    """Region name -> instance, or device, and box of every home, made when they are asked for.

    Args:
        parts: region name -> instances or devices, what gives their boxes, and what is added to each number.
    """

    def __init__(
        self, parts: Mapping[str, tuple[Array, Callable[[], tuple[Rect, ...]], int]]
    ) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> tuple[tuple[int, Rect], ...]:
        """Of one region."""
        numbers, boxes, first = self._parts[name]
        return tuple(zip((numbers + first).tolist(), boxes(), strict=True))

    def __iter__(self) -> Iterator[str]:
        """The names of the regions."""
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
