"""Placements: structured lists of devices for the points of an operator.

Takes a machine; gives, for a number of points, every list of devices that a search considers. Lists scattered at
random never help (a short search over them stays where it starts), so the lists have the structure of the machine:

* `k` of `n` devices, `k` a divisor of `n`: every lattice, that is blocks of `k t` devices and in each the `t` lists of
  stride `t`, for every `t` that divides `n / k`. With `t = 1` they are contiguous at every aligned start; with `t` the
  devices of a host, they take the same device of several hosts.
* any other `k` inside a host, or that is a number of whole hosts: contiguous.
* along one axis, several points a device: over-decomposition, by which operators on different devices overlap.
* along one axis, on devices of unequal rates: parts in proportion to the rates.
* along several axes, over several hosts: also with the first axis fastest, so that either may stay inside a host.

Devices are counted host by host. Up to FEW devices of a host and FEW hosts, all numbers of them; of more, the divisors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, prod

import numpy as np

from taskflow.core.numbers import is_whole
from taskflow.machine import MachineModel

FEW = 16
POINTS_PER_DEVICE = (2, 4)

Devices = tuple[int, ...]
Fractions = tuple[float, ...] | None
Allows = Callable[[int], bool]


@dataclass(frozen=True)
class Placement:
    """One device per point; `is_turned`: the first axis is fastest; `fractions`: unequal parts of the one axis."""

    devices: Devices
    is_turned: bool = False
    fractions: Fractions = None


Placed = tuple[tuple[int, ...], tuple[Placement, ...]]  # degrees, and where their points are


class Placements:
    """The placements of a machine; or, with `lists`, only these lists of devices."""

    def __init__(self, machine: MachineModel, lists: Sequence[Sequence[int]] | None = None) -> None:
        self._machine, devices = machine, machine.devices
        self.count = len(devices)
        for device in (d for devices_of in lists or () for d in devices_of):
            if not is_whole(device, 0) or device >= self.count:
                raise ValueError(f"space: device_lists name device {device!r} of {self.count}")
        self._given = None if lists is None else tuple(tuple(x) for x in lists)
        self._order = sorted(range(self.count), key=lambda d: (devices[d].host, d))
        sizes = set(Counter(d.host for d in devices).values())
        self._host_size = sizes.pop() if len(sizes) == 1 else self.count
        self._counts = frozenset(self._useful_counts())
        self._made = cache(lambda points, axes: tuple(self._make(points, axes)))
        self._set = cache(lambda key: frozenset(self._made(*key)))
        self._split = cache(self._placed)

    def of(self, degrees: Sequence[int]) -> tuple[Placement, ...]:
        """The placements of the points of these degrees, each above one; none: the space has no such split."""
        return self._made(*_key(degrees))

    def split(self, extents: Sequence[int], allows: Allows) -> list[Placed]:
        """All degrees, within these extents, whose points have placements, and these."""
        return self._split(tuple(min(extent, max(self.points)) for extent in extents), allows)

    def _placed(self, extents: tuple[int, ...], allows: Allows) -> list[Placed]:
        every = _degrees(extents, self.points, allows)
        placed = ((d, self.of([n for n in d if n > 1])) for d in every)
        return [(d, p) for d, p in placed if p]

    def has(self, degrees: Sequence[int], devices: Devices, fractions: Fractions) -> bool:
        """Whether these devices, as they are or turned, are a placement of the points of these degrees."""
        turned = Placement(turn(devices, degrees[::-1]), True, fractions)
        placements = self._set(_key(degrees))
        return not placements.isdisjoint((Placement(devices, False, fractions), turned))

    @property
    def points(self) -> frozenset[int]:
        """The numbers of points for which there are placements, of one axis or of more."""
        if self._given is not None:
            return frozenset(map(len, self._given))
        repeated = {k * on_device for k in self._counts for on_device in POINTS_PER_DEVICE}
        return self._counts | {k for k in repeated if k <= self.count}

    def _make(self, points: int, axes: int) -> Iterator[Placement]:
        if self._given is not None:
            yield from (Placement(x) for x in self._given if len(x) == points)
            return
        plain = self._lists(points)
        yield from map(Placement, plain)
        if axes == 2 and self._host_size < self.count:
            yield from (Placement(x, is_turned=True) for x in plain)
        if axes == 1:
            yield from self._repeated(points)
            yield from (Placement(x, fractions=f) for x in plain if (f := self._machine.shares(x)))

    def _repeated(self, points: int) -> Iterator[Placement]:
        for on_device in POINTS_PER_DEVICE:
            if points % on_device == 0:
                for devices in self._lists(points // on_device, is_contiguous=True):
                    yield Placement(tuple(d for d in devices for _ in range(on_device)))

    def _lists(self, count: int, is_contiguous: bool = False) -> list[Devices]:
        """Lists of `count` different devices."""
        if count not in self._counts:
            return []
        strides = divisors(self.count // count) if self.count % count == 0 else []
        if not strides:
            return [self._list(start, count, 1) for start in self._starts(count)]
        if count == 1 or is_contiguous:
            strides = [1]
        return [
            self._list(block + offset, count, stride)
            for stride in strides
            for block in range(0, self.count, count * stride)
            for offset in range(stride)
        ]

    def _list(self, start: int, count: int, stride: int) -> Devices:
        return tuple(self._order[start : start + count * stride : stride])

    def _starts(self, count: int) -> Iterator[int]:
        """Aligned starts of contiguous lists that do not cross from a host into a part of another."""
        size = self._host_size
        if count > size:
            yield from range(0, self.count - count + 1, gcd(self.count, count))
            return
        for host in range(0, self.count, size):
            yield from range(host, host + size - count + 1, gcd(size, count))

    def _useful_counts(self) -> Iterator[int]:
        size = self._host_size
        yield from divisors(self.count)
        yield from range(1, size + 1) if size <= FEW else divisors(size)
        hosts = self.count // size
        yield from (size * k for k in (range(1, hosts + 1) if hosts <= FEW else divisors(hosts)))


def _degrees(
    extents: Sequence[int], points: frozenset[int], allows: Allows
) -> Iterator[tuple[int, ...]]:
    """Degrees of every axis whose product is among `points`."""
    if not extents:
        yield from [()] if 1 in points else []
        return
    for first, left in _first(points):
        if first <= extents[0] and allows(first):
            yield from ((first, *rest) for rest in _degrees(extents[1:], left, allows))


@cache
def _first(points: frozenset[int]) -> list[tuple[int, frozenset[int]]]:
    """In how many parts the first axis may be, and how many points there may be in each of these."""
    parts = sorted({first for k in points for first in divisors(k)})
    return [(first, frozenset(k // first for k in points if k % first == 0)) for first in parts]


def _key(degrees: Sequence[int]) -> tuple[int, int]:
    """What decides placements: how many points, along one axis or several."""
    return prod(degrees), min(len(degrees), 2)


def divisors(number: int) -> list[int]:
    """The divisors of `number`, smallest first."""
    return [k for k in range(1, number + 1) if number % k == 0]


def turn(devices: Sequence[int], degrees: Sequence[int]) -> Devices:
    """`devices`, listed with the first axis fastest, in row-major order; `degrees` are those of the axes."""
    return tuple(np.asarray(devices).reshape(tuple(reversed(degrees))).T.reshape(-1).tolist())
