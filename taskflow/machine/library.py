"""What the collectives of a library (NCCL) were measured to take: how it sends is not known, so nothing else tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.numbers import is_whole, real
from taskflow.machine.device import check_positive

COLLECTIVES = (
    "all-reduce",
    "reduce-scatter",
    "reduce",
    "all-gather",
    "broadcast",
)  # those that a library has
LIBRARY = "library"  # the algorithm by which it carries them out
_MICROSECONDS = 1e6
_MOST_BYTES = 1 << 40


class Curve:
    """Seconds by bytes: on the line between two sizes that are known, above the largest on that of the last two.

    Below the smallest size they are those of the smallest. What takes longer at some size than at a larger one is said
    to take as long as there: no price falls as bytes grow.
    """

    def __init__(self, sizes: Sequence[float] | Array, seconds: Sequence[float] | Array) -> None:
        self._sizes = np.asarray(sizes, float)
        self._seconds = np.minimum.accumulate(np.asarray(seconds, float)[::-1])[::-1]

    def at(self, size: float) -> float:
        """Seconds at a size in bytes."""
        if size <= self._sizes[-1]:
            return float(np.interp(size, self._sizes, self._seconds))
        run = np.diff(self._sizes[-2:])[0]
        rise = np.diff(self._seconds[-2:])[0]
        return float(self._seconds[-1] + rise / run * (size - self._sizes[-1]))


@dataclass(frozen=True)
class LibraryTimes:
    """Seconds of one collective, by size, among some devices.

    Attributes:
        collective: one of `COLLECTIVES`.
        hosts, devices: how many there are in all; on each host are equally many devices.
        bytes: two sizes or more, ascending: of the sum, or of all that is gathered or sent.
        seconds: at each size.
    """

    collective: str
    hosts: int
    devices: int
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        where = f"library: {self.collective} among {self.devices} devices on {self.hosts} hosts"
        if self.collective not in COLLECTIVES:
            raise ValueError(
                f"library: collectives are {', '.join(COLLECTIVES)}, not '{self.collective}'"
            )
        is_known = is_whole(self.hosts) and is_whole(self.devices)
        if (
            not is_known
            or not self.hosts <= self.devices
            or self.devices < 2
            or self.devices % self.hosts
        ):
            raise ValueError(f"{where}: 2 devices or more, as many on every host")
        if len(self.bytes) != len(self.seconds) or len(self.bytes) < 2:
            raise ValueError(
                f"{where}: {len(self.bytes)} sizes and {len(self.seconds)} times, not two or more of each"
            )
        for size, seconds in zip(self.bytes, self.seconds, strict=True):
            check_positive(where, "a size", size, _MOST_BYTES)
            seconds = real(where, "a time", seconds)
            check_positive(where, "a time, in us", seconds * _MICROSECONDS)
        if (np.diff(self.bytes) <= 0).any():
            raise ValueError(f"{where}: sizes ascend, not {list(self.bytes)}")

    @property
    def curve(self) -> Curve:
        """Seconds at any size."""
        return Curve(self.bytes, self.seconds)
