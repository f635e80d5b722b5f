"""Emulated devices: a plan for more devices than there are cores, run for real in predictable wall-clock time.

Takes a task graph whose devices are `emulated`, memory that all ranks map, and costs. Every task really runs (its
kernel, its copy, on real data), and its device then counts as busy until the task's predicted time is over; links
likewise. Rows start in the order of their streams, as soon as the clock has reached the end of all that they wait
for, so what is measured holds every delay of a real run but the hardware's speed. One thread drives all streams of a
rank.

The clock is the host's monotonic one, which all ranks share. `done[row]` is when a row ends, written as soon as the row
has started: the target of a transfer knows in advance when it arrives, as a receiver that sleeps on a link does.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from taskflow.errors import InternalError
from taskflow.execute.program import Compiler, Program
from taskflow.system import wake_on_time
from taskflow.task import Array, Kind, TaskGraph

_POLL_SECONDS = 1e-5  # between looks for a row of another rank that takes no time


class EmulatedCompiler(Compiler):
    """Compiles the rows of this rank into one call that replays them against the clock."""

    seconds: Array

    def compile(self) -> Program:
        """See `Compiler.compile`; `seconds` (per row) is set before."""
        graph = self.graph
        calls = {r: self._make_call(r) for r in range(len(graph)) if self.transport.drives(int(graph.device[r]))}
        shared = self.transport.shared_arrays(8 * len(graph) if self.transport.rank == 0 else 0)
        if shared is None and self.transport.size > 1:
            raise InternalError("emulated devices need shared memory")
        done = np.zeros(len(graph)) if shared is None else shared[0][: 8 * len(graph)].view(np.float64)
        self.replay = Replay(graph, self.seconds, calls, done, self.transport.barrier)
        self.program.add(self.replay, 0, "run")
        return self.program

    def _make_call(self, row: int) -> Callable[[], object]:
        if self.graph.kind[row] != Kind.COPY:
            return self._call(row)
        (source, rect, _), (target, _, _) = self.graph.args(row)
        into, from_ = self.memory.view(target, rect), self.memory.view(source, rect)
        return partial(np.copyto, into, from_)


class Replay:
    """One step: the heads of this rank's streams start when their time has come."""

    def __init__(
        self,
        graph: TaskGraph,
        seconds: Array,
        calls: dict[int, Callable[[], object]],
        done: Array,
        barrier: Callable[[], None],
    ) -> None:
        self.calls, self.barrier = calls, barrier
        self.rows = sorted(calls)
        self.start, self.end = np.full(len(graph), np.nan), np.full(len(graph), np.nan)
        self._done = memoryview(done.data).cast("B").cast("d")
        self._seconds: list[float] = seconds.tolist()
        self._before = predecessors(graph)
        self._queues = _queues(graph, self.rows)
        wake_on_time()

    def __call__(self) -> None:
        """Run the step; it returns when the clock has reached the end of this rank's last row."""
        self.barrier()  # all ranks have read what they need of the last step
        for row in self.rows:
            self._done[row] = 0.0
        self.barrier()
        origin = time.monotonic()
        heads = [(origin, q) for q in range(len(self._queues))]  # heap: not before when the next row of q can start
        places = [0] * len(heads)
        while heads:
            moment, q = heads[0]
            sleep_until(moment)
            queue, place = self._queues[q], places[q]
            start = self._earliest(queue[place])
            if start > moment:
                heapq.heapreplace(heads, (start, q))
                continue
            end = self._run(queue[place], max(origin, start), origin)
            places[q] += 1
            if places[q] < len(queue):
                heapq.heapreplace(heads, (end, q))
            else:
                heapq.heappop(heads)
        sleep_until(max((self._done[r] for r in self.rows), default=0.0))

    def _run(self, row: int, start: float, origin: float) -> float:
        """Run a row that could start at `start`, now or before; returns when it ends."""
        begin = max(start, time.monotonic())
        self.calls[row]()
        end = max(begin + self._seconds[row], time.monotonic())
        self._done[row] = end
        self.start[row], self.end[row] = begin - origin, end - origin
        return end

    def _earliest(self, row: int) -> float:
        """When everything that `row` waits for is over; a later moment than now as long as that is not known.

        What has not started takes its whole time from now, or from the end of what it waits for itself.
        """
        done, before, now = self._done, self._before, 0.0
        latest = 0.0
        for other in before[row]:
            end = done[other]
            if end == 0.0:
                now = now or time.monotonic()
                begin = max(now, max([done[b] for b in before[other]], default=0.0))
                end = begin + max(self._seconds[other], _POLL_SECONDS)
            if end > latest:
                latest = end
        return latest


def sleep_until(moment: float) -> None:
    """Return when the clock has reached `moment`.

    It sleeps all the time: on cores that many ranks share, one that polls takes time from those with work to do.
    """
    while (ahead := moment - time.monotonic()) > 0:
        time.sleep(ahead)


def predecessors(graph: TaskGraph) -> list[list[int]]:
    """Per row what it waits for: its dependences and the rows issued just before it on its streams."""
    latest: dict[int, int] = {}
    found = []
    for row, streams in enumerate(graph.streams.tolist()):
        before = set(graph.deps(row))
        before.update(latest[s] for s in streams if s in latest)
        latest.update((s, row) for s in streams if s >= 0)
        found.append(sorted(before))
    return found


def _queues(graph: TaskGraph, rows: list[int]) -> list[list[int]]:
    """The rows of this rank by the first stream that they occupy, in issue order."""
    queues: dict[int, list[int]] = {}
    for row in rows:
        queues.setdefault(int(graph.streams[row, 0]), []).append(row)
    return list(queues.values())
