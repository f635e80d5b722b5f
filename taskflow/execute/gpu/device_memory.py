"""Where values of GPU programs lie: instances in slabs of the devices, outputs in pinned memory of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskflow.backend import StreamBackend
from taskflow.core.geometry import Rect
from taskflow.execute.gpu.ledger import INSTANCES, Ledger
from taskflow.execute.program import Memory
from taskflow.tasks.task_graph import Array


class DeviceMemory(Memory):
    """The arenas of this rank's devices as one slab of each GPU."""

    def __init__(self, *args: Any, backend: StreamBackend, ledger: Ledger) -> None:
        self.backend, self.ledger = backend, ledger
        super().__init__(*args)

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
