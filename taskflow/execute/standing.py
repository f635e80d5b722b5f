"""Where a step stands, in memory that the guard of this rank reads (`taskflow.comm.guard`).

The times of a recorded step are written there anyway, one more with every call. What is not recorded pays nothing: the
guard looks into the rank's memory, where Python's iterator counts the calls.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from mmap import MADV_REMOVE
from time import perf_counter
from typing import Any

from taskflow.comm.heart import heart
from taskflow.comm.judge import LINE_BYTES, Cell
from taskflow.execute.program import Call, RankProgram
from taskflow.tasks.task_graph import Kind, TaskGraph

_INDEX_AT = object.__basicsize__  # of a list's iterator: the number of items that it has given


class Standing:
    """The table of a program (`Cell.TABLE`). `times`: when the step began, and when each of its calls ended."""

    def __init__(self, program: RankProgram, rows: TaskGraph, may_wait: bool) -> None:
        """`may_wait`: its one call is the whole step, waits for other ranks included."""
        self._cells = heart().cells
        count = len(program.calls)
        memory, self._begin = heart().room(16 + (8 + LINE_BYTES) * (count + 1))
        self.times: memoryview[float] = memoryview(memory)[8 : 16 + 8 * count].cast("d")
        if heart().is_guarded:
            memory[:8] = count.to_bytes(8, "little")
            memory[16 + 8 * count : 16 + 8 * count + LINE_BYTES * (count + 1)] = _lines(
                program, rows, may_wait
            )
            _note_compiling()
            weakref.finalize(self, memory.madvise, MADV_REMOVE).atexit = False

    def begin(self, step: int, calls: Iterator[Call] | None) -> None:
        """A step begins; with `calls`, their times are not written."""
        self.times[0] = perf_counter()
        self._cells[Cell.COUNT] += 1
        self._cells[Cell.STEP] = step
        self._cells[Cell.ITERATOR] = 0 if calls is None else id(calls) + _INDEX_AT
        self._cells[Cell.TABLE] = self._begin

    def end(self) -> None:
        """The step under way, if there is one, is over."""
        self._cells[Cell.TABLE] = 0


def _lines(program: RankProgram, rows: TaskGraph, may_wait: bool) -> bytes:
    kinds = [Kind(kind).name.lower() for kind in rows.kind.tolist()]
    points = rows.point.tolist()

    def line(row: int, role: str) -> str:
        if not kinds:  # this host has none
            return role
        task = f"{kinds[row]} {rows.name(row)}[{points[row]}]"
        return f"{'wait' if may_wait else role} of task {row}: {task}"

    lines = [line(*pair) for pair in zip(program.rows, program.roles, strict=True)]
    lines.append("waiting for the outputs")
    return b"".join(line.encode()[:LINE_BYTES].ljust(LINE_BYTES) for line in lines)


def _note_compiling() -> None:
    """From now on the guard knows when numba compiles here, or waits for another process that does."""
    if "numba" in sys.modules:
        _listen()


@cache
def _listen() -> None:
    from numba.core import event

    def count(by: int) -> Callable[..., None]:
        def act(*about: object) -> None:
            heart().cells[Cell.COMPILING] += by

        return act

    numba: Any = event
    listener = type(
        "CompilingListener", (numba.Listener,), {"on_start": count(1), "on_end": count(-1)}
    )
    numba.register("numba:compiler_lock", listener())
