"""Peers: the rows for which those of representatives stand.

A task graph on many devices has rows that differ in their device alone. Where devices are in one orbit, each row is
like one that touches a representative: of equal seconds, behind rows that are like those that this one waits for. So it
begins and ends when that one does, and the rows of representatives say all that a simulation of all rows would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from taskflow.core.columns import Array
from taskflow.strategy.orbits import Orbits

Rows = TypeVar("Rows")  # the task graph, whose rows have peers


@dataclass(frozen=True, eq=False)
class Peers(Generic[Rows]):
    """See above. The sample has every kind of row that moves data once on each device, without dependences.

    Attributes:
        orbits: of the devices; those of one have equal rates.
        count: of every row, how many rows it stands for, itself included.
        number: of every row, which row of the sample it is; negative: it is a point.
        sample: see there.
        like: of every row of the sample, the one of representatives for it.
        times: of these, how many rows of the task graph are of its kind and on its devices.
        lower: makes the rows of finer orbits.
    """

    orbits: Orbits
    count: Array
    number: Array
    sample: Rows
    like: Array
    times: Array
    lower: Callable[[Orbits], Rows]
