"""Rates that are possible. What a measurement makes of disturbed times is refused, and never becomes a machine.

The bounds are far around what there is: a core of a shared host reaches 1e9 flop/s and 1e9 bytes/s, a GPU
of 2026 1e16 flop/s (float8) and 1e13 bytes/s, its link to the host 1e12, a network 1e7 to 1e11.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np


class _Limits(NamedTuple):
    unit: str
    least: float
    most: float


class Possible(_Limits, Enum):
    """What is measured: its unit, the least and the most that is possible."""

    PRODUCTS = "flop/s", 1e5, 1e18
    MEMORY = "bytes/s", 1e5, 1e15
    LINK = "bytes/s", 1e5, 1e14
    CALL = "s", 1e-9, 10.0


def possible(what: str, value: float, rate: Possible, how: str = "") -> float:
    """`value`, if it is possible; `how` says of what it was made.

    Raises:
        ValueError: it is not, with both bounds.
    """
    if not rate.least <= value <= rate.most:
        where = f" ({how})" if how else ""
        raise ValueError(
            f"measure: {what}: {value:.3g} {rate.unit}{where}, possible are {rate.least:g} to {rate.most:g}; "
            "something else may run there: measure again"
        )
    return value


def transfer_rate(
    what: str, sizes: tuple[int, int], small: Sequence[float], large: Sequence[float]
) -> float:
    """Bytes/s of transfers without their latency: from median seconds of small and of large ones, timed by turns.

    Raises:
        ValueError: the rate is not possible; a small transfer that took as long as a large one gives none.
    """
    seconds = [float(np.median(times)) for times in (small, large)]
    longer = seconds[1] - seconds[0]
    rate = (sizes[1] - sizes[0]) / longer if longer > 0 else np.inf
    how = " and ".join(
        f"{size} bytes in {took:.3g} s" for size, took in zip(sizes, seconds, strict=True)
    )
    return possible(what, rate, Possible.LINK, how)
