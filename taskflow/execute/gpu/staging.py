"""What a step gets from the host: the boxes of its feeds, and numbers that change from step to step.

Feeds go through pinned memory and a staging block on the device, two of each in turn; those that lie on a GPU already
are copied to the staging block there. So the next batch can be copied
to the device while a step runs (`stage`), on a stream of its own; a step then begins with one copy on the device, from
the staging block of its turn to the block that the feed rows read. That block is at one address, as a captured graph
needs it.

A captured graph also repeats every number that Python gave to a kernel. Numbers of a step (the key of a dropout mask,
the bias corrections of Adam) are cells on the device instead, which the host computes and copies before each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.backend import Run, StreamBackend
from taskflow.core.errors import InternalError
from taskflow.core.geometry import Rect
from taskflow.execute.feed import Feed
from taskflow.execute.gpu.ledger import Ledger
from taskflow.tasks.task_graph import Array

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Call = Callable[[], object]

_ALIGNMENT = 64
_CELL_BYTES = 8
CELLS_A_POINT = 3


@dataclass
class FeedBox:
    """One box of a feed in the blocks of its device."""

    feed: Feed
    rect: Rect
    dtype: str
    begin: int
    end: int
    array: Any = None  # on the device, where feed rows read it

    def view(self, block: Array) -> Array:
        """Its part of a block."""
        part: Array = block[self.begin : self.end].view(self.dtype).reshape(self.rect.shape)
        return part


class Staging:
    """The feeds of the devices of this rank; `add` all parts, then `freeze`."""

    def __init__(self, backend: StreamBackend, ledger: Ledger, devices: Sequence[int]) -> None:
        self._backend = backend
        self._ledger = ledger
        self._parts: dict[int, list[FeedBox]] = {d: [] for d in devices}
        self._streams = {d: backend.make_stream(d, "next feeds") for d in devices}
        self._turn = 0
        self._is_staged = False

    def add(self, device: int, feed: Feed, rect: Rect, dtype: str) -> FeedBox:
        """Room for a box of a feed."""
        begin = -(-self._size(device) // _ALIGNMENT) * _ALIGNMENT
        size = prod(rect.shape) * np.dtype(dtype).itemsize
        self._parts[device].append(FeedBox(feed, rect, dtype, begin, begin + size))
        return self._parts[device][-1]

    def _size(self, device: int) -> int:
        parts = self._parts[device]
        return parts[-1].end if parts else 0

    def freeze(self) -> None:
        """Make the blocks."""
        backend = self._backend
        self._devices = [d for d, parts in self._parts.items() if parts]
        self._pinned = {d: [backend.pinned(self._size(d)) for _ in range(2)] for d in self._devices}
        self._staged = {d: [self._block(d) for _ in range(2)] for d in self._devices}
        self._blocks = {d: self._block(d) for d in self._devices}
        self._held: dict[int, list[list[Call]]] = {
            d: [[], []] for d in self._devices
        }  # arrays that are copied
        self._events = {d: backend.make_event(d) for d in self._devices}
        for device in self._devices:
            for part in self._parts[device]:
                part.array = part.view(self._blocks[device])

    def _block(self, device: int) -> Array:
        return self._ledger.take(device, "blocks for feeds", self._size(device))

    def parts(self) -> list[tuple[int, FeedBox]]:
        """Every device and part."""
        return [(device, part) for device, parts in self._parts.items() for part in parts]

    def stage(self) -> None:
        """Copy the values of the feeds to the devices, for the next step."""
        if self._is_staged:
            raise InternalError("the feeds of the next step are staged already")
        for device in self._devices:
            pinned = self._pinned[device][self._turn]
            staged = self._staged[device][self._turn]
            stream = self._streams[device]
            there = list[Call]()
            for part in self._parts[device]:
                value = self._backend.resident(stream, part.feed.value)
                if value is None:
                    part.feed.into(part.view(pinned), part.rect)
                else:
                    box = value[part.rect.slices()]
                    there.append(partial(self._backend.xp.copyto, part.view(staged), box))
            if len(there) < len(self._parts[device]):
                self._backend.run(stream, self._backend.copy(staged, pinned))
            for call in there:  # over what the host has sent in their place
                self._backend.run(stream, call)
            self._held[device][self._turn] = there
            self._backend.record(stream, self._events[device])
        self._is_staged = True

    def forget(self) -> None:
        """Drop what is staged, if anything."""
        for device in self._devices if self._is_staged else ():
            self._backend.synchronize(self._events[device])  # its pinned memory is filled again
        self._is_staged = False

    def begin(self, lead: Any) -> None:
        """On the stream `lead`: the staged values become those of this step."""
        if not self._is_staged:
            self.stage()
        for device in self._devices:
            self._backend.wait(lead, self._events[device])
            self._backend.run(
                lead, self._backend.copy(self._blocks[device], self._staged[device][self._turn])
            )
        self._is_staged = False
        self._turn = 1 - self._turn


class StepCells:
    """Numbers of 8 bytes on the devices, made anew for every step from the seed and the number of finished steps."""

    def __init__(
        self, backend: StreamBackend, ledger: Ledger, run: Run, devices: Sequence[int], points: int
    ) -> None:
        self._backend = backend
        self._run = run
        size = points * CELLS_A_POINT * _CELL_BYTES
        self._pinned = {d: [backend.pinned(size) for _ in range(2)] for d in devices}
        self._blocks = {d: ledger.take(d, "numbers of a step", size) for d in devices}
        self._turn = 0
        # Per cell its number, and where it stands in each pinned block: to make a view takes longer than a number.
        self._made: dict[int, list[tuple[Callable[[Run], float], list[Array]]]] = {
            d: [] for d in devices
        }

    def add(self, device: int, dtype: DTypeLike, value: Callable[[Run], float]) -> Array:
        """A cell of this step and all later ones, as an array of shape (1,); call it within the first step.

        It is filled on the current stream.
        """
        number = len(self._made[device])
        begin = number * _CELL_BYTES
        end = (number + 1) * _CELL_BYTES
        if end > len(self._blocks[device]):
            raise InternalError(
                f"device {device}: no kernel has more than {CELLS_A_POINT} numbers of a step"
            )
        views = [block[begin:end].view(dtype) for block in self._pinned[device]]
        self._made[device].append((value, views))
        views[self._turn][0] = value(self._run)
        cell: Array = self._blocks[device][begin:end]
        self._backend.copy(cell, self._pinned[device][self._turn][begin:end])()
        return cell.view(dtype)

    def begin(self, lead: Any) -> None:
        """On the stream `lead`: the numbers of this step."""
        self._turn = 1 - self._turn
        for device, made in self._made.items():
            if made:
                host = self._pinned[device][self._turn]
                size = len(made) * _CELL_BYTES
                for value, views in made:
                    views[self._turn][0] = value(self._run)
                self._backend.run(
                    lead, self._backend.copy(self._blocks[device][:size], host[:size])
                )
