"""What a kernel is told of its point; and parts of sums: what it does with memory in which they are added up.

The first part of a sum in an instance of its own has REDUCE. It is written; if it is one of what is added to an
input, the kernel adds it to zero. Later parts in that instance have READ_WRITE: the kernel adds to what is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskflow.core.geometry import Rect
from taskflow.graph.kernel import Kernel
from taskflow.tasks.task_graph import Launch, Privilege, TaskGraph


def boxes_of(
    task_graph: TaskGraph, row: int
) -> tuple[tuple[Rect, ...], dict[str, tuple[int, int]]]:
    """Of a point: the boxes of its arguments, and the interval of every axis."""
    launch = task_graph.launches[int(task_graph.launch[row])]
    return tuple(rect for _, rect, _ in task_graph.args(row)), launch.intervals(
        int(task_graph.point[row])
    )


def for_parts(kernel: Kernel, launch: Launch, privileges: Sequence[Privilege]) -> Kernel:
    """The kernel of a point, which begins with zero where it adds the first part of a sum to an input."""
    inputs = privileges[: len(launch.bound.pattern.inputs)]
    return kernel.from_zero(tuple(k for k, p in enumerate(inputs) if p == Privilege.REDUCE))


def added_outputs(launch: Launch, privileges: Sequence[Privilege]) -> tuple[int, ...]:
    """The numbers of the outputs to which the kernel adds, see `Context.adds_to`."""
    outputs = privileges[len(launch.bound.pattern.inputs) :]
    return tuple(k for k, p in enumerate(outputs) if p == Privilege.READ_WRITE)
