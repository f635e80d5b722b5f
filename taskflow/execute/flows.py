"""The ledger of shared links: when transfers of emulated devices end that cross links together with others.

When a transfer ends depends on those that begin before it is over. So what ranks tell each other is when each begins,
and every rank finds out by itself when each will end if nothing more begins: by the rules of `tasks.fair`, from event
to event. A transfer may be issued late, after its beginning: the events of the last moments are passed again each
time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from taskflow.tasks.fair import FlowTimes, Loads, no_flows, pass_events
from taskflow.tasks.task_graph import Array

_LATEST_SECONDS = 0.2  # a transfer that is issued later than that begins late
_NOTHING = np.zeros(0, np.int64)


class FlowLedger:
    """The transfers of one step that share links.

    Args:
        loads: of every row.
        seconds: of every row where it shares nothing.
        begun: (rows,) memory that all ranks map: when a transfer begins, on the monotonic clock; 0: not known.

    Attributes:
        is_shared: of every row, whether it is such a transfer.
    """

    def __init__(self, loads: Loads, seconds: Array, begun: Array) -> None:
        self._loads = loads
        self._seconds = np.asarray(seconds, float)
        self._begun = begun
        self.is_shared: list[bool] = (
            (np.diff(loads.ptr) > 0) & (self._seconds > loads.latency)
        ).tolist()
        self.clear([])

    def clear(self, rows: Sequence[int]) -> None:
        """Forget the last step, and for all ranks that these rows have begun."""
        self._begun[list(rows)] = 0.0
        self._unseen = np.flatnonzero(self.is_shared)
        self._past = 0.0
        self._state = no_flows(self._loads)
        self._end: list[float] = [0.0] * len(self._seconds)

    def begin(self, row: int, start: float) -> None:
        """A transfer begins at `start`, which may be over, or still to come."""
        self._begun[row] = start
        self.look()

    def look(self) -> None:
        """Find out what begins on all ranks, and when it ends."""
        is_new = self._begun[self._unseen] > 0.0
        if not is_new.any():
            return
        new = self._unseen[is_new]
        self._unseen = self._unseen[~is_new]
        times = self._state[0]
        times.start[new] = np.maximum(self._begun[new], self._past - self._loads.latency[new])
        times.end[new] = times.start[new] + self._seconds[new]
        self._past = max(self._past, time.monotonic() - _LATEST_SECONDS)
        pass_events(tuple(self._loads), *(tuple(part) for part in self._state), new, self._past)
        expected = [tuple(column.copy() for column in part) for part in self._state]
        pass_events(tuple(self._loads), *expected, _NOTHING, np.inf)
        self._end = FlowTimes(*expected[0]).end.tolist()

    def end(self, row: int) -> float:
        """When a transfer is over if no other one begins, as far as known at the last look; 0: it has not begun."""
        return self._end[row]
