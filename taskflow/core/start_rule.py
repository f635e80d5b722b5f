"""The start rule, compiled by numba: a row starts when all that it depends on is done and all its streams are free.

Streams are in-order queues, so rows that are passed in their order need nothing else: no events, no heap. Links are
shared: a row loads a part of each of its links when its latency is over, and the link goes through what it is given in
that order, whatever else a row crosses. A row that does not get its part in time ends when the link is through with it.
A link ends no earlier than it is free plus what work is left for it, so sums of work bound it as they bound streams.
Simulation, re-simulation, the critical path of a search and the bounds of its exhaustive variant call this one rule.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined

# A link that a row loads, by the number of its stream; the part of it that it takes, and seconds before it does.
HOP = np.dtype([("link", np.int64), ("part", np.float64), ("latency", np.float64)])


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


@inlined
def work_of(hop: np.record, seconds: float) -> float:
    """Seconds of a link that a row takes which alone takes `seconds`."""
    return float(hop.part * max(seconds - hop.latency, 0.0))


@inlined
def cross(start: float, seconds: float, free: Array, hop: np.record) -> bool:
    """A row that starts at `start` loads a link; whether that had work left by then.

    An idle link is through with it when the row ends, or before: to the last bit, so links that nobody else can load
    while a stream of the row is occupied may be left out.
    """
    link, begin, work = hop.link, start + hop.latency, work_of(hop, seconds)
    is_late = free[link] > begin
    if is_late:
        free[link] += work
    elif work > 0.0:
        free[link] = min(begin + work, start + seconds)
    return bool(is_late and work > 0.0)


@inlined
def finish_of(start: float, seconds: float, free: Array, hops: Array) -> float:
    """The end of a row, which loads its links."""
    finish = start + seconds
    for k in range(len(hops)):
        if cross(start, seconds, free, hops[k]):
            finish = max(finish, free[hops[k].link])
    return float(finish)
