"""Orbits: devices that do the same under a strategy, read from patterns and configurations alone.

The number of a device is written in digits of a mixed radix: the common refinement of hosts and of all strides by which
configurations step through devices (`mesh`). Every digit has a partition of its values; devices are in one orbit where
all their digits are in the same parts. Values are told apart by

* devices that an operator does not use, and unequal devices, hosts and links;
* parts of an axis of unequal sizes, and windows: what is first, last and amid in a halo is unlike;
* a dimension of a region that operators cut in different orders, or across each other.

This is a seed, and not safe by itself: it may be too coarse. Groups of devices that exchange nothing with each other do
the same. Within a group there are choices that no pattern tells: who sums which part, from whom a replica comes, which
links are shared. Who sees them refines the orbits: `lower` where rows differ, `simulate` where seconds and loads do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import balanced_bounds
from taskflow.graph.graph import Graph, Operator
from taskflow.machine import MachineModel
from taskflow.strategy.mesh import DeviceGrid, DeviceGrids, DeviceRun, Mesh, mesh_of
from taskflow.strategy.strategy import Strategy, completed, effective_config


@dataclass(frozen=True, eq=False)
class Orbits:
    """A partition of the devices of a machine.

    Attributes:
        of: (devices,) the orbit of every device; orbits are numbered in the order of their representatives.
        representative: (orbits,) the first device of each.
        size: (orbits,) how many devices each has.
        strides: of the digits of devices, ascending; the first one is 1.
    """

    of: Array
    representative: Array
    size: Array
    strides: tuple[int, ...] = (1,)

    @staticmethod
    def of_equal(*keys: Array, strides: tuple[int, ...] = (1,)) -> Orbits:
        """Devices are in one orbit where all keys, (devices,) each, are equal."""
        _, first, number, size = np.unique(
            np.stack(keys), axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        return Orbits(np.argsort(order)[number.reshape(-1)], first[order], size[order], strides)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def key(self) -> bytes:
        """Equal for equal orbits, and only for these."""
        return b"".join(column.tobytes() for column in (self.of, self.representative, self.size))

    @cached_property
    def is_first(self) -> Array:
        """Of every device, whether it is a representative."""
        is_first = np.zeros(len(self.of), np.bool_)
        is_first[self.representative] = True
        return is_first

    def __repr__(self) -> str:
        return f"Orbits({len(self)} of {len(self.of)} devices)"

    def seen_by(self, devices: Array, by: int) -> Orbits:
        """What some devices would see if they had numbers that are by so many more: their orbits, numbered anew.

        All others are in an orbit of their own, whose size and representative say nothing.
        """
        names, first, number = np.unique(
            self.of[devices + by], return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        of = np.full(len(self.of), len(names))
        of[devices] = np.argsort(order)[number.reshape(-1)]
        elsewhere = int(np.argmax(of == len(names)))
        representative = np.append(self.representative[names[order]] - by, elsewhere)
        representative[~np.isin(representative, devices)] = elsewhere
        return Orbits(of, representative, np.append(self.size[names[order]], 0), self.strides)

    def refine(self, by: Array) -> Orbits:
        """The orbits in which devices for which `by` differs are apart, too."""
        return Orbits.of_equal(self.of, by, strides=self.strides)

    def part(self, some: Array, others: Array) -> Orbits:
        """The orbits in which all values of a digit are apart, where one of some devices differs in it from its other.

        What is between the two of a pair is between all that are as far apart; so none of them stands for another.
        """
        orbits = self
        number = np.arange(len(self.of))
        for stride, end in zip(self.strides, [*self.strides[1:], len(number)], strict=True):
            digit = number % end // stride
            if (digit[some] != digit[others]).any():
                orbits = orbits.refine(digit)
        return orbits


def orbits_of(graph: Graph, strategy: Strategy, machine: MachineModel) -> Orbits:
    """The seed of the orbits, see the module. Where a configuration is no grid of digits every device is alone.

    Raises:
        ValueError: an operator has no configuration.
    """
    strategy = completed(graph, strategy)
    grids = DeviceGrids()
    placed = [
        (op, grid)
        for op in graph.operators
        if (grid := grids.of(effective_config(op, strategy)[0])) is not None
    ]
    mesh = mesh_of(machine, [*filter(None, grids.by_config.values())])
    if len(placed) < len(graph.operators) or mesh is None:
        return Orbits.of_equal(np.arange(len(machine.devices)))
    for tilings in _tilings_of_dimensions(placed, mesh):
        _compare(tilings, mesh)
    return Orbits.of_equal(*mesh.parts(), strides=tuple(mesh.radix))


class Tiling(NamedTuple):
    """How an operator cuts a dimension of a region.

    Attributes:
        runs: and the extent of the axis of each, which has no name, the slowest first.
        steps: of every digit, by how many points one step moves the tile; none where tiles are unequal.
        tile: points of a tile; 0 where these are unequal.
    """

    runs: tuple[tuple[DeviceRun, int], ...]
    steps: tuple[tuple[int, int], ...]
    tile: int


def _tilings_of_dimensions(
    placed: Sequence[tuple[Operator, DeviceGrid]], mesh: Mesh
) -> list[tuple[Tiling, ...]]:
    """Of all dimensions of regions that are cut the ways in which they are; equal ones once."""
    cuts_of: dict[object, list[_CutDimension]] = {}
    tilings: dict[tuple[str, int], dict[Tiling, None]] = {}
    for op, grid in placed:
        key = op.bound.key, op.writes, grid
        if key not in cuts_of:
            mesh.tell_used(grid)
            cuts_of[key] = _cuts(op, grid, mesh)
        for cut in cuts_of[key]:
            tilings.setdefault((op.args[cut.argument].name, cut.dimension), {})[cut.tiling] = None
    return list(dict.fromkeys(map(tuple, tilings.values())))


class _CutDimension(NamedTuple):
    """How an operator cuts a dimension of one of its arguments."""

    argument: int
    dimension: int
    tiling: Tiling


def _cuts(op: Operator, grid: DeviceGrid, mesh: Mesh) -> list[_CutDimension]:
    """Of all dimensions of all arguments; whole ones are left out."""
    runs: dict[str, list[DeviceRun]] = {}
    for run in grid.runs:
        if run.axis in op.split_axes and run.parts > 1:
            runs.setdefault(run.axis, []).insert(0, run)
    for axis, of_axis in runs.items():
        _tell_sizes(op.extents[axis], of_axis, mesh)
    cuts = []
    for argument, (term, region) in enumerate(zip(op.bound.terms, op.args, strict=True)):
        for dimension, names in enumerate(term.dims):
            axes, scale = _axes_of(op, names, region.shape[dimension])
            if any(axis in runs for axis in axes):
                tiling = _tiling(op, axes, runs, scale, mesh)
                cuts.append(_CutDimension(argument, dimension, tiling))
                if not scale:
                    mesh.part_all(s for run, _ in tiling.runs for s in mesh.digits(run))
    return cuts


def _axes_of(op: Operator, names: Sequence[str], extent: int) -> tuple[list[str], int]:
    """The axes of a dimension, and how many of its points one of theirs is; 0: tiles overlap, or do not follow them."""
    window = op.windows.get(names[0]) if len(names) == 1 else None
    if window is None:
        return list(names), 1
    return [window.axis], window.scale(op.extents[window.axis], extent)


def _tiling(
    op: Operator, axes: Sequence[str], runs: dict[str, list[DeviceRun]], scale: int, mesh: Mesh
) -> Tiling:
    """How a group of axes, the slowest first, is cut; one point of the last one is `scale` of the dimension."""
    every = list[tuple[DeviceRun, int]]()
    steps = list[tuple[int, int]]()
    points = scale
    tile = 0
    is_even = all(
        op.extents[axis] % prod(run.parts for run in runs.get(axis, ())) == 0 for axis in axes
    )
    for axis in reversed(axes):
        of_axis = runs.get(axis, [])
        step = points * op.extents[axis] // prod(run.parts for run in of_axis)
        tile = tile or (step if of_axis else 0)
        for run in reversed(of_axis):
            every.insert(0, (run._replace(axis=""), op.extents[axis]))
            steps += [(s, step * (s // run.stride)) for s in mesh.digits(run)]
            step *= run.parts
        points *= op.extents[axis]
    return Tiling(tuple(every), tuple(steps) if is_even else (), tile if is_even else 0)


def _tell_sizes(extent: int, runs: Sequence[DeviceRun], mesh: Mesh) -> None:
    """Devices with parts of unequal sizes are apart; `runs`: of the axis, the slowest first."""
    count = prod(run.parts for run in runs)
    if extent % count == 0:
        return
    sizes = np.diff(balanced_bounds(extent, count)).reshape([run.parts for run in runs])
    on_device = [k for k, run in enumerate(runs) if not run.stride]
    sizes = np.moveaxis(sizes, on_device, range(-len(on_device), 0))
    mesh.tell_apart([s for run in runs for s in mesh.digits(run)], sizes)


def _compare(tilings: Sequence[Tiling], mesh: Mesh) -> None:
    """Digits that do not move all tiles of a dimension alike are parted."""
    if len(tilings) < 2:
        return
    digits = {digit for tiling in tilings for run, _ in tiling.runs for digit in mesh.digits(run)}
    if not all(tiling.tile for tiling in tilings):
        mesh.part_all(digits)
        return
    for digit in sorted(digits):
        moving = [dict(tiling.steps)[digit] for tiling in tilings if digit in dict(tiling.steps)]
        reach = max(moving) * mesh.radix[digit]
        is_across = any(
            tiling.tile % reach for tiling in tilings if digit not in dict(tiling.steps)
        )
        if len(set(moving)) > 1 or is_across:
            mesh.part_all([digit])
