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

from itertools import pairwise

import numpy as np

from taskflow.core.columns import Array, distinct
from taskflow.core.compiling import inlined, inner, tiered
from taskflow.core.grouping import grouped

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
    ptr, by_device = grouped(device, int(device.max(initial=-1)) + 1)
    for begin, end in pairwise(ptr.tolist()):
        instances = by_device[begin:end]
        if begin == end:
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


def most_alive(device: Array, size: Array, first: Array, last: Array, devices: int) -> Array:
    """Of every device the most bytes that are alive at once: no placement takes less. See `first_fit`."""
    most = np.zeros(devices, np.int64)
    moments = int(last.max(initial=-1)) + 1
    born = grouped(first, moments)[1]
    _follow(device, size, first, last, born, grouped(last, moments)[1], most)
    return most


@tiered
def _follow(
    device: Array, size: Array, first: Array, last: Array, born: Array, died: Array, most: Array
) -> None:
    """See `most_alive`; `born`, `died`: instances by the rows with which their lives begin and end."""
    alive = np.zeros(len(most), np.int64)
    over = 0
    for k in born:
        while last[died[over]] < first[k]:
            alive[device[died[over]]] -= size[died[over]]
            over += 1
        alive[device[k]] += size[k]
        most[device[k]] = max(most[device[k]], alive[device[k]])


@tiered
def _place(size: Array, born: Array, until: Array, depth: int) -> Array:
    """See `first_fit`; `born` and `until` are numbers of births, of which there are fewer than `2**depth`.

    Who has bytes among those that are born at a node has them at all nodes above it, so these are left as they are.
    """
    leaves = 1 << depth
    nodes = np.empty(2 * depth + 2, np.int64)
    at = np.empty(3 * depth + 3, np.int64)
    stop = np.empty(3 * depth + 3, np.int64)
    length = np.zeros((2, 2 << depth), np.int64)
    ptr = _room(born, until, leaves, nodes)
    begin = np.empty(ptr[BORN, -1], np.int64)
    end = np.empty(ptr[BORN, -1], np.int64)
    offset = np.zeros(len(size), np.int64)
    for k in range(len(size)):
        life = _find_nodes(born[k], until[k], leaves, nodes)
        sets = 0
        for e in range(life):  # who is born in its life
            if length[BORN, nodes[e]]:
                at[sets] = ptr[BORN, nodes[e]]
                stop[sets] = at[sets] + length[BORN, nodes[e]]
                sets += 1
        above = born[k] + leaves
        while above:  # who is alive at its birth
            if length[ALIVE, above]:
                at[sets] = ptr[ALIVE, above]
                stop[sets] = at[sets] + length[ALIVE, above]
                sets += 1
            above >>= 1
        low = _lowest(size[k], begin, end, at, stop, sets)
        high = low + size[k]
        offset[k] = low
        for e in range(life):
            first = ptr[ALIVE, nodes[e]]
            last = first + length[ALIVE, nodes[e]]
            length[ALIVE, nodes[e]] += _add(begin, end, first, last, low, high)
        above = born[k] + leaves
        while above:
            first = ptr[BORN, above]
            last = first + length[BORN, above]
            there = _find(end, first, last, high)
            if there < last and begin[there] <= low:
                break
            length[BORN, above] += _add(begin, end, first, last, low, high)
            above >>= 1
    return offset


@inner
def _room(born: Array, until: Array, leaves: int, nodes: Array) -> Array:
    """Where the entries of both sets of every node begin; the last of all is where they end."""
    count = np.zeros((2, 2 * leaves), np.int64)
    for k in range(len(born)):
        count[BORN, born[k] + leaves] += 1
        for e in range(_find_nodes(born[k], until[k], leaves, nodes)):
            count[ALIVE, nodes[e]] += 1
    for node in range(leaves - 1, 0, -1):
        count[BORN, node] = count[BORN, 2 * node] + count[BORN, 2 * node + 1]
    ptr = np.zeros((2, 2 * leaves + 1), np.int64)
    total = 0
    for kind in range(2):
        for node in range(2 * leaves):
            ptr[kind, node] = total
            total += count[kind, node]
        ptr[kind, 2 * leaves] = total
    return ptr


@inlined
def _find_nodes(born: int, until: int, leaves: int, nodes: Array) -> int:
    """Fill in the nodes that make up the births from `born` to `until`; how many."""
    low = born + leaves
    high = until + leaves + 1
    count = 0
    while low < high:
        if low & 1:
            nodes[count] = low
            count += 1
        if high & 1:
            nodes[count] = high - 1
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
