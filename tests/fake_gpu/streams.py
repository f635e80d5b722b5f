"""Fake streams: NumPy that works off the queue of every stream in an adversarial order, one that the events allow.

What is run waits in its queue until somebody synchronizes. Then an adversary picks, again and again, a stream whose
head does not wait; from a seed it draws whom it lets go first and changes its mind now and then, and it can starve one
stream: that one moves only when no other can. So a missing event shows as a wrong number. Nothing here is timed: a
timed event counts what was done before it.

A capture keeps to the rules of CUDA graphs (CUDA C++ Programming Guide, "Stream capture"): a stream joins when it waits
for an event of the capture, may wait for no other, and has to be joined to the first stream again at the end.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend.context import Array, is_resident
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.backend.streams import Call, Launcher, NotCapturable, StreamBackend
from taskflow.comm.transport import Transport
from taskflow.core.dtypes import is_finite
from taskflow.core.errors import InternalError
from taskflow.core.system import host_name
from taskflow.execute.check import poison, poisoned_elements
from taskflow.execute.fold import fold
from tests.fake_gpu.ranks import FakeCommunicator, Gate, flag_gate, flag_signal, mailbox_bytes

_CHANGES_ITS_MIND = 0.1


@dataclass(eq=False)
class FakeStream:
    """A queue of calls and of marks to wait for; `given` and `done` count both kinds."""

    number: int
    name: str
    device: int
    queue: deque[Any] = field(default_factory=deque)
    given: int = 0
    done: int = 0

    def give(self, item: object) -> None:
        """Append to the queue."""
        self.queue.append(item)
        self.given += 1


@dataclass(frozen=True)
class Mark:
    """The moment when a stream has done `count` of its items."""

    stream: FakeStream
    count: int

    @property
    def is_over(self) -> bool:
        """Whether the moment has come."""
        return self.stream.done >= self.count


@dataclass(eq=False)
class FakeEvent:
    """What the event stands for (None: nothing), in which capture, and, once that is over, when it was."""

    device: int
    mark: Mark | None = None
    capture: _Capture | None = None
    time: int | None = None


class _Capture:
    """Streams that record instead of working: original stream -> its stand-in, and who has to be joined."""

    def __init__(self, lead: FakeStream) -> None:
        self.lead = lead
        self.of = {lead: FakeStream(lead.number, lead.name, lead.device)}

    def check_joined(self) -> None:
        """Refuse a stream whose last item the lead does not wait for in the end, directly or through others."""
        reached = {self.of[self.lead]: self.of[self.lead].given}
        todo = [(self.of[self.lead], self.of[self.lead].given)]
        while todo:
            stream, count = todo.pop()
            for item in list(stream.queue)[:count]:
                if isinstance(item, Mark) and reached.get(item.stream, -1) < item.count:
                    reached[item.stream] = item.count
                    todo.append((item.stream, item.count))
        for stream in self.of.values():
            if reached.get(stream, 0) < sum(1 for _ in stream.queue):
                raise NotCapturable(
                    f"stream '{stream.name}' is not joined to the first one at the end of the capture"
                )


class FakeStreams(StreamBackend):
    """See the module.

    Args:
        seed: of the adversary.
        starve: part of the name of the streams that move last.
        gpu: identity of the GPU; default: one for each device, and all of them reach each other.
        library: whether there is a library for collectives.
        memory_bytes: of every device; nothing is ever given back.
    """

    uses_variants = False

    def __init__(
        self,
        seed: int = 0,
        starve: str | None = None,
        gpu: str | None = None,
        library: bool = True,
        memory_bytes: int = 1 << 50,
    ) -> None:
        self._memory_bytes, self._taken = memory_bytes, Counter[int]()
        self._gpu, self._library = gpu, library
        self._generator = np.random.default_rng(seed)
        self._starve = starve
        self._streams: list[FakeStream] = []
        self._capture: _Capture | None = None
        self._clock = 0
        self.launches = 0  # of graphs

    def name(self, device: int) -> str:
        return "fake GPU"

    # -- queues ----------------------------------------------------------------------------------------------------

    def make_stream(self, device: int, name: str) -> FakeStream:
        self._streams.append(FakeStream(len(self._streams), f"{name} {device}", device))
        return self._streams[-1]

    def make_event(self, device: int, timed: bool = False) -> FakeEvent:
        return FakeEvent(device)

    def run(self, stream: FakeStream, call: Call) -> None:
        self._queue(stream).give(call)

    def record(self, stream: FakeStream, event: FakeEvent) -> None:
        if event.device != stream.device:
            raise InternalError(
                f"an event of device {event.device} is recorded on stream '{stream.name}'"
            )
        queue = self._queue(stream)
        event.capture = self._capture if queue is not stream else None
        event.time = None
        if event.capture is None:  # a graph's events are no moments of the outside
            queue.give(lambda: self._stamp(event))
        event.mark = Mark(queue, queue.given)

    def wait(self, stream: FakeStream, event: FakeEvent) -> None:
        capture = self._capture
        if event.mark is None:
            return
        if capture is not None and event.capture is capture:
            capture.of.setdefault(stream, FakeStream(stream.number, stream.name, stream.device))
        elif capture is not None and stream in capture.of:
            raise NotCapturable(
                f"stream '{stream.name}' waits for an event from outside of the capture"
            )
        elif event.capture is not None:
            raise InternalError(
                f"stream '{stream.name}' waits for an event that a capture has recorded"
            )
        self._queue(stream).give(event.mark)

    def _queue(self, stream: FakeStream) -> FakeStream:
        """Where the items of `stream` go: to its stand-in while it is captured."""
        return self._capture.of.get(stream, stream) if self._capture is not None else stream

    def _stamp(self, event: FakeEvent) -> None:
        event.time = self._clock

    def synchronize(self, event: FakeEvent) -> None:
        if self._capture is not None:
            raise NotCapturable("the host waits for a stream")
        if event.mark is not None:
            self._work_off(self._streams, event.mark)

    def seconds_between(self, first: FakeEvent, second: FakeEvent) -> float:
        if first.time is None or second.time is None:
            raise InternalError("a timed event is not over")
        return (second.time - first.time) * 1e-6

    # -- the adversary ---------------------------------------------------------------------------------------------

    def _work_off(self, streams: Sequence[FakeStream], until: Mark | None) -> None:
        """Work off queues until a moment has come (None: until all are empty)."""
        ranks = self._ranks(streams)
        while not until.is_over if until is not None else any(s.queue for s in streams):
            ready = _ready(streams)
            if not ready:
                if not any(s.queue and isinstance(s.queue[0], Gate) for s in streams):
                    raise InternalError(
                        f"streams wait for each other: {[s.name for s in streams if s.queue]}"
                    )
                os.sched_yield()  # to another rank
                continue
            if self._generator.random() < _CHANGES_ITS_MIND:
                ranks = self._ranks(streams)
            self._do(min(ready, key=lambda s: ranks[s]))

    def _ranks(self, streams: Sequence[FakeStream]) -> dict[FakeStream, float]:
        is_last = [self._starve is not None and self._starve in s.name for s in streams]
        return {
            s: self._generator.random() + last for s, last in zip(streams, is_last, strict=True)
        }

    def _do(self, stream: FakeStream) -> None:
        item = stream.queue.popleft()
        if not isinstance(item, Mark):
            self._clock += 1
            item()
        stream.done += 1

    def _finish(self) -> None:
        if self._capture is not None:
            raise NotCapturable("the host waits for all streams")
        self._work_off(self._streams, None)

    # -- other ranks -----------------------------------------------------------------------------------------------

    def rank_gpu(self, device: int) -> RankGpu:
        gpu = self._gpu or f"gpu {device}"
        return RankGpu(
            host_name(), gpu, (gpu, *(f"gpu {k}" for k in range(64))), 1 if self._library else 0
        )

    def shared_zeros(self, device: int, size_bytes: int, ranks: Transport) -> list[Array] | None:
        return ranks.shared_arrays(size_bytes)

    def signal(self, there: Array, sent: Array) -> Call:
        return flag_signal(there, sent)

    def awaits(self, here: Array, awaited: Array) -> Call:
        return flag_gate(here, awaited)

    def communicators(
        self, device: int, groups: Sequence[tuple[int, ...]], ranks: Transport, most_bytes: int
    ) -> dict[tuple[int, ...], Communicator]:
        size = mailbox_bytes(ranks.size, most_bytes)
        shared = ranks.shared_arrays(size * len(groups))
        if shared is None:
            raise InternalError("fake ranks share no memory")
        return {
            group: FakeCommunicator(
                group, ranks.rank, [a[k * size : (k + 1) * size] for a in shared]
            )
            for k, group in enumerate(groups)
            if ranks.rank in group
        }

    def host_waits(self, is_over: Callable[[], bool]) -> None:
        if self._capture is not None:
            raise NotCapturable("the host waits for another rank")
        while not is_over():  # another rank may need what a stream here has still to do
            for stream in _ready(self._streams)[:1]:
                self._do(stream)
            os.sched_yield()

    # -- memory ----------------------------------------------------------------------------------------------------

    def zeros(self, device: int, size_bytes: int) -> Array:
        free, _ = self.memory(device)
        if size_bytes > free:
            raise MemoryError(f"{size_bytes} bytes")
        self._taken[device] += size_bytes
        return np.zeros(size_bytes, np.uint8)

    def memory(self, device: int) -> tuple[int, int]:
        return self._memory_bytes - self._taken[device], self._memory_bytes

    def pinned(self, size_bytes: int) -> Array:
        return np.zeros(size_bytes, np.uint8)

    def mapped(self, device: int, size_bytes: int) -> Array:
        return np.zeros(size_bytes, np.uint8)

    def copy(self, target: Array, source: Array) -> Call:
        return lambda: np.copyto(target, source)

    def kernel(self, source: CudaSource, name: str) -> Launcher:
        raise InternalError(f"fake streams run NumPy kernels, not the CUDA kernel '{name}'")

    def fold(self, combine: str, target: Array, parts: Sequence[Array]) -> Call:
        if self.uses_variants:
            return super().fold(combine, target, parts)
        return partial(fold, np.maximum if combine == "max" else np.add, target, parts, ())

    def poison(self, array: Array) -> Call:
        return super().poison(array) if self.uses_variants else partial(poison, array)

    def inspect(self, array: Array, out: Array) -> Call:
        return super().inspect(array, out) if self.uses_variants else partial(_inspect, array, out)

    def note_not_finite(self, array: Array, flag: Array) -> Call:
        if self.uses_variants:
            return super().note_not_finite(array, flag)
        return lambda: np.logical_or(flag, not is_finite(array), out=flag)

    def resident(self, stream: FakeStream, value: Any) -> Array | None:
        return value.exported(self, stream) if is_resident(value) else None

    def read(self, array: Array) -> Array:
        self._finish()
        return np.array(array)

    def write(self, array: Array, value: Array) -> None:
        self._finish()
        array[...] = value

    # -- graphs ----------------------------------------------------------------------------------------------------

    def capture(self, lead: FakeStream, issue: Call) -> Call:
        if self._capture is not None:
            raise InternalError("a capture is under way")
        self._capture = capture = _Capture(lead)
        try:
            issue()
            capture.check_joined()
        finally:
            self._capture = None
        recorded = [(s, tuple(s.queue)) for s in capture.of.values()]
        return lambda: self._launch(lead, recorded)

    def _launch(
        self, lead: FakeStream, recorded: Sequence[tuple[FakeStream, tuple[Any, ...]]]
    ) -> None:
        self.launches += 1
        lead.give(lambda: self._run_graph(recorded))

    def _run_graph(self, recorded: Sequence[tuple[FakeStream, tuple[Any, ...]]]) -> None:
        for stream, items in recorded:
            stream.queue, stream.given, stream.done = deque(items), len(items), 0
        self._work_off([s for s, _ in recorded], None)


def _inspect(array: Array, out: Array) -> None:
    out[0] = poisoned_elements(array)
    out[1] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).sum(dtype=np.uint64)


def _ready(streams: Sequence[FakeStream]) -> list[FakeStream]:
    """The streams whose heads need not wait."""
    return [
        s
        for s in streams
        if s.queue and (not isinstance(s.queue[0], Mark | Gate) or s.queue[0].is_over)
    ]
