"""The senders of a sketch, and the links that copies cross, compiled by numba; see `sketch`.

A copy occupies the stream in which its target receives, that in which its source sends, and the links between them.
One sender, or the link of a host, may serve many devices. The order of the copies is known (`moves.copy_in_rounds`), so
whoever is served last waits for all of them.
"""

from __future__ import annotations

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.compiling import inner, leaf
from taskflow.searching.packed import Packed
from taskflow.searching.receiving import LackingParts, Links, LoadedRegion

# What a stream has to send: seconds of all copies, how many, the round of the last one and its target as one number.
SENDER = np.dtype([("seconds", np.float64), ("copies", np.int64), ("last", np.int64)])


@inner
def add_senders(
    x: LoadedRegion,
    needs: Array,
    readers: int,
    seconds: Array,
    parts: LackingParts,
    links: Links,
    begin: int,
    arrival: Array,
    p: Packed,
) -> None:
    """One row for every stream that several copies occupy; the point that the last one is for has it in `arrival`.

    Of each device the need counts that takes longest.
    """
    need, sender = np.full(len(links.hosts), -1, np.int64), np.zeros(links.streams, SENDER)
    find_slowest(x, needs, seconds, need)
    for device in range(len(need)):
        if need[device] >= 0:
            count_copies(x, need[device], device, parts, links, sender)
    put_senders(needs, readers, links, begin, arrival, p, need, sender)


@leaf
def find_slowest(x: LoadedRegion, needs: Array, seconds: Array, need: Array) -> None:
    """Per device, which of its needs takes longest; those of which none takes any time keep -1."""
    for i in range(len(needs)):
        device = x.points.device[needs[i]]
        if seconds[i] > 0.0 and (need[device] < 0 or seconds[i] > seconds[need[device]]):
            need[device] = i


@leaf
def put_senders(
    needs: Array, readers: int, links: Links, begin: int, arrival: Array, p: Packed, need: Array, sender: Array
) -> None:
    """The rows of `add_senders`."""
    for stream in range(links.streams):
        if sender[stream].copies > 1:
            row, taken = p.filled[0].rows, sender[stream].seconds
            p.seconds[row], p.streams[row] = taken, links.first_stream + stream
            p.within_ptr[row] = p.filled[0].within
            p.filled[0].rows = row + 1
            i = need[sender[stream].last % len(need)]
            at = needs[i]
            before = begin + arrival[at, 1]
            if i < readers and (before < begin or taken > p.seconds[before]):
                arrival[at, 1] = row - begin


@leaf
def count_copies(x: LoadedRegion, i: int, device: int, parts: LackingParts, links: Links, sender: Array) -> None:
    """Add the copies that need number `i` waits for to all streams that they occupy but the first, which receives."""
    devices = len(links.hosts)
    for part in range(parts.ptr[i], parts.ptr[i + 1]):
        source = x.points.device[parts.source[part]]
        streams, turn = source * devices + device, source - device if source > device else source - device + devices
        for k in range(links.set_ptr[streams] + 1, links.set_ptr[streams + 1]):
            of_stream = sender[links.stream[k]]
            of_stream.seconds += parts.seconds[part]
            of_stream.last = max(of_stream.last, turn * devices + device)
            of_stream.copies += 1
