"""Events: which edges between streams a program needs, decided before anything runs.

Takes items in issue order: the stream of each, and the earlier items that must be over before it starts. Gives, for
every item, the items of other streams that its stream waits for. Waits that follow from others are left out: those for
earlier items of its own stream, and those that an earlier wait implies. To see that, every item carries a clock, which
says how far each stream is known to be when the item starts. (It is a transitive reduction.)

An event is recorded after an item that is waited for. Events come from a pool: one is free again once its last wait has
been issued, since a stream that waits remembers the recording and not the event (CUDA C++ Programming Guide,
"Events"). Were an event recorded again before one of its waits was issued, that wait would be for the wrong item. A
device has a pool of its own: an event is recorded on streams of the device that it was made on, and awaited by any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EventPlan:
    """Edges between streams.

    Attributes:
        waits: per item, the items of other streams that its stream waits for just before it.
        events: item that is waited for -> the event that is recorded just after it: its device, and its number there.
    """

    waits: tuple[tuple[int, ...], ...]
    events: dict[int, tuple[int, int]]


def plan_events(
    streams: Sequence[int], before: Sequence[Sequence[int]], devices: Sequence[int]
) -> EventPlan:
    """The waits and events of a program.

    Args:
        streams: the stream of each item, from 0.
        before: per item, the earlier items that must be over when it starts.
        devices: the device of each stream.
    """
    waits = _needed_waits(streams, before)
    return EventPlan(waits, _events(waits, [devices[stream] for stream in streams]))


def _needed_waits(
    streams: Sequence[int], before: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    width = max(streams, default=-1) + 1
    clocks = np.full(
        (width, width), -1
    )  # per stream: the last item of each stream that is over when its next starts
    after = np.full((len(streams), width), -1)  # the same, once this item is over
    waits = []
    for item, stream in enumerate(streams):
        clock = clocks[stream]
        needed = []
        for other in sorted(before[item], reverse=True):  # a later item may imply an earlier one
            if clock[streams[other]] < other:
                needed.append(other)
                np.maximum(clock, after[other], out=clock)
        clock[stream] = item
        after[item] = clock
        waits.append(tuple(sorted(needed)))
    return tuple(waits)


def _events(waits: Sequence[Sequence[int]], devices: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The event of every item that is waited for, by the device of each item."""
    last_wait = {other: item for item, others in enumerate(waits) for other in others}
    ends: dict[int, list[int]] = {}
    for other, item in last_wait.items():
        ends.setdefault(item, []).append(other)
    events: dict[int, tuple[int, int]] = {}
    free: dict[int, list[int]] = {device: [] for device in devices}
    counts = dict.fromkeys(devices, 0)
    for item, device in enumerate(devices):
        for owner, number in (events[other] for other in ends.get(item, ())):
            free[owner].append(number)
        if item in last_wait:
            if not free[device]:
                free[device].append(counts[device])
                counts[device] += 1
            events[item] = device, free[device].pop()
    return events
