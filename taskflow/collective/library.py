"""The collectives of a library (NCCL) as one more algorithm: their seconds are measured, or those of its protocols.

How it sends is its affair. Where links are asked for, it loads those of a ring, along which NCCL sends what is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from taskflow.collective.calls import Fabric, curve, fabric_of, neighbours
from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.machine import MachineModel
from taskflow.machine.library import COLLECTIVES, Curve, LibraryTimes
from taskflow.machine.protocol import Protocol, read_protocols
from taskflow.tasks.moves import Outline
from taskflow.tasks.steps import SUMS


class Library(NamedTuple):
    """What a machine says of the library.

    Attributes:
        measured: see `MachineModel.library`.
        protocols: by which the library moves its collectives; none: steps do.
    """

    measured: Sequence[LibraryTimes] = ()
    protocols: Sequence[Protocol] = ()

    @staticmethod
    def of(machine: MachineModel) -> Library:
        """That of a machine."""
        protocols = machine.protocols or read_protocols()
        return Library(machine.library, protocols if machine.has_library else ())


STEPS_ALONE = Library()


class LibraryPrices:
    """What the library takes in a group.

    Args:
        part: some of its members as a group.
    """

    def __init__(
        self, group: Group, library: Library, part: Callable[[tuple[int, ...]], Group]
    ) -> None:
        self._group = group
        self._library = library
        self._part = part
        self._curves: dict[str, Curve | None] = {}

    @property
    def is_certain(self) -> bool:
        """Whether it carries out all that it has a call for."""
        return bool(self._library.protocols)

    @cached_property
    def fabric(self) -> Fabric:
        """What it knows of the group."""
        return fabric_of(self._group, self._part)

    def curve(self, name: str) -> Curve | None:
        """Seconds of a collective by its size: measured in groups of so many members and hosts, or by its protocols."""
        if name not in self._curves:
            self._curves[name] = self._measured(name) or self._expected(name)
        return self._curves[name]

    def _measured(self, name: str) -> Curve | None:
        on_host = np.diff(self._group.host_begin)
        size = len(on_host), self._group.count
        is_even = len(on_host) > 0 and int(on_host.min()) == int(on_host.max())
        for times in self._library.measured if is_even else ():
            if (times.collective, times.hosts, times.devices) == (name, *size):
                return times.curve
        return None

    def _expected(self, name: str) -> Curve | None:
        if not self._library.protocols or name not in COLLECTIVES or self._group.count < 2:
            return None
        return curve(self.fabric, self._library.protocols, name)

    def load(self, outline: Outline) -> Array:
        """Bytes that cross every link; the last one: that are sent in all."""
        links = neighbours(self._group)
        members = self._group.count
        passed = (members - 1) / members  # of the bytes of all, by each member
        rounds = {"all-reduce": 2 * passed, "reduce": 1.0, "broadcast": 1.0}
        member_bytes = rounds.get(outline.name, passed) * outline.whole_bytes
        load = (
            np.bincount(links[links >= 0], minlength=len(self._group.link_bandwidth)) * member_bytes
        )
        return np.append(load, members * member_bytes)


def is_one_call(outline: Outline) -> bool:
    """Whether a library has one call for it: all members take part, with equal slices of the slowest dimension."""
    members = len(outline.hosts)
    if not outline.is_even or (outline.name in SUMS and len(outline.sources) < members):
        return False
    if outline.is_whole:
        return True
    boxes = outline.tiles
    low = boxes[:, 0]
    high = boxes[:, 1]
    follows = (low[1:, 0] == high[:-1, 0]).all() and len(set((high - low)[:, 0].tolist())) == 1
    is_wide = (low[:, 1:] == low[0, 1:]).all() and (high[:, 1:] == high[0, 1:]).all()
    return bool(follows and is_wide) and outline.owners == tuple(range(members))
