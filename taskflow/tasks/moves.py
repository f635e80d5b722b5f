"""Moves: what an exchange sends, message by message, once it is known who has what at the beginning.

The one list behind the rows that run, their price and the bytes on every link. A message moves nothing where its
source has nothing yet, or its target has it already or needs it not; pieces of no elements are left out, and those that
make up no box together go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, njit
from taskflow.tasks.steps import SUMS, Messages

_EVEN = 8  # elements for each device along the dimension that is cut: then parts are about even


class Outline(NamedTuple):
    """A collective, as far as its moves depend on it; members are numbers.

    Attributes:
        name: of `task.COLLECTIVES`.
        unit_bytes: of an element of the boxes.
        boxes: the tiles, (lowest.., highest..); or the extent of all along the dimension that is cut.
        owners: the members that have, or get, the tiles.
        sources: members that have something at the beginning, and which tile; all, where results are partial.
        targets: members that get something.
        local: members that copy within their memory at the beginning, and so many bytes.
        hosts: of every member.
    """

    name: str
    unit_bytes: int
    boxes: tuple[tuple[int, ...], ...]
    owners: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]
    targets: tuple[int, ...]
    local: tuple[tuple[int, int], ...]
    hosts: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether there is one box, which all members have, or get."""
        return self.name not in ("reduce-scatter", "all-gather")

    @property
    def whole_bytes(self) -> int:
        """Of all, where there is one box."""
        return self.unit_bytes * (self.boxes[0][1] - self.boxes[0][0]) if self.is_whole else 0

    @property
    def of_all(self) -> tuple[object, ...]:
        """What differs between regular collectives of a group."""
        return self.name, self.unit_bytes, self.boxes, self.owners, self.local, len(self.sources)


