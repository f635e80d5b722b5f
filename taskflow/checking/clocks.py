"""Clocks: which rows are certainly over when a row begins, by its dependences and the order of streams. Compiled.

A clock has for every stream of a device the last row on it that is over; what stands before that on the stream is over,
too (vector clocks, Mattern 1989). The clock of a row is kept until the last row that may ask for it has passed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, tiered
from taskflow.core.pointers import pointer_to


class Waits(NamedTuple):
    """What makes rows wait.

    Attributes:
        wait_ptr, wait: the rows that a row waits for.
        stream_ptr, stream: the streams of devices that a row is on, numbered from 0.
    """

    wait_ptr: Array
    wait: Array
    stream_ptr: Array
    stream: Array


class Clocks(NamedTuple):
    """Clocks of rows that some later row may ask for.

    Attributes:
        clock: (slots, streams) last row on a stream that is over, -1 for none; slot 0 is that of the row at hand.
        slot: per row.
        uses: per row, how often it will be asked for.
        last: per stream, the last row so far.
        free: slots that are free, a stack.
        room: how many.
    """

    clock: Array
    slot: Array
    uses: Array
    last: Array
    free: Array
    room: Array


def make_clocks(order: Waits) -> Clocks:
    """Room for the clocks of all rows that are asked for at a time."""
    rows = len(order.wait_ptr) - 1
    streams = int(order.stream.max(initial=0)) + 1
    uses = np.zeros(rows, np.int64)
    last = np.full(streams, -1, np.int64)
    slots = int(_count_slots(*order, uses, last)) + 2
    last[:] = -1
    free = np.arange(slots - 1, 0, -1)
    room = np.array([slots - 1], np.int64)
    return Clocks(
        np.full((slots, streams), -1, np.int32), np.zeros(rows, np.int64), uses, last, free, room
    )


@tiered
def _count_slots(
    wait_ptr: Array, wait: Array, stream_ptr: Array, stream: Array, uses: Array, last: Array
) -> int:
    """How many clocks are asked for at a time; fills in `uses`."""
    o: Waits = pointer_to(Waits(wait_ptr, wait, stream_ptr, stream))
    for row in range(len(uses)):
        uses[row] = stream_ptr[row + 1] - stream_ptr[row]
        for e in range(wait_ptr[row], wait_ptr[row + 1]):
            uses[wait[e]] += not share_stream(o, row, wait[e])
    left = uses.copy()
    now = 0
    most = 0
    for row in range(len(uses)):
        now += 1
        most = max(most, now)
        for e in range(wait_ptr[row], wait_ptr[row + 1]):
            if not share_stream(o, row, wait[e]):
                left[wait[e]] -= 1
                now -= left[wait[e]] == 0
        for k in range(stream_ptr[row], stream_ptr[row + 1]):
            before = last[stream[k]]
            if before >= 0:
                left[before] -= 1
                now -= left[before] == 0
            last[stream[k]] = row
    return most


@leaf
def share_stream(o: Waits, row: int, other: int) -> bool:
    """Whether two rows are on one stream of a device."""
    for k in range(o.stream_ptr[row], o.stream_ptr[row + 1]):
        for j in range(o.stream_ptr[other], o.stream_ptr[other + 1]):
            if o.stream[k] == o.stream[j]:
                return True
    return False


@leaf
def is_over(o: Waits, c: Clocks, row: int) -> bool:
    """Whether `row` is certainly over when the row at hand begins."""
    is_past: bool = c.clock[0, o.stream[o.stream_ptr[row]]] >= row
    return is_past


@leaf
def hear(o: Waits, c: Clocks, row: int) -> None:
    """The clock of `row`, as it begins, into slot 0."""
    for s in range(c.clock.shape[1]):
        c.clock[0, s] = -1
    for k in range(o.stream_ptr[row], o.stream_ptr[row + 1]):
        before = c.last[o.stream[k]]
        if before >= 0:
            learn(o, c, before)
    for e in range(o.wait_ptr[row], o.wait_ptr[row + 1]):
        learn(o, c, o.wait[e])


@leaf
def learn(o: Waits, c: Clocks, row: int) -> None:
    """What is over when `row` is, is over."""
    if not is_over(o, c, row):
        slot = c.slot[row]
        for s in range(c.clock.shape[1]):
            c.clock[0, s] = max(c.clock[0, s], c.clock[slot, s])


@leaf
def keep(o: Waits, c: Clocks, row: int) -> None:
    """Keep the clock of `row` as it ends, and forget those that nobody asks for any more."""
    c.room[0] -= 1
    slot = c.free[c.room[0]]
    c.slot[row] = slot
    for s in range(c.clock.shape[1]):
        c.clock[slot, s] = c.clock[0, s]
    for e in range(o.wait_ptr[row], o.wait_ptr[row + 1]):
        if not share_stream(o, row, o.wait[e]):
            use(c, o.wait[e])
    for k in range(o.stream_ptr[row], o.stream_ptr[row + 1]):
        stream = o.stream[k]
        c.clock[slot, stream] = row
        if c.last[stream] >= 0:
            use(c, c.last[stream])
        c.last[stream] = row


@leaf
def use(c: Clocks, row: int) -> None:
    """The clock of `row` was asked for once."""
    c.uses[row] -= 1
    if c.uses[row] == 0:
        c.free[c.room[0]] = c.slot[row]
        c.room[0] += 1
