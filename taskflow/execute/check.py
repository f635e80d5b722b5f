"""Checked execution: poisoned memory, and privileges verified around every task.

An instance is filled with a byte pattern when it is born. Before a kernel runs, none of what it reads may still hold
the pattern; what it writes is poisoned first and must hold none of it after. What it may only read is a read-only
array in any mode, so writing to it raises by itself. Elements of one byte are not checked: every pattern is a legal
value there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from taskflow.tasks.task_graph import Array

_BYTE = 0xFB


def poison(array: Array) -> None:
    """Fill with the pattern."""
    array[...] = np.frombuffer(bytes([_BYTE]) * array.itemsize, array.dtype)[0]


def poisoned_elements(array: Array) -> int:
    """Number of elements that hold the pattern."""
    if array.itemsize == 1 or array.size == 0:
        return 0
    pattern = np.frombuffer(bytes([_BYTE]) * array.itemsize, f"u{array.itemsize}")[0]
    return int(np.count_nonzero(np.ascontiguousarray(array).view(f"u{array.itemsize}") == pattern))


def checked(
    task: str, reads: Sequence[Array], writes: Sequence[Array], call: Callable[[], object]
) -> Callable[[], None]:
    """`call` with its privileges verified; `task` names it in errors.

    Raises (when called):
        PermissionError: the kernel reads memory that nobody wrote, or leaves a part of its output unwritten.
    """

    def run() -> None:
        for k, array in enumerate(reads):
            if count := poisoned_elements(array):
                raise PermissionError(f"task {task}: argument {k}: reads {count} elements that no task wrote")
        for array in writes:
            poison(array)
        call()
        for k, array in enumerate(writes):
            if count := poisoned_elements(array):
                raise PermissionError(f"task {task}: output {k}: leaves {count} of {array.size} elements unwritten")

    return run
