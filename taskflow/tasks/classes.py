"""Classes of devices that do the same: the first device of each stands for all.

A task graph on many devices has rows that differ in their device alone. Its classes hold the rows that touch the first
devices, which are a task graph of their own, and a sample with every kind of row once on each device.

Every row is `like` one of a first device: of equal seconds, behind rows that are like those that this one waits for. So
it begins and ends when that one does, and the first devices' rows say all that a simulation of all rows would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from taskflow.core.columns import Array

Rows = TypeVar("Rows")  # the task graph, which has classes


@dataclass(frozen=True, eq=False)
class Classes(Generic[Rows]):
    """See above.

    Attributes:
        first: of every device, the first one of its class.
        rows: those that touch first devices, in their order, with what they do there alone.
        number: of these, which row of the sample it is.
        sample: rows without dependences.
        like: of these, the row of first devices.
        times: of these, how many rows of the task graph it stands for.
        finer: makes classes of fewer devices: those for which an array holds different numbers are in different ones.
            None: there are no such classes.
    """

    first: Array
    rows: Rows
    number: Array
    sample: Rows
    like: Array
    times: Array
    finer: Callable[[Array], Classes[Rows] | None]
