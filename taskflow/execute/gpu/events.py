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

from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import TaskGraph


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


class MemoryUses:
    """Who used which bytes: an instance that begins its life waits for those who used its memory before.

    The memory plan lets instances share bytes one after the other, in row order. Streams of one device run side by
    side, so each has to wait for that order.
    """

    def __init__(self, graph: TaskGraph, plan: MemoryPlan) -> None:
        self._graph, self._plan = graph, plan
        self._order: list[int] = []  # instances that have been born
        self._latest: dict[int, dict[int, int]] = {}  # instance -> stream -> its last item that uses it
        self._before: dict[int, list[int]] = {}  # instance -> the last items that used its memory before its birth

    def use(self, instance: int, stream: int, item: int) -> list[int]:
        """Note that `item` of `stream` uses an instance; the items that used its memory before its birth.

        All users of an instance wait for those: several, on several streams, may write their parts of it first.
        """
        if instance not in self._latest:
            born = np.array(self._order, np.int64)
            others: list[int] = born[self._plan.share_bytes(self._graph, born, instance)].tolist()
            found = [i for other in others for i in self._latest[other].values()]
            self._before[instance] = [i for i in found if i != item]
            self._latest[instance] = {}
            self._order.append(instance)
        self._latest[instance][stream] = item
        return self._before[instance]

    def users(self, instance: int) -> list[int]:
        """The last item of every stream that has used an instance."""
        return list(self._latest.get(instance, {}).values())
