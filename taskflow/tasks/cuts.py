"""Cuts: how tiles of a collective are cut into the pieces that an algorithm sends.

Takes tiles and, of every part, which shares of its tile it is; gives the boxes of the parts. A cut depends on extents
alone, so prices and executors find the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, tiered

_EVEN = 8  # elements for each device along the dimension that is cut: then parts are about even


class Cut(NamedTuple):
    """How the pieces of an algorithm are cut from the tiles of their owners: each consists of parts of tiles.

    Attributes:
        ptr: (pieces + 1,) the parts of piece k are those from `ptr[k]` to before `ptr[k + 1]`.
        tile, begin, end, shares: of every part, its tile, of which it is `begin` to before `end` of so many `shares`.
        owner: of every part.
        together: see `Messages`, or all pieces.
    """

    ptr: Array
    tile: Array
    begin: Array
    end: Array
    shares: Array
    owner: Array
    together: int


def cut_dimension(extents: Sequence[int], members: int) -> int:
    """The dimension along which a box is cut for so many: the first that is long enough, else the longest."""
    longest = 0
    for k in range(len(extents)):
        if extents[k] >= _EVEN * members:
            return k
        if extents[k] > extents[longest]:
            longest = k
    return longest


_cut_dimension = leaf(cut_dimension)


def cut_boxes(tiles: Array, cut: Cut, members: int) -> Array:
    """(parts, 2, dimensions) boxes of the parts of these tiles, some without elements."""
    return _cut_boxes(tiles, (cut.tile, cut.begin, cut.end, cut.shares), cut.together, members)


@tiered
def _cut_boxes(tiles: Array, cut: tuple[Array, ...], together: int, members: int) -> Array:
    tile, begin, end, shares = cut
    boxes = tiles[tile]
    along = np.empty(len(tiles), np.int64)
    for k in range(len(tiles)):
        along[k] = _cut_dimension(tiles[k, 1] - tiles[k, 0], members)
    for k in range(len(boxes)):
        d = along[tile[k]]
        low = tiles[tile[k], 0, d]
        extent = tiles[tile[k], 1, d] - low
        boxes[k, 0, d] = low + _begin_of_share(begin[k], shares[k], extent, together)
        boxes[k, 1, d] = low + _begin_of_share(end[k], shares[k], extent, together)
    return boxes


@leaf
def _begin_of_share(number: int, shares: int, extent: int, together: int) -> int:
    """Where one of so many shares of an extent begins.

    What is left over goes to the first share of every `together`, then to the second ones, and so on. So no share of a
    longer extent is shorter, which makes prices grow with bytes; and any `together` shares beside each other have at
    most their part of the extent, rounded up, for which there is room where a sum arrives.
    """
    left = extent % shares
    width = min(together, shares)
    groups = -(-shares // width)
    in_last = shares - width * (groups - 1)
    full, begun = (
        left // groups,
        left % groups,
    )  # places that have one more in all groups, and in the first ones
    if left > in_last * groups:
        full = in_last + (left - in_last * groups) // (groups - 1)
        begun = (left - in_last * groups) % (groups - 1)
    group = number // width
    place = number % width
    more = (
        group * full
        + min(group, begun)
        + min(place, full)
        + (1 if place > full and group < begun else 0)
    )
    return number * (extent // shares) + more
