"""The inner loop of `exhaustive`, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def bound_children(
    chosen: Any, leader: int, family: Any, first_config: Any, seconds: Any, device: Any, receiving: Any,
    shares_stream: Any, edges: Any, first_edge: Any,
    sure: Any, first_delay: Any, readers: Any, delays: Any, least: Any, whole: Any, most: Any, floor: Any, out: Any,
) -> None:  # fmt: skip
    """`out[c]`: a lower bound for all strategies in which the operators of `chosen` and `leader`, by c, are decided.

    Rows of decided operators run on their devices in program order, each after what it reads; an undecided operator
    takes the least seconds of a point after the first point of each operator that it reads from, and on every device
    the least that it occupies it under any configuration. What a decided operator's movement occupies of a device's
    receiving stream, which a CPU shares with its compute stream, begins after the first point.
    """
    operators, width, devices = len(family), seconds.shape[1], floor.shape[1]
    end, first = np.empty((operators, width)), np.empty(operators)
    free, received = np.empty(devices), np.empty(devices)
    for c in range(len(out)):
        chosen[leader] = c
        free[:], received[:] = 0.0, 0.0
        last, load = 0.0, 0.0
        for k in range(operators):
            config = chosen[family[k]]
            begin = 0.0
            for e in range(first_edge[k], first_edge[k + 1]):
                if sure[e] and first[edges[e]] > begin:
                    begin = first[edges[e]]
            if config < 0:
                first[k] = begin + least[k]
                last = max(last, begin + whole[k] / most[k])
                load += whole[k]
                for d in range(devices):
                    if floor[k, d] > 0.0:
                        free[d] = max(free[d], begin) + floor[k, d]
                        last = max(last, free[d])
                continue
            row = first_config[k] + config
            first[k] = np.inf
            for p in range(width):
                where = device[row, p]
                if where < 0:
                    break
                start = max(free[where], begin)
                for e in range(first_edge[k], first_edge[k + 1]):
                    writer = edges[e]
                    made = chosen[family[writer]]
                    if made < 0:
                        continue
                    at = first_delay[e] + (made * readers[e] + config) * width * width + p
                    for q in range(width):
                        delay = delays[at + q * width]
                        if delay >= 0.0 and end[writer, q] + delay > start:
                            start = end[writer, q] + delay
                finish = start + seconds[row, p]
                end[k, p] = free[where] = finish
                load += seconds[row, p]
                first[k] = min(first[k], finish)
                last = max(last, finish)
            for d in range(devices):
                if receiving[row, d] > 0.0:
                    received[d] = max(free[d] if shares_stream[d] else received[d], first[k]) + receiving[row, d]
                    last = max(last, received[d])
                    if shares_stream[d]:
                        free[d] = received[d]
        out[c] = max(last, load / devices)
    chosen[leader] = -1
