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

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from math import inf
from typing import NamedTuple

import numpy as np

from taskflow.machine import MachineModel
from taskflow.tasks.exchange import SUMS, above
from taskflow.tasks.task_graph import COLLECTIVES, Array, TaskGraph

MOST = 1 << 13  # groups are remembered: of up to 1,024 devices 130 MB
Step = tuple[tuple[float, float], ...]  # messages of one step: latency, and seconds per byte


class CollectiveCosts:
    """Seconds of collectives on one machine, each found once."""

    def __init__(self, machine: MachineModel) -> None:
        self.machine = machine
        self._known: dict[tuple[str, tuple[int, ...], int], float] = {}
        self._algorithms: dict[tuple[int, ...], Algorithms] = {}

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
            if group not in self._algorithms:
                if len(self._algorithms) >= MOST:
                    self._known, self._algorithms = {}, {}
                self._algorithms[group] = Algorithms(self.machine, group)
            self._known[key] = self._algorithms[group].seconds(name, moved_bytes)
        return self._known[key]


class Algorithms:
    """What collectives cost in one group of devices, by host and number."""

    def __init__(self, machine: MachineModel, group: Sequence[int]) -> None:
        self.machine, self.group, self.count = machine, np.array(group, np.int64), len(group)
        self.bandwidth = min(machine.devices[d].memory_bandwidth for d in group)
        self.overhead = max(machine.devices[d].overhead_seconds for d in group)

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
        return (self.count - 1) * self._step_seconds(self._flat.ring, size / self.count, sums)

    def _halve(self, size: float, sums: bool) -> float:
        halvings, extra = self._flat.halvings, self._flat.extra
        seconds = sum(self._step_seconds(step, size / 2**k, sums) for k, step in enumerate(halvings, 1))
        return seconds + (self._step_seconds(extra, size, sums) if extra else 0.0)

    def _two_level(self, size: float, sums: bool) -> float:
        if not self._flat.within:
            return inf
        here = self.count // self._flat.hosts
        inner = self._step_seconds(self._flat.within, size / here, sums)
        outer = self._step_seconds(self._flat.across, size / self.count, sums)
        return (here - 1) * inner + (self._flat.hosts - 1) * outer

    def _tree(self, size: float, sums: bool) -> float:
        return sum(self._step_seconds(step, size, sums) for step in self._levels)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step_seconds(self, step: Step, size: float, sums: bool) -> float:
        """Seconds of one message of `size` bytes between every pair at the same time."""
        moving = max(latency + size * per_byte for latency, per_byte in step)
        return moving + (self.overhead + 3 * size / self.bandwidth if sums else 0.0)

    @cached_property
    def _flat(self) -> _Flat:
        """The steps of all algorithms but the tree."""
        group, count = self.group, self.count
        halvings = count.bit_length() - 1
        power, at = 1 << halvings, np.arange(count)
        halved = [self._step(group[:power], group[at[:power] ^ (power >> k)]) for k in range(1, halvings + 1)]
        ring, extra = self._step(group, np.roll(group, -1)), self._step(group[power:], group[: count - power])
        here = part_size([self.machine.devices[d].host for d in group.tolist()])
        if not here:
            return _Flat(ring, halved, extra, (), (), 0)
        within = self._step(group, group[at - at % here + (at + 1) % here])
        return _Flat(ring, halved, extra, within, self._step(group, np.roll(group, -here)), count // here)

    @cached_property
    def _levels(self) -> list[Step]:
        """The levels of a binomial tree, as `exchange.tree_order` hangs it: those of bit 0 first."""
        at = np.arange(1, self.count)
        levels = [at[at & -at == 1 << k] for k in range((self.count - 1).bit_length())]
        return [self._step(self.group[above(level)], self.group[level]) for level in levels]

    def _step(self, source: Array, target: Array) -> Step:
        """The messages of a step in which sources send to their targets, each kind once."""
        machine, links = self.machine, self.machine.routes[source, target]
        used = np.bincount(links[links >= 0], minlength=len(machine.link_bandwidth))
        per_byte = (used / machine.link_bandwidth)[links]  # of no link, the last: 0
        latency = machine.latency_seconds[source, target]
        return tuple(dict.fromkeys(zip(latency.tolist(), per_byte.max(axis=1, initial=0.0).tolist(), strict=True)))


class _Flat(NamedTuple):
    """Steps; `within` and `across` hosts are empty where there are no two levels, `extra` for a power of two."""

    ring: Step
    halvings: list[Step]
    extra: Step
    within: Step
    across: Step
    hosts: int


def part_size(hosts: Sequence[int]) -> int:
    """Devices of a host, where several hosts have as many, and more than one; else 0."""
    sizes = {len(list(same)) for _, same in groupby(hosts)}
    size = sizes.pop()
    return 0 if sizes or size in (1, len(hosts)) else size
