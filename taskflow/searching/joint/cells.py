"""Cells: what every run of atoms costs as a stage of a pipeline, for one number of micro-batches.

Takes prices of atoms; gives columns for `cutting`. A way is how a stage may be run: on how many devices, split how
within them, with or without recomputation. Where devices differ, a way is of those that the stage would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine import Device
from taskflow.searching.joint.costs import AtomCosts, Pricing
from taskflow.strategy.strategy import ParallelConfig

Within = Callable[[int], Mapping[str, Mapping[str, ParallelConfig]]]
NOTHING = AtomCosts(np.zeros(3), 0.0, 0.0, 0.0, 0, 0, 0, {}, {})
DATA = "data"  # the split along samples
FEW = 4  # so few devices may be grouped in any sizes


class StageWay(NamedTuple):
    """How a stage may be run.

    Attributes:
        devices: how many.
        split: the name of a split within them.
        is_again: whether what its atoms make is computed again.
        first: of the devices that it was priced on.
    """

    devices: int
    split: str
    is_again: bool
    first: int


class Cells(NamedTuple):
    """Columns of the stages from atom i to atom j, in every way: axes way, i, j.

    Attributes:
        ways: see above.
        at: (first device, way) whether the way is of the devices from that one on.
        seconds: of a micro-batch, with its share of what is done once a step; infinite: it cannot be.
        fixed_bytes, held_bytes: whatever is in flight, and for each micro-batch that is.
        room_bytes: of a device, by way.
    """

    ways: tuple[StageWay, ...]
    at: Array
    seconds: Array
    fixed_bytes: Array
    held_bytes: Array
    room_bytes: Array


class CellTables:
    """Cells of a graph, for any number of micro-batches; and the splits that stages may have within them."""

    def __init__(self, pricing: Pricing, within: Within | None) -> None:
        self.pricing, self.machine = pricing, pricing.machine
        self._within = within or (lambda count: {})
        count = len(self.machine.devices)
        self.sizes = [
            d for d in range(1, count + 1) if count <= FEW or count % d == 0 or d & (d - 1) == 0
        ]
        self.splits = cache(self._splits)
        self.regions = [
            [atom.regions for atom in atoms] for atoms in (pricing.atoms, pricing.again)
        ]
        self.like: dict[
            tuple[int, int], int
        ] = {}  # first device and size of a group -> first of one that is alike
        self.recomputable = frozenset(k for k, atom in enumerate(pricing.atoms) if atom.inner)
        self._groups = self._ways()

    def _splits(self, count: int) -> dict[str, Mapping[str, ParallelConfig]]:
        return {DATA: {}, **self._within(count)} if count > 1 else {DATA: {}}

    def _ways(self) -> dict[StageWay, list[int]]:
        """Every way, and the first devices at which it is: those of one host, or else aligned."""
        devices, found, known = (
            self.machine.devices,
            dict[StageWay, list[int]](),
            dict[object, int](),
        )
        for size in self.sizes:
            for first in range(len(devices) - size + 1):
                group = devices[first : first + size]
                if group[0].host != group[-1].host and first % size:
                    continue
                like = self.like[first, size] = known.setdefault(_alike(group), first)
                for split in self.splits(size):
                    for is_again in sorted({False, bool(self.recomputable)}):
                        found.setdefault(StageWay(size, split, is_again, like), []).append(first)
        return found

    def price(self, number: int, way: StageWay, parts: int) -> AtomCosts | None:
        """The costs of an atom in a stage."""
        devices = range(way.first, way.first + way.devices)
        return self.pricing.price(
            number, devices, self.splits(way.devices)[way.split], parts, way.is_again
        )

    def operators(self, number: int, is_again: bool) -> int:
        """How many operators an atom has."""
        return len((self.pricing.again if is_again else self.pricing.atoms)[number].operators)

    def cells(self, parts: int) -> Cells:
        """All stages with so many micro-batches."""
        ways, count = tuple(self._groups), len(self.pricing.atoms)
        at = np.zeros((len(self.machine.devices), len(ways)), np.bool_)
        seconds, fixed, held = (np.full((len(ways), count, count), np.inf) for _ in range(3))
        for number, way in enumerate(ways):
            at[self._groups[way], number] = True
            prices = [self.price(k, way, parts) for k in range(count)]
            self._fill(prices, parts, way.is_again, (seconds[number], fixed[number], held[number]))
        room = [
            min(d.free_bytes for d in self.machine.devices[w.first : w.first + w.devices])
            for w in ways
        ]
        return Cells(ways, at, seconds, fixed, held, np.array(room, float))

    def _fill(
        self,
        prices: Sequence[AtomCosts | None],
        parts: int,
        is_again: bool,
        columns: tuple[Array, Array, Array],
    ) -> None:
        """The cells of one way: sums over atoms, of bytes over the regions that they touch, each once."""
        (seconds, fixed, held), regions = columns, self.regions[is_again]
        possible = [p is not None for p in prices]
        known = [p or NOTHING for p in prices]
        late = np.array([(p.sync_seconds + p.update_seconds) / parts for p in known])
        each = np.where(possible, np.array([p.spans.sum() for p in known]) + late, np.inf)
        transient = np.array([p.transient_bytes for p in known], float)
        gradients = np.array([p.gradient_bytes for p in known], float)
        kept = _shared(
            [
                {names[k]: b for k, b in p.kept.items()}
                for names, p in zip(regions, known, strict=True)
            ]
        )
        held[:] = _shared(
            [
                {names[k]: b for k, b in p.held.items()}
                for names, p in zip(regions, known, strict=True)
            ]
        )
        for i in range(len(known)):
            seconds[i, i:] = each[i:].cumsum()
            fixed[i, i:] = (
                kept[i, i:] + gradients[i:].cumsum() + np.maximum.accumulate(transient[i:])
            )


def _alike(group: Sequence[Device]) -> object:
    """What prices on a group of devices depend on."""
    hosts: dict[int, int] = {}
    return tuple(
        replace(device, host=hosts.setdefault(device.host, len(hosts))) for device in group
    )


def _shared(each: Sequence[Mapping[str, int]]) -> Array:
    """(i, j): bytes of the regions of i to j; one that several of them have counts once."""
    added, last = np.zeros((len(each), len(each))), dict[str, int]()
    for k, regions in enumerate(each):
        for name, size in regions.items():
            added[last.get(name, -1) + 1 : k + 1, k] += size
            last[name] = k
    found: Array = added.cumsum(axis=1)
    return found
