"""What an executor sets up for GPUs before it compiles: who runs the streams, the carriers between ranks, memory."""

from __future__ import annotations

import logging
from typing import Any

from taskflow.backend import StreamBackend, make_backend
from taskflow.comm.transport import Transport
from taskflow.execute.gpu.carriers import Carriers, choose_carriers
from taskflow.execute.gpu.ledger import DeviceMemory, Ledger
from taskflow.execute.gpu.streamed import StreamCompiler
from taskflow.execute.gpu.trial import try_kernels
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import Array, TaskGraph

_log = logging.getLogger(__name__)


def find_backend(backend: StreamBackend | None, lender: StreamBackend | None) -> StreamBackend:
    """What runs the streams of this rank's GPUs: what was given, that of the executor that lends regions, or CuPy's.

    Raises:
        ValueError: the backend is not the lender's.
    """
    if backend is not None and lender is not None and backend is not lender:
        raise ValueError("executor: its backend is not that of the executor whose regions it shares")
    return backend or lender or make_backend()


class Meeting:
    """The GPUs of all ranks: what each says of its own, and how they exchange data; all ranks make one together.

    Args:
        carrier: the `transport` of `Executor`.
        can_share: whether memory may be mapped: regions that are borrowed must be mapped already.
    """

    def __init__(
        self, task_graph: TaskGraph, backend: StreamBackend, transport: Transport, carrier: str, can_share: bool
    ) -> None:
        self._task_graph, self._transport, self._carrier = task_graph, transport, carrier
        self.backend = backend
        own = [d for d in range(len(task_graph.machine.devices)) if transport.drives(d)]
        self.ledger = Ledger(backend, own)
        self._gpus = transport.gather(backend.rank_gpu(transport.rank)) if transport.size > 1 else []
        self.carriers: Carriers = self._choose("" if can_share else "the memory of the shared executor is not")

    def _choose(self, why_not_shared: str) -> Carriers:
        return choose_carriers(self._task_graph, self._gpus, self._carrier, why_not_shared)

    def make_memory(self, rows: TaskGraph, plan: MemoryPlan) -> DeviceMemory:
        """The memory of this rank's devices, mapped by the others if the carriers say so and that works."""
        shares = self.carriers.shares
        memory = DeviceMemory(rows, plan, self._transport, shares, backend=self.backend, ledger=self.ledger)
        if shares and not memory.is_shared:
            self.carriers = self._choose("memory cannot be mapped; the log says why")
        if self._transport.size > 1 and self._transport.rank == 0:
            _log.info("between GPUs: %s", self.carriers.describe())
        return memory

    def make_compiler(self, origin: Array, capture: bool, record: bool, args: tuple[Any, ...]) -> StreamCompiler:
        """What compiles rows; `origin`: their rows in the task graph, `args`: of `Compiler`."""
        carriers = self.carriers.of_rows(origin)
        compiler = StreamCompiler(*args, backend=self.backend, carriers=carriers, ledger=self.ledger)
        compiler.captures, compiler.times = capture and not compiler.check, record
        return compiler

    try_program = staticmethod(try_kernels)
