"""Events: which edges between streams a program needs, decided before anything runs.

Takes items in issue order: the stream of each, and the earlier items that must be over before it starts. Gives, for
every item, the items of other streams that its stream waits for. Waits that follow from others are left out: those for
earlier items of its own stream, and those that an earlier wait implies. To see that, every item carries a clock, which
says how far each stream is known to be when the item starts. (It is a transitive reduction.)

An event is recorded after an item that is waited for. Events come from a pool: one is free again once its last wait has
been issued, since a stream that waits remembers the recording and not the event (CUDA C++ Programming Guide,
"Events"). Were an event recorded again before one of its waits was issued, that wait would be for the wrong item.
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
        events: item that is waited for -> number of the event that is recorded just after it.
        count: number of events.
    """

    waits: tuple[tuple[int, ...], ...]
    events: dict[int, int]
    count: int


def plan_events(streams: Sequence[int], before: Sequence[Sequence[int]]) -> EventPlan:
    """The waits and events of a program.

    Args:
        streams: the stream of each item, from 0.
        before: per item, the earlier items that must be over when it starts.
    """
    waits = _needed_waits(streams, before)
    return EventPlan(waits, *_events(waits))


def _needed_waits(streams: Sequence[int], before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    width = max(streams, default=-1) + 1
    known = np.full((width, width), -1)  # per stream: the last item of each stream that is over when its next starts
    after = np.full((len(streams), width), -1)  # the same, once this item is over
    waits = []
    for item, stream in enumerate(streams):
        clock = known[stream]
        needed = []
        for other in sorted(before[item], reverse=True):  # a later item may imply an earlier one
            if clock[streams[other]] < other:
                needed.append(other)
                np.maximum(clock, after[other], out=clock)
        clock[stream] = item
        after[item] = clock
        waits.append(tuple(sorted(needed)))
    return tuple(waits)


def _events(waits: Sequence[Sequence[int]]) -> tuple[dict[int, int], int]:
    """The event of every item that is waited for, and how many events there are."""
    last_wait = {other: item for item, others in enumerate(waits) for other in others}
    ends: dict[int, list[int]] = {}
    for other, item in last_wait.items():
        ends.setdefault(item, []).append(other)
    events: dict[int, int] = {}
    free: list[int] = []
    count = 0
    for item in range(len(waits)):
        free += [events[other] for other in ends.get(item, ())]
        if item in last_wait:
            if not free:
                free, count = [count], count + 1
            events[item] = free.pop()
    return events, count
