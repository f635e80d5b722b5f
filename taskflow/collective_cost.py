"""Costs of collectives: seconds of a row that a whole group of devices takes part in, from the routes between them.

Every algorithm is a series of steps in which each device sends at most one message. A step lasts as long as its slowest
message: the latencies on its way, plus its bytes over the narrowest link, which messages of one step share. A step that
sums also reads two and writes one of the elements that arrived. The best algorithm counts:

* ring: p - 1 steps of n / p bytes for a reduce-scatter or all-gather, twice that for an all-reduce;
* recursive halving or doubling: log2(p) steps of n / 2, n / 4, ... bytes, and one of n more where p is no power of two
  (two, for an all-reduce);
* two levels: rings within all hosts at once, then one ring across the hosts for every piece;
* binomial tree: log2(p) steps of n bytes, for what has one root.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

import numpy as np

from taskflow.exchange import SUMS
from taskflow.machine import MachineModel
from taskflow.task import COLLECTIVES, Array, TaskGraph

Step = Callable[[float, bool], float]  # bytes, whether they are summed -> seconds


class CollectiveCosts:
    """Seconds of collectives on one machine, each found once."""

    def __init__(self, machine: MachineModel) -> None:
        self.machine = machine
        self._known: dict[tuple[str, tuple[int, ...], int], float] = {}
        self._rings: dict[tuple[int, ...], Algorithms] = {}

    def seconds(self, task_graph: TaskGraph, rows: Array) -> Array:
        """Seconds of collective rows."""
        groups = [task_graph.groups.devices_of(g) for g in range(len(task_graph.groups))]
        number = -2 - task_graph.streams[rows, 0]
        columns = (c.tolist() for c in (task_graph.collective[rows], number, task_graph.bytes[rows]))
        return np.array([self.of(COLLECTIVES[name], groups[g], size) for name, g, size in zip(*columns, strict=True)])

    def of(self, name: str, group: tuple[int, ...], moved_bytes: int) -> float:
        """Seconds of the collective `name` in `group` (by host and number), which moves so many bytes in all."""
        key = (name, group, moved_bytes)
        if key not in self._known:
            if group not in self._rings:
                self._rings[group] = Algorithms(self.machine, group)
            self._known[key] = self._rings[group].seconds(name, moved_bytes)
        return self._known[key]


class Algorithms:
    """What collectives cost in one group of devices, by host and number."""

    def __init__(self, machine: MachineModel, group: Sequence[int]) -> None:
        self.machine, self.group, self.count = machine, tuple(group), len(group)
        self.bandwidth = min(machine.devices[d].memory_bandwidth for d in group)
        self.overhead = max(machine.devices[d].overhead_seconds for d in group)
        self.ring = self._step(_ring(self.group))
        self.halvings, self.extra = self._halvings()
        self.levels = [self._step(pairs) for pairs in _levels(self.group)]
        self.within, self.across, self.hosts = self._two_levels()

    def seconds(self, name: str, moved_bytes: int) -> float:
        """The least of all algorithms."""
        if name == "all-reduce":
            size = moved_bytes / (2 * (self.count - 1))
            halves = (self._ring, self._halve, self._two_level)
            return min(half(size, True) + half(size, False) for half in halves)
        size, sums = moved_bytes / (self.count - 1), name in SUMS
        ways = (self._tree,) if name in ("reduce", "broadcast") else (self._ring, self._halve, self._two_level)
        return min(way(size, sums) for way in ways)

    # -- half an all-reduce of `size` bytes: the sums, or the gathering ------------------------------------------------

    def _ring(self, size: float, sums: bool) -> float:
        return (self.count - 1) * self.ring(size / self.count, sums)

    def _halve(self, size: float, sums: bool) -> float:
        seconds = sum(step(size / 2**k, sums) for k, step in enumerate(self.halvings, 1))
        return seconds + (self.extra(size, sums) if self.extra else 0.0)

    def _two_level(self, size: float, sums: bool) -> float:
        if self.within is None or self.across is None:
            return inf
        here = self.count // self.hosts
        inner, outer = self.within(size / here, sums), self.across(size / self.count, sums)
        return (here - 1) * inner + (self.hosts - 1) * outer

    def _tree(self, size: float, sums: bool) -> float:
        return sum(step(size, sums) for step in self.levels)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _halvings(self) -> tuple[list[Step], Step | None]:
        """Exchanges over half, a quarter, ... of the greatest power of two; and the step that brings in the others."""
        power = 1 << (self.count.bit_length() - 1)
        steps = []
        for distance in (power >> k for k in range(1, power.bit_length())):
            steps.append(self._step([(self.group[i], self.group[i ^ distance]) for i in range(power)]))
        rest = [(self.group[power + i], self.group[i]) for i in range(self.count - power)]
        return steps, self._step(rest) if rest else None

    def _two_levels(self) -> tuple[Step | None, Step | None, int]:
        """A step of the rings within hosts, and one of those across; none where hosts have unequal parts."""
        hosts: dict[int, list[int]] = {}
        for device in self.group:
            hosts.setdefault(self.machine.devices[device].host, []).append(device)
        parts = list(hosts.values())
        if len(parts) == 1 or len({len(part) for part in parts}) > 1 or len(parts[0]) == 1:
            return None, None, len(parts)
        across = [pair for column in zip(*parts, strict=True) for pair in _ring(column)]
        return self._step([pair for part in parts for pair in _ring(part)]), self._step(across), len(parts)

    def _step(self, pairs: Iterable[tuple[int, int]]) -> Step:
        """Seconds of one message between every pair at the same time."""
        source, target = np.array(list(pairs), np.int64).reshape(-1, 2).T
        routes, bandwidth = self.machine.routes[source, target], self.machine.link_bandwidth
        shared = np.roll(np.bincount(routes.reshape(-1) + 1, minlength=len(bandwidth)), -1)
        per_byte = (shared / bandwidth)[routes].max(axis=1, initial=0.0)
        messages = set(zip(self.machine.latency_seconds[source, target].tolist(), per_byte.tolist(), strict=True))

        def seconds(size: float, sums: bool) -> float:
            moving = max(latency + size * each for latency, each in messages)
            return moving + (self.overhead + 3 * size / self.bandwidth if sums else 0.0)

        return seconds


def _ring(devices: Sequence[int]) -> list[tuple[int, int]]:
    """Every device and its neighbour."""
    return [(d, devices[(k + 1) % len(devices)]) for k, d in enumerate(devices)]


def _levels(devices: Sequence[int]) -> list[list[tuple[int, int]]]:
    """The pairs of a binomial tree by level, as `exchange.tree_order` hangs them."""
    levels: dict[int, list[tuple[int, int]]] = {}
    for k in range(1, len(devices)):
        levels.setdefault(k & -k, []).append((devices[k & (k - 1)], devices[k]))
    return list(levels.values())
