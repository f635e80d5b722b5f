"""The start rule, compiled by numba: a row starts when all that it depends on is done and all its streams are free.

Streams are in-order queues, so rows that are passed in their order need nothing else: no events, no heap. Links are
shared: a row loads a part of each of its links when its latency is over, and the link goes through what it is given in
that order, whatever else a row crosses. A row that does not get its part in time ends when the link is through with it,
or when it has had its share among `CROWD`: who sends little does not wait for all that came before.
A link ends no earlier than it is free plus what work is left for it, so sums of work bound it as they bound streams.
A step ends when all rows have and all links are free. Ends are made of sums, largest and least ones, so with fewer rows
or shorter ones none is later. Simulation, re-simulation and the bounds of a search call this one rule.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array, records
from taskflow.core.compiling import inlined

# A link that a row loads, by the number of its stream; the part of it that it takes, and seconds before it does.
HOP = records([("link", np.int64), ("part", np.float64), ("latency", np.float64)])
# So many share a link at most: of 2, 3, 4 and 6 what ranks strategies most as fair sharing does (`benchmarks/fair.py`).
CROWD = 4.0


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
    start: float = latest(done, free, streams)
    return start


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
def finish_of(start: float, seconds: float, free: Array, hops: Array) -> float:
    """The end of a row that starts at `start`, which loads its links.

    An idle link is through with it when the row ends, or before: to the last bit, so links that nobody else can load
    while a stream of the row is occupied may be left out.
    """
    finish = start + seconds
    for k in range(len(hops)):
        link = hops[k].link
        begin = start + hops[k].latency
        work = work_of(hops[k], seconds)
        if free[link] > begin:
            free[link] += work
            if work > 0.0:
                finish = max(finish, min(free[link], begin + CROWD * work))
        elif work > 0.0:
            free[link] = min(begin + work, start + seconds)
    return float(finish)
