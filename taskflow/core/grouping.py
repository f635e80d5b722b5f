"""Grouping: entries by a small number that each has, by counting sort (NumPy's stable sorts take ten times as long)."""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import tiered


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
