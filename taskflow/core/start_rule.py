"""The start rule, compiled by numba: a row starts when all that it depends on is done and all its streams are free.

Streams are in-order queues, so rows that are passed in their order need nothing else: no events, no heap. Simulation,
re-simulation, the critical path of a search and the bounds of its exhaustive variant all call this one rule.
"""

from __future__ import annotations

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined


@inlined
def latest(moment: float, times: Array, which: Array) -> float:
    """The largest of `moment` and the `times` of the numbers `which`; a negative number stands for none."""
    for k in range(len(which)):
        if which[k] >= 0:
            moment = max(moment, times[which[k]])
    return moment


@inlined
def start_of(done: float, free: Array, streams: Array) -> float:
    """The rule: `done` is the last end of what the row depends on, `free` says when every stream is free."""
    found: float = latest(done, free, streams)
    return found


@inlined
def occupy(free: Array, streams: Array, finish: float) -> None:
    """The row ends at `finish`: its streams are free then."""
    for k in range(len(streams)):
        if streams[k] >= 0:
            free[streams[k]] = finish
