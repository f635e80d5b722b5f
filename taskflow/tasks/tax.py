"""The tax on compute: a collective under way takes some of its devices, as its bytes are moved by kernels.

NCCL runs a kernel on some multiprocessors of a GPU, one for each of its channels, and those compute nothing meanwhile
(its issues 689 and 1225 on GitHub). So a task beside a collective goes on at a lower pace; the collective does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf
from taskflow.tasks.agenda import NONE, Agenda, put


class Tax(NamedTuple):
    """Who slows whom, and who is under way.

    Attributes:
        ptr, device: row k, a collective, slows the compute of the devices `device[ptr[k] : ptr[k + 1]]`.
        payer: of every row, the device on which it computes, or NONE where nothing slows it.
        pace: of every device, that of a task beside a collective; 1: its full pace.
        held: of every device, how many collectives are under way.
        running: of every device, the task that it computes, or NONE.
        is_under_way: of every row.
    """

    ptr: Array
    device: Array
    payer: Array
    pace: Array
    held: Array
    running: Array
    is_under_way: Array


def make_tax(ptr: Array, device: Array, payer: Array, pace: Array) -> Tax:
    """A tax, before any row has begun."""
    count = len(pace)
    return Tax(
        ptr,
        device,
        payer,
        pace,
        np.zeros(count, np.int64),
        np.full(count, NONE),
        np.zeros(len(payer), np.bool_),
    )


def no_tax(rows: int) -> Tax:
    """Nothing slows anything."""
    return make_tax(
        np.zeros(rows + 1, np.int64), np.zeros(0, np.int64), np.full(rows, NONE), np.zeros(0)
    )


@leaf
def has_event(t: Tax, row: int) -> bool:
    """Whether others must know when this row is under way."""
    return bool(t.payer[row] != NONE or t.ptr[row] < t.ptr[row + 1])


@leaf
def begin_or_end(t: Tax, end: Array, a: Agenda, row: int, now: float) -> bool:
    """A row is under way, or over; whether it is over. Of all rows' `end` some change."""
    is_over = bool(t.is_under_way[row])
    t.is_under_way[row] = not is_over
    device = t.payer[row]
    if device != NONE:
        t.running[device] = NONE if is_over else row
        if not is_over and t.held[device]:
            end[row] = now + (end[row] - now) / t.pace[device]
    for k in range(t.ptr[row], t.ptr[row + 1]):
        _hold(t, end, a, t.device[k], now, -1 if is_over else 1)
    return is_over


@leaf
def _hold(t: Tax, end: Array, a: Agenda, device: int, now: float, more: int) -> None:
    """So many more collectives are under way on a device."""
    was_held = t.held[device] > 0
    t.held[device] += more
    row = t.running[device]
    if row != NONE and was_held != (t.held[device] > 0):
        left = end[row] - now
        pace = t.pace[device]
        end[row] = now + (left * pace if was_held else left / pace)  # as in `begin_or_end`
        put(a, row, end[row])
