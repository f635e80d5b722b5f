"""Pieces: which version of a region lies in which box of an instance, and how much of a sum is in it. Compiled.

Every instance has a list of disjoint boxes, each with a token: a version, and for a partial result the volume and the
weight of what was added up so far. Volume and weight are measures of the boxes of reduced axes that went in: they add
up as the boxes do. A partial result is complete when both are those of all reduced axes. Two different collections of
boxes have the same weight by a chance of about 2^-60, so a part that is added twice is noticed however boxes overlap,
and a token takes four numbers where a list of boxes would grow with every sum.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf
from taskflow.core.geometry import Rect

PIECE = record("next", "version", "volume", "weight")  # volume 0: a complete value


class Pieces(NamedTuple):
    """The lists of all instances in one pool.

    Attributes:
        head: per instance its first piece, -1 for none; then two lists for sums.
        piece: `PIECE` of the pool.
        box: (pieces, 2, dimensions) box of each.
        state: the first free piece; and whether there was none when one was needed.
    """

    head: Array
    piece: Array
    box: Array
    state: Array


def make_pieces(lists: int, room: int, dimensions: int) -> Pieces:
    """Empty lists with room for so many pieces."""
    piece = np.zeros(room, PIECE)
    piece["next"] = np.arange(1, room + 1)
    box = np.zeros((room, 2, dimensions), np.int64)
    return Pieces(np.full(lists + 2, -1, np.int64), piece, box, np.zeros(2, np.int64))


# -- boxes -------------------------------------------------------------------------------------------------------------


@leaf
def overlaps(a: Array, b: Array, dims: int) -> bool:
    """Whether two boxes share a point."""
    d = 0
    while d < dims and a[0, d] < b[1, d] and b[0, d] < a[1, d]:
        d += 1
    return d == dims


@leaf
def covers(a: Array, b: Array, dims: int) -> bool:
    """Whether box `b` lies within box `a`."""
    d = 0
    while d < dims and a[0, d] <= b[0, d] and b[1, d] <= a[1, d]:
        d += 1
    return d == dims


@leaf
def is_same(a: Array, b: Array, dims: int) -> bool:
    """Whether two boxes are equal."""
    d = 0
    while d < dims and a[0, d] == b[0, d] and a[1, d] == b[1, d]:
        d += 1
    return d == dims


def box_table(boxes: Collection[Rect], like: Array) -> Array:
    """Boxes as a table of as many dimensions as `like`, zeros behind their own."""
    table = np.zeros((len(boxes), *like.shape[1:]), np.int64)
    for k, box in enumerate(boxes):
        table[k, :, : len(box.lo)] = box.lo, box.hi
    return table


@leaf
def shared(a: Array, b: Array, dims: int) -> int:
    """Number of points that two boxes share."""
    count = 1
    d = 0
    while d < dims and count > 0:
        count *= max(min(a[1, d], b[1, d]) - max(a[0, d], b[0, d]), 0)
        d += 1
    return count


@leaf
def copy_box(target: Array, box: Array, dims: int) -> None:
    """`target` := `box`."""
    for d in range(dims):
        target[0, d], target[1, d] = box[0, d], box[1, d]


@leaf
def meet(target: Array, a: Array, b: Array, dims: int) -> None:
    """`target` := the points that two boxes share."""
    for d in range(dims):
        target[0, d], target[1, d] = max(a[0, d], b[0, d]), min(a[1, d], b[1, d])


@leaf
def seam(a: Array, b: Array, dims: int) -> int:
    """The dimension along which two boxes lie side by side and make one; -1 if they make none."""
    along = -1
    for d in range(dims):
        if a[0, d] == b[0, d] and a[1, d] == b[1, d]:
            continue
        if along >= 0 or (a[1, d] != b[0, d] and b[1, d] != a[0, d]):
            return -1
        along = d
    return along


# -- lists -------------------------------------------------------------------------------------------------------------


@leaf
def add(
    p: Pieces, owner: int, box: Array, dims: int, version: int, volume: int, weight: int
) -> None:
    """Push a piece on a list; where there is no room, say so in `state`."""
    k = p.state[0]
    if k + 1 >= len(p.piece):  # the last one stays free
        p.state[1] = 1
        return
    p.state[0] = p.piece[k].next
    copy_box(p.box[k], box, dims)
    p.piece[k].next = p.head[owner]
    p.piece[k].version = version
    p.piece[k].volume = volume
    p.piece[k].weight = weight
    p.head[owner] = k


@leaf
def release(p: Pieces, k: int) -> int:
    """Free a piece; the one behind it."""
    following: int = p.piece[k].next
    p.piece[k].next = p.state[0]
    p.state[0] = k
    return following


@leaf
def clear(p: Pieces, owner: int) -> None:
    """Forget all pieces of a list."""
    k = p.head[owner]
    while k >= 0:
        k = release(p, k)
    p.head[owner] = -1


@leaf
def put(
    p: Pieces, owner: int, box: Array, dims: int, version: int, volume: int, weight: int
) -> None:
    """`box` of an instance holds this now, whatever lay there."""
    k = p.head[owner]
    if k >= 0 and p.piece[k].next < 0 and is_same(p.box[k], box, dims):
        p.piece[k].version = version
        p.piece[k].volume = volume
        p.piece[k].weight = weight
        return
    p.head[owner] = -1
    while k >= 0:
        if overlaps(p.box[k], box, dims):
            cut(p, owner, k, box, dims)
            k = release(p, k)
        else:
            following = p.piece[k].next
            p.piece[k].next = p.head[owner]
            p.head[owner] = k
            k = following
    add(p, owner, box, dims, version, volume, weight)
    while join(p, owner, dims):
        pass


@leaf
def cut(p: Pieces, owner: int, k: int, box: Array, dims: int) -> None:
    """Push what is left of piece `k` without `box`: slabs along the first dimensions first. Shrinks piece `k`."""
    old = p.box[k]
    piece = p.piece[k]
    for d in range(dims):
        lo = old[0, d]
        hi = old[1, d]
        if lo < box[0, d]:
            old[1, d] = box[0, d]
            add(p, owner, old, dims, piece.version, piece.volume, piece.weight)
            lo = box[0, d]
        if hi > box[1, d]:
            old[0, d] = box[1, d]
            old[1, d] = hi
            add(p, owner, old, dims, piece.version, piece.volume, piece.weight)
            hi = box[1, d]
        old[0, d] = lo
        old[1, d] = hi


@leaf
def join(p: Pieces, owner: int, dims: int) -> bool:
    """Make one of the first piece and another of the same token that it makes a box with; whether there is one."""
    first = p.head[owner]
    previous = first
    k = p.piece[first].next if first >= 0 else -1
    while k >= 0:
        if has_token(p, k, p.piece[first].version, p.piece[first].volume, p.piece[first].weight):
            d = seam(p.box[first], p.box[k], dims)
            if d >= 0:
                p.box[first, 0, d] = min(p.box[first, 0, d], p.box[k, 0, d])
                p.box[first, 1, d] = max(p.box[first, 1, d], p.box[k, 1, d])
                p.piece[previous].next = p.piece[k].next
                release(p, k)
                return True
        previous = k
        k = p.piece[k].next
    return False


@leaf
def has_token(p: Pieces, k: int, version: int, volume: int, weight: int) -> bool:
    """Whether piece `k` is this."""
    piece = p.piece[k]
    is_it: bool = piece.version == version and piece.volume == volume and piece.weight == weight
    return is_it


@leaf
def find(p: Pieces, owner: int, box: Array, dims: int) -> int:
    """The piece that `box` of an instance lies in; -1 where it lies in several, or in none."""
    k: int = p.head[owner]
    while k >= 0:
        if covers(p.box[k], box, dims):
            return k
        k = p.piece[k].next
    return -1
