"""Waiting on a cell of memory that another thread writes, without the interpreter's lock and without the scheduler.

A thread that sleeps takes 50 to 100 us to run again, one that polls in Python keeps the lock from the others. These
functions are compiled, and poll. Loads and stores are atomic and sequentially consistent.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _cell(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = make_array(signature.args[0])(context, builder, args[0])  # type: ignore[no-untyped-call]
    return builder.gep(array.data, [args[1]])


@intrinsic
def peek(typing: Any, cells: Any, place: Any) -> Any:
    """What a cell of int64 holds now."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_cell(context, builder, signature, args), "seq_cst", 8)

    return types.int64(cells, place), generate


@intrinsic
def poke(typing: Any, cells: Any, place: Any, value: Any) -> Any:
    """Write a cell of int64, for all threads to see."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _cell(context, builder, signature, args), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(cells, place, types.int64), generate


@numba.njit(cache=True, nogil=True)
def write(cells, place, value, looks):  # type: ignore[no-untyped-def]
    """Write a cell, then look at it so often, to give another thread time; returns what those looks add up to."""
    poke(cells, place, value)  # type: ignore[call-arg]
    found = 0
    for _ in range(looks):
        found += peek(cells, place)
    return found


@numba.njit(cache=True, nogil=True)
def await_value(cells, place, value, looks):  # type: ignore[no-untyped-def]
    """Look until a cell holds `value`, at most so often; whether it does."""
    for _ in range(looks):  # noqa: SIM110 - compiled
        if peek(cells, place) == value:  # type: ignore[call-arg]
            return True
    return False


@numba.njit(cache=True, nogil=True)
def await_change(cells, place, value, looks):  # type: ignore[no-untyped-def]
    """Look until a cell no longer holds `value`, at most so often; what it holds."""
    for _ in range(looks):
        if peek(cells, place) != value:  # type: ignore[call-arg]
            break
    return peek(cells, place)  # type: ignore[call-arg]


@numba.njit(cache=True, nogil=True)
def exchange(ends, rounds, place, value, looks):  # type: ignore[no-untyped-def]
    """Write a cell of `ends`, then look until the same cell of `rounds` no longer holds that; what it holds."""
    poke(ends, place, value)  # type: ignore[call-arg]
    return await_change(rounds, place, value, looks)
