"""The memory of GPUs by purpose: what an executor takes of each, refused with numbers where there is no room.

The largest part are the arenas: `DeviceMemory` has the instances in them.

All memory of an executor is taken through a ledger before its first step: the arena, blocks for feeds, cells, flags,
and, in a trial of its kernels, their scratch memory. Workspaces of libraries are counted too. The buffers that NCCL
allocates when it connects ranks are estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend import NoRoom, StreamBackend
from taskflow.core.geometry import Rect
from taskflow.execute.memory import Memory
from taskflow.tasks.task_graph import Array

INSTANCES = "instances"
SCRATCH = "scratch memory"
PACKING = "packing"
CONSTANTS = "constants of kernels"
LIBRARY = "buffers of NCCL"


class Ledger:
    """What is taken of the devices of this rank.

    Attributes:
        taken: device -> purpose -> bytes that were taken through the ledger.
        expected: the same, estimated, for what libraries take by themselves.
    """

    def __init__(self, backend: StreamBackend, devices: Sequence[int]) -> None:
        self._backend = backend
        self.taken: dict[int, Counter[str]] = {d: Counter() for d in devices}
        self.expected: dict[int, Counter[str]] = {d: Counter() for d in devices}

    def take(self, device: int, purpose: str, size_bytes: int) -> Array:
        """A zeroed byte array on a device.

        Raises:
            ValueError: the device has no room for it; the message says for what the rest is taken.
        """
        with self.room(device, purpose, size_bytes):
            array = self._backend.zeros(device, size_bytes)
        self.taken[device][purpose] += size_bytes
        return array

    def maker(self, device: int, purpose: str) -> Callable[[int], Array]:
        """`take` for one purpose."""
        return partial(self.take, device, purpose)

    @contextmanager
    def room(self, device: int, purpose: str = "", size_bytes: int = 0) -> Iterator[None]:
        """Turn a failure to allocate within the block into one with numbers.

        Without a purpose it is the backend that allocates: workspaces of libraries, and what kernels allocate.
        """
        try:
            yield
        except MemoryError as error:
            what = str(error) if isinstance(error, NoRoom) else f"what a kernel allocates ({error})"
            what = f"{size_bytes} bytes of {purpose}" if purpose else what
            raise ValueError(
                f"device {device}: no room for {what}; {self.describe(device)}"
            ) from error

    def describe(self, device: int) -> str:
        """What is taken, what libraries take, and what is free."""
        libraries = self._backend.library_bytes(device)
        (free, total) = self._backend.memory(device)
        parts = [f"{size} of {purpose}" for purpose, size in self.taken[device].items() if size]
        parts += [
            f"about {size} of {purpose}" for purpose, size in self.expected[device].items() if size
        ]
        parts += [f"{size} of {purpose}" for purpose, size in libraries.items()]
        held = " and ".join(parts)
        return f"this executor holds {held or 'nothing'}, and {free} of {total} bytes are free"


class DeviceMemory(Memory):
    """The arenas of this rank's devices as one slab of each GPU."""

    begins_zeroed = False

    def __init__(self, *args: Any, backend: StreamBackend, ledger: Ledger) -> None:
        self.backend = backend
        self.ledger = ledger
        super().__init__(*args)
        kept = self.plan.host_bytes.tolist()
        self._kept = {d: backend.mapped(d, kept[d]) for d in self.devices if kept[d]}

    def arena_bytes(self) -> list[int]:
        """See `Memory.arena_bytes`: what lies on the host is not in them."""
        sizes: list[int] = self.plan.peak_bytes.tolist()
        return sizes

    def part(self, instance: int, begin: int, end: int) -> Array:
        """See `Memory.part`: what lies on the host is in memory of it that the device reaches."""
        graph = self.task_graph
        if not graph.regions[int(graph.instance_region[instance])].is_on_host:
            return super().part(instance, begin, end)
        device = int(graph.instance_device[instance])
        first = int(self.plan.peak_bytes[device])
        return self._kept[device][begin - first : end - first]

    def share(self, size_bytes: int) -> list[Array] | None:
        """See `Memory.share`."""
        rank = self.transport.rank
        with self.ledger.room(rank, INSTANCES, size_bytes):
            shared = self.backend.shared_zeros(rank, size_bytes, self.transport)
        self.ledger.taken[rank][INSTANCES] += size_bytes if shared else 0
        return shared

    def make_arena(self, device: int, size_bytes: int) -> Array:
        """See `Memory.make_arena`."""
        return self.ledger.take(device, INSTANCES, size_bytes)

    def get(self, instance: int, rect: Rect) -> Array:
        """See `Memory.get`."""
        return self.backend.read(self.view(instance, rect))

    def put(self, instance: int, rect: Rect, value: Array) -> None:
        """See `Memory.put`."""
        self.backend.write(self.view(instance, rect), value)

    def fill(self, instance: int, rect: Rect, values: Callable[[Array], object]) -> None:
        """See `Memory.fill`."""
        view = self.view(instance, rect)
        value = np.empty(view.shape, view.dtype)
        values(value)
        self.backend.write(view, value)
