"""Items that go to whoever is free: a counter in memory that all claimants of a host see.

A cell holds the round in its upper 32 bits, and how many items of it are gone in its lower ones. Who is in a later
round has seen that all items of the one before are gone; so what is late finds that, too, and no round is awaited.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from taskflow.core.columns import Array
from taskflow.core.compiling import njit


def _exchange(typing: Any, cells: Any, number: Any, old: Any, new: Any) -> Any:
    """(cells, number, old, new) -> what a cell of int64 held; it is `new` now if that was `old`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        make: Any = make_array
        address = builder.gep(make(signature.args[0])(context, builder, args[0]).data, [args[1]])
        exchanged = builder.cmpxchg(address, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(exchanged, 0)

    return types.int64(cells, number, types.int64, types.int64), generate


exchange: Any = intrinsic(_exchange)


@njit(nogil=True)
def claim_next(cells: Array, number: int, turn: int, count: int) -> int:
    """The next item of round `turn`, -1 where all `count` are gone."""
    seen = exchange(cells, number, 0, 0)
    while True:
        gone = seen & 0xFFFFFFFF if seen >> 32 == turn else 0
        if seen >> 32 > turn or gone >= count:
            return -1
        before = exchange(cells, number, seen, (turn << 32) + gone + 1)
        if before == seen:
            return gone
        seen = before
