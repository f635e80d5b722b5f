"""Exchanges: the copies and folds that carry out a collective among many devices.

Takes the arguments of a collective (devices, instances, boxes) and gives steps in a valid order; every step names
arguments by number. What moves is the least that any algorithm can do:

* sums of large tiles: every summing device gets its piece from all others (one host), or pieces go round a ring of
  neighbours, so that a link between hosts carries each piece once (several hosts and equal pieces);
* sums of small tiles: up a binomial tree;
* gathers: straight from the holders (one host) or round the ring; what one device holds whole goes down a tree.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from taskflow.core.geometry import Rect

SUMS = ("all-reduce", "reduce-scatter", "reduce")  # the collectives whose sources are partial results


class ExchangeStep(NamedTuple):
    """`target` := the sum of `parts` within `box`, all arguments by number; a single part is copied."""

    target: int
    parts: tuple[int, ...]
    box: Rect


@dataclass(frozen=True)
class Exchange:
    """A collective: its name and, per argument, device, instance and box.

    Attributes:
        name: of `task.COLLECTIVES`.
        hosts: host of every device of the machine.
        devices, instances, boxes: of the arguments: `sources` of them, then `targets`, then scratch memory in which
            what is to be added arrives, one for every summing device.
    """

    name: str
    hosts: Sequence[int]
    devices: Sequence[int]
    instances: Sequence[int]
    boxes: Sequence[Rect]
    sources: int
    targets: int

    def steps(self) -> list[ExchangeStep]:
        """Copies and folds in order. The partial results are spent: sums may lie in them."""
        if self.name in SUMS:
            return _sum(self)
        holders: dict[Rect, list[int]] = {}
        for k in range(self.sources):
            holders.setdefault(self.boxes[k], []).append(k)
        return _gather(self, holders)

    @cached_property
    def source_at(self) -> dict[int, int]:
        """Device -> its source."""
        return {self.devices[k]: k for k in reversed(range(self.sources))}

    @cached_property
    def targets_at(self) -> dict[int, list[int]]:
        """Device -> its targets."""
        found: dict[int, list[int]] = {}
        for k in range(self.sources, self.sources + self.targets):
            found.setdefault(self.devices[k], []).append(k)
        return found

    @property
    def scratch(self) -> range:
        """The scratch memories."""
        return range(self.sources + self.targets, len(self.devices))

    def target(self, device: int, box: Rect) -> int:
        """The target on `device` that `box` lies in."""
        return next(k for k in self.targets_at[device] if self.boxes[k].covers(box))

    def spans_hosts(self, devices: Sequence[int]) -> bool:
        """Whether these devices sit on several hosts."""
        return len({self.hosts[d] for d in devices}) > 1

    def distance(self, source: int, device: int) -> tuple[bool, int]:
        """Near devices first; at equal distance every device has another one first, so that all are busy."""
        return self.hosts[source] != self.hosts[device], (source - device) % len(self.hosts)


def ring_order(devices: Sequence[int], hosts: Sequence[int]) -> list[int]:
    """The devices of a ring, neighbours on one host where possible."""
    return sorted(devices, key=lambda d: (hosts[d], d))


def tree_order(root: int, devices: Sequence[int], hosts: Sequence[int]) -> list[int]:
    """`root` and the other devices in the order of a binomial tree: number i hangs below number `above(i)`.

    What hangs below a number are the numbers right behind it, so few branches of the tree cross between hosts.
    """
    most = max(hosts) + 1
    return [root, *sorted((d for d in devices if d != root), key=lambda d: tree_distance(d, root, hosts, most))]


def tree_distance(device: int, root: int, hosts: Sequence[int], most: int) -> int:
    """What the devices of a tree are sorted by: the host, from that of the root on, then the number; see `lowering`."""
    return (hosts[device] - hosts[root]) % most * len(hosts) + (device - root) % len(hosts)


def above(number: int) -> int:
    """The number in a binomial tree from which this one hangs; of an array, of each."""
    return number & (number - 1)


def summing(order: Sequence[int]) -> list[int]:
    """The devices of a tree that have others below them."""
    return [d for k, d in enumerate(order) if k % 2 == 0 and k + 1 < len(order)]


# -- sums --------------------------------------------------------------------------------------------------------------


def _sum(x: Exchange) -> list[ExchangeStep]:
    """The sum of every piece at its owner, then, for an all-reduce, every piece to all."""
    owners = [x.devices[k] for k in x.scratch]
    if len({x.boxes[k] for k in x.scratch}) == 1:
        steps, done = _sum_up_tree(x), {x.boxes[x.scratch[0]]: [x.target(owners[0], x.boxes[x.scratch[0]])]}
    else:
        is_even = len({x.boxes[k].volume for k in x.scratch}) == 1  # any piece fits where another one was
        is_ring = is_even and x.spans_hosts(owners) and sorted(owners) == sorted(x.source_at)
        steps = _sum_round_ring(x) if is_ring else _sum_straight(x)
        done = {x.boxes[k]: [x.target(x.devices[k], x.boxes[k])] for k in x.scratch}
    return steps + _gather(x, done) if x.name == "all-reduce" else steps


def _sum_straight(x: Exchange) -> list[ExchangeStep]:
    """Every owner takes its piece from all sources, one after the other, its own first."""
    rounds: list[list[ExchangeStep]] = [[] for _ in x.source_at]
    for k in x.scratch:
        owner, box = x.devices[k], x.boxes[k]
        target = x.target(owner, box)
        first, *others = sorted(x.source_at.values(), key=lambda s: (x.devices[s] - owner) % len(x.hosts))
        if x.devices[first] != owner:
            rounds[0].append(ExchangeStep(target, (first,), box))
            first = target
        for number, other in enumerate(others, 1):
            rounds[number] += [ExchangeStep(k, (other,), box), ExchangeStep(target, (first, k), box)]
            first = target
    return [step for steps in rounds for step in steps]


def _sum_round_ring(x: Exchange) -> list[ExchangeStep]:
    """Piece j starts behind its owner and is added to by every device that it comes to, at last by the owner."""
    scratch = {x.devices[k]: k for k in x.scratch}
    order = ring_order(list(scratch), x.hosts)
    count, steps = len(order), list[ExchangeStep]()
    for number in range(1, count):
        for j, owner in enumerate(order):
            sender, receiver = order[(j + number) % count], order[(j + number + 1) % count]
            box, held = x.boxes[scratch[owner]], x.source_at[receiver]
            target = x.target(owner, box) if receiver == owner else held
            steps.append(ExchangeStep(scratch[receiver], (x.source_at[sender],), box))
            steps.append(ExchangeStep(target, (held, scratch[receiver]), box))
    return steps


def _sum_up_tree(x: Exchange) -> list[ExchangeStep]:
    """Small pieces: log2(p) rounds instead of p."""
    scratch = {x.devices[k]: k for k in x.scratch}
    box, root = x.boxes[x.scratch[0]], x.devices[x.scratch[0]]
    order = tree_order(root, list(x.source_at), x.hosts)
    held, steps = dict(x.source_at), list[ExchangeStep]()
    for k in sorted(range(1, len(order)), key=lambda k: (k & -k, k)):
        device, upper = order[k], order[above(k)]
        target = x.target(root, box) if upper == root else held[upper]
        if upper not in held:
            steps.append(ExchangeStep(target, (held[device],), box))
        else:
            steps.append(ExchangeStep(scratch[upper], (held[device],), box))
            steps.append(ExchangeStep(target, (held[upper], scratch[upper]), box))
        held[upper] = target
    return steps


# -- gathers -----------------------------------------------------------------------------------------------------------


def _gather(x: Exchange, holders: Mapping[Rect, list[int]]) -> list[ExchangeStep]:
    """Every piece to all targets; `holders`: piece -> arguments that hold it."""
    devices = list(x.targets_at)
    if len(holders) == 1:
        return _spread_down_trees(x, *next(iter(holders.items())))
    by_device = {x.devices[held[0]]: box for box, held in holders.items() if len(held) == 1}
    if x.spans_hosts(devices) and len(by_device) == len(holders) and sorted(by_device) == sorted(devices):
        return _gather_round_ring(x, {d: (holders[box][0], box) for d, box in by_device.items()})
    return _gather_straight(x, holders)


def _gather_straight(x: Exchange, holders: Mapping[Rect, list[int]]) -> list[ExchangeStep]:
    """Every target takes every piece from the nearest holder."""
    found: list[tuple[int, int, ExchangeStep]] = []
    for device, (target, *_) in x.targets_at.items():
        for box, held in holders.items():
            nearest = min(held, key=lambda k: x.distance(x.devices[k], device))
            if x.instances[nearest] != x.instances[target]:
                number = (x.devices[nearest] - device) % len(x.hosts)
                found.append((number, device, ExchangeStep(target, (nearest,), box)))
    return [step for _, _, step in sorted(found, key=lambda f: f[:2])]


def _gather_round_ring(x: Exchange, own: Mapping[int, tuple[int, Rect]]) -> list[ExchangeStep]:
    """Every device passes on to its neighbour what it got in the round before, at first its own piece."""
    order = ring_order(list(own), x.hosts)
    target = {d: x.targets_at[d][0] for d in order}
    steps = [
        ExchangeStep(target[d], (k,), box) for d, (k, box) in own.items() if x.instances[k] != x.instances[target[d]]
    ]
    for number in range(1, len(order)):
        for j, owner in enumerate(order):
            sender, receiver = order[(j + number - 1) % len(order)], order[(j + number) % len(order)]
            held = own[owner][0] if number == 1 else target[sender]
            steps.append(ExchangeStep(target[receiver], (held,), own[owner][1]))
    return steps


def _spread_down_trees(x: Exchange, box: Rect, holders: list[int]) -> list[ExchangeStep]:
    """One box from its holders to all targets, a binomial tree below every holder."""
    below: dict[int, list[int]] = {k: [] for k in holders}
    steps: list[tuple[int, ExchangeStep]] = []
    for device, (target, *_) in x.targets_at.items():
        nearest = min(holders, key=lambda k: x.distance(x.devices[k], device))
        if x.devices[nearest] != device:
            below[nearest].append(target)
        elif x.instances[nearest] != x.instances[target]:
            steps.append((0, ExchangeStep(target, (nearest,), box)))
    for holder, targets in below.items():
        at = {x.devices[k]: k for k in targets} | {x.devices[holder]: holder}
        order = tree_order(x.devices[holder], list(at), x.hosts)
        for k in range(1, len(order)):
            steps.append((k & -k, ExchangeStep(at[order[k]], (at[order[above(k)]],), box)))
    return [step for _, step in sorted(steps, key=lambda s: -s[0])]
