"""First fit: where instances lie when each is placed at the lowest bytes that are free as long as it is alive.

Takes instances in the order in which they are placed; gives offsets. O(n log n) where the bytes in use have few gaps.

Of two instances that are alive at the same time, one is born while the other is alive. So a tree over all births knows
the rivals of an instance. At every node there are two sets of bytes: of instances that are alive at all births of the
node (`ALIVE`), and of instances that are born there (`BORN`). An instance is entered as alive at the nodes that its
life consists of, and as born at those above its birth. Its rivals are those that are alive above its birth, and those
that are born at the nodes of its life. Sets are sorted, and what touches is one entry.

Rejected: looking at all instances placed so far, which takes 1.9 s for 40,000 rows (benchmarks/reuse.py).
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array, distinct
from taskflow.core.compiling import inlined, tiered

ALIVE, BORN = range(2)


def first_fit(device: Array, size: Array, first: Array, last: Array) -> Array:
    """The offset of every instance, on its device, where all before it have been placed.

    Devices whose instances have equal sizes and lives, in the order of their births, are alike: one of them is placed.

    Args:
        device: of each.
        size: bytes.
        first, last: rows between which it is alive, both included.
    """
    offset = np.zeros(len(size), np.int64)
    placed = dict[bytes, Array]()
    by_device = np.argsort(device, kind="stable")
    for instances in np.split(by_device, np.flatnonzero(np.diff(device[by_device])) + 1):
        if not len(instances):
            continue
        births = distinct(first[instances])
        born = np.searchsorted(births, first[instances])
        # of each, the last birth in its life
        until = np.searchsorted(births, last[instances], side="right") - 1
        lives = np.stack([size[instances], born, until])
        key = lives.tobytes()
        if key not in placed:
            placed[key] = _place(*lives, int(born.max() + 1).bit_length())
        offset[instances] = placed[key]
    return offset


@tiered
def _place(size: Array, born: Array, until: Array, depth: int) -> Array:
    """See `first_fit`; `born` and `until` are numbers of births, of which there are fewer than `2**depth`."""
    nodes = np.empty((3 * depth + 3, 2), np.int64)
    entries = np.empty((2, 3 * depth + 3), np.int64)
    ptr = np.zeros((2, 2 << depth), np.int64)
    length = np.zeros((2, 2 << depth), np.int64)
    for k in range(len(size)):
        for kind, node in nodes[: _find_nodes(born[k], until[k], 1 << depth, nodes)]:
            ptr[kind, node] += 1
    begin = np.empty(ptr.sum(), np.int64)
    end = np.empty(ptr.sum(), np.int64)
    ptr = np.cumsum(ptr).reshape(ptr.shape) - ptr
    offset = np.zeros(len(size), np.int64)
    for k in range(len(size)):
        entered = nodes[: _find_nodes(born[k], until[k], 1 << depth, nodes)]
        sets = 0
        for kind, node in entered:  # who is born in its life, who is alive above its birth
            if length[1 - kind, node]:
                first = ptr[1 - kind, node]
                entries[0, sets], entries[1, sets] = first, first + length[1 - kind, node]
                sets += 1
        offset[k] = _lowest(size[k], begin, end, entries[0], entries[1], sets)
        for kind, node in entered:
            stop = ptr[kind, node] + length[kind, node]
            length[kind, node] += _add(
                begin, end, ptr[kind, node], stop, offset[k], offset[k] + size[k]
            )
    return offset


@inlined
def _find_nodes(born: int, until: int, leaves: int, nodes: Array) -> int:
    """Fill in the nodes that make up the births from `born` to `until`, and those above `born`; how many."""
    low = born + leaves
    high = until + leaves + 1
    above = born + leaves
    count = 0
    while above:
        nodes[count, 0] = BORN
        nodes[count, 1] = above
        count += 1
        above >>= 1
    while low < high:
        if low & 1:
            nodes[count, 0] = ALIVE
            nodes[count, 1] = low
            count += 1
        if high & 1:
            nodes[count, 0] = ALIVE
            nodes[count, 1] = high - 1
            count += 1
        low = (low + 1) >> 1
        high = high >> 1
    return count


@inlined
def _lowest(size: int, begin: Array, end: Array, at: Array, stop: Array, sets: int) -> int:
    """The lowest offset at which `size` bytes are in none of the sets, entries `at[k]` to `stop[k]` each."""
    start = 0
    is_moved = True
    while is_moved:
        is_moved = False
        left = 0
        for k in range(sets):
            while at[k] < stop[k] and begin[at[k]] < start + size:
                if end[at[k]] > start:
                    start = end[at[k]]
                    is_moved = True
                at[k] += 1
            if at[k] < stop[k]:  # else the set says nothing any more
                at[left], stop[left] = at[k], stop[k]
                left += 1
        sets = left
    return start


@inlined
def _add(begin: Array, end: Array, at: int, stop: int, low: int, high: int) -> int:
    """Add the bytes from `low` to `high` to a set, entries `at` to `stop`; how many more it has then."""
    first = _find(end, at, stop, low)
    last = _find(begin, first, stop, high + 1)  # the entries from first to last touch them
    if first < last:
        low = min(low, begin[first])
        high = max(high, end[last - 1])
    more = first + 1 - last
    for k in range(stop - 1, last - 1, -1) if more > 0 else range(last, stop if more else last):
        begin[k + more], end[k + more] = begin[k], end[k]
    begin[first] = low
    end[first] = high
    return more


@inlined
def _find(numbers: Array, low: int, high: int, limit: int) -> int:
    """Where the numbers from `low` to `high`, which are sorted, reach the limit."""
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low
