"""Replay of a step on streams: item by item the first time, then as captured graphs.

Takes items in issue order. The first step is issued item by item, which compiles kernels, makes the handles of
libraries and grows scratch memory. Before the second, every item is captured alone, to find those that refuse; the
items between two such, on all their streams, become one graph each. From then on a step is a few launches.

A segment of a step (a graph, or items that are issued) begins on the lead stream, from which the others are forked by
events, and ends there, where they are joined. So segments follow each other on the lead stream and need no event of
each other. Items of the host, such as messages, run while their segment is issued, once what they wait for is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from taskflow.backend import NotCapturable, StreamBackend
from taskflow.execute.gpu.events import EventPlan, plan_events
from taskflow.execute.gpu.staging import Staging, StepCells
from taskflow.execute.guard import GivenUp

Call = Callable[[], object]

_UNTIMED = ("fetch", "await", "signal", "poison", "note")  # what is no work of a row

HOST = -1  # the "stream" of items that the host does itself

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Item:
    """One thing that a step does.

    Attributes:
        call: launches work, with its stream current; of a host item: does it.
        stream: number of its stream, or HOST.
        row, role: of the task graph, for errors and times.
        before: the items that are over when it starts.
        name: for a profiler.
    """

    call: Call
    stream: int
    row: int
    role: str
    before: tuple[int, ...]
    name: str = ""


@dataclass
class GuardedItems:
    """Items of which one, of the host, may raise GivenUp (see `taskflow.execute.gpu.device_guard`).

    Attributes:
        guard: the number of that item; None: there is none.
        points: the items behind it that are left out in a step that is given up.
        keeps, restores: run on the lead stream before a step, and at the end of one that is given up.
    """

    items: Sequence[Item]
    guard: int | None = None
    points: frozenset[int] = frozenset()
    keeps: list[Call] = field(default_factory=list)
    restores: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Segment:
    """Consecutive items as calls that issue them.

    Attributes:
        calls: in order; `of[k]` is the item that call k belongs to, -1 for the fork and the join.
        is_captured: whether it is to become a graph.
    """

    calls: tuple[Call, ...]
    of: tuple[int, ...]
    is_captured: bool


class StreamReplay:
    """A step as one call; `streams` are by number, the first is the lead.

    Args:
        devices: the device of every stream, by its number.
        rows: number of rows of the task graph.
        captures: whether steps after the first are captured.
        times: whether items are timed: `start` and `end` are then seconds of every row. Such steps are not captured,
            nor are those that a profiler looks at.

    Attributes:
        issued_seconds: what the host took to issue the last step.
    """

    def __init__(
        self,
        backend: StreamBackend,
        streams: Mapping[int, Any],
        devices: Mapping[int, int],
        items: Sequence[Item],
        staging: Staging,
        cells: StepCells,
        rows: int,
        captures: bool,
        times: bool,
    ) -> None:
        self._backend = backend
        self._staging = staging
        self._cells = cells
        self._streams = list(streams.values())
        self._devices = [devices[s] for s in streams]
        self._leads: dict[
            int, tuple[int, Any]
        ] = {}  # of every clock the first device and stream, the lead's first
        for device, stream in zip(self._devices, self._streams):
            self._leads.setdefault(backend.clock(device), (device, stream))
        self._number = {s: k for k, s in enumerate(streams)} | {HOST: len(streams)}
        self._captures = captures and not times and not backend.is_profiled
        self._times = times
        self.issued_seconds = 0.0
        self._lead = self._streams[0]
        self._end = backend.make_event(self._devices[0])
        self.start = np.full(rows, np.nan)
        self.end = np.full(rows, np.nan)
        self._events: dict[tuple[int, int], Any] = {}
        self._clock: list[tuple[Any, Any]] = []
        self._origins: dict[int, Any] = {}  # of the times of a clock
        self.is_warm = False
        self.prefetch: Call | None = None  # called once, while the next step runs
        self.take(GuardedItems(items))

    def take(self, guarded: GuardedItems) -> None:
        """From now on a step is these items, on the streams of before."""
        self._guarded = guarded
        self.items = list(guarded.items)
        if self._times:
            make = partial(self._backend.make_event, timed=True)
            self._clock = [(make(d), make(d)) for d in map(self._device_of, self.items)]
            self._origins = {clock: make(device) for clock, (device, _) in self._leads.items()}
        self.segments = self._build([False] * len(self.items))
        self.is_captured = False
        self._calls: list[Call] = [partial(self._issue, segment) for segment in self.segments]
        if guarded.guard is not None:  # what is left of a step that is given up
            self._rest = self._segment(guarded.guard + 1, len(self.items), False, guarded.points)

    def _device_of(self, item: Item) -> int:
        """Where an item is done; those of the host belong to no device, and count to the first one."""
        return self._devices[0 if item.stream == HOST else self._number[item.stream]]

    def __call__(self) -> None:
        """One step; it returns when the step is over on all streams."""
        if self.is_warm and self._captures and not self.is_captured:
            self._capture()
        begin = time.perf_counter()
        for keep in self._guarded.keeps:
            self._backend.run(self._lead, keep)
        self._staging.begin(self._lead)
        self._cells.begin(self._lead)
        is_over = self._launch()
        self.issued_seconds = time.perf_counter() - begin
        if self.prefetch is not None:
            prefetch = self.prefetch
            self.prefetch = None
            prefetch()
        self._backend.synchronize(self._end)
        self.is_warm = True
        if self._times:
            self._read_clock()
        if not is_over:
            raise GivenUp

    def repeat(self) -> None:
        """A step on the feeds and numbers of the last one, for measurements."""
        self._launch()
        self._backend.synchronize(self._end)

    @property
    def branches(self) -> list[Item]:
        """The items that run beside the lead stream: where there is none, a step is one chain."""
        return [item for item in self.items if item.stream != HOST and self._number[item.stream]]

    def without(self, items: Iterable[int]) -> Call:
        """A step on the feeds and numbers of the last one, captured without some of its items, for measurements.

        Raises:
            NotCapturable: one of the others, a message say, cannot be in a graph.
        """
        segment = self._segment(0, len(self.items), True, frozenset(items))
        launch = self._backend.capture(self._lead, partial(self._issue, segment))

        def step() -> None:
            launch()
            self._backend.record(self._lead, self._end)
            self._backend.synchronize(self._end)

        return step

    def _launch(self) -> bool:
        """Whether the step was not given up."""
        is_over = True
        with self._backend.warm_step() if self.is_warm else nullcontext():
            self._mark_origins()
            try:
                for call in self._calls:
                    call()
            except GivenUp:
                is_over = False
                self._issue(self._rest)
                for restore in self._guarded.restores:
                    self._backend.run(self._lead, restore)
            self._backend.record(self._lead, self._end)
        return is_over

    # -- segments --------------------------------------------------------------------------------------------------

    def _build(self, is_capturable: Sequence[bool]) -> list[Segment]:
        """The segments of a step, given which items can be in a graph; a guard is one of its own."""
        segments = []
        first = 0
        guard = self._guarded.guard
        parts = [0 if guard is None else (k >= guard) + (k > guard) for k in range(len(self.items))]
        for (is_captured, _), group in groupby(zip(is_capturable, parts, strict=True)):
            count = len(list(group))
            segments.append(self._segment(first, first + count, is_captured))
            first += count
        return segments

    def _segment(
        self, first: int, last: int, is_captured: bool, without: frozenset[int] = frozenset()
    ) -> Segment:
        """Items `first` to `last` between a fork and a join, which are on the lead stream; some do nothing."""
        streams = [0, *(self._number[item.stream] for item in self.items[first:last]), 0]
        before = [[], *(self._waits(k, first) for k in range(first, last))]
        latest = {stream: k for k, stream in enumerate(streams[:-1])}
        before.append([k for stream, k in latest.items() if stream != self._number[HOST]])
        plan = plan_events(streams, before, [*self._devices, self._devices[0]])
        for event in plan.events.values():
            if event not in self._events:
                self._events[event] = self._backend.make_event(event[0])
        calls: list[Call] = []
        of: list[int] = []
        for k in range(len(streams)):
            item = first + k - 1 if 0 < k < len(streams) - 1 else -1
            made = self._calls_of(plan, k, streams[k], item, item not in without)
            calls += made
            of += [item] * len(made)
        return Segment(tuple(calls), tuple(of), is_captured)

    def _waits(self, item: int, first: int) -> list[int]:
        """What an item waits for within its segment, whose fork is number 0; host items are over when they are issued.

        The fork stands for all earlier segments: a stream waits for them anyway, the host where it needs one of them.
        """
        others = [k for k in self.items[item].before if self.items[k].stream != HOST]
        inside = [k - first + 1 for k in others if k >= first]
        needs_fork = self.items[item].stream != HOST or len(inside) < len(others)
        return [0, *inside] if needs_fork else inside

    def _calls_of(
        self, plan: EventPlan, k: int, stream: int, item: int, is_run: bool
    ) -> list[Call]:
        backend = self._backend
        is_host = stream == self._number[HOST]
        awaited = [self._events[plan.events[other]] for other in plan.waits[k]]
        if is_host:
            return [*(partial(backend.synchronize, e) for e in awaited), self.items[item].call]
        queue = self._streams[stream]
        calls: list[Call] = [partial(backend.wait, queue, e) for e in awaited]
        if item >= 0:
            run = partial(backend.run, queue, self.items[item].call)
            if backend.is_profiled:
                run = partial(self._in_range, self.items[item].name, run)
            clock = (
                [partial(backend.record, queue, e) for e in self._clock[item]]
                if self._clock
                else []
            )
            calls += [*clock[:1], *[run] * is_run, *clock[1:]]
        if k in plan.events:
            calls.append(partial(backend.record, queue, self._events[plan.events[k]]))
        return calls

    def _in_range(self, name: str, call: Call) -> None:
        with self._backend.range(name):
            call()

    def _issue(self, segment: Segment) -> None:
        position = 0
        try:
            for position, call in enumerate(segment.calls):  # noqa: B007 - for the error
                call()
        except Exception as error:
            if segment.of[position] >= 0 and not isinstance(error, NotCapturable | GivenUp):
                item = self.items[segment.of[position]]
                error.add_note(f"while row {item.row} ({item.role}) was issued")
            raise

    # -- graphs ----------------------------------------------------------------------------------------------------

    def _capture(self) -> None:
        is_capturable = [self._can_capture(item) for item in self.items]
        made = [self._captured(segment) for segment in self._build(is_capturable)]
        self.segments = [segment for segment, _ in made]
        self._calls = [call for _, call in made]
        self.is_captured = True
        kinds = [segment.is_captured for segment in self.segments]
        _log.debug(
            "a step is %d graphs and %d segments that are issued",
            kinds.count(True),
            kinds.count(False),
        )

    def _captured(self, segment: Segment) -> tuple[Segment, Call]:
        """A segment and the call for it: a graph, or its items where they are issued; also if all of them, each of
        which can be captured, cannot be together.
        """
        issue = partial(self._issue, segment)
        if not segment.is_captured:
            return segment, issue
        try:
            return segment, self._backend.capture(self._lead, issue)
        except NotCapturable as error:
            _log.warning(
                "%d calls of a step are issued one by one: they cannot be captured together: %s",
                len(segment.of),
                error,
            )
            return replace(segment, is_captured=False), issue

    def _can_capture(self, item: Item) -> bool:
        if item.stream == HOST:
            return False
        stream = self._streams[self._number[item.stream]]
        try:
            self._backend.capture(stream, partial(self._backend.run, stream, item.call))
        except NotCapturable as error:
            _log.debug("row %d (%s) cannot be captured: %s", item.row, item.role, error)
            return False
        return True

    # -- times -----------------------------------------------------------------------------------------------------

    def _mark_origins(self) -> None:
        """On every clock one moment, from which its times count: between two clocks no time is known, and these moments
        are as near as a wait for an event."""
        for clock, event in self._origins.items():
            _, stream = self._leads[clock]
            if stream is not self._lead:
                self._backend.wait(stream, next(iter(self._origins.values())))
            self._backend.record(stream, event)

    def _read_clock(self) -> None:
        items = zip(self.items, self._clock)
        timed = [
            (item, *clock)
            for item, clock in items
            if item.stream != HOST and item.role not in _UNTIMED
        ]
        self.start.fill(np.nan)
        self.end.fill(np.nan)
        for item, begin, end in timed:
            row = item.row
            origin = self._origins[self._backend.clock(self._device_of(item))]
            self.start[row] = np.fmin(self.start[row], self._backend.seconds_between(origin, begin))
            self.end[row] = np.fmax(self.end[row], self._backend.seconds_between(origin, end))
        if timed:
            first = float(np.nanmin(self.start))
            self.start -= first
            self.end -= first
