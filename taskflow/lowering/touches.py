"""What touches devices: instances, arguments of rows, points; one kind of region after the other, compiled by numba.

Devices that are touched by equal things in the same order may do the same. Hashes say which may, and `liken` which do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, tiered

PRIME = (1 << 31) - 1
BASE = 1_103_515_245  # of a polynomial hash: products fit into 63 bits


class RegionTouches(NamedTuple):
    """Things of a kind that touch devices, in order; of n touches:

    Attributes:
        device: whom.
        rank: how many of the same region kind touched it before.
        thing: by what.
        facts: (columns, things) of all things.
        more: (columns, n) how.
    """

    device: Array
    rank: Array
    thing: Array
    facts: Array
    more: Array


def narrow_touches(
    device: Array, rank: Array, thing: Array, facts: Array, more: Array
) -> RegionTouches:
    """`RegionTouches` whose columns of all touches, numbers of what is there, take half the memory."""
    device, rank, thing, more = (c.astype(np.int32) for c in (device, rank, thing, more))
    return RegionTouches(device, rank, thing, facts, more)


@tiered
def see(touches: Any, ptr: Array, seen: Array) -> None:
    """Go on with `seen`, (kinds, devices), by touches of kinds that begin at `ptr`."""
    device, _, thing, facts, more = touches
    for kind in range(len(seen)):
        for k in range(ptr[kind], ptr[kind + 1]):
            code = _hashed(seen[kind, device[k]], 1)
            for column in range(len(facts)):
                code = _hashed(code, facts[column, thing[k]])
            for column in range(len(more)):
                code = _hashed(code, more[column, k])
            seen[kind, device[k]] = code


@tiered
def see_rows(
    device: Array,
    row: Array,
    begin: int,
    end: int,
    first: int,
    last: int,
    weight: Array,
    seen: Array,
) -> None:
    """Numbers of devices that follow from the weights of all devices of each row that touches them, in order.

    Args:
        device, row: of touches, from `begin` to before `end`.
        first, last: their rows, from the first to before the last.
        weight: of every device.
        seen: of every device.
    """
    together = np.zeros(last - first, np.int64)
    for k in range(begin, end):
        at = row[k] - first
        together[at] = (together[at] + weight[device[k]]) % PRIME
    for k in range(begin, end):
        seen[device[k]] = _hashed(_hashed(seen[device[k]], 1), together[row[k] - first])


@tiered
def liken(
    touches: Any,
    begin: int,
    end: int,
    orbit: Array,
    size: Array,
    is_first: Array,
    first: int,
    like: Array,
    by: Array,
    unlike: Array,
) -> bool:
    """Whether every touch is like that of the representative at the same place; what rows are like then.

    Args:
        touches: `RegionTouches` as a plain tuple, from `begin` to before `end`.
        orbit, is_first: of every device.
        size: of every orbit.
        first: the row whose place in `like` and `by` is 0; negative: things are no rows.
        like, by: of every row the one that it is like, and the device by which it is; -1: none so far.
        unlike: of every touch, from `begin`; becomes True where a row would be like another one.
    """
    device, rank, thing, facts, more = touches
    ptr = np.zeros(len(size) + 1, np.int64)
    of_first = np.empty(end - begin, np.int64)
    expected = 0
    for k in range(begin, end):
        if is_first[device[k]]:
            ptr[orbit[device[k]] + 1] += 1
            expected += size[orbit[device[k]]]
    if expected != end - begin:
        return False
    for o in range(len(size)):
        ptr[o + 1] += ptr[o]
    for k in range(begin, end):
        if is_first[device[k]]:
            of_first[ptr[orbit[device[k]]] + rank[k]] = k
    for k in range(begin, end):
        o = orbit[device[k]]
        if rank[k] >= ptr[o + 1] - ptr[o]:
            return False
        one = thing[k]
        there = of_first[ptr[o] + rank[k]]
        other = thing[there]
        for column in range(len(facts)):
            if facts[column, one] != facts[column, other]:
                return False
        for column in range(len(more)):
            if more[column, k] != more[column, there]:
                return False
        if first >= 0:
            at = one - first
            if by[at] < 0:
                like[at], by[at] = other, device[k]
            unlike[k - begin] = like[at] != other
    return True


@leaf
def _hashed(code: int, value: int) -> int:
    """A number below `PRIME` that follows from another one and a value."""
    return (code * BASE + (value & PRIME) + ((value >> 31) & PRIME)) % PRIME
