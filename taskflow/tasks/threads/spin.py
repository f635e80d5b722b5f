"""Waiting on a cell of memory that another thread writes, without the interpreter's lock and without the scheduler.

A thread that sleeps takes 50 to 100 us to run again, one that polls in Python keeps the lock from the others. These
functions are compiled, and poll. Loads and stores are atomic and sequentially consistent.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from taskflow.core.columns import Array
from taskflow.core.compiling import njit


def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    make: Any = make_array
    return builder.gep(make(signature.args[0])(context, builder, args[0]).data, [args[1]])


def _peek(typing: Any, cells: Any, number: Any) -> Any:
    """(cells, number) -> what a cell of int64 holds now."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, args), "seq_cst", 8)

    return types.int64(cells, number), generate


def _poke(typing: Any, cells: Any, number: Any, value: Any) -> Any:
    """(cells, number, value): write a cell of int64, for all threads to see."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _address(context, builder, signature, args), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(cells, number, types.int64), generate


peek: Any = intrinsic(_peek)
poke: Any = intrinsic(_poke)


@njit(nogil=True)
def write(cells: Array, number: int, value: int, looks: int) -> int:
    """Write a cell, then look at it so often, to give another thread time; returns what those looks add up to."""
    poke(cells, number, value)
    total = 0
    for _ in range(looks):
        total += peek(cells, number)
    return total


@njit(nogil=True)
def read(cells: Array, number: int) -> int:
    """What a cell holds now."""
    held: int = peek(cells, number)
    return held


@njit(nogil=True)
def await_value(cells: Array, number: int, value: int, looks: int) -> bool:
    """Look until a cell holds `value`, at most so often; whether it does."""
    for _ in range(looks):  # noqa: SIM110 - compiled
        if peek(cells, number) == value:
            return True
    return False


@njit(nogil=True)
def exchange(ends: Array, rounds: Array, number: int, value: int, looks: int) -> int:
    """Write a cell of `ends`, then look, at most so often, until the same cell of `rounds` no longer holds that value.

    Returns what it holds.
    """
    poke(ends, number, value)
    held: int = peek(rounds, number)
    for _ in range(looks):
        if held != value:
            break
        held = peek(rounds, number)
    return held
