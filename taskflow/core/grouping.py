"""Grouping: entries by a small number that each has, by counting sort (NumPy's stable sorts take ten times as long)."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered

SHORT = 32  # values that are sorted by insertion


def grouped(keys: Array, count: int) -> tuple[Array, Array]:
    """`ptr` and `order`: the entries with key k, in their order, are `order[ptr[k] : ptr[k + 1]]`; (count + 1,), (n,).

    Args:
        keys: (n,) from 0 to before `count`.
        count: of keys.
    """
    groups: tuple[Array, Array] = group(np.asarray(keys, np.int64), count)
    return groups


@tiered
def group(keys: Array, count: int) -> tuple[Array, Array]:
    """`grouped` for keys of int64, for compiled code as well."""
    ptr = np.zeros(count + 2, np.int64)
    order = np.empty(len(keys), np.int64)
    for key in keys:
        ptr[key + 2] += 1
    ptr = np.cumsum(ptr)
    for k in range(len(keys)):  # ptr[key + 1] is where the next of its entries belongs
        order[ptr[keys[k] + 1]] = k
        ptr[keys[k] + 1] += 1
    return ptr[: count + 1], order


def turned(
    ptr: Array, awaited: Array, before: Array | None = None, after: Array | None = None
) -> tuple[Array, Array]:
    """`ptr` and the rows that wait for each, by pairs turned round: row k waits for `awaited[ptr[k] : ptr[k + 1]]`.

    Then, in their order, those of more pairs: row `after[i]` waits for row `before[i]`.
    """
    none = np.zeros(0, np.int64)
    followers: tuple[Array, Array] = _turn(
        ptr, awaited, none if before is None else before, none if after is None else after
    )
    return followers


@tiered
def _turn(ptr: Array, awaited: Array, before: Array, after: Array) -> tuple[Array, Array]:
    """See `turned`."""
    ends = np.zeros(len(ptr) + 1, np.int64)
    follower = np.empty(len(awaited) + len(before), np.int64)
    for row in awaited:
        ends[row + 2] += 1
    for row in before:
        ends[row + 2] += 1
    ends = np.cumsum(ends)
    for row in range(len(ptr) - 1):  # ends[k + 1] is where the next follower of row k belongs
        for k in range(ptr[row], ptr[row + 1]):
            follower[ends[awaited[k] + 1]] = row
            ends[awaited[k] + 1] += 1
    for k in range(len(before)):
        follower[ends[before[k] + 1]] = after[k]
        ends[before[k] + 1] += 1
    return ends[: len(ptr)], follower


@tiered
def sort_each(ptr: Array, values: Array) -> tuple[Array, Array]:
    """Compressed sparse rows with the values of every row ascending, each once; they are sorted where they are."""
    ends = np.zeros(len(ptr), np.int64)
    used = 0
    for row in range(len(ptr) - 1):
        if ptr[row + 1] - ptr[row] > SHORT:
            values[ptr[row] : ptr[row + 1]].sort()
        else:
            for k in range(ptr[row] + 1, ptr[row + 1]):
                value = values[k]
                at = k
                while at > ptr[row] and values[at - 1] > value:
                    values[at] = values[at - 1]
                    at -= 1
                values[at] = value
        for k in range(ptr[row], ptr[row + 1]):
            if used == ends[row] or values[used - 1] != values[k]:
                values[used] = values[k]
                used += 1
        ends[row + 1] = used
    return ends, values[:used]


def ranks(keys: Array, count: int) -> Array:
    """Of every entry how many with the same key come before it; see `grouped`."""
    before: Array = _ranks(np.asarray(keys, np.int64), count)
    return before


@tiered
def _ranks(keys: Array, count: int) -> Array:
    before = np.empty(len(keys), np.int64)
    seen = np.zeros(count, np.int64)
    for k in range(len(keys)):
        before[k] = seen[keys[k]]
        seen[keys[k]] += 1
    return before
