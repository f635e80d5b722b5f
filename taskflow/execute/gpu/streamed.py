"""Programs for GPUs: the rows of a rank as items on streams, with events where the graph needs them.

Takes what `program` takes and a `StreamBackend`, CuPy's or a fake; gives a program of one call, which replays a step
(`taskflow.execute.gpu.replay`). What follows from what:

* Every row runs on the first stream that it occupies in the task graph: compute, receiving, host copies or what
  moves within the device; outputs leave on a sixth stream. Where nothing is gained beside it, on compute
  (`ItemOrder.stream_of`).
* An item waits for the rows that its row depends on, those for memory included (`taskflow.execute.gpu.issue`).
* Between ranks there are three carriers (`taskflow.execute.gpu.carriers` chooses): memory that is mapped (`peers`), a
  library (`together`), and messages through pinned memory of the host: device to host, MPI, host to device. Starting
  and awaiting a message is an item of the host, which runs while a step is issued, and never part of a captured graph.
* Points whose kernels declare it (updates of parameters) run as one (`taskflow.execute.gpu.grouping`).
* Feeds come by way of `taskflow.execute.gpu.staging`. Outputs are copied to pinned memory at the end of the step.

It ran on an H200 (docs/cuda.md); ranks that share a GPU have not been seen to end well there. Tests run it on fake
streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow.backend import StreamBackend, StreamContext, Workspace
from taskflow.comm.transport import Message
from taskflow.execute.gpu.carriers import Carriers
from taskflow.execute.gpu.grouping import GroupedRows
from taskflow.execute.gpu.issue import ItemOrder, StreamKind
from taskflow.execute.gpu.ledger import CONSTANTS, SCRATCH, Ledger
from taskflow.execute.gpu.peers import PeerRows
from taskflow.execute.gpu.replay import StreamReplay
from taskflow.execute.gpu.staging import FeedBox, Staging, StepCells
from taskflow.execute.gpu.together import LibraryRows
from taskflow.execute.guard import StepGuard, find_guarded
from taskflow.execute.program import BoundKernel, Call, Compiler, RankProgram
from taskflow.graph.kernel import Kernel
from taskflow.tasks.parts import boxes_of
from taskflow.tasks.task_graph import Array, Kind, Privilege

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class StreamCompiler(Compiler):
    """Compiles rows in order into items; see the module."""

    captures = True  # whether steps become graphs
    device_guard: StepGuard | None = (
        None  # that of guarded steps, once it is made: it takes memory, which is never given back
    )
    times = False  # whether every item is timed; such steps are issued item by item

    def __init__(
        self, *args: Any, backend: StreamBackend, carriers: Carriers, ledger: Ledger
    ) -> None:
        super().__init__(*args)
        self.backend = backend
        self.carriers = carriers
        self.ledger = ledger
        self.xp = backend.xp
        backend.uses_tf32 = self.graph.uses_tf32

    def compile(self) -> RankProgram:
        """See `Compiler.compile`."""
        self.outputs: dict[int, Array] = {}  # where what is fetched arrives, in pinned memory
        self._arrives: dict[
            int, tuple[Array, Array]
        ] = {}  # transfer under way -> where it goes, and its pinned memory
        self.begins: list[int] = []  # of every row, the number of items before it
        self.issue = ItemOrder(self, self.backend, self.ledger, self._before)
        self.staging = Staging(self.backend, self.ledger, self.memory.devices)
        points = int((self.graph.kind == Kind.POINT).sum())
        self.cells = StepCells(self.backend, self.ledger, self.run, self.memory.devices, points)
        self.workspaces = {d: Workspace(self.ledger.maker(d, SCRATCH)) for d in self.memory.devices}
        self._choose_rows()
        can_be = (
            self.backend.uses_variants and not self.times and not self.check
        )  # else each row has its own item
        self.guarded = find_guarded(self.graph)
        border = self.guarded.row if self.guarded else len(self.graph)
        self._groups = GroupedRows(self.issue, self._together if can_be else None, border)
        super().compile()
        self._peers.take_all_back()
        self._fetch_all()
        self.staging.freeze()
        self.replay = StreamReplay(
            self.backend,
            self.issue.streams,
            {number: self.issue.device(number) for number in self.issue.streams},
            self.issue.items,
            self.staging,
            self.cells,
            len(self.graph),
            self.captures,
            self.times,
        )
        self.program.add(self.replay, 0, "run")
        if self.issue.checks:
            self.program.add(self.issue.checks.verify, 0, "check")
        return self.program

    # -- rows -----------------------------------------------------------------------------------------------------

    def _choose_rows(self) -> None:
        """Which rows go which way between ranks."""
        graph = self.graph
        ends = zip(graph.source.tolist(), graph.device.tolist(), strict=True)
        way = np.array([self.carriers.pairs.get(pair, "messages") for pair in ends])
        crosses = graph.is_transfer if self.transport.size > 1 else np.zeros(len(graph), np.bool_)
        self._is_sent: Array = crosses & (way == "messages")
        shared, called = (
            np.flatnonzero(crosses & (way == name)).tolist() for name in ("shared", "nccl")
        )
        self._peers = PeerRows(self.issue, shared)
        library = LibraryRows(self.issue, self.carriers.plans, called)
        self._ways = dict.fromkeys(shared, self._peers.add) | dict.fromkeys(
            library.rows, library.add
        )

    def _sent_rows(self) -> Array:
        return self._is_sent

    def _unsent(self, row: int) -> None:
        self._ways.get(row, super()._unsent)(row)

    def _reach(self, row: int) -> None:
        self._groups.reach(row)
        self.begins.append(len(self.issue.items))

    def _local(self, row: int) -> None:
        if row in self._groups.rows:
            return
        elsewhere = self._peers.parts_of(row)
        stream = self._stream(row)
        uses = [
            i for k, (i, _, _) in enumerate(self.graph.args(row)) if i >= 0 and k not in elsewhere
        ]
        self._before(row)
        self._peers.await_parts(row, stream)
        self.issue.add(self._call(row), row, "run", stream, uses)
        self._peers.give_back(row, stream)

    def _stream(self, row: int) -> int:
        number = int(self.graph.streams[row, 0])
        devices = len(self.graph.machine.devices)
        if number < 0:  # it occupies links alone
            return number
        kind = StreamKind(number // devices)
        device = number % devices
        instance, rect, _ = self._args(row)[0]
        is_here = kind != StreamKind.COMPUTE and instance >= 0
        size = self.memory.view(instance, rect).nbytes if is_here else 0
        return self.issue.stream_of(kind, device, size)

    def _before(self, row: int, instances: Sequence[int] = ()) -> None:
        """Await the messages that bring what `row` reads; within this rank, memory is the matter of events."""
        for dep in self.graph.deps(row):
            if dep in self.pending and self.transport.drives(int(self.graph.device[dep])):
                self._await(dep)
        self._peers.take_back(row)

    def _feed(self, row: int, views: list[Array]) -> Call:
        (_, rect, _) = self._args(row)[0]
        region = int(self.graph.region[row])
        dtype = self.graph.regions[region].dtype
        part = self.staging.add(int(self.graph.device[row]), self.feeds[region], rect, dtype)
        return partial(self._copy_in, views[0], part)

    def _copy_in(self, target: Array, part: FeedBox) -> None:
        self.xp.copyto(target, part.array)

    def _fold(self, row: int, views: list[Array], copies: Sequence[Array] = ()) -> Call:
        for k, source in self._peers.parts_of(row).items():
            views[k] = self.memory.view(source, self._args(row)[k][1])
        return super()._fold(row, views, copies)

    def fold_call(
        self, combine: str, target: Array, parts: Sequence[Array], copies: Sequence[Array]
    ) -> Call:
        """See `StreamBackend.fold`."""
        return self.backend.fold(combine, target, parts)

    def _arrays(self, row: int) -> list[Array]:
        return [self._view(row, k) for k in range(len(self._args(row)))]

    def _context(self, row: int, bound: BoundKernel) -> StreamContext:
        device = int(self.graph.device[row])
        cell = partial(self.cells.add, device)
        allocate = self.ledger.maker(device, CONSTANTS)
        args = (
            partial(boxes_of, self.graph, row),
            self.run,
            self.workspaces[device],
            *self._facts(row, bound),
        )
        return StreamContext(self.backend, cell, allocate, *args)

    def _together(self, rows: Sequence[int]) -> Call:
        """One call for points whose kernels have declared that."""
        views = [self._arrays(row) for row in rows]
        make = self._launch(rows[0]).kernel.for_points
        assert make is not None, "only such rows are grouped"
        return make(self._context(rows[0], self._bound(rows[0])), views)

    def _checked(
        self, row: int, views: list[Array], privileges: list[Privilege], call: Callable[..., object]
    ) -> Call:
        checks = self.issue.checks
        device = int(self.graph.device[row])
        assert checks is not None
        return checks.checked(str(self.graph[row]), device, views, privileges, call)

    def _kernel(self, kernel: Kernel) -> Kernel:
        return kernel.on_cuda if self.backend.uses_variants else kernel

    # -- between host and device -----------------------------------------------------------------------------------

    def _fetch_all(self) -> None:
        """Copy what is fetched and lies here to the host."""
        places = (
            next((p for p in homes if p[0] in self.memory.devices), None)
            for homes in self.graph.fetches.values()
        )
        for device, instance, rect in {p[1]: p for p in places if p is not None}.values():
            order = self.memory.order_of(instance)  # as it lies in memory
            array = self.memory.view(instance, rect).transpose(order)
            pinned = self._pinned(array.shape, array.dtype)
            self.outputs[instance] = pinned.transpose(np.argsort(order))
            stream = self.issue.stream_of(StreamKind.OUTPUTS, device, array.nbytes)
            packed = self._packed(stream, array)
            self.issue.add_fetch(partial(self._to_host, pinned, array, packed), stream, instance)

    def _to_host(self, pinned: Array, array: Array, packed: Array) -> None:
        if packed is not array:
            self.xp.copyto(packed, array)
        self.backend.copy(pinned, packed)()

    def _to_device(self, array: Array, packed: Array, pinned: Array) -> None:
        self.backend.copy(packed, pinned)()
        if packed is not array:
            self.xp.copyto(array, packed)

    def _packed(self, stream: int, array: Array) -> Array:
        """`array`, or memory for the same values without gaps."""
        return array if array.flags.c_contiguous else self.issue.pack(stream, 0, array)

    def _pinned(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        size = prod(shape) * np.dtype(dtype).itemsize
        pinned: Array = self.backend.pinned(size).view(dtype).reshape(tuple(shape))
        return pinned

    # -- messages --------------------------------------------------------------------------------------------------

    def _parts(self, rows: list[int], k: int) -> list[Array]:
        """Pinned memory for argument `k` of every transfer of a message; what is sent gets there by an item."""
        parts = []
        for row in rows if k == 0 else ():
            self._before(row)
        for row in rows:
            instance, rect, _ = self.graph.args(row)[k]
            array = self.memory.view(instance, rect)
            parts.append(self._pinned(array.shape, array.dtype))
            if k == 0:
                stream = self.issue.number(StreamKind.SENDING, int(self.graph.source[row]))
                call = partial(self._to_host, parts[-1], array, self._packed(stream, array))
                self.issue.add(call, row, "send", stream, [instance])
            else:
                self._arrives[row] = array, parts[-1]
        return parts

    def _start(self, message: Message, rows: list[int], role: str) -> None:
        self.program.frees.append(message.free)
        self.issue.add_host(message.start, rows[0], role, rows if role == "send" else ())
        self.pending.update(dict.fromkeys(rows, partial(self.backend.host_waits, message.is_over)))

    def _await(self, row: int) -> None:
        if row not in self.pending:
            return
        self.issue.add_host(self.pending[row], row, "wait")
        for other in self.messages[row]:
            del self.pending[other]
            if other in self._arrives:
                stream = self.issue.number(StreamKind.RECEIVING, int(self.graph.device[other]))
                instance = self.graph.args(other)[1][0]
                self._before(other)
                array, pinned = self._arrives.pop(other)
                call = partial(self._to_device, array, self._packed(stream, array), pinned)
                self.issue.add(call, other, "receive", stream, [instance])
