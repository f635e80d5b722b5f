"""Exchanges: the copies and folds that carry out a collective among many devices.

Takes the arguments of a collective (devices, instances, boxes) and the messages of its algorithm; gives steps in a
valid order, which name arguments by number. The devices that take part are the members of the algorithm, by host and
number. What all have, or get, is cut into the algorithm's pieces along one dimension; where each has a tile, the tile
is cut into the pieces that it owns. Pieces of no elements are left out.

An exchange that is not regular (see `is_regular`) has no algorithm: every owner takes what it lacks straight from the
nearest that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.geometry import Rect
from taskflow.tasks.steps import SUMS as SUMS
from taskflow.tasks.steps import Messages

# Of a sum of less, all can arrive at once where it is added; of a larger one, one of p parts.
SMALL_BYTES = 16384
_EVEN = 8  # elements for each device along the dimension that is cut: then parts are about even


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
        doors: (devices, devices) by which link one sends to another, see `MachineModel.doors`.
        devices, instances, boxes: of the arguments: `sources` of them, then `targets`, then scratch memory in which
            what is to be added arrives: as much for every device as there are doors.
        messages: of the algorithm, if the exchange is regular.
    """

    name: str
    hosts: Sequence[int]
    doors: Array
    devices: Sequence[int]
    instances: Sequence[int]
    boxes: Sequence[Rect]
    sources: int
    targets: int
    messages: Messages | None = None

    def steps(self) -> list[ExchangeStep]:
        """Copies and folds in order. The partial results are spent: sums may lie in them."""
        return list(_carry(self, self.messages) if self.messages is not None else _straight(self))

    @cached_property
    def members(self) -> list[int]:
        """The devices that take part, in the order of a ring; the first is the root, if there is one."""
        ring = ring_order(sorted(set(self.devices)), self.hosts)
        roots = {"reduce": self.getting, "broadcast": self.having}.get(self.name)
        root = ring.index(self.devices[roots[0]]) if roots else 0
        return ring[root:] + ring[:root]

    @property
    def is_regular(self) -> bool:
        """Whether an algorithm can carry it out.

        All members have a partial result, or a tile or the whole of what is gathered, and get the whole or a tile; one
        alone may send to all, or get what all have.
        """
        sources, targets = (sorted(self.devices[k] for k in part) for part in (self.having, self.getting))
        members, boxes = sorted(self.members), [{self.boxes[k] for k in part} for part in (self.having, self.getting)]
        if self.name in ("reduce", "broadcast"):
            many, one = (sources, targets) if self.name == "reduce" else (targets, sources)
            return len(one) == 1 and sorted({*many, *one}) == members and len(set(many)) == len(many)
        whole = boxes[1] if self.name == "all-gather" else boxes[0]
        return sources == members == targets and len(whole) == 1

    @property
    def having(self) -> range:
        """The sources."""
        return range(self.sources)

    @property
    def getting(self) -> range:
        """The targets."""
        return range(self.sources, self.sources + self.targets)

    @property
    def scratch(self) -> range:
        """The scratch memories."""
        return range(self.sources + self.targets, len(self.devices))

    @cached_property
    def source_at(self) -> dict[int, int]:
        """Device -> its source."""
        return {self.devices[k]: k for k in reversed(self.having)}

    @cached_property
    def targets_at(self) -> dict[int, list[int]]:
        """Device -> its targets."""
        found: dict[int, list[int]] = {}
        for k in self.getting:
            found.setdefault(self.devices[k], []).append(k)
        return found

    @cached_property
    def scratch_at(self) -> dict[int, list[int]]:
        """Device -> its scratch memories, by door."""
        found: dict[int, list[int]] = {}
        for k in self.scratch:
            found.setdefault(self.devices[k], []).append(k)
        return found

    def arriving(self, source: int, device: int, box: Rect) -> int:
        """The scratch memory in which `box` arrives from another device."""
        scratch = self.scratch_at[device]
        large = [k for k in scratch if self.boxes[k].volume >= box.volume]
        return large[int(self.doors[source, device]) % len(large)]

    def distance(self, source: int, device: int) -> tuple[bool, int]:
        """Near devices first; at equal distance every device has another one first, so that all are busy."""
        return self.hosts[source] != self.hosts[device], (source - device) % len(self.hosts)


def ring_order(devices: Sequence[int], hosts: Sequence[int]) -> list[int]:
    """The devices of a ring, neighbours on one host where possible."""
    return sorted(devices, key=lambda d: (hosts[d], d))


def cut_dimension(extents: Sequence[int], members: int) -> int:
    """The dimension along which a box is cut for so many: the first that is long enough, else the longest."""
    longest = 0
    for k in range(len(extents)):
        if extents[k] >= _EVEN * members:
            return k
        if extents[k] > extents[longest]:
            longest = k
    return longest


# -- along messages ----------------------------------------------------------------------------------------------------


def _carry(x: Exchange, messages: Messages) -> Iterator[ExchangeStep]:
    """Every message as a copy, or as a copy into scratch memory and a fold; what is there already is not sent."""
    at = _places(x, messages)
    for k in x.having if x.name not in SUMS else ():
        for target in x.targets_at.get(x.devices[k], ()):
            if x.instances[target] != x.instances[k]:
                yield ExchangeStep(target, (k,), x.boxes[k])
    pieces, owner = _boxes(x, messages), messages.owner.tolist()
    for s, t, first, last, adds in zip(*(column.tolist() for column in messages[1:]), strict=True):
        source, device = x.members[s], x.members[t]
        for a, b, box in _runs(pieces, first, last):
            held, there = at[s][a], at[t][a]
            if held is None or (there is not None and not adds and x.name not in SUMS):
                continue
            target = _target(x, device, box) if owner[a] == t or not adds or there is None else there
            if adds and there is not None:
                scratch = x.arriving(source, device, box)
                yield ExchangeStep(scratch, (held,), box)
                yield ExchangeStep(target, (there, scratch), box)
            else:
                yield ExchangeStep(target, (held,), box)
            at[t][a:b] = [target] * (b - a)


