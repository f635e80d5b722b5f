"""The inner loop of `simulate`, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def one_pass(dep_ptr: Any, dep_row: Any, streams: Any, seconds: Any, start: Any, end: Any, free: Any) -> float:
    """Start and end of every row; `free[s]` is when stream s is next free. Returns the end of the last row."""
    last = 0.0
    for row in range(len(seconds)):
        begin = 0.0
        for k in range(streams.shape[1]):
            stream = streams[row, k]
            if stream >= 0 and free[stream] > begin:
                begin = free[stream]
        for k in range(dep_ptr[row], dep_ptr[row + 1]):
            done = end[dep_row[k]]
            if done > begin:
                begin = done
        finish = begin + seconds[row]
        for k in range(streams.shape[1]):
            if streams[row, k] >= 0:
                free[streams[row, k]] = finish
        start[row], end[row] = begin, finish
        if finish > last:
            last = finish
    return last


def warm() -> None:
    """Compile before the first use that is timed."""
    zero, one = np.zeros(2, np.int64), np.zeros(1)
    one_pass(zero, zero[:0], np.zeros((1, 1), np.int64), one, one.copy(), one.copy(), one.copy())
