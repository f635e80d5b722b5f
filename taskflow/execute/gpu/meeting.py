"""What an executor sets up for GPUs before it compiles: who runs the streams, the carriers between ranks, memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend import StreamBackend, make_backend
from taskflow.backend.choices import Choices, shipped_choices
from taskflow.comm.transport import Transport
from taskflow.core.dtypes import is_floating
from taskflow.execute.gpu.carriers import Carriers, choose_carriers
from taskflow.execute.gpu.ledger import LIBRARY, SCRATCH, DeviceMemory, Ledger
from taskflow.execute.gpu.replay import HOST, Item
from taskflow.execute.gpu.streamed import StreamCompiler
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import Array, Privilege, TaskGraph

_log = logging.getLogger(__name__)
_MADE_UP = 0.5  # of floating-point numbers; integers may be indices, and are 0


def find_backend(backend: StreamBackend | None, lender: StreamBackend | None) -> StreamBackend:
    """What runs the streams of this rank's GPUs: what was given, that of the executor that lends regions, or CuPy's.

    Raises:
        ValueError: the backend is not the lender's.
    """
    if backend is not None and lender is not None and backend is not lender:
        raise ValueError(
            "executor: its backend is not that of the executor whose regions it shares"
        )
    return backend or lender or make_backend()


class Meeting:
    """The GPUs of all ranks: what each says of its own, and how they exchange data; all ranks make one together.

    Args:
        carrier: the `transport` of `Executor`.
        can_share: whether memory may be mapped: regions that are borrowed must be mapped already.
        choices: of kernels, None: those that are shipped for this kind of GPU. All ranks take rank 0's.
    """

    def __init__(
        self,
        task_graph: TaskGraph,
        backend: StreamBackend,
        transport: Transport,
        carrier: str,
        can_share: bool,
        choices: Choices | None,
    ) -> None:
        self._task_graph = task_graph
        self._transport = transport
        self._carrier = carrier
        self.backend = backend
        choices = choices or shipped_choices(backend.name(transport.rank))
        backend.choices = transport.gather(choices)[0]
        devices = [d for d in range(len(task_graph.machine.devices)) if transport.drives(d)]
        self.ledger = Ledger(backend, devices)
        self._gpus = (
            transport.gather(backend.rank_gpu(transport.rank)) if transport.size > 1 else []
        )
        self.carriers: Carriers = self._choose(
            "" if can_share else "the memory of the shared executor is not"
        )

    def _choose(self, why_not_shared: str) -> Carriers:
        return choose_carriers(self._task_graph, self._gpus, self._carrier, why_not_shared)

    def make_memory(self, rows: TaskGraph, plan: MemoryPlan) -> DeviceMemory:
        """The memory of this rank's devices, mapped by the others if the carriers say so and that works."""
        shares = self.carriers.shares
        memory = DeviceMemory(
            rows, plan, self._transport, shares, backend=self.backend, ledger=self.ledger
        )
        if shares and not memory.is_shared:
            self.carriers = self._choose("memory cannot be mapped; the log says why")
        if self._transport.size > 1 and self._transport.rank == 0:
            _log.info("between GPUs: %s", self.carriers.describe())
        return memory

    def make_compiler(
        self, origin: Array, capture: bool, record: bool, args: tuple[Any, ...]
    ) -> StreamCompiler:
        """What compiles rows; `origin`: their rows in the task graph, `args`: of `Compiler`."""
        carriers = self.carriers.of_rows(origin)
        compiler = StreamCompiler(
            *args, backend=self.backend, carriers=carriers, ledger=self.ledger
        )
        compiler.captures = capture and not compiler.check
        compiler.times = record
        return compiler

    @staticmethod
    def try_program(compiler: StreamCompiler, is_borrowing: bool = False) -> None:
        """Run all items once, one by one on all ranks, on made-up values: what it needs is known before a step.

        Kernels are compiled and loaded, libraries make their handles and connections, scratch memory grows to its size.
        So a lack of memory shows now, with numbers. And no step waits for the whole device, as loading a kernel (which
        CUDA does at its first launch) and allocating memory may: while a stream of this rank waits for another rank,
        such a wait would never end. Persistent regions that are borrowed keep their values: no item runs that writes
        them, nor calls of a library, which would write on some ranks and not on others.
        """
        over = {device: compiler.backend.make_event(device) for device in compiler.memory.devices}
        homes = {i for places in compiler.graph.homes.values() for i, _ in places}
        with np.errstate(all="ignore"):
            _make_up(compiler, set() if is_borrowing else homes, over)
            for item in compiler.issue.items:
                _try(compiler, item, homes if is_borrowing else set(), over)
        for device, workspace in compiler.workspaces.items():
            workspace.settle()
            compiler.ledger.taken[device][SCRATCH] = workspace.size_bytes


# -- a trial of a program before there are any values ------------------------------------------------------------------


def _try(compiler: StreamCompiler, item: Item, kept: set[int], over: Mapping[int, object]) -> None:
    if item.stream == HOST:
        item.call()
        return
    written = _written(compiler, item)
    if item.role == "together" and not kept:
        device = compiler.transport.rank  # its first call connects ranks, which takes memory
        with compiler.ledger.room(device, LIBRARY, compiler.ledger.expected[device][LIBRARY]):
            _run(compiler, item.stream, item.row, item.call, over)
    elif kept and item.role == "together":
        for instance in sorted(written - kept):
            _run(compiler, item.stream, item.row, _filling(compiler, instance), over)
    elif item.role in ("await", "signal", "send", "fetch") or not written & kept:
        with compiler.ledger.room(
            compiler.issue.device(item.stream)
        ):  # a product is the first to need its library
            _run(compiler, item.stream, item.row, item.call, over)


def _make_up(compiler: StreamCompiler, homes: set[int], over: Mapping[int, object]) -> None:
    """Values for what a step begins with: the homes of persistent regions, and feeds."""
    for instance in sorted(i for i in homes if compiler.issue.drives_instance(i)):
        device = int(compiler.graph.instance_device[instance])
        _run(compiler, device, 0, _filling(compiler, instance), over)
    for device, part in compiler.staging.parts():
        _run(compiler, device, 0, partial(part.array.fill, _value(part.dtype)), over)


def _filling(compiler: StreamCompiler, instance: int) -> Callable[[], object]:
    dtype = compiler.graph.regions[int(compiler.graph.instance_region[instance])].dtype
    return partial(compiler.memory.array(instance).fill, _value(dtype))


def _value(dtype: str) -> float:
    return _MADE_UP if is_floating(dtype) else 0


def _written(compiler: StreamCompiler, item: Item) -> set[int]:
    """The instances on this rank that the row of an item writes."""
    args = compiler.graph.args(item.row)
    return {
        i
        for i, _, p in args
        if i >= 0 and p != Privilege.READ and compiler.issue.drives_instance(i)
    }


def _run(
    compiler: StreamCompiler,
    number: int,
    row: int,
    call: Callable[[], object],
    over: Mapping[int, object],
) -> None:
    """Have a stream do something, and wait for it, by an event of its device."""
    backend = compiler.backend
    stream = compiler.issue.streams[number]
    event = over[compiler.issue.device(number)]
    try:
        backend.run(stream, call)
        backend.record(stream, event)
        backend.synchronize(event)
    except Exception as error:
        error.add_note(f"while row {compiler.graph[row]} was tried before the first step")
        raise
