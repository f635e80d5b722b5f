"""Checked execution on GPUs: what `check` does, by kernels, without a host that waits at every task.

Every point looks at its arguments before and after, on its stream, and leaves what it finds in counters on the device;
the host reads them at the end of the step and raises for the first point, in issue order, that broke a rule. What a
point may only read is compared by a sum over all its bits: arrays of GPUs cannot be made read-only. As on CPUs, a point
works on copies of its arrays, of the same steps and alignment, between red zones: memory that holds the pattern. Points
of a device take turns in that memory. Scratch memory has no red zones on GPUs.

The tests run the kernels as C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from taskflow.backend import StreamBackend, Workspace
from taskflow.backend.capture import call_each
from taskflow.backend.context import pointer
from taskflow.execute.check import outputs_of
from taskflow.execute.gpu.ledger import Ledger
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph

Call = Callable[[], object]
_LOOKS = 3  # at an argument: before, after, and at the memory around it; each finds poisoned elements and a sum of bits
_ZONE_BYTES = 128  # on either side of an array
_ALIGNMENT = 64


@dataclass(frozen=True)
class _Argument:
    """Argument `number` of a task: what it may do with it, and its counters."""

    task: str
    number: int  # among the outputs, if it is one
    privilege: Privilege
    size: int
    device: int
    counters: int
    words: int  # of the memory with its red zones


class DeviceChecks:
    """The checks of a program for the devices of this rank."""

    def __init__(
        self, backend: StreamBackend, ledger: Ledger, graph: TaskGraph, devices: Sequence[int]
    ) -> None:
        self._backend = backend
        counts = np.diff(graph.arg_ptr) * (graph.kind == Kind.POINT)
        self._counters = {}
        for d in devices:
            count = max(int(counts[graph.device == d].sum()), 1)
            block = ledger.take(d, "counters of checks", count * _LOOKS * 16)
            self._counters[d] = block.view(np.uint64).reshape(-1, _LOOKS, 2)
        self._zones = {d: Workspace(ledger.maker(d, "red zones")) for d in devices}
        self._used = dict.fromkeys(devices, 0)
        self._arguments: list[_Argument] = []

    def checked(
        self,
        task: str,
        device: int,
        views: Sequence[Array],
        privileges: Sequence[Privilege],
        call: Callable[..., object],
    ) -> Call:
        """`call(*views)` with its privileges noted; `task` names it in errors."""
        outputs = outputs_of(privileges)
        copyto = self._backend.xp.copyto
        before: list[Call] = []
        after: list[Call] = []
        copies = []
        offset = 0
        for k, (view, privilege) in enumerate(zip(views, privileges, strict=True)):
            counters = self._counters[device][self._used[device]]
            number = outputs.index(k) if k in outputs else k
            memory, copy, offset = self._between_zones(device, offset, view)
            argument = _Argument(
                task, number, privilege, view.size, device, self._used[device], memory.size
            )
            self._arguments.append(argument)
            self._used[device] += 1
            copies.append(copy)
            before.append(self._backend.poison(memory))
            if k not in outputs:
                before += self._backend.inspect(view, counters[0]), partial(copyto, copy, view)
            if privilege != Privilege.READ_WRITE:
                after.append(self._backend.inspect(copy, counters[1]))
            if privilege != Privilege.READ:
                after.append(partial(copyto, view, copy))
            after += self._backend.poison(copy), self._backend.inspect(memory, counters[2])
        return partial(call_each, (*before, partial(call, *copies), *after))

    def _between_zones(self, device: int, offset: int, view: Array) -> tuple[Array, Array, int]:
        """Memory at `offset` as words, an array of the steps and alignment of `view` within it, and what is behind."""
        size = (
            sum((n - 1) * step for n, step in zip(view.shape, view.strides, strict=True))
            + view.itemsize
        )
        words = -(-(2 * _ZONE_BYTES + _ALIGNMENT + (size if view.size else 0)) // 8)
        memory, offset = self._zones[device].view(offset, (words,), np.uint64)
        begin = _ZONE_BYTES + (pointer(view) - pointer(memory) - _ZONE_BYTES) % _ALIGNMENT
        return (
            memory,
            self._backend.xp.lib.stride_tricks.as_strided(
                memory.view(np.uint8)[begin : begin + view.itemsize].view(view.dtype),
                view.shape,
                view.strides,
            ),
            offset,
        )

    def verify(self) -> None:
        """At the end of a step.

        Raises:
            PermissionError: a kernel read memory that nobody wrote, wrote what it may only read, or left a part of its
                output unwritten, or wrote outside of an array.
        """
        counts = {
            device: self._backend.read(counters) for device, counters in self._counters.items()
        }
        for argument in self._arguments:
            looks = counts[argument.device][argument.counters].tolist()
            if refusal := _refusal(argument, looks):
                raise PermissionError(f"task {argument.task}: {refusal}")


def _refusal(argument: _Argument, looks: list[list[int]]) -> str:
    """What a kernel did that it may not do, by what each look at its argument found; empty for nothing."""
    (unread, bits), (unwritten, bits_after), (kept, _) = looks
    is_output = argument.privilege in (Privilege.WRITE, Privilege.REDUCE)
    where = f"{'output' if is_output else 'argument'} {argument.number}"
    if kept != argument.words:
        return f"{where}: the kernel writes outside of the array"
    if is_output and unwritten:
        return f"{where}: leaves {unwritten} of {argument.size} elements unwritten"
    if not is_output and unread:
        return f"{where}: reads {unread} elements that no task wrote"
    if argument.privilege == Privilege.READ and bits != bits_after:
        return f"{where}: is only read, and has been written"
    return ""
