"""A crew: threads that share the calls of one device of a CPU with the thread that steps.

Python's threads run side by side where kernels leave the interpreter's lock alone: in NumPy's loops, in BLAS, and in
numba's functions with `nogil`. Whoever finds the lock taken is put to sleep for 50 us and more, so a call is handed
over like this: the thread that steps writes a number, and leaves the lock for the few microseconds that the other
thread takes to see it and to enter its kernel. BLAS keeps to one thread a call while somebody is `with` the crew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from taskflow.core.system import count_cores, local_size

Call = Callable[[], object]

_HEAD_START_SECONDS = 5e-6  # for another thread to enter its kernel
_PATIENCE_SECONDS = 1e-3  # of a thread without a call, before it sleeps
_GAP = 16  # cells of 8 bytes between two that different threads write


class Crew:
    """`size` threads: the one that calls, and others that wait for a call."""

    def __init__(self, size: int) -> None:
        self.size = size
        is_alone = size <= count_cores()  # on its core; else who looks keeps others from theirs
        self._patience, self._pause = (_PATIENCE_SECONDS, 0.0) if is_alone else (1e-5, 5e-5)
        self._limits: list[Any] = []  # of BLAS, of those who are with the crew now
        self._is_busy = Lock()
        self._owner = 0
        self._round = 0
        self._lists = list[Sequence[Call]]()
        self._errors = list[BaseException | None]()
        if size > 1:
            self._start()

    def _start(self) -> None:
        import threadpoolctl  # type: ignore[import-untyped]  # these two late: who has one core need not wait for them

        from taskflow.tasks.threads import spin

        self._spin = spin
        self._libraries = threadpoolctl.ThreadpoolController()
        self._rounds, self._ends, self._sleeps = (
            np.zeros(self.size * _GAP, np.int64) for _ in range(3)
        )
        self._looks_per_second = _looks_per_second(spin)
        self._alarms: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(self.size)]
        for k in range(1, self.size):
            Thread(target=self._serve, args=(k,), name=f"taskflow-crew-{k}", daemon=True).start()

    def run(self, calls: Sequence[Call]) -> None:
        """Make all calls, each on a thread of its own; an error of any is raised once all have ended."""
        self.start([[call] for call in calls[1:]])
        try:
            calls[0]()
        except BaseException:
            self.settle()
            raise
        self.finish()

    def start(self, lists: Sequence[Sequence[Call]]) -> None:
        """Let every other thread make the calls of its list, one after the other, and go on meanwhile.

        When the crew works for another thread of the process already, this one makes all these calls itself.
        """
        if not self._is_busy.acquire(blocking=False):
            for calls in lists:
                for call in calls:
                    call()
            return
        self._owner = get_ident()
        self._errors = [None] * self.size
        self._lists, self._round = [[], *lists], self._round + 1
        for k in range(1, len(self._lists)):
            self._hand_over(k)

    def finish(self) -> None:
        """Wait until all that was started has ended; raises an error of any."""
        for error in self.settle():
            raise error

    def settle(self) -> list[BaseException]:
        """Wait until all that was started has ended, if anything was; the errors."""
        if self._owner != get_ident():
            return []
        for k in range(1, len(self._lists)):
            while not self._spin.await_value(
                self._ends, k * _GAP, self._round, self._looks(self._patience)
            ):
                time.sleep(self._pause)  # let a signal be noticed
        errors = [error for error in self._errors if error is not None]
        self._lists = []
        self._errors = []
        self._owner = 0  # what they refer to may go
        self._is_busy.release()
        return errors

    def _hand_over(self, k: int) -> None:
        self._spin.write(self._rounds, k * _GAP, self._round, self._looks(_HEAD_START_SECONDS))
        if self._spin.read(self._sleeps, k * _GAP):
            self._alarms[k].put(None)

    def _serve(self, k: int) -> None:
        """What a thread does for ever: wait for a round, and make its calls."""
        cell = k * _GAP
        done = 0
        while True:
            patience = self._looks(self._patience)
            latest = self._spin.exchange(self._ends, self._rounds, cell, done, patience)
            if latest == done:
                latest = self._sleep(k, done)
            if latest != done:
                self._errors[k] = _error_of(self._lists[k])
                done = latest

    def _sleep(self, k: int, done: int) -> int:
        """Sleep until somebody rings, unless there is a round already; the latest round."""
        cell = k * _GAP
        self._spin.write(self._sleeps, cell, 1, 0)
        if self._spin.read(self._rounds, cell) == done:
            self._alarms[k].get()
        self._spin.write(self._sleeps, cell, 0, 0)
        return int(self._spin.read(self._rounds, cell))

    def _looks(self, seconds: float) -> int:
        return int(seconds * self._looks_per_second)

    def __enter__(self) -> None:
        """Keep BLAS to one thread a call."""
        if self.size > 1:
            self._limits.append(self._libraries.limit(limits=1, user_api="blas"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what is still under way after an error, and let BLAS have its threads back."""
        self.settle()
        if self._limits:
            self._limits.pop().restore_original_limits()


def _looks_per_second(spin: ModuleType, looks: int = 1_000_000) -> float:
    """How often a thread can look at a cell in a second."""
    cells = np.zeros(1, np.int64)
    spin.write(cells, 0, 1, 1)  # compiles
    begin = time.perf_counter()
    spin.write(cells, 0, 1, looks)
    return looks / (time.perf_counter() - begin)


def _error_of(calls: Sequence[Call]) -> BaseException | None:
    try:
        for call in calls:
            call()
    except BaseException as error:  # raised by the thread that waits
        return error
    return None


def crew() -> Crew:
    """The crew of this process: as many threads as `thread_limit` says."""
    return _crew(thread_limit(), os.getpid())


@cache
def _crew(size: int, process: int) -> Crew:
    """One of each size; a process that was forked has no threads of its parent's."""
    return Crew(size)


def thread_limit() -> int:
    """Threads of a device: OMP_NUM_THREADS, else its share of the cores, which the ranks of a host divide.

    Raises:
        ValueError: OMP_NUM_THREADS is no positive number.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not text:
        return max(1, count_cores() // local_size())
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"OMP_NUM_THREADS: a number of threads from 1, not '{text}'")
    return int(text)
