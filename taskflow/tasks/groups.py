"""Groups of devices in which collectives run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taskflow.core.columns import Array


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of devices that collectives of a task graph run in, numbered from 0; CSR columns.

    Attributes:
        ptr, streams: every stream that a collective in group g occupies.
        device_ptr, devices: the devices of group g, in the order of a ring.
    """

    ptr: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    streams: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    device_ptr: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    devices: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def streams_of(self, group: int) -> list[int]:
        """The streams that a collective in this group occupies."""
        found: list[int] = self.streams[self.ptr[group] : self.ptr[group + 1]].tolist()
        return found

    def devices_of(self, group: int) -> tuple[int, ...]:
        """The devices of a group, in the order of a ring."""
        return tuple(self.devices[self.device_ptr[group] : self.device_ptr[group + 1]].tolist())
