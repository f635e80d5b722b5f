"""The inner loop of `simulate`, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import njit


@njit
def one_pass(
    dep_ptr: Any,
    dep_row: Any,
    streams: Any,
    group_ptr: Any,
    group_streams: Any,
    seconds: Any,
    start: Any,
    end: Any,
    free: Any,
) -> float:
    """Start and end of every row; `free[s]` is when stream s is next free. Returns the end of the last row.

    Entry `-2 - g` of `streams` stands for the streams `group_streams[group_ptr[g]:group_ptr[g + 1]]`.
    """
    last = 0.0
    for row in range(len(seconds)):
        begin = 0.0
        for k in range(streams.shape[1]):
            stream = streams[row, k]
            if stream >= 0 and free[stream] > begin:
                begin = free[stream]
            elif stream < -1:
                for g in range(group_ptr[-2 - stream], group_ptr[-1 - stream]):
                    if free[group_streams[g]] > begin:
                        begin = free[group_streams[g]]
        for k in range(dep_ptr[row], dep_ptr[row + 1]):
            done = end[dep_row[k]]
            if done > begin:
                begin = done
        finish = begin + seconds[row]
        for k in range(streams.shape[1]):
            stream = streams[row, k]
            if stream >= 0:
                free[stream] = finish
            elif stream < -1:
                for g in range(group_ptr[-2 - stream], group_ptr[-1 - stream]):
                    free[group_streams[g]] = finish
        start[row], end[row] = begin, finish
        if finish > last:
            last = finish
    return last


def warm() -> None:
    """Compile before the first use that is timed."""
    zero, one = np.zeros(2, np.int64), np.zeros(1)
    one_pass(zero, zero[:0], np.zeros((1, 1), np.int64), zero, zero[:0], one, one.copy(), one.copy(), one.copy())
