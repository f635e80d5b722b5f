"""Measured costs on GPUs: each kernel timed on a device by its events, on made-up arrays that lie as in the executor.

`CostModel.measured` asks this for rows of `cuda` devices. Kernels run as they do in a step: the variant for CUDA where
an operator has one, scratch memory that is there already, numbers of the step in cells, products in the precision of
the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from taskflow.backend import Array, Run, StreamBackend, StreamContext, Workspace
from taskflow.backend.timing import DeviceClock
from taskflow.tasks.task_graph import Launch, TaskGraph, access

_CELL_BYTES = 8


class DeviceTimes:
    """Seconds of kernels and copies on the GPUs of one backend."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend
        self._clocks: dict[int, DeviceClock] = {}

    def name(self, device: int) -> str:
        """What a device is called in a cost file."""
        return self._backend.name(device)

    def point(self, task_graph: TaskGraph, launch: Launch, row: int) -> float:
        """Seconds of the kernel of a point."""
        clock = self._clock(int(task_graph.device[row]))
        args, arrays = task_graph.args(row), []
        for (_, rect, _), number in zip(args, launch.args, strict=True):
            order = task_graph.order(number)
            array = clock.array(tuple(rect.shape[d] for d in order), task_graph.regions[number].dtype)
            arrays.append(array.transpose(np.argsort(order).tolist()))
        context = StreamContext(
            self._backend,
            partial(self._cell, clock.device),
            partial(self._backend.zeros, clock.device),
            [rect for _, rect, _ in args],
            launch.intervals(int(task_graph.point[row])),
            Run(),
            Workspace(partial(self._backend.zeros, clock.device)),
            int(task_graph.point[row]),
        )
        kernel = launch.kernel.on_cuda if self._backend.uses_variants else launch.kernel
        kernel = kernel.for_dtypes(arrays, *access([privilege for _, _, privilege in args]))
        with self._backend.tf32(task_graph.uses_tf32):
            return clock.seconds(partial(kernel, context, *arrays))

    def move(self, device: int, shape: Sequence[int], dtype: str, adds: int) -> float:
        """Seconds of a copy within a device, or of so many additions."""
        clock, xp = self._clock(device), self._backend.xp
        target, other = (clock.array(tuple(shape), dtype) for _ in range(2))
        if not adds:
            return clock.seconds(lambda: xp.copyto(target, other))
        return adds * clock.seconds(lambda: xp.add(target, other, out=target))

    def _clock(self, device: int) -> DeviceClock:
        if device not in self._clocks:
            self._clocks[device] = DeviceClock(self._backend, device)
        return self._clocks[device]

    def _cell(self, device: int, dtype: DTypeLike, value: Callable[[Run], float]) -> Array:
        host = self._backend.pinned(_CELL_BYTES)
        host.view(dtype)[0] = value(Run())
        cell = self._backend.zeros(device, _CELL_BYTES)
        self._backend.copy(cell, host)()
        found: Array = cell.view(dtype)
        return found
