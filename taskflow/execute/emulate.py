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

import os
import time
from collections.abc import Callable

import numpy as np

from taskflow.errors import InternalError
from taskflow.execute.program import Compiler, Program
from taskflow.task import Array, Kind, TaskGraph

_SPIN_SECONDS = 1.5e-4  # a sleep overshoots by about 70 us: the last part is spent polling
_POLL_SECONDS = 2e-5


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
        return lambda: np.copyto(into, from_)


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

    def __call__(self) -> None:
        """Run the step; it returns when the clock has reached the end of this rank's last row."""
        self.barrier()  # all ranks have read what they need of the last step
        for row in self.rows:
            self._done[row] = 0.0
        self.barrier()
        origin = time.monotonic()
        heads = [0] * len(self._queues)
        left = len(self.rows)
        while left:
            best, best_start, all_known = -1, np.inf, True
            for q, queue in enumerate(self._queues):
                if heads[q] < len(queue):
                    start = self._earliest(queue[heads[q]], origin)
                    if start is None:
                        all_known = False
                    elif start < best_start:
                        best, best_start = q, start
            if best < 0 or not _reach(best_start, all_known):
                if best < 0:
                    time.sleep(_POLL_SECONDS)
                continue
            row = self._queues[best][heads[best]]
            heads[best] += 1
            left -= 1
            begin = max(best_start, time.monotonic())
            self.calls[row]()
            end = max(begin + self._seconds[row], time.monotonic())
            self._done[row] = end
            self.start[row], self.end[row] = begin - origin, end - origin
        while not _reach(max((self._done[r] for r in self.rows), default=0.0), True):
            pass

    def _earliest(self, row: int, origin: float) -> float | None:
        """When everything that `row` waits for is over; None while that is not known."""
        latest = origin
        for before in self._before[row]:
            end = self._done[before]
            if end == 0.0:
                return None
            if end > latest:
                latest = end
        return latest


def _reach(moment: float, sleep_long: bool) -> bool:
    """Whether the clock has reached `moment`; otherwise spend a little time first."""
    ahead = moment - time.monotonic()
    if ahead <= 0:
        return True
    if ahead > _SPIN_SECONDS:
        time.sleep(ahead - _SPIN_SECONDS if sleep_long else _POLL_SECONDS)
    else:
        os.sched_yield()
    return False


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
