"""Sorting numbers, compiled by numba: what needs an order packs its key, and behind it its number, into one.

NumPy's sorts cost a second of compilation for every caller; this is a merge sort of runs sorted by insertion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf

RUN = 16


@leaf
def sort_run(keys: Any, begin: int, end: int) -> None:
    """Sort `keys[begin:end]` by insertion."""
    for i in range(begin + 1, end):
        key = keys[i]
        j = i
        while j > begin and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@leaf
def merge(keys: Any, begin: int, middle: int, end: int, out: Any) -> None:
    """Merge two sorted runs of `keys` into `out[begin:end]`."""
    i = begin
    j = middle
    for n in range(begin, end):
        if i < middle and (j >= end or keys[i] <= keys[j]):
            out[n] = keys[i]
            i += 1
        else:
            out[n] = keys[j]
            j += 1


@leaf
def sort_first(keys: Any, count: int, spare: Any) -> None:
    """Sort the first `count` keys; `spare` is memory for as many."""
    for begin in range(0, count, RUN):
        sort_run(keys, begin, min(begin + RUN, count))
    width = RUN
    while width < count:
        for begin in range(0, count, 2 * width):
            middle = min(begin + width, count)
            merge(keys, begin, middle, min(begin + 2 * width, count), spare)
        for i in range(count):
            keys[i] = spare[i]
        width *= 2


@inner
def sort(keys: Any) -> Any:
    """The keys in ascending order; they are sorted where they are."""
    sort_first(keys, len(keys), np.empty(len(keys) if len(keys) > RUN else 0, np.int64))
    return keys


@leaf
def bits(number: int) -> int:
    """How many bits hold the numbers from 0 to `number`."""
    width = 0
    while number >> width:
        width += 1
    return width