def even_outline(name: str, hosts: Sequence[int], size: float) -> Outline:
    """A collective of which all members have, or get, `size` bytes, in tiles that are as equal as can be."""
    count, whole = len(hosts), round(size)
    bounds = [k * whole // count for k in range(count + 1)]
    tiles, members = tuple(pairwise(bounds)), tuple(range(count))
    if name not in ("reduce-scatter", "all-gather"):
        tiles = ((0, whole),)
    having = (0,) if name == "broadcast" else members
    sources = tuple((k, k if name == "all-gather" else 0) for k in having)
    getting = (0,) if name == "reduce" else members[1:] if name == "broadcast" else members
    owners = (0,) if name in ("reduce", "broadcast") else members
    return Outline(name, 1, tiles, owners, sources, getting, (), tuple(hosts))


class Moves(NamedTuple):
    """What is sent, in order.

    Attributes:
        source, target: members.
        first, last: the pieces from `first` to before `last`; both ends have elements.
        adds: whether it is added to what is there.
    """

    source: Array
    target: Array
    first: Array
    last: Array
    adds: Array


def cut_dimension(extents: Sequence[int], members: int) -> int:
    """The dimension along which a box is cut for so many: the first that is long enough, else the longest."""
    longest = 0
    for k in range(len(extents)):
        if extents[k] >= _EVEN * members:
            return k
        if extents[k] > extents[longest]:
            longest = k
    return longest


def pieces_of(o: Outline, owner: Array) -> tuple[Array, Array, int]:
    """Of every piece its tile and its number there; and how many pieces a tile has."""
    if o.is_whole:
        return np.zeros_like(owner), np.arange(len(owner)), len(owner)
    count = len(owner) // len(o.boxes)
    tile, number = np.empty_like(owner), np.empty_like(owner)
    order = np.argsort(owner, kind="stable")
    tile[order] = np.repeat(np.argsort(o.owners, kind="stable"), count)
    number[order] = np.tile(np.arange(count), len(o.boxes))
    return tile, number, count


def cut_pieces(tiles: Array, tile: Array, number: Array, count: int, members: int) -> Array:
    """(pieces, 2, dimensions) boxes, each number `number` of `count` of a tile, some without elements."""
    found = tiles[tile]
    along = np.array([cut_dimension(extent, members) for extent in (tiles[:, 1] - tiles[:, 0]).tolist()])[tile]
    k = np.arange(len(tile))
    low, extent = tiles[tile, 0, along], tiles[tile, 1, along] - tiles[tile, 0, along]
    found[k, 0, along], found[k, 1, along] = low + number * extent // count, low + (number + 1) * extent // count
    return found


def boxes_of(o: Outline, owner: Array) -> Array:
    """(pieces, 2, dimensions) boxes of the pieces."""
    return cut_pieces(np.array(o.boxes).reshape(len(o.boxes), 2, -1), *pieces_of(o, owner), len(o.hosts))


def moves_of(o: Outline, messages: Messages, boxes: Array) -> Moves:
    """What the messages of an algorithm move; `boxes`: see `boxes_of`."""
    tile, _, _ = pieces_of(o, messages.owner)
    has, gets = np.zeros((len(o.hosts), len(tile)), np.bool_), np.zeros(len(o.hosts), np.bool_)
    gets[list(o.targets)] = True
    source, held = np.array(o.sources).T
    np.logical_or.at(has, source, (tile == held[:, None]) | (o.name != "all-gather"))
    whole = np.array(o.boxes).reshape(len(o.boxes), 2, -1)  # what is added arrives in memory as large as a tile
    room = (whole[:, 1] - whole[:, 0]).prod(axis=1).max() if o.name == "reduce-scatter" else np.iinfo(np.int64).max
    return Moves(*_move(tuple(messages[1:]), boxes, has, gets, o.name in SUMS, room))


@njit
def _move(
    columns: tuple[Array, ...], boxes: Array, has: Array, gets: Array, is_sum: bool, room: int
) -> tuple[Array, ...]:
    """Columns of `Moves`; `has`: (members, pieces), is changed; `room`: so many elements arrive at once."""
    source, target, first, last, adds = columns
    most = int((last - first).sum())
    found, n = np.empty((5, most), np.int64), 0
    joined = np.empty_like(boxes[0])
    for k in range(len(source)):
        s, t, at = source[k], target[k], first[k]
        while at < last[k]:
            begin, end = at, at + 1
            at += 1
            if _is_empty(boxes[begin]):
                continue
            joined[:] = boxes[begin]
            while at < last[k] and (_is_empty(boxes[at]) or _joins(joined, boxes[at], room)):
                if not _is_empty(boxes[at]):
                    joined[1] = boxes[at, 1]
                    end = at + 1
                at += 1
            if not has[s, begin] or (not adds[k] and (not gets[t] or (has[t, begin] and not is_sum))):
                continue
            found[0, n], found[1, n], found[2, n], found[3, n] = s, t, begin, end
            found[4, n] = adds[k] and has[t, begin]
            n += 1
            has[t, begin:end] = True
    return found[0, :n], found[1, :n], found[2, :n], found[3, :n], found[4, :n] > 0


@leaf
def _is_empty(box: Array) -> bool:
    for k in range(box.shape[1]):  # noqa: SIM110 numba has no `any` of a generator
        if box[0, k] >= box[1, k]:
            return True
    return False


@leaf
def _joins(a: Array, b: Array, room: int) -> bool:
    """Whether two boxes are one together, with room for it: neighbours along one dimension and equal in the others."""
    other, along, volume = 0, 0, 1
    for k in range(a.shape[1]):
        volume *= b[1, k] - a[0, k]
        if a[0, k] != b[0, k] or a[1, k] != b[1, k]:
            other += 1
            along = k
    return other == 1 and bool(a[1, along] == b[0, along]) and volume <= room


def straight_messages(o: Outline) -> Messages:
    """Every owner takes its piece from all sources; every target takes every piece from the nearest that has it."""
    count = len(o.hosts)
    owner = np.array(sorted(set(o.targets)) if o.name == "all-reduce" else o.owners)
    tile, _, _ = pieces_of(o, owner)
    found, piece = list[tuple[int, int, int, bool]](), range(len(owner))
    if o.name in SUMS:
        around = range(1, count)
        found += [((int(owner[k]) + away) % count, int(owner[k]), k, True) for away in around for k in piece]
    if o.name not in ("reduce", "reduce-scatter"):
        holds = [(int(m), k) for k, m in enumerate(owner)] if o.name in SUMS else o.sources
        having = [[m for m, own in holds if own == (k if o.name in SUMS else tile[k])] for k in piece]
        for target in sorted(set(o.targets)):
            for k in piece:
                nearest = min(having[k], key=lambda m: (o.hosts[m] != o.hosts[target], (m - target) % count))
                if target not in having[k]:
                    found.append((nearest, target, k, False))
        found.sort(key=lambda each: (not each[3], (each[0] - each[1]) % count if not each[3] else 0))
    source, target, first = np.array([each[:3] for each in found]).T
    return Messages(owner, source, target, first, first + 1, np.array([each[3] for each in found]))
