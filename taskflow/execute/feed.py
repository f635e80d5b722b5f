"""Feeds: the cells from which the rows that feed a step read what the caller gave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskflow.backend import is_resident
from taskflow.core.arrays import as_array, check_plain
from taskflow.core.geometry import Rect
from taskflow.graph.repeat import in_step
from taskflow.tasks.task_graph import Array, Kind, TaskGraph

FeedValue = Array | Callable[[Rect], Array] | Sequence[Any]


@dataclass
class Feed:
    """The cell from which the feed rows of the region `name` read; filled before each step.

    `is_read`: there are such rows.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    value: Any = None
    is_read: bool = False

    def fill(self, value: Any) -> None:
        """Take the fed value: an array of the region's shape and dtype, on the host or a GPU, or a function."""
        if not callable(value):
            value = value if is_resident(value) else as_array(f"feed '{self.name}'", value)
            shape = tuple(value.shape)
            dtype = str(value.dtype).removeprefix("torch.")
            if shape != self.shape:
                raise ValueError(f"feed '{self.name}': has shape {shape}, the region {self.shape}")
            if dtype != self.dtype:
                raise ValueError(f"feed '{self.name}': has dtype {dtype}, the region {self.dtype}")
        self.value = value

    def into(self, target: Array, rect: Rect) -> None:
        """Copy the box `rect` of the fed value: of an array, or of a function Rect -> array."""
        if is_resident(self.value):
            raise ValueError(
                f"feed '{self.name}': lies on a GPU; the devices of this machine are none"
            )
        if not callable(self.value):
            target[...] = self.value[rect.slices()]
            return
        value = as_array(f"feed '{self.name}'", self.value(rect))
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(
                f"feed '{self.name}': the function gave {value.shape} {value.dtype} for the box {rect}, "
                f"which is {target.shape} {target.dtype}"
            )
        target[...] = value


def make_cells(graph: TaskGraph) -> dict[int, Feed]:
    """A cell for every input of the graph, by the number of its region."""
    read = set(graph.region[graph.kind == Kind.FEED].tolist())
    inputs = [(k, r) for k, r in enumerate(graph.regions) if r.role == "input"]
    return {k: Feed(r.name, r.shape, r.dtype, is_read=k in read) for k, r in inputs}


def by_step(feeds: Mapping[str, FeedValue], repeat: int) -> dict[str, FeedValue]:
    """The feeds of so many steps in a row under the names of each step (see `taskflow.graph.repeat`).

    Raises:
        ValueError: a feed has not one value for each step.
    """
    stepped: dict[str, FeedValue] = {}
    for name, values in feeds.items():
        check_plain(f"feed '{name}'", values)
        per_step = list(values) if isinstance(values, Sequence) or np.ndim(values) else []  # type: ignore[arg-type]
        if len(per_step) != repeat:
            what = (
                f"has {len(per_step)} values along a leading axis, each of {repeat} steps takes one"
            )
            raise ValueError(f"feed '{name}': {what}")
        stepped |= {in_step(name, step): value for step, value in enumerate(per_step)}
    return stepped


def accept(cells: Collection[Feed], feeds: Mapping[str, FeedValue]) -> None:
    """Fill the cells.

    Raises:
        ValueError: a feed is missing, unknown, or of another shape or dtype.
    """
    names = {cell.name for cell in cells}
    for name in feeds:
        if name not in names:
            raise ValueError(f"feed '{name}': the graph has no input of this name")
    for cell in cells:
        if cell.name in feeds:
            cell.fill(feeds[cell.name])
        elif cell.is_read:
            raise ValueError(f"feed '{cell.name}': is missing")
