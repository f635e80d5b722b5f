"""Groups of devices in which collectives run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from taskflow.core.columns import Array, pointers


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

    def without_twins(self, alone: Array) -> Groups:
        """The groups without streams on which nothing else happens than on another one, which stays.

        That is where the same groups occupy both. `alone`: streams that rows of no group occupy, which all stay.
        """
        count = max(self.streams.max(initial=-1), alone.max(initial=-1)) + 1
        number = np.zeros(count, np.int64)
        first = 1  # equal where all groups so far are the same
        for begin, end in pairwise(self.ptr.tolist()):
            streams = self.streams[begin:end]
            distinct, which = np.unique(number[streams], return_inverse=True)
            number[streams] = first + which
            first += len(distinct)
        is_kept = np.zeros(count, np.bool_)
        is_kept[np.unique(number, return_index=True)[1]] = True
        is_kept[alone] = True
        kept = is_kept[self.streams]
        return replace(self, ptr=pointers(kept)[self.ptr], streams=self.streams[kept])

    def streams_of(self, group: int) -> list[int]:
        """The streams that a collective in this group occupies."""
        streams: list[int] = self.streams[self.ptr[group] : self.ptr[group + 1]].tolist()
        return streams

    def devices_of(self, group: int) -> tuple[int, ...]:
        """The devices of a group, in the order of a ring."""
        return tuple(self.devices[self.device_ptr[group] : self.device_ptr[group + 1]].tolist())
