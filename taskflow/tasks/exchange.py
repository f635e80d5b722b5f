"""Exchanges: the copies and folds that carry out a collective among many devices.

Takes the arguments of a collective (devices, instances, boxes) and the messages of its algorithm; gives steps in a
valid order, which name arguments by number. The devices that take part are the members of the algorithm, host by host,
in the order in which arguments name them (see `machine.equal`). What all have, or get, is cut into the algorithm's
pieces along one dimension; where each has a tile, the tile is cut into the pieces that it owns. What moves is worked
out in `moves`, where prices are found, too.

An exchange that is not regular (see `is_regular`) has no algorithm: every owner takes what it lacks straight from one
that has it, see `turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import sub
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.geometry import Rect
from taskflow.machine.equal import Equals, in_order
from taskflow.tasks.all_to_all import pairwise, relay_of
from taskflow.tasks.carry import COPY, Memories, StepColumns, carry
from taskflow.tasks.moves import (
    TILED,
    Cut,
    Outline,
    boxes_of,
    cut_boxes,
    cut_of,
    moves_of,
    straight_messages,
)
from taskflow.tasks.moves import cut_dimension as cut_dimension
from taskflow.tasks.steps import SUMS as SUMS
from taskflow.tasks.steps import Messages

SMALL_BYTES = 16384  # so little may go straight from everybody to everybody


class ExchangeStep(NamedTuple):
    """`target` := the sum of `parts` within `box`, all arguments by number; a single part is copied.

    What `follows` travels in the message of the step before. In scratch memory the box lies `offset` elements behind
    the beginning.
    """

    target: int
    parts: tuple[int, ...]
    box: Rect
    follows: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Exchange:
    """A collective: its name and, per argument, device, instance and box.

    Attributes:
        name: of `task.COLLECTIVES`.
        equals: of all devices, see `MachineModel.equals`.
        doors: by which links devices send to others, see `Ways.doors`.
        devices, instances, boxes: of the arguments: `sources` of them, then `targets`, then scratch memory in which
            what is to be added arrives: as much for every device as there are doors.
        messages: of the algorithm, if the exchange is regular.
    """

    name: str
    equals: Equals
    doors: Callable[[Array, Array], Array]
    devices: Sequence[int]
    instances: Sequence[int]
    boxes: Sequence[Rect]
    sources: int
    targets: int
    messages: Messages | None = None

    def steps(self) -> list[ExchangeStep]:
        """Copies and folds in order. The partial results are spent: sums may lie in them."""
        _, target, *parts, follows, offset, boxes = self.steps_on(
            np.ones(len(self.equals.host), np.bool_)
        )
        ndim = len(self.boxes[0].lo)
        rects = [Rect(tuple(lo[:ndim]), tuple(hi[:ndim])) for lo, hi in boxes.tolist()]
        pairs = zip(*(column.tolist() for column in parts), strict=True)
        several = [(part,) if added == COPY else (part, added) for part, added in pairs]
        rest = zip(rects, follows.tolist(), offset.tolist(), strict=True)
        return [
            ExchangeStep(to, summands, *others)
            for to, summands, others in zip(target.tolist(), several, rest, strict=True)
        ]

    def steps_on(self, is_own: Array) -> StepColumns:
        """The steps that touch the devices that are marked."""
        return _carry(self, is_own)

    def sent(self) -> Array:
        """Source, device and elements of all that goes from one device to another; (3, n)."""
        outline = self.outline(1)
        members = np.array(self.members)
        messages = self.messages or (pairwise if self.name == "all-to-all" else straight_messages)(
            outline
        )
        cut = cut_of(outline, messages.owner, messages.together)
        boxes = boxes_of(outline, cut)
        moves = moves_of(outline, messages, cut, boxes)
        end = pointers((boxes[:, 1] - boxes[:, 0]).prod(axis=1))
        size = (end[moves.last] - end[moves.first]) * outline.unit_bytes
        return np.stack([members[moves.source], members[moves.target], size])

    @cached_property
    def hosts(self) -> list[int]:
        """Host of every device of the machine."""
        hosts: list[int] = self.equals.host.tolist()
        return hosts

    @cached_property
    def ring(self) -> list[int]:
        """The devices that take part, neighbours on one host where possible."""
        ring: list[int] = in_order(np.array(self.devices, np.int64), tuple(self.equals)).tolist()
        return ring

    @cached_property
    def members(self) -> list[int]:
        """The devices that take part, in the order of a ring; the first is the root, if there is one."""
        ring = self.ring
        roots = {"reduce": self.getting, "broadcast": self.having}.get(self.name)
        root = ring.index(self.devices[roots[0]]) if roots else 0
        return ring[root:] + ring[:root]

    @property
    def is_regular(self) -> bool:
        """Whether an algorithm can carry it out.

        Who has a partial result has one of all, and who gets the whole gets it once; others have, or get, tiles. One
        alone may send to all, or get what all have.
        """
        if self.name == "all-to-all":
            return True
        if self.name == "all-gather":
            return self._is_whole(self.getting)
        if self.name == "reduce-scatter":
            return (
                self._is_whole(self.having)
                and len({self.boxes[k] for k in self.getting}) == self.targets
            )
        is_one = {"reduce": self.targets == 1, "broadcast": self.sources == 1}.get(self.name, True)
        return is_one and self._is_whole(self.having) and self._is_whole(self.getting)

    def _is_whole(self, part: range) -> bool:
        """Whether these arguments are one box, on a device each."""
        return (
            len({self.devices[k] for k in part}) == len(part)
            and len(set(self._distinct(part))) == 1
        )

    def _distinct(self, part: range) -> Collection[Rect]:
        """The boxes of these arguments, each object once: those that are equal are one, mostly."""
        return {id(self.boxes[k]): self.boxes[k] for k in part}.values()

    @cached_property
    def tiles(self) -> list[Rect]:
        """The box of all, or what the owners have, or get, each once."""
        if self.name == "all-gather":
            return list(dict.fromkeys(self.boxes[k] for k in self.having))
        return (
            [self.boxes[k] for k in self.getting]
            if self.name in TILED
            else [self.boxes[self.sources]]
        )

    @property
    def local(self) -> list[tuple[int, int]]:
        """Targets that take what a source on their device has, and the source."""
        gathered = self.having if self.name not in (*SUMS, "all-to-all") else ()
        pairs = [
            (target, k) for k in gathered for target in self.targets_at.get(self.devices[k], ())
        ]
        return [(target, k) for target, k in pairs if self.instances[target] != self.instances[k]]

    def outline(self, itemsize: int) -> Outline:
        """What decides who sends what to whom, and how much."""
        boxes, unit = self._outlined_boxes(itemsize)
        number = {device: k for k, device in enumerate(self.members)}
        member = [number[device] for device in self.devices]
        serving = self._serving(member)
        sources = tuple(zip(member[: self.sources], self._held_tiles(), strict=True))
        getting = tuple(member[k] for k in self.getting)
        owners = getting if self.name in SUMS else _first_holders(sources, serving)
        hosts = [self.hosts[device] for device in self.members]
        place = {host: k for k, host in enumerate(dict.fromkeys(hosts))}
        return Outline(
            self.name,
            unit,
            boxes,
            tuple(serving.get(owner, owner) for owner in owners),
            sources,
            getting,
            tuple((member[k], self.boxes[source].volume * itemsize) for k, source in self.local),
            min((box.volume for box in self._distinct(self.scratch)), default=0),
            tuple(serving.items()),
            tuple(place[host] for host in hosts),
            tuple(number[device] for device in self.relays),
        )

    def _outlined_boxes(self, itemsize: int) -> tuple[tuple[tuple[int, ...], ...], int]:
        """See `Outline.boxes` and `Outline.unit_bytes`."""
        if self.name not in TILED:
            shape = self.tiles[0].shape or (1,)
            extent = shape[cut_dimension(shape, len(self.members))]
            return ((0, extent),), itemsize * self.tiles[0].volume // max(extent, 1)
        lowest = [min(lows) for lows in zip(*(box.lo for box in self.tiles), strict=True)]
        boxes = (map(sub, (*box.lo, *box.hi), 2 * lowest) for box in self.tiles)
        return tuple(map(tuple, boxes)), itemsize

    def _held_tiles(self) -> list[int]:
        """The tile that every source has; 0 where they have partial results, or all."""
        if self.name != "all-gather":
            return list(self.having) if self.name == "all-to-all" else [0] * self.sources
        number = {box: k for k, box in enumerate(self.tiles)}
        return [number[self.boxes[k]] for k in self.having]

    def _serving(self, member: Sequence[int]) -> dict[int, int]:
        """The members that have no partial result, or do not get the whole, and the one that serves each: in turn, of
        its host if there is one.
        """
        if self.name not in ("reduce-scatter", "all-gather"):
            return {}
        core = {member[k] for k in (self.getting if self.name == "all-gather" else self.having)}
        servers = dict[int, int]()
        for number, outsider in enumerate(sorted({*member} - core)):
            host = self.hosts[self.members[outsider]]
            near = [m for m in sorted(core) if self.hosts[self.members[m]] == host] or sorted(core)
            servers[outsider] = near[number % len(near)]
        return servers

    @cached_property
    def relays(self) -> list[int]:
        """Of an all-to-all with memory for what is passed on, the device that may pass on each tile."""
        if self.name != "all-to-all" or not self.scratch:
            return []
        ring = np.array(self.ring)
        hosts = self.equals.host
        pairs = ((self.devices[k], self.devices[self.sources + k]) for k in self.having)
        return [relay_of(source, target, ring, hosts) for source, target in pairs]

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
    def box_array(self) -> Array:
        """(arguments, 2, dimensions) their boxes; a scalar has one dimension."""
        number = dict[int, int]()
        which = [number.setdefault(id(box), len(number)) for box in self.boxes]
        distinct = self._distinct(range(len(self.boxes)))
        return np.array([[box.lo or (0,), box.hi or (1,)] for box in distinct], np.int64)[which]

    @cached_property
    def source_at(self) -> dict[int, int]:
        """Device -> its source."""
        return {self.devices[k]: k for k in reversed(self.having)}

    @cached_property
    def targets_at(self) -> dict[int, list[int]]:
        """Device -> its targets."""
        by_device: dict[int, list[int]] = {}
        for k in self.getting:
            by_device.setdefault(self.devices[k], []).append(k)
        return by_device

    @cached_property
    def scratch_at(self) -> dict[int, list[int]]:
        """Device -> its scratch memories, by door."""
        by_device: dict[int, list[int]] = {}
        for k in self.scratch:
            by_device.setdefault(self.devices[k], []).append(k)
        return by_device

    def distance(self, source: int, device: int) -> int:
        """0 on a device, 1 on a host, 2 between hosts."""
        return int(source != device) + int(self.hosts[source] != self.hosts[device])


def _first_holders(sources: Sequence[tuple[int, int]], serving: Collection[int]) -> tuple[int, ...]:
    """The first member that has each tile, of those that `serving` lacks if there is one."""
    first = dict[int, int]()
    for member, tile in sorted(sources, key=lambda source: source[0] in serving):
        first.setdefault(tile, member)
    return tuple(first[tile] for tile in sorted(first))


# -- along messages ----------------------------------------------------------------------------------------------------


def _carry(exchange: Exchange, is_own: Array) -> StepColumns:
    """Every move as a copy, or as a copy into scratch memory and a fold."""
    outline = exchange.outline(1)
    members = np.array(exchange.members)
    if exchange.name == "all-to-all":
        return _hand_over(exchange, outline, is_own[members])
    messages = exchange.messages or straight_messages(outline)
    cut = cut_of(outline, messages.owner, messages.together)
    moves = moves_of(outline, messages, cut, boxes_of(outline, cut))
    targets = [exchange.targets_at.get(device, ()) for device in exchange.members]
    memories = Memories(
        _holding(exchange, outline, cut),
        pointers([len(arguments) for arguments in targets]),
        np.array([k for arguments in targets for k in arguments], np.int64),
        exchange.box_array,
        _arriving(exchange, members[moves.source], members[moves.target], moves.adds),
    )
    local = _local_steps(exchange, is_own)
    carried = carry(
        moves, cut.owner, _boxes(exchange, cut), memories, is_own[members], len(exchange.local)
    )
    return StepColumns(*map(np.concatenate, zip(local, carried, strict=True)))


def _local_steps(exchange: Exchange, is_own: Array) -> StepColumns:
    """What is copied within the memory of a device, before all else."""
    target, part = np.array(exchange.local, np.int64).reshape(-1, 2).T
    number = np.flatnonzero(is_own[np.array(exchange.devices)[target]])
    target = target[number]
    part = part[number]
    zero = np.zeros_like(number)
    return StepColumns(number, target, part, zero + COPY, zero > 0, zero, exchange.box_array[part])


def _hand_over(exchange: Exchange, outline: Outline, is_own: Array) -> StepColumns:
    """Every move of an all-to-all as a copy, to the target of its tile or to who passes it on; `is_own`: members."""
    messages = exchange.messages or pairwise(outline)
    owner = np.array(outline.owners)
    receiver = np.array(outline.targets)
    scratch = np.full(len(owner), -1)
    if outline.relays:
        scratch[np.array(outline.relays) != owner] = exchange.scratch
    cut = cut_of(outline, messages.owner, messages.together)
    moves = moves_of(outline, messages, cut, boxes_of(outline, cut))
    source = moves.source
    target = moves.target
    k = cut.tile[moves.first]
    part = np.where(source == owner[k], k, scratch[k])
    to = np.where(target == receiver[k], exchange.sources + k, scratch[k])
    follows = np.diff(moves.message, prepend=-1) == 0
    kept = np.flatnonzero(is_own[source] | is_own[target])
    zero = np.zeros_like(kept)
    return StepColumns(
        kept, to[kept], part[kept], zero + COPY, follows[kept], zero, exchange.box_array[k[kept]]
    )


def _arriving(exchange: Exchange, source: Array, device: Array, adds: Array) -> Array:
    """Of every move that is added, the scratch memory in which what a device sends to another arrives; others: -1."""
    scratch = exchange.scratch_at
    arrives = np.full(len(adds), -1)
    count = np.zeros(len(exchange.equals.host), np.int64)
    count[list(scratch)] = [len(memories) for memories in scratch.values()]
    first = pointers(count)[:-1]
    flat = np.array([k for device in sorted(scratch) for k in scratch[device]], np.int64)
    source = source[adds]
    device = device[adds]
    if len(device):
        arrives[adds] = flat[first[device] + exchange.doors(source, device) % count[device]]
    return arrives


def _holding(exchange: Exchange, outline: Outline, cut: Cut) -> Array:
    """(members, parts) the argument that holds each part, or a partial result of it; -1: none.

    A tile that lies where its target will be is held by that: what is passed on with it is one message in one piece.
    """
    held = np.full((len(exchange.members), len(cut.tile)), -1)
    for k, (member, tile) in reversed(list(zip(exchange.having, outline.sources, strict=True))):
        within = [
            t
            for t in exchange.targets_at.get(exchange.devices[k], ())
            if exchange.instances[t] == exchange.instances[k]
        ]
        is_whole = (
            bool(within)
            and exchange.name == "all-gather"
            and exchange.boxes[within[0]].covers(exchange.boxes[k])
        )
        parts = cut.tile == tile if exchange.name == "all-gather" else slice(None)
        held[member, parts] = within[0] if is_whole else k
    return held


def _boxes(exchange: Exchange, cut: Cut) -> Array:
    """(parts, 2, dimensions) the box of every part; some may have no elements."""
    if not exchange.tiles[0].shape:
        return np.repeat(exchange.box_array[:1], len(cut.tile), axis=0)
    tiles = np.array([[box.lo, box.hi] for box in exchange.tiles])
    return cut_boxes(tiles, cut, len(exchange.members))
