"""The inner loop of `exhaustive`, compiled by numba: simulation of less than what will run.

Rows of decided operators run on their devices in program order, each after what it reads. An undecided operator takes
the least seconds of a point after the first point of each operator that it reads from, and on every device the least
that it occupies it under any configuration. Movement that is decided occupies the receiving streams after the first
point of the operator that it stands behind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, tiered
from taskflow.core.start_rule import occupy, start_of
from taskflow.searching.tables import BoundTables


class Moments(NamedTuple):
    """What the simulation knows so far.

    Attributes:
        end: (operators, points) when every point of a decided operator ends.
        first: per operator, when its first point ends.
        free: when every compute stream, then every receiving stream is free.
        begun: (movements, devices) when a device begins to receive; -1: not yet.
    """

    end: Array
    first: Array
    free: Array
    begun: Array


@tiered
def bound_children(chosen: Array, leader: int, tables: tuple[Array, ...], out: Array) -> None:
    """`out[c]`: a lower bound for all strategies in which the operators of `chosen` and `leader`, by c, are decided.

    Args:
        chosen: per leader the number of its configuration; -1: undecided.
        tables: `BoundTables` as a plain tuple.
    """
    b = BoundTables(*tables)
    (operators, devices), points = b.floor.shape, b.seconds.shape[2]
    begun = np.empty((len(b.other), devices))
    t = Moments(np.empty((operators, points)), np.empty(operators), np.empty(2 * devices), begun)
    for c in range(len(out)):
        chosen[leader] = c
        t.free[:], t.begun[:] = 0.0, -1.0
        last, load = 0.0, 0.0
        for k in range(operators):
            begin = first_input(k, b, t)
            if chosen[b.family[k]] < 0:
                last = max(last, pass_undecided(k, begin, b, t))
                load += b.whole[k]
            else:
                finish, load = pass_points(k, begin, load, chosen, b, t)
                last = max(last, finish, pass_movements(k, chosen, b, t))
        out[c] = max(last, load / devices)
    chosen[leader] = -1


@inlined
def first_input(k: int, b: BoundTables, t: Moments) -> float:
    """When the first points of all operators are done from which operator k is sure to read."""
    begin = 0.0
    for e in range(b.edge_ptr[k], b.edge_ptr[k + 1]):
        if b.is_sure[e]:
            begin = max(begin, t.first[b.writer[e]])
    return begin


@inlined
def pass_undecided(k: int, begin: float, b: BoundTables, t: Moments) -> float:
    """The least end of an undecided operator."""
    t.first[k] = begin + b.least[k]
    last: float = begin + b.whole[k] / b.most[k]
    for device in range(b.floor.shape[1]):
        if b.floor[k, device] > 0.0:
            finish = max(t.free[device], begin) + b.floor[k, device]
            t.free[device] = finish
            last = max(last, finish)
    return last


@inlined
def pass_points(
    k: int, begin: float, load: float, chosen: Array, b: BoundTables, t: Moments
) -> tuple[float, float]:
    """The last end of the points of a decided operator, and `load` with their seconds."""
    config, last = chosen[b.family[k]], 0.0
    t.first[k] = np.inf
    for p in range(b.seconds.shape[2]):
        if b.device[k, config, p] < 0:
            break
        stream, seconds = b.device[k, config, p : p + 1], b.seconds[k, config, p]
        finish = start_of(inputs_of(k, p, begin, chosen, b, t), t.free, stream) + seconds
        occupy(t.free, stream, finish)
        t.end[k, p] = finish
        load += seconds
        t.first[k] = min(t.first[k], finish)
        last = max(last, finish)
    return last, load


@inlined
def inputs_of(k: int, p: int, done: float, chosen: Array, b: BoundTables, t: Moments) -> float:
    """When all that point p of operator k reads from decided operators has arrived, and not before `done`."""
    config = chosen[b.family[k]]
    device = b.device[k, config, p]
    for e in range(b.edge_ptr[k], b.edge_ptr[k + 1]):
        writer, move = b.writer[e], b.movement[e]
        made = chosen[b.family[writer]]
        if made < 0:
            continue
        for q in range(b.seconds.shape[2]):
            delay = b.delays[e, made, config, q, p]
            if delay >= 0.0:
                done = max(done, t.end[writer, q] + delay)
        if move >= 0 and t.begun[move, device] >= 0.0:
            wait = b.waits[e, made, other_config(move, writer, chosen, b), p]
            if wait > 0.0:
                done = max(done, t.begun[move, device] + wait)
    return done


@inlined
def other_config(move: int, writer: int, chosen: Array, b: BoundTables) -> int:
    """The configuration of the family that a movement depends on besides its writer's; 0 if there is none."""
    return 0 if b.other[move] == b.family[writer] else chosen[b.other[move]]


@inlined
def pass_movements(k: int, chosen: Array, b: BoundTables, t: Moments) -> float:
    """The last end of the movements that are decided and stand behind operator k."""
    last = 0.0
    for move in range(b.move_ptr[k], b.move_ptr[k + 1]):
        other = other_config(move, k, chosen, b)
        if other < 0:
            continue
        for device in range(b.floor.shape[1]):
            stream, seconds = (
                b.receiving[device : device + 1],
                b.moving[move, chosen[b.family[k]], other, device],
            )
            t.begun[move, device] = start_of(t.first[k], t.free, stream)
            if seconds > 0.0:
                finish = t.begun[move, device] + seconds
                occupy(t.free, stream, finish)
                last = max(last, finish)
    return last
