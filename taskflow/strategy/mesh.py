"""Meshes: the numbers of devices in digits, by which configurations and hosts step through them.

Takes configurations and a machine; gives the digits, and for every digit a partition of its values. Values are in
different parts where something was seen to differ between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain, pairwise
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine import MachineModel
from taskflow.strategy.strategy import ParallelConfig


class DeviceRun(NamedTuple):
    """Consecutive parts of an axis on devices `stride` apart, so many `parts`; of stride 0: on one device."""

    axis: str
    stride: int
    parts: int


class DeviceGrid(NamedTuple):
    """The devices of a configuration: the first one, and the runs of its axes, of each axis the fastest one first."""

    base: int
    runs: tuple[DeviceRun, ...]


class DeviceGrids:
    """The grids of configurations, each found once; None where the devices are no grid, or parts are fractions."""

    def __init__(self) -> None:
        self.by_config: dict[ParallelConfig, DeviceGrid | None] = {}
        self._by_identity: dict[int, DeviceGrid | None] = {}  # to hash thousands of devices is slow

    def of(self, config: ParallelConfig) -> DeviceGrid | None:
        """The grid of a configuration, which somebody must hold."""
        if id(config) not in self._by_identity:
            if config not in self.by_config:
                self.by_config[config] = _grid_of(config)
            self._by_identity[id(config)] = self.by_config[config]
        return self._by_identity[id(config)]


def _grid_of(config: ParallelConfig) -> DeviceGrid | None:
    shape = [degree for _, degree in config.degrees if isinstance(degree, int)]
    if len(shape) < len(config.degrees):
        return None
    devices = np.array(config.devices, np.int64).reshape(shape)
    base = int(devices.flat[0])
    lines = [np.moveaxis(devices, k, 0).reshape(n, -1)[:, 0] - base for k, n in enumerate(shape)]
    runs = [*map(_runs_of, dict(config.degrees), lines)]
    if None in runs or (reduce(np.add.outer, lines, np.array(base)) != devices).any():
        return None
    return DeviceGrid(base, tuple(chain.from_iterable(filter(None, runs))))


def _runs_of(axis: str, line: Array) -> list[DeviceRun] | None:
    """The runs of one axis; `line`: the devices of its parts, counted from the first one."""
    runs = []
    while len(line) > 1:
        steps = np.diff(line)
        stride = int(steps[0])
        other = np.flatnonzero(steps != steps[0])
        count = gcd(int(other[0]) + 1 if len(other) else len(line), len(line))
        blocks = line.reshape(-1, count)
        if count < 2 or stride < 0 or (blocks - blocks[:, :1] != stride * np.arange(count)).any():
            return None
        runs.append(DeviceRun(axis, stride, count))
        line = blocks[:, 0]
    return runs


class Mesh:
    """The digits of devices, and which values of each are told apart. A digit is named by its stride.

    Args:
        devices: how many.
        strides: of the digits, ascending, each a multiple of the one before; the first one is 1.
    """

    def __init__(self, devices: int, strides: Sequence[int]) -> None:
        self.devices = devices
        ends = [*strides[1:], -(-devices // strides[-1]) * strides[-1]]
        self.radix = {s: end // s for s, end in zip(strides, ends, strict=True)}
        self._part = {s: np.zeros(radix, np.int64) for s, radix in self.radix.items()}

    def digits(self, run: DeviceRun) -> list[int]:
        """The digits that a run steps through, the slowest first."""
        return [s for s in reversed(self.radix) if run.stride <= s < run.stride * run.parts]

    def tell_apart(self, strides: Sequence[int], values: Array) -> None:
        """Two values of a digit are apart where an array over some digits, slowest first, differs between them."""
        grid = values.reshape([*(self.radix[s] for s in strides), -1])
        for k, stride in enumerate(strides):
            rows = np.moveaxis(grid, k, 0).reshape(self.radix[stride], -1)
            keys = np.column_stack([self._part[stride], rows])
            self._part[stride] = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)

    def tell_devices_apart(self, values: Array) -> None:
        """The same of an array (devices,) without negative numbers; the digits may have numbers of no device."""
        padded = np.full(prod(self.radix.values()), -1, np.int64)
        padded[: self.devices] = values
        self.tell_apart(list(reversed(self.radix)), padded)

    def part_all(self, strides: Iterable[int]) -> None:
        """All values of these digits are apart."""
        for stride in strides:
            self._part[stride] = np.arange(self.radix[stride])

    def tell_used(self, grid: DeviceGrid) -> None:
        """The devices of a grid and others are apart; all are where it begins amid a digit that it steps through."""
        stepped = {s for run in grid.runs for s in self.digits(run)}
        for stride, radix in self.radix.items():
            first = grid.base // stride % radix
            if stride not in stepped:
                self.tell_apart([stride], np.arange(radix) == first)
            elif first:
                self.part_all(self.radix)

    def parts(self) -> list[Array]:
        """Per digit, (devices,): the part in which every device's value is."""
        number = np.arange(self.devices)
        return [part[number // s % self.radix[s]] for s, part in self._part.items()]


def mesh_of(machine: MachineModel, grids: Iterable[DeviceGrid]) -> Mesh | None:
    """The digits of hosts and grids, unequal devices and hosts being apart; None: their strides make no digits."""
    hosts = np.array([d.host for d in machine.devices])
    borders = (np.flatnonzero(np.diff(hosts)) + 1).tolist()
    if len(np.unique(hosts)) <= len(borders):  # a host's devices are not one after the other
        return None
    host_stride = gcd(*borders, len(hosts))
    strides = sorted({1, *(s for s in {host_stride, *_ends_of_runs(grids)} if s < len(hosts))})
    if not _are_digits([*strides, len(hosts)]):
        return None
    mesh = Mesh(len(hosts), strides)
    mesh.tell_devices_apart(machine.colours)
    if np.unique(np.diff([0, *borders, len(hosts)])).size > 1:
        mesh.part_all(s for s in mesh.radix if s >= host_stride)
    return mesh


def _are_digits(strides: Sequence[int]) -> bool:
    """Whether each is a multiple of the one before."""
    return not any(after % before for before, after in pairwise(strides))


def _ends_of_runs(grids: Iterable[DeviceGrid]) -> set[int]:
    """The strides at which runs of grids begin and end."""
    runs = [run for grid in grids for run in grid.runs if run.stride]
    return {run.stride for run in runs} | {run.stride * run.parts for run in runs}
