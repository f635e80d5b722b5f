"""A crew: threads that share the calls of one device of a CPU with the thread that steps.

Python's threads run side by side where kernels leave the interpreter's lock alone: in NumPy's loops, in BLAS, and in
numba's functions with `nogil`. BLAS then keeps to one thread a call, while somebody is `with` the crew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

Call = Callable[[], object]

HANDOFF_SECONDS = 3e-5  # until a thread that sleeps runs its call, and the one that waits has noticed its end


class Crew:
    """`size` threads: the one that calls and others, which sleep between calls."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._calls: list[SimpleQueue[Call]] = [SimpleQueue() for _ in range(size - 1)]
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        self._libraries: Any = None
        self._limits: Any = None
        for k, calls in enumerate(self._calls):
            Thread(target=self._serve, args=(calls,), name=f"taskflow-crew-{k + 1}", daemon=True).start()

    def run(self, calls: Sequence[Call]) -> None:
        """Make all calls, each on a thread of its own; an error of any is raised once all have ended."""
        others = calls[1:]
        for queue, call in zip(self._calls, others, strict=False):
            queue.put(call)
        errors = [_error_of(calls[0]), *(self._ends.get() for _ in others)]
        for error in filter(None, errors):
            raise error

    def _serve(self, calls: SimpleQueue[Call]) -> None:
        while True:
            self._ends.put(_error_of(calls.get()))

    def __enter__(self) -> None:
        """Keep BLAS to one thread a call."""
        if self.size > 1:
            if self._libraries is None:
                import threadpoolctl  # type: ignore[import-untyped]  # late: who has one core need not wait for it

                self._libraries = threadpoolctl.ThreadpoolController()
            self._limits = self._libraries.limit(limits=1, user_api="blas")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let BLAS have its threads back."""
        if self._limits is not None:
            self._limits.restore_original_limits()


def _error_of(call: Call) -> BaseException | None:
    try:
        call()
    except BaseException as error:
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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", 1)))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"OMP_NUM_THREADS: a number of threads from 1, not '{text}'")
    return int(text)