def _places(x: Exchange, messages: Messages) -> list[list[int | None]]:
    """Member -> the argument that holds each piece, or a partial result of it."""
    pieces, held = len(messages.owner), [x.source_at.get(device) for device in x.members]
    if x.name in SUMS or x.name == "broadcast":
        return [[k] * pieces for k in held]
    return [[k if o == member else None for o in messages.owner.tolist()] for member, k in enumerate(held)]


def _target(x: Exchange, device: int, box: Rect) -> int:
    """The target on `device` that `box` lies in."""
    return next(k for k in x.targets_at[device] if x.boxes[k].covers(box))


def _boxes(x: Exchange, messages: Messages) -> list[Rect | None]:
    """The box of every piece; None: it has no elements."""
    owner = messages.owner
    if x.name in ("reduce-scatter", "all-gather"):
        tile = {x.devices[k]: x.boxes[k] for k in (x.getting if x.name in SUMS else x.having)}
    else:
        tile = dict.fromkeys(x.members, x.boxes[x.sources])
        owner = np.zeros_like(owner)
    found: list[Rect | None] = [None] * len(owner)
    for member in dict.fromkeys(owner.tolist()):
        own = np.flatnonzero(owner == member).tolist()
        for k, box in zip(own, _cut(tile[x.members[member]], len(own), len(x.members)), strict=True):
            found[k] = box
    return found


def _cut(box: Rect, count: int, members: int) -> list[Rect | None]:
    if not box.shape:
        return [box, *[None] * (count - 1)]
    d = cut_dimension(box.shape, members)
    at = [box.lo[d] + k * box.shape[d] // count for k in range(count + 1)]
    return [_between(box, d, a, b) if a < b else None for a, b in pairwise(at)]


def _between(box: Rect, d: int, lo: int, hi: int) -> Rect:
    return Rect((*box.lo[:d], lo, *box.lo[d + 1 :]), (*box.hi[:d], hi, *box.hi[d + 1 :]))


def _runs(pieces: Sequence[Rect | None], first: int, last: int) -> list[tuple[int, int, Rect]]:
    """First piece, end and box of what neighbouring pieces make up together."""
    found: list[tuple[int, int, Rect]] = []
    for k in range(first, last):
        if (piece := pieces[k]) is None:
            continue
        if found and (joined := _joined(found[-1][2], piece)) is not None:
            found[-1] = found[-1][0], k + 1, joined
        else:
            found.append((k, k + 1, piece))
    return found


def _joined(a: Rect, b: Rect) -> Rect | None:
    """Both boxes as one, if they are neighbours along one dimension and equal in the others."""
    other = [d for d in range(len(a.lo)) if (a.lo[d], a.hi[d]) != (b.lo[d], b.hi[d])]
    return Rect(a.lo, b.hi) if len(other) == 1 and a.hi[other[0]] == b.lo[other[0]] else None


# -- straight ----------------------------------------------------------------------------------------------------------


def _straight(x: Exchange) -> Iterator[ExchangeStep]:
    """Every owner takes its piece from all sources, then every target takes every piece from the nearest holder."""
    holders: dict[Rect, list[int]] = {}
    if x.name in SUMS:
        owned = [(x.devices[k], x.boxes[k]) for k in x.getting]
        if x.name == "all-reduce":
            devices = ring_order([d for d, _ in owned], x.hosts)
            cut = _cut(owned[0][1], len(devices), len(x.members))
            owned = [(d, box) for d, box in zip(devices, cut, strict=True) if box is not None]
        yield from _sum_straight(x, owned)
        holders = {box: [_target(x, device, box)] for device, box in owned}
    for k in x.having if x.name not in SUMS else ():
        holders.setdefault(x.boxes[k], []).append(k)
    found: list[tuple[int, int, ExchangeStep]] = []
    for device, (target, *_) in x.targets_at.items() if x.name not in ("reduce", "reduce-scatter") else ():
        for box, held in holders.items():
            nearest = min(held, key=lambda k: x.distance(x.devices[k], device))
            if x.instances[nearest] != x.instances[target]:
                number = (x.devices[nearest] - device) % len(x.hosts)
                found.append((number, device, ExchangeStep(target, (nearest,), box)))
    yield from (step for _, _, step in sorted(found, key=lambda f: f[:2]))


def _sum_straight(x: Exchange, owned: Sequence[tuple[int, Rect]]) -> Iterator[ExchangeStep]:
    """One after the other, each owner's own first."""
    rounds: list[list[ExchangeStep]] = [[] for _ in x.source_at]
    for owner, box in owned:
        target = _target(x, owner, box)
        first, *others = sorted(x.source_at.values(), key=lambda s: (x.devices[s] - owner) % len(x.hosts))
        if x.devices[first] != owner:
            rounds[0].append(ExchangeStep(target, (first,), box))
            first = target
        for number, other in enumerate(others, 1):
            scratch = x.arriving(x.devices[other], owner, box)
            rounds[number] += [ExchangeStep(scratch, (other,), box), ExchangeStep(target, (first, scratch), box)]
            first = target
    yield from (step for steps in rounds for step in steps)
