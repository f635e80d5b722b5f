"""What copies keep the other streams busy with that they occupy, compiled by numba; see `sketch`.

One sender, or the link of a host, may serve many devices. The order of the copies is known (`moves.copy_in_rounds`), so
whoever is served last waits for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.packing import ROW, WITHIN, Packed
from taskflow.searching.receiving import Links, Pieces, Played


@inner
def add_senders(
    x: Played, needs: Any, readers: int, seconds: Any, pieces: Pieces, links: Links, begin: int, arrival: Any, p: Packed
) -> None:
    """One row for every stream that several copies occupy; the point that the last one is for has it in `arrival`.

    Of each device the need counts that takes longest.
    """
    need, total = np.full(len(links.hosts), -1, np.int64), np.zeros(links.streams)
    key, count = np.full(links.streams, -1, np.int64), np.zeros(links.streams, np.int64)
    put_senders(x, needs, readers, seconds, pieces, links, begin, arrival, p, need, total, key, count)


@leaf
def put_senders(
    x: Played, needs: Any, readers: int, seconds: Any, pieces: Pieces, links: Links, begin: int, arrival: Any,
    p: Packed, need: Any, total: Any, key: Any, count: Any,
) -> None:  # fmt: skip
    """See `add_senders` and `count_copies`; need: memory for that of each device."""
    devices = len(need)
    for i in range(len(needs)):
        device = x.points.device[needs[i]]
        if seconds[i] > 0.0 and (need[device] < 0 or seconds[i] > seconds[need[device]]):
            need[device] = i
    for device in range(devices):
        if need[device] >= 0:
            count_copies(x, need[device], device, pieces, links, total, key, count)
    for stream in range(links.streams):
        if count[stream] > 1:
            row = p.length[ROW]
            p.seconds[row], p.queue[row] = total[stream], links.first_stream + stream
            p.within_ptr[row] = p.length[WITHIN]
            p.length[ROW] = row + 1
            i = need[key[stream] % devices]
            at = needs[i]
            if i < readers and (arrival[at, 1] < 0 or total[stream] > p.seconds[begin + arrival[at, 1]]):
                arrival[at, 1] = row - begin


@leaf
def count_copies(
    x: Played, i: int, device: int, pieces: Pieces, links: Links, total: Any, key: Any, count: Any
) -> None:  # fmt: skip
    """Add the copies that need number `i` waits for to all streams that they occupy but the first, which receives.

    `total`: seconds; `count`: copies; `key`: the round of the last copy and its target, as one number.
    """
    devices = len(links.hosts)
    for piece in range(pieces.ptr[i], pieces.ptr[i + 1]):
        source = x.points.device[pieces.source[piece]]
        queue, turn = source * devices + device, source - device if source > device else source - device + devices
        for k in range(links.queue_ptr[queue] + 1, links.queue_ptr[queue + 1]):
            stream = links.queue[k]
            total[stream] += pieces.seconds[piece]
            key[stream] = max(key[stream], turn * devices + device)
            count[stream] += 1
