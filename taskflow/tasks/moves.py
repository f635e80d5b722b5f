"""Moves: what an exchange sends, message by message, once it is known who has what at the beginning.

The one list behind the rows that run, their price and the bytes on every link. A message moves nothing where its
source has nothing yet, or its target has it already or needs it not; pieces of no elements are left out. A member may
have several tiles, so what a message carries may be several boxes: they travel one behind the other, with one latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.core.compiling import inlined, inner, leaf, tiered
from taskflow.tasks.cuts import Cut as Cut
from taskflow.tasks.cuts import cut_boxes as cut_boxes
from taskflow.tasks.cuts import cut_dimension as cut_dimension
from taskflow.tasks.steps import SUMS, Messages
from taskflow.tasks.turns import new_turns, whose_turn

TILED = (
    "reduce-scatter",
    "all-gather",
    "all-to-all",
)  # the collectives in which members have, or get, tiles
# Of a sum, so much can arrive at once where it is added, and one of p parts at least: as in NCCL (NCCL_BUFFSIZE).
ROOM_BYTES = 1 << 22


@dataclass(frozen=True)
class Outline:
    """A collective, as far as its moves depend on it; members are numbers.

    Attributes:
        name: of `task.COLLECTIVES`.
        unit_bytes: of an element of the boxes.
        boxes: the tiles, (lowest.., highest..), counted from the lowest of all; or the extent of all along the
            dimension that is cut.
        owners: the members that have, or get, the tiles; of what an outsider has or gets, the one that serves it.
        sources: members that have something at the beginning, and which tile; all, where results are partial.
        targets: members that get something: of tiles, those in their order.
        local: members that copy within their memory at the beginning, and so many bytes.
        room: what is to be added arrives in memory of so many elements; 0: of as many as one owner gets.
        outsiders: members without a partial result, or that do not get the whole, and the member that serves each: it
            sends a tile that it has summed, or gets one for all.
        hosts: of every member, numbered from 0 as members first name them.
        relays: of an all-to-all, by tile, who may pass it on; none: nobody.
    """

    name: str
    unit_bytes: int
    boxes: tuple[tuple[int, ...], ...]
    owners: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]
    targets: tuple[int, ...]
    local: tuple[tuple[int, int], ...]
    room: int
    outsiders: tuple[tuple[int, int], ...]
    hosts: tuple[int, ...]
    relays: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (self.name, self.unit_bytes, self.boxes, self.owners, self.sources, self.outsiders)
        )

    @property
    def is_whole(self) -> bool:
        """Whether there is one box, which all members have, or get."""
        return self.name not in TILED

    @cached_property
    def tiles(self) -> Array:
        """(tiles, 2, dimensions) `boxes`."""
        return np.array(self.boxes, np.int64).reshape(len(self.boxes), 2, -1)

    @cached_property
    def volumes(self) -> Array:
        """Elements of every tile."""
        volumes: Array = (self.tiles[:, 1] - self.tiles[:, 0]).prod(axis=1)
        return volumes

    @property
    def tile_bytes(self) -> int:
        """Of the largest tile."""
        return self.unit_bytes * int(self.volumes.max())

    @property
    def whole_bytes(self) -> int:
        """Of all tiles, if they are equal."""
        return self.tile_bytes * len(self.boxes)

    @cached_property
    def parts(self) -> int:
        """A sum arrives in so many parts, at most one for each member of the core."""
        return parts_of(self.unit_bytes * int(self.volumes.sum()), ROOM_BYTES, len(self.core))

    @cached_property
    def core(self) -> tuple[int, ...]:
        """The members among which an algorithm brings pieces to all."""
        outside = {member for member, _ in self.outsiders}
        return tuple(member for member in range(len(self.hosts)) if member not in outside)

    @property
    def is_even(self) -> bool:
        """Whether each tile has one source, all members have a part of a sum and get all, and none is outside."""
        if self.name == "all-reduce":
            return len(self.sources) == len(self.targets) == len(self.hosts)
        is_once = self.name != "all-gather" or len(self.sources) == len(self.boxes)
        return is_once and not self.outsiders and self.name != "all-to-all"


def even_outline(name: str, hosts: Sequence[int], size: float) -> Outline:
    """A collective of which all members have, or get, `size` bytes, in tiles that are as equal as can be."""
    count = len(hosts)
    whole = round(size)
    bounds = [k * (whole // count) + min(k, whole % count) for k in range(count + 1)]
    tiles = tuple(pairwise(bounds))
    members = tuple(range(count))
    if name not in ("reduce-scatter", "all-gather"):
        tiles = ((0, whole),)
    having = (0,) if name == "broadcast" else members
    sources = tuple((k, k if name == "all-gather" else 0) for k in having)
    getting = (0,) if name == "reduce" else members[1:] if name == "broadcast" else members
    owners = (0,) if name in ("reduce", "broadcast") else members
    return Outline(name, 1, tiles, owners, sources, getting, (), 0, (), tuple(hosts))


class Moves(NamedTuple):
    """What is sent, box by box, in order.

    Attributes:
        source, target: members.
        first, last: the parts (see `Cut`) from `first` to before `last`, which are a box; both ends have elements.
        adds: whether it is added to what is there.
        message: ascending; the boxes of one message travel as one.
        number: which of the algorithm's messages it is of; one that carries more than there is room for is several.
        offset: so many elements of its message lie before it in the memory where what is to be added arrives.
    """

    source: Array
    target: Array
    first: Array
    last: Array
    adds: Array
    message: Array
    number: Array
    offset: Array


def parts_of(whole_bytes: int, room_bytes: int, most: int) -> int:
    """A sum of so many bytes arrives in so many parts: as few as there is room for, at `most` so many."""
    return max(1, min(most, -(-whole_bytes // max(room_bytes, 1))))


def cut_of(outline: Outline, owner: Array, together: int = 0) -> Cut:
    """How the pieces with these owners are cut: those of a member are even shares of its tiles, one after the other.

    `together`: see `Messages`.
    """
    whole = np.zeros_like(owner) if outline.is_whole else owner
    tile_owner = np.array([0] if outline.is_whole else outline.owners)
    ptr, tile, begin, end, shares, piece = _cut(tile_owner, whole, len(outline.hosts))
    return Cut(ptr, tile, begin, end, shares, owner[piece], together or len(owner))


@tiered
def _cut(tile_owner: Array, owner: Array, members: int) -> tuple[Array, ...]:
    """Columns of `Cut`: `ptr`, `tile`, `begin`, `end` and `shares`, then the piece of every part."""
    tiles = np.bincount(tile_owner, minlength=members)
    pieces = np.bincount(owner, minlength=members)
    done = np.zeros(members, np.int64)
    first_tile = np.cumsum(tiles) - tiles
    order = np.argsort(tile_owner, kind="mergesort")
    first = np.empty(len(owner), np.int64)
    ptr = np.zeros(len(owner) + 1, np.int64)
    for k in range(len(owner)):
        share = tiles[owner[k]]
        count = pieces[owner[k]]
        number = done[owner[k]]
        first[k] = number * share // count
        ptr[k + 1] = ptr[k] + -(-(number + 1) * share // count) - first[k]
        done[owner[k]] += 1
    tile, begin, end, shares, piece = np.empty((5, ptr[-1]), np.int64)
    done[:] = 0
    for k in range(len(owner)):
        share = tiles[owner[k]]
        count = pieces[owner[k]]
        number = done[owner[k]]
        done[owner[k]] += 1
        for part in range(ptr[k], ptr[k + 1]):
            at = first[k] + part - ptr[k]
            since = number * share - at * count
            tile[part] = order[first_tile[owner[k]] + at]
            piece[part] = k
            begin[part], end[part], shares[part] = max(since, 0), min(since + share, count), count
    return ptr, tile, begin, end, shares, piece


def boxes_of(outline: Outline, cut: Cut) -> Array:
    """(parts, 2, dimensions) boxes of the parts."""
    return cut_boxes(outline.tiles, cut, len(outline.hosts))


def moves_of(outline: Outline, messages: Messages, cut: Cut, boxes: Array) -> Moves:
    """What the messages of an algorithm move; `boxes`: see `boxes_of`."""
    has, gets = np.zeros((2, len(outline.hosts), len(boxes)), np.bool_)
    if outline.name == "all-to-all":
        gets[:] = True
    elif outline.name == "reduce-scatter":
        gets[np.array(outline.targets)[cut.tile], np.arange(len(boxes))] = True
    else:  # who has a partial result has room for a sum, and may hand it on
        gets[
            [
                *outline.targets,
                *(member for member, _ in outline.sources if outline.name == "all-reduce"),
            ]
        ] = True
    source, held = np.array(outline.sources).T
    if outline.name == "all-gather":
        np.logical_or.at(has, source, cut.tile == held[:, None])
    elif outline.name == "all-to-all":
        has[source[cut.tile], np.arange(len(boxes))] = True
    else:
        has[source] = True
    room = np.iinfo(np.int64).max
    if (
        outline.name == "reduce-scatter"
    ):  # what is added arrives in memory as large as what one member gets, at least
        room = outline.room or max(
            int(np.bincount(outline.owners, outline.volumes).max()),
            -(-int(outline.volumes.sum()) // outline.parts),
        )
    owner = (
        np.zeros_like(cut.owner) if outline.name == "all-to-all" else cut.owner
    )  # no two tiles are one box
    columns = (
        messages.source,
        messages.target,
        cut.ptr[messages.first],
        cut.ptr[messages.last],
        messages.adds,
    )
    before = pointers((boxes[:, 1] - boxes[:, 0]).prod(axis=1))
    return Moves(
        *_move(columns, (boxes, before, cut.tile, owner), has, gets, outline.name in SUMS, room)
    )


@tiered
def _move(
    columns: tuple[Array, ...],
    parts: tuple[Array, ...],
    has: Array,
    gets: Array,
    is_sum: bool,
    room: int,
) -> tuple[Array, ...]:
    """Columns of `Moves`; `has`: (members, parts), is changed; `room`: so many elements arrive at once."""
    source, target, first, last, adds = columns
    p, most = _Parts(_along(parts[0], parts[1]), *parts), int((last - first).sum())
    moved = np.empty((8, most), np.int64)
    n = 0
    message = -1
    for k in range(len(source)):
        s = source[k]
        t = target[k]
        at = first[k]
        is_new = True
        filled = 0
        while at < last[k]:
            begin = at
            if p.before[begin] == p.before[begin + 1]:
                at += 1
                continue
            end, at = _joined(p, has[s], has[t], begin, last[k], room)
            if not has[s, begin] or (
                not adds[k] and (not gets[t, begin] or (has[t, begin] and not is_sum))
            ):
                continue
            moved[0, n] = s
            moved[1, n] = t
            moved[2, n] = begin
            moved[3, n] = end
            moved[4, n] = adds[k] and has[t, begin]
            size = (p.before[end] - p.before[begin]) * moved[4, n]
            if is_new or filled + size > room:
                message = message + 1
                filled = 0
                is_new = False
            moved[5, n] = message
            moved[6, n] = k
            moved[7, n] = filled
            filled += size
            n += 1
            has[t, begin:end] = True
    return (
        moved[0, :n],
        moved[1, :n],
        moved[2, :n],
        moved[3, :n],
        moved[4, :n] > 0,
        moved[5, :n],
        moved[6, :n],
        moved[7, :n],
    )


class _Parts(NamedTuple):
    """Of every part: see `_along`; its box, the elements before it, its tile and its owner."""

    along: Array
    boxes: Array
    before: Array
    tile: Array
    owner: Array


@inlined
def _joined(
    p: _Parts, has: Array, is_there: Array, begin: int, last: int, room: int
) -> tuple[int, int]:
    """The end of the box that begins with a part, and the first part behind it that may begin another one.

    Args:
        has, is_there: whether the source, and the target, has each part.
        last: the message ends before this part.
        room: see `_move`.
    """
    end = begin + 1
    at = begin + 1
    way = _ANY
    while at < last:
        if p.before[at] < p.before[at + 1]:
            if p.tile[at] != p.tile[end - 1] and p.owner[at] == p.owner[end - 1]:
                break  # they lie in instances of their own
            if has[at] != has[begin] or is_there[at] != is_there[begin]:
                break  # one of them moves nothing, or only one is added
            if p.before[at + 1] - p.before[begin] > room:
                break
            if way == _ANY:
                way = p.along[at]
            elif way != p.along[at] and way >= 0:  # they may be one in another dimension yet
                way = _joined_along(p.boxes[begin, 0], p.boxes[end - 1, 1], p.boxes[at])
            if way < 0:
                break
            end = at + 1
        at += 1
    return end, at


_ANY = -2
_NONE = -1  # in place of a dimension: not chosen yet, and there is none


@inner
def _along(boxes: Array, before: Array) -> Array:
    """Along which dimension each part and the last one before it that has elements are one box; `_NONE`."""
    along = np.full(len(boxes), _NONE)
    last = -1
    for k in range(len(boxes)):
        if before[k] < before[k + 1]:
            if last >= 0:
                along[k] = _joined_along(boxes[last, 0], boxes[last, 1], boxes[k])
            last = k
    return along


@leaf
def _joined_along(low: Array, high: Array, other: Array) -> int:
    """Along which dimension two boxes are neighbours that are equal in the others: they are one; `_NONE`."""
    unequal = 0
    along = _NONE
    for k in range(len(low)):
        if low[k] != other[0, k] or high[k] != other[1, k]:
            unequal = unequal + 1
            along = k
    return along if unequal == 1 and high[along] == other[0, along] else _NONE


def with_outsiders(outline: Outline, messages: Messages) -> Messages:
    """Messages among the core, whose members they name by number there, and those of outsiders."""
    core = np.array(outline.core)
    return _serve(
        outline,
        Messages(core[messages.owner], core[messages.source], core[messages.target], *messages[3:]),
    )


def _serve(outline: Outline, messages: Messages) -> Messages:
    """And the messages of outsiders: behind sums, else before."""
    if not outline.outsiders:
        return messages
    outside, serving = np.array(outline.outsiders).reshape(-1, 2).T
    k, first, last = _served(serving, messages.owner)
    source, target = (outside, serving) if outline.name not in SUMS else (serving, outside)
    served = source[k], target[k], first, last, np.zeros(len(k), np.bool_)
    columns = messages[1:6]
    order = (columns, served) if outline.name in SUMS else (served, columns)
    source, target, first, last, adds = (np.concatenate(both) for both in zip(*order, strict=True))
    return messages._replace(source=source, target=target, first=first, last=last, adds=adds)


@tiered
def _served(serving: Array, owner: Array) -> tuple[Array, Array, Array]:
    """Outsiders, and the pieces from `first` to before `last` that belong to those who serve them."""
    served = np.empty((3, len(serving) * len(owner)), np.int64)
    n = 0
    for k in range(len(serving)):
        for piece in range(len(owner)):
            if owner[piece] != serving[k]:
                continue
            if piece and owner[piece - 1] == serving[k]:
                served[2, n - 1] = piece + 1
            else:
                served[:, n] = k, piece, piece + 1
                n += 1
    return served[0, :n], served[1, :n], served[2, :n]


@tiered
def _givers(hosts: Array, has: Array, targets: Array) -> Array:
    """(3, n) from whom targets take the pieces that they lack: sources, targets, pieces; `has`: (pieces, members)."""
    givers = np.empty((3, len(has) * len(targets)), np.int64)
    n = 0
    for piece in range(len(has)):
        holder = np.flatnonzero(has[piece])
        turns = new_turns(len(hosts))
        for target in targets:
            if not has[piece, target]:
                giver = holder[whose_turn(hosts, holder, (0, len(holder)), target, turns)]
                givers[0, n] = giver
                givers[1, n] = target
                givers[2, n] = piece
                n += 1
    return givers[:, :n]


def straight_messages(outline: Outline) -> Messages:
    """Every owner takes its piece from all sources; every target takes every piece from a holder, see `turns`."""
    count = len(outline.hosts)
    owner = np.array(
        sorted(set(outline.targets) if outline.name == "all-reduce" else outline.owners)
    )
    tile = cut_of(outline, owner).tile[: len(owner)]
    piece = np.arange(len(owner))
    halves = list[
        tuple[Array, Array, Array, Array]
    ]()  # sources, targets, pieces, whether it is added
    if outline.name in SUMS:
        away, k = np.divmod(np.arange(len(owner), count * len(owner)), len(owner))
        halves.append(((owner[k] + away) % count, owner[k], k, np.ones_like(k)))
    if outline.name not in ("reduce", "reduce-scatter"):
        has = np.zeros((len(owner), count), np.bool_)
        if outline.name in SUMS:
            has[piece, owner] = True
        else:
            member, held = np.array(outline.sources).T
            np.logical_or.at(has.T, member, held[:, None] == tile)
        givers = _givers(np.array(outline.hosts), has, np.unique(outline.targets))
        halves.append((*givers, np.zeros_like(givers[0])))
    messages = _in_turn(owner, np.concatenate(halves, axis=1), count)
    return _serve(outline, messages) if outline.name == "reduce-scatter" else messages


def _in_turn(owner: Array, columns: Array, count: int) -> Messages:
    """Messages of sources, targets, pieces, and whether these are added: those first, then by distance.

    Pieces that go the same way are one message.
    """
    away = (columns[0] - columns[1]) % count
    is_last = columns[3] == 0
    source, target, first, adds = columns[:, np.lexsort((away * is_last, is_last))]
    alike = np.stack([source, target, adds, first - np.arange(len(first))])
    begin = np.flatnonzero(np.diff(alike, prepend=-1).any(axis=0))
    last = first[np.append(begin[1:], len(first)) - 1] + 1
    return Messages(owner, source[begin], target[begin], first[begin], last, adds[begin] > 0)
