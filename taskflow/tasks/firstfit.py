"""Placing instances in an arena, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import njit

POINT, COLLECTIVE = 0, 4  # of task.Kind


@njit
def first_fit(order: Any, size: Any, first: Any, last: Any) -> Any:
    """Offsets: in `order`, each at the lowest one at which nothing that was placed and lives meanwhile is hit."""
    offset, placed = np.zeros(len(size), np.int64), np.empty(len(size), np.int64)  # `placed` by offset
    for n in range(len(order)):
        k, start = order[n], 0
        for i in range(n):
            rival = placed[i]
            if first[rival] <= last[k] and last[rival] >= first[k]:
                if offset[rival] >= start + size[k]:
                    break
                start = max(start, offset[rival] + size[rival])
        offset[k] = start
        i = n
        while i > 0 and offset[placed[i - 1]] > start:
            placed[i] = placed[i - 1]
            i -= 1
        placed[i] = k
    return offset


@njit
def post_rows(kind: Any, source: Any, device: Any, transfer: Any, dep_ptr: Any, dep_row: Any, devices: int) -> Any:
    """See `memory.receive_rows`."""
    receive, last_point = np.full(len(kind), -1, np.int64), np.full(devices, -1, np.int64)
    for row in range(len(kind)):
        here = device[row]
        if transfer[row]:
            local = -1
            for k in range(dep_ptr[row], dep_ptr[row + 1]):
                d = dep_row[k]
                if device[d] == here or source[d] == here or kind[d] == COLLECTIVE:
                    local = max(local, d)
            early = last_point[here] if last_point[here] >= 0 else row
            receive[row] = min(max(early, local + 1), row)
        elif kind[row] == POINT:
            last_point[here] = row
    return receive
