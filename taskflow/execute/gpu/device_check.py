"""Checked execution on GPUs: what `check` does, by kernels, without a host that waits at every task.

Every point looks at its arguments before and after, on its stream, and leaves what it finds in counters on the device;
the host reads them at the end of the step and raises for the first point, in issue order, that broke a rule. What a
point may only read is compared by a sum over all its bits: arrays of GPUs cannot be made read-only.

Not yet run on hardware: the tests run the kernels as C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from taskflow.backend import StreamBackend
from taskflow.backend.capture import call_each
from taskflow.execute.gpu.ledger import Ledger
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph

Call = Callable[[], object]
_NUMBERS = 4  # of an argument: poisoned elements and the sum of its bits, before and after


@dataclass(frozen=True)
class _Argument:
    """Argument `number` of a task: what it may do with it, and its counters."""

    task: str
    number: int  # among the outputs, if it is one
    privilege: Privilege
    size: int
    device: int
    counters: int


class DeviceChecks:
    """The checks of a program for the devices of this rank."""

    def __init__(self, backend: StreamBackend, ledger: Ledger, graph: TaskGraph, devices: Sequence[int]) -> None:
        self._backend = backend
        counts = np.diff(graph.arg_ptr) * (graph.kind == Kind.POINT)
        size = {d: int(counts[graph.device == d].sum()) for d in devices}
        blocks = {d: ledger.take(d, "counters of checks", max(n, 1) * _NUMBERS * 8) for d, n in size.items()}
        self._counters = {d: block.view(np.uint64).reshape(-1, 2, 2) for d, block in blocks.items()}
        self._used = dict.fromkeys(devices, 0)
        self._arguments: list[_Argument] = []

    def checked(
        self, task: str, device: int, views: Sequence[Array], privileges: Sequence[Privilege], call: Call
    ) -> Call:
        """`call` with its privileges noted; `task` names it in errors."""
        made = [k for k, p in enumerate(privileges) if p in (Privilege.WRITE, Privilege.REDUCE)]
        before, after = [], []
        for k, (view, privilege) in enumerate(zip(views, privileges, strict=True)):
            counters, number = self._counters[device][self._used[device]], k - made[0] if k in made else k
            self._arguments.append(_Argument(task, number, privilege, view.size, device, self._used[device]))
            self._used[device] += 1
            before.append(self._backend.poison(view) if k in made else self._backend.inspect(view, counters[0]))
            if privilege != Privilege.READ_WRITE:
                after.append(self._backend.inspect(view, counters[1]))
        return partial(call_each, (*before, call, *after))

    def verify(self) -> None:
        """At the end of a step.

        Raises:
            PermissionError: a kernel read memory that nobody wrote, wrote what it may only read, or left a part of its
                output unwritten.
        """
        found = {device: self._backend.read(counters) for device, counters in self._counters.items()}
        for argument in self._arguments:
            (unread, bits), (unwritten, bits_after) = found[argument.device][argument.counters].tolist()
            where, k = f"task {argument.task}", argument.number
            if argument.privilege in (Privilege.WRITE, Privilege.REDUCE):
                if unwritten:
                    raise PermissionError(
                        f"{where}: output {k}: leaves {unwritten} of {argument.size} elements unwritten"
                    )
            elif unread:
                raise PermissionError(f"{where}: argument {k}: reads {unread} elements that no task wrote")
            elif argument.privilege == Privilege.READ and bits != bits_after:
                raise PermissionError(f"{where}: argument {k}: is only read, and has been written")
