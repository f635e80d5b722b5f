"""The inner loop of `exhaustive`, compiled by numba: simulation of less than what will run; imported on first use.

Rows of decided operators run on their devices in program order, each after what it reads. An undecided operator takes
the least seconds of a point after the first point of each operator that it reads from, and on every device the least
that it occupies it under any configuration. Movement that is decided occupies the receiving streams after the first
point of the operator that it stands behind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, njit
from taskflow.core.start_rule import occupy, start_of
from taskflow.searching.boundtables import EdgeTable, MovementTable, OperatorTable


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


@njit
def bound_children(
    chosen: Array,
    leader: int,
    operators: tuple[Array, ...],
    edges: tuple[Array, ...],
    movements: tuple[Array, ...],
    out: Array,
) -> None:
    """`out[c]`: a lower bound for all strategies in which the operators of `chosen` and `leader`, by c, are decided.

    Args:
        chosen: per leader the number of its configuration; -1: undecided.
        operators, edges, movements: see `boundtables`, as plain tuples.
    """
    ops, reads, moves = OperatorTable(*operators), EdgeTable(*edges), MovementTable(*movements)
    devices, shape = ops.floor.shape[1], (len(ops.family), ops.seconds.shape[1])
    t = Moments(np.empty(shape), np.empty(shape[0]), np.empty(2 * devices), np.empty((len(moves.other), devices)))
    for c in range(len(out)):
        chosen[leader] = c
        t.free[:], t.begun[:] = 0.0, -1.0
        last, load = 0.0, 0.0
        for k in range(shape[0]):
            begin = first_input(k, reads, t)
            if chosen[ops.family[k]] < 0:
                last = max(last, pass_undecided(k, begin, ops, t))
                load += ops.whole[k]
            else:
                finish, load = pass_points(k, begin, load, chosen, ops, reads, moves, t)
                last = max(last, finish, pass_movements(k, chosen, ops, moves, t))
        out[c] = max(last, load / devices)
    chosen[leader] = -1


@inlined
def first_input(k: int, reads: EdgeTable, t: Moments) -> float:
    """When the first points of all operators are done from which operator k is sure to read."""
    begin = 0.0
    for e in range(reads.ptr[k], reads.ptr[k + 1]):
        if reads.is_sure[e]:
            begin = max(begin, t.first[reads.writer[e]])
    return begin


@inlined
def pass_undecided(k: int, begin: float, ops: OperatorTable, t: Moments) -> float:
    """The least end of an undecided operator."""
    t.first[k] = begin + ops.least[k]
    last: float = begin + ops.whole[k] / ops.most[k]
    for device in range(ops.floor.shape[1]):
        if ops.floor[k, device] > 0.0:
            finish = max(t.free[device], begin) + ops.floor[k, device]
            t.free[device] = finish
            last = max(last, finish)
    return last


@inlined
def pass_points(
    k: int,
    begin: float,
    load: float,
    chosen: Array,
    ops: OperatorTable,
    reads: EdgeTable,
    moves: MovementTable,
    t: Moments,
) -> tuple[float, float]:
    """The last end of the points of a decided operator, and `load` with their seconds."""
    config, last = chosen[ops.family[k]], 0.0
    row = ops.first_config[k] + config
    t.first[k] = np.inf
    for p in range(ops.seconds.shape[1]):
        if ops.device[row, p] < 0:
            break
        stream = ops.device[row, p : p + 1]
        done = inputs_of(k, p, config, begin, chosen, ops, reads, moves, t)
        finish = start_of(done, t.free, stream) + ops.seconds[row, p]
        occupy(t.free, stream, finish)
        t.end[k, p] = finish
        load += ops.seconds[row, p]
        t.first[k] = min(t.first[k], finish)
        last = max(last, finish)
    return last, load


@inlined
def inputs_of(
    k: int,
    p: int,
    config: int,
    done: float,
    chosen: Array,
    ops: OperatorTable,
    reads: EdgeTable,
    moves: MovementTable,
    t: Moments,
) -> float:
    """When all that point p of operator k reads from decided operators has arrived, and not before `done`."""
    width, device = ops.seconds.shape[1], ops.device[ops.first_config[k] + config, p]
    for e in range(reads.ptr[k], reads.ptr[k + 1]):
        writer, move = reads.writer[e], reads.movement[e]
        made = chosen[ops.family[writer]]
        if made < 0:
            continue
        first = reads.first_delay[e] + (made * reads.reader_configs[e] + config) * width * width
        for q in range(width):
            delay = reads.delays[first + q * width + p]
            if delay >= 0.0:
                done = max(done, t.end[writer, q] + delay)
        if move >= 0 and t.begun[move, device] >= 0.0:
            pair = made * moves.other_configs[move] + other_config(move, writer, chosen, ops, moves)
            at = reads.first_wait[e] + pair * width + p
            wait = reads.waits[at]
            if wait > 0.0:
                done = max(done, t.begun[move, device] + wait)
    return done


@inlined
def other_config(move: int, writer: int, chosen: Array, ops: OperatorTable, moves: MovementTable) -> int:
    """The configuration of the family that a movement depends on besides its writer's; 0 if there is none."""
    return 0 if moves.other[move] == ops.family[writer] else chosen[moves.other[move]]


@inlined
def pass_movements(k: int, chosen: Array, ops: OperatorTable, moves: MovementTable, t: Moments) -> float:
    """The last end of the movements that are decided and stand behind operator k."""
    last, devices = 0.0, ops.floor.shape[1]
    for move in range(moves.ptr[k], moves.ptr[k + 1]):
        other = other_config(move, k, chosen, ops, moves)
        if other < 0:
            continue
        first = moves.first_seconds[move] + (chosen[ops.family[k]] * moves.other_configs[move] + other) * devices
        for device in range(devices):
            stream, seconds = moves.receiving[device : device + 1], moves.seconds[first + device]
            t.begun[move, device] = start_of(t.first[k], t.free, stream)
            if seconds > 0.0:
                finish = t.begun[move, device] + seconds
                occupy(t.free, stream, finish)
                last = max(last, finish)
    return last
