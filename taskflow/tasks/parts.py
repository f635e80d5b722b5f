"""Parts of sums: what a point does with memory in which parts are added up, as its privileges say.

The first part of a sum in an instance of its own has REDUCE. It is written; if it is one of what is added to an
input, the kernel adds it to zero. Later parts in that instance have READ_WRITE: the kernel adds to what is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskflow.graph.kernel import Kernel
from taskflow.tasks.task_graph import Launch, Privilege


def for_parts(kernel: Kernel, launch: Launch, privileges: Sequence[Privilege]) -> Kernel:
    """The kernel of a point, which begins with zero where it adds the first part of a sum to an input."""
    inputs = privileges[: len(launch.bound.pattern.inputs)]
    return kernel.from_zero(tuple(k for k, p in enumerate(inputs) if p == Privilege.REDUCE))


def added_outputs(launch: Launch, privileges: Sequence[Privilege]) -> tuple[int, ...]:
    """The numbers of the outputs to which the kernel adds, see `Context.adds_to`."""
    outputs = privileges[len(launch.bound.pattern.inputs) :]
    return tuple(k for k, p in enumerate(outputs) if p == Privilege.READ_WRITE)
