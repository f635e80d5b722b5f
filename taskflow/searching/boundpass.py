"""The inner loop of `exhaustive`, compiled by numba; imported on first use."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import njit


@njit
def bound_children(
    chosen: Any, leader: int, family: Any, first_config: Any, seconds: Any, device: Any, shares_stream: Any,
    edges: Any, first_edge: Any, sure: Any, first_delay: Any, readers: Any, delays: Any,
    first_move: Any, other: Any, columns: Any, first_load: Any, loads: Any, move_of: Any, first_wait: Any, waits: Any,
    least: Any, whole: Any, most: Any, floor: Any, out: Any,
) -> None:  # fmt: skip
    """`out[c]`: a lower bound for all strategies in which the operators of `chosen` and `leader`, by c, are decided.

    Rows of decided operators run on their devices in program order, each after what it reads; an undecided operator
    takes the least seconds of a point after the first point of each operator that it reads from, and on every device
    the least that it occupies it under any configuration. Movement that is decided occupies the receiving streams,
    which a CPU shares with its compute stream, after the first point of the operator that it stands behind.
    """
    operators, width, devices = len(family), seconds.shape[1], floor.shape[1]
    end, first = np.empty((operators, width)), np.empty(operators)
    free, received, begun = np.empty(devices), np.empty(devices), np.empty((len(other), devices))
    for c in range(len(out)):
        chosen[leader] = c
        free[:], received[:], begun[:] = 0.0, 0.0, -1.0
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
                    writer, move = edges[e], move_of[e]
                    made = chosen[family[writer]]
                    if made < 0:
                        continue
                    at = first_delay[e] + (made * readers[e] + config) * width * width + p
                    for q in range(width):
                        delay = delays[at + q * width]
                        if delay >= 0.0 and end[writer, q] + delay > start:
                            start = end[writer, q] + delay
                    if move >= 0 and begun[move, where] >= 0.0:
                        with_other = 0 if other[move] == family[writer] else chosen[other[move]]
                        wait = waits[first_wait[e] + (made * columns[move] + with_other) * width + p]
                        if wait > 0.0 and begun[move, where] + wait > start:
                            start = begun[move, where] + wait
                finish = start + seconds[row, p]
                end[k, p] = free[where] = finish
                load += seconds[row, p]
                first[k] = min(first[k], finish)
                last = max(last, finish)
            for move in range(first_move[k], first_move[k + 1]):
                with_other = 0 if other[move] == family[k] else chosen[other[move]]
                if with_other < 0:
                    continue
                for d in range(devices):
                    seconds_of = loads[first_load[move] + (config * columns[move] + with_other) * devices + d]
                    begun[move, d] = max(free[d] if shares_stream[d] else received[d], first[k])
                    if seconds_of > 0.0:
                        received[d] = begun[move, d] + seconds_of
                        last = max(last, received[d])
                        if shares_stream[d]:
                            free[d] = received[d]
        out[c] = max(last, load / devices)
    chosen[leader] = -1
