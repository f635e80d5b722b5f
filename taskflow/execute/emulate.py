"""Emulated devices: a plan for more devices than there are cores, run for real in predictable wall-clock time.

Takes a task graph whose devices are `emulated`, memory that all ranks map, and costs. Every task really runs (its
kernel, its copy, what a call of a library moves, on real data), and its device then counts as busy until the task's
predicted time is over. Transfers share links fairly (`execute.flows`). Rows run in the order of their streams, not
before the clock has reached the end of all that they wait for. A device works off its streams by itself, as a GPU does.
The host issues a row up to a millisecond before its start, as soon as the ends of all rows that it waits for are known.
A host that is late delays the row only if the work is not done when the row's predicted time is over. One thread drives
all streams of a rank.

The clock is the host's monotonic one, which all ranks share. `done[row]` is when a row ends, written as soon as the
row has started: the target of a transfer knows in advance when it arrives, as a receiver that sleeps on a link does.
Of a transfer that shares links it is what the ledger says so far: others that begin can only delay it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taskflow.backend.capture import call_each
from taskflow.core.errors import InternalError
from taskflow.core.system import wake_on_time
from taskflow.execute.called import called
from taskflow.execute.flows import FlowLedger
from taskflow.execute.program import REPLAY, Call, Compiler, RankProgram
from taskflow.simulation.sharing import find_loads
from taskflow.tasks.task_graph import Array, Kind, TaskGraph
from taskflow.tasks.timeline import RowsBefore

# How early a row is issued: ranks that share a core come to rows of the same time in turn.
_AHEAD_SECONDS = 1e-3
_PATIENCE_SECONDS = 2.5e-4  # between two looks for a row of another rank


class EmulatedCompiler(Compiler):
    """Compiles the rows of this rank into one call that replays them against the clock."""

    seconds: Array

    def compile(self) -> RankProgram:
        """See `Compiler.compile`; `seconds` (per row) is set before."""
        graph = self.graph
        self._makers[int(Kind.COLLECTIVE)] = self._called
        calls = {
            r: self._call(r)
            for r in range(len(graph))
            if self.transport.drives(int(graph.device[r]))
        }
        calls |= {r: partial(call_each, (calls[r], note)) for r, note in self.notes.items()}
        done, begun = self._moments()
        ledger = FlowLedger(find_loads(graph, self.seconds), self.seconds, begun)
        last = self.guard_row if self.guard else len(graph)
        barrier = partial(self.transport.barrier, in_step=True)
        self.replay = Replay(graph, self.seconds, ledger, calls, done, barrier, last)
        self.program.add(self.replay, 0, REPLAY)
        self._reach(len(graph))  # a guard
        if last < len(graph):
            self.program.add(self.replay.rest, last, REPLAY)
        return self.program

    def _moments(self) -> Array:
        """(2, rows) seconds in memory that all ranks share: when every row is over, and when it begins."""
        size = 2 * 8 * len(self.graph)
        shared = self.transport.shared_arrays(size if self.transport.rank == 0 else 0)
        cells = shared[0] if shared else None
        if cells is None and self.transport.size > 1:
            raise InternalError("emulated devices need shared memory")
        moments = np.zeros(size // 8) if cells is None else cells[:size].view(np.float64)
        return moments.reshape(2, -1)

    def _called(self, row: int, _: list[Array]) -> Call:
        return called(self.graph, self.memory, row, self.fold_call)


class Replay:
    """One step up to row `last`, and the `rest`: the heads of this rank's streams start when their time has come."""

    def __init__(
        self,
        graph: TaskGraph,
        seconds: Array,
        ledger: FlowLedger,
        calls: dict[int, Callable[[], object]],
        done: Array,
        barrier: Callable[[], None],
        last: int,
    ) -> None:
        self.calls = calls
        self.ledger = ledger
        self.barrier = barrier
        self.rows = sorted(calls)
        self.start = np.full(len(graph), np.nan)
        self.end = np.full(len(graph), np.nan)
        self._done = memoryview(done.data).cast("B").cast("d")
        self._seconds: list[float] = seconds.tolist()
        before = RowsBefore(graph, of_links=False)
        self._before = [
            sorted({*graph.deps(row), *before.of(row)}) for row in range(len(graph))
        ]  # what a row waits for
        self._queues: list[dict[int, list[int]]] = [{}, {}]  # until the last row, and behind it
        for row in self.rows:  # by the first stream that it occupies; one of links alone by itself
            stream = int(graph.streams[row, 0])
            self._queues[row >= last].setdefault(stream if stream >= 0 else -1 - row, []).append(
                row
            )
        wake_on_time()

    def __call__(self) -> None:
        """Begin the step; it returns when the clock has reached the end of the last row of this rank so far."""
        self.barrier()  # all ranks have read what they need of the last step
        for row in self.rows:
            self._done[row] = 0.0
        self.ledger.clear(self.rows)
        self.barrier()
        self._origin = time.monotonic()
        self._play(0)

    def rest(self) -> None:
        """Go on, from now; it returns when the clock has reached the end of this rank's last row."""
        self._play(1)

    def _play(self, part: int) -> None:
        origin = time.monotonic()
        queues = list(self._queues[part].values())
        heads = [(origin, q) for q in range(len(queues))]  # heap: when to look at the next row of q
        positions = [0] * len(heads)
        while heads:
            moment, q = heads[0]
            sleep_until(moment)
            self.ledger.look()
            queue = queues[q]
            position = positions[q]
            start, is_known = self._earliest(queue[position])
            look = start - _AHEAD_SECONDS
            if look > moment or not is_known:
                heapq.heapreplace(
                    heads,
                    (look if is_known else max(look, time.monotonic()) + _PATIENCE_SECONDS, q),
                )
                continue
            end = self._run(queue[position], max(origin, start))
            positions[q] += 1
            if positions[q] < len(queue):
                heapq.heapreplace(heads, (end - _AHEAD_SECONDS, q))
            else:
                heapq.heappop(heads)
        self._finish([row for queue in queues for row in queue])

    def _finish(self, rows: Sequence[int]) -> None:
        """Wait for the ends of rows that all have begun, and note those of transfers that share links."""
        while (last := max(map(self._end, rows), default=0.0)) > time.monotonic():
            sleep_until(last)
            self.ledger.look()
        for row in rows:
            self.end[row] = self._end(row) - self._origin

    def _run(self, row: int, start: float) -> float:
        """Run a row that starts at `start`, soon or before now; returns when it ends.

        The device starts it then: the host that comes later has until the row's end to do its work.
        """
        self.calls[row]()
        start = max(start, time.monotonic() - self._seconds[row])
        self.start[row] = start - self._origin
        if self.ledger.is_shared[row]:
            self.ledger.begin(row, start)
        else:
            self._done[row] = start + self._seconds[row]
        return self._end(row)

    def _end(self, row: int) -> float:
        """When a row is over, as far as known; 0: it has not begun."""
        return self.ledger.end(row) if self.ledger.is_shared[row] else self._done[row]

    def _earliest(self, row: int) -> tuple[float, bool]:
        """When everything that `row` waits for is over, and whether that is known; else a moment not after it."""
        others = self._before[row]
        ends = [self._end(other) for other in others]
        latest = max((end or self._due(other) for other, end in zip(others, ends)), default=0.0)
        return latest, 0.0 not in ends

    def _due(self, row: int) -> float:
        """When a row that has not started ends at the earliest, as far as the ends of what it waits for are known."""
        ends = [self._end(other) for other in self._before[row]]
        return (time.monotonic() if 0.0 in ends else max(ends, default=0.0)) + self._seconds[row]


def sleep_until(moment: float) -> None:
    """Return when the clock has reached `moment`.

    It sleeps all the time: on cores that many ranks share, one that polls takes time from those with work to do.
    """
    while (ahead := moment - time.monotonic()) > 0:
        time.sleep(ahead)
