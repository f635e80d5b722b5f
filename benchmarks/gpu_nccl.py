"""Part `nccl` of `gpu`: NCCL with one rank, a collective in a captured graph."""

from __future__ import annotations

import numpy as np

from taskflow.backend import GroupCall, StreamBackend
from taskflow.backend.timing import DeviceClock
from taskflow.comm.transport import LocalTransport
from taskflow.tasks.task_graph import Array


class OneRank(LocalTransport):
    """A rank without others; its shared memory is its own."""

    def shared_arrays(self, size_bytes: int) -> list[Array | None] | None:
        """See `Transport.shared_arrays`."""
        return [np.zeros(size_bytes, np.uint8)]


def all_reduce(backend: StreamBackend, count: int) -> tuple[bool, float]:
    """Sum `count` numbers over one rank in a graph: whether they are what they were, and seconds of the sum."""
    (communicator,) = backend.communicators(0, [(0,)], OneRank(), 4 * count).values()
    clock = DeviceClock(backend, 0)
    source, target = clock.array((count,), "float32"), clock.array((count,), "float32")
    calls = communicator.calls([GroupCall("all_reduce", source, target)])

    def issue() -> None:
        for call in calls:
            backend.run(clock.stream, call)

    issue()  # once outside of a graph: it connects
    _finish(backend, clock)
    launch = backend.capture(clock.stream, issue)
    backend.write(target, np.zeros(count, np.float32))
    launch()
    _finish(backend, clock)
    is_right = np.array_equal(backend.read(target), backend.read(source))
    return is_right, sum(clock.seconds(call) for call in calls)


def _finish(backend: StreamBackend, clock: DeviceClock) -> None:
    event = backend.make_event(0)
    backend.record(clock.stream, event)
    backend.synchronize(event)
