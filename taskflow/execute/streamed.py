"""Programs for GPUs: the rows of a rank as items on streams, with events where the graph needs them.

Takes what `program` takes and a `StreamBackend`, CuPy's or a fake; gives a program of one call, which replays a step
(`taskflow.execute.replay`). What follows from what:

* Every row runs on the first stream that it occupies in the task graph: compute, receiving (copies and folds) or host
  copies; outputs leave on a fifth stream of the device.
* An item waits for the rows that its row depends on, and, where an instance begins its life, for those who used its
  memory before (`taskflow.execute.events` keeps the waits that are needed).
* Ranks exchange messages through pinned memory of the host: device to host, MPI, host to device. Starting and awaiting
  a message is an item of the host, which runs while a step is issued, and never part of a captured graph.
* Points whose kernels declare it (updates of parameters) run together, as one call (`taskflow.execute.grouping`).
* Feeds come by way of `taskflow.execute.staging`. Outputs are copied to pinned memory at the end of the step.

Not yet run on hardware: the tests run it on fake streams.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from taskflow.backend import StreamBackend, StreamContext, Workspace, cuda_kernel, together
from taskflow.execute.events import MemoryUses
from taskflow.execute.grouping import group_rows
from taskflow.execute.program import Call, Compiler, Memory, Program
from taskflow.execute.replay import HOST, Item, StreamReplay
from taskflow.execute.staging import Part, Staging, StepCells
from taskflow.geometry import Rect
from taskflow.lower.lowering import kernel_name
from taskflow.task import Array, Kind

STREAM_NAMES = ("compute", "sending", "receiving", "host copies", "outputs")
_OUTPUTS = 4


class DeviceMemory(Memory):
    """The arenas of this rank's devices as one slab of each GPU."""

    def __init__(self, *args: Any, backend: StreamBackend) -> None:
        self.backend = backend
        super().__init__(*args)

    def make_arena(self, device: int, size_bytes: int) -> Array:
        """See `Memory.make_arena`."""
        return self.backend.zeros(device, size_bytes)

    def get(self, instance: int, rect: Rect) -> Array:
        """See `Memory.get`."""
        return self.backend.read(self.view(instance, rect))

    def put(self, instance: int, rect: Rect, value: Array) -> None:
        """See `Memory.put`."""
        self.backend.write(self.view(instance, rect), value)

    def fill(self, instance: int, rect: Rect, values: Callable[[Array], object]) -> None:
        """See `Memory.fill`."""
        view = self.view(instance, rect)
        value = np.empty(view.shape, view.dtype)
        values(value)
        self.backend.write(view, value)


@dataclass(frozen=True)
class Output:
    """Where a fetched instance arrives: pinned memory in the order in which the instance lies in memory."""

    pinned: Array
    order: tuple[int, ...]

    def value(self) -> Array:
        """A copy, in the region's own order of dimensions."""
        return self.pinned.transpose(np.argsort(self.order)).copy()


class StreamCompiler(Compiler):
    """Compiles rows in order into items; see the module."""

    captures = True  # whether steps become graphs
    times = False  # whether every item is timed; such steps are issued item by item

    def __init__(self, *args: Any, backend: StreamBackend) -> None:
        super().__init__(*args)
        self.backend = backend
        backend.uses_tf32 = self.graph.uses_tf32

    def compile(self) -> Program:
        """See `Compiler.compile`."""
        self.items: list[Item] = []
        self.outputs: dict[int, Output] = {}
        self._item_of: dict[int, int] = {}
        self._arrives: dict[int, tuple[Array, Array]] = {}  # transfer under way -> where it goes, and its pinned memory
        self._uses = MemoryUses(self.graph, self.plan)
        self._devices = len(self.graph.machine.devices)
        self._streams = {
            kind * self._devices + d: self.backend.make_stream(d, name)
            for d in self.memory.own
            for kind, name in enumerate(STREAM_NAMES)
        }
        self.staging = Staging(self.backend, self.memory.own)
        self.cells = StepCells(self.backend, self.run, self.memory.own, int((self.graph.kind == Kind.POINT).sum()))
        zeros = {d: partial(self.backend.zeros, d) for d in self.memory.own}
        self.workspaces = {d: Workspace(zeros[d]) for d in self.memory.own}
        self._groups = {} if self.times else group_rows(self.graph, self.plan, self._group_keys())
        self._grouped = {row for groups in self._groups.values() for rows in groups for row in rows}
        super().compile()
        self._fetch_all()
        self.staging.freeze()
        self.replay = StreamReplay(
            self.backend,
            self._streams,
            self.items,
            self.staging,
            self.cells,
            len(self.graph),
            self.captures,
            self.times,
        )
        self.program = Program()
        self.program.add(self.replay, 0, "run")
        return self.program

    # -- items -----------------------------------------------------------------------------------------------------

    def _add(
        self, call: Call, row: int, role: str, stream: int, uses: Sequence[int], before: Sequence[int] = ()
    ) -> int:
        """Append an item that uses these instances; its number."""
        item = len(self.items)
        waits = {self._item_of[dep] for dep in self.graph.deps(row) if dep in self._item_of} | set(before)
        for instance in uses:
            waits.update(self._uses.use(instance, stream, item))
        self.items.append(Item(call, stream, row, role, tuple(sorted(waits))))
        self._item_of[row] = item
        return item

    def _host(self, call: Call, row: int, role: str, before: Sequence[int] = ()) -> None:
        """Append an item of the host."""
        self.items.append(Item(call, HOST, row, role, tuple(before)))

    def _group_keys(self) -> dict[int, Hashable]:
        """The points that may run together: on one device, with one kernel, on arrays of one dtype, equal scalars."""
        keys: dict[int, Hashable] = {}
        for row in np.flatnonzero(self.graph.kind == Kind.POINT).tolist() if self.backend.uses_variants else ():
            launch, device = self._launch(row), int(self.graph.device[row])
            if self.transport.drives(device) and together(launch.kernel) is not None and self._is_dense(row):
                regions = [self.graph.regions[number] for number in launch.args]
                scalars = [i for (i, _, _), r in zip(self.graph.args(row), regions, strict=True) if not r.shape]
                keys[row] = device, kernel_name(launch.kernel), *(r.dtype for r in regions), *scalars
        return keys

    def _is_dense(self, row: int) -> bool:
        """Whether the arrays of a point lie without gaps, all alike."""
        views = [self.memory.view(i, rect) for i, rect, _ in self.graph.args(row) if i >= 0 and rect.shape]
        order = np.argsort([-s for s in views[0].strides], kind="stable").tolist()
        return all(v.transpose(order).flags.c_contiguous for v in views)

    def _reach(self, row: int) -> None:
        for rows in self._groups.get(row, ()):
            self._run_together(rows)

    def _run_together(self, rows: list[int]) -> None:
        points, uses, before = [], [], []
        for row in rows:
            self._before(row, [])
            args = self.graph.args(row)
            points.append([self._view(row, k, i, rect) for k, (i, rect, _) in enumerate(args)])
            uses += [i for i, _, _ in args if i >= 0]
            before += [self._item_of[dep] for dep in self.graph.deps(row) if dep in self._item_of]
        context = self._context(rows[0], [rect for _, rect, _ in self.graph.args(rows[0])])
        make = together(self._launch(rows[0]).kernel)
        assert make is not None, "only such rows are grouped"
        item = self._add(make(context, points), rows[0], "run", int(self.graph.streams[rows[0], 0]), uses, before)
        self._item_of.update(dict.fromkeys(rows, item))

    def _local(self, row: int) -> None:
        if row in self._grouped:
            return
        self._before(row, [])
        uses = [i for i, _, _ in self.graph.args(row) if i >= 0]
        self._add(self._call(row), row, "run", int(self.graph.streams[row, 0]), uses)

    def _before(self, row: int, instances: list[int]) -> None:
        """Await the messages that bring what `row` reads; memory is the matter of events."""
        for dep in self.graph.deps(row):
            if dep in self.pending and self.transport.drives(int(self.graph.device[dep])):
                self._await(dep)

    def _call(self, row: int) -> Call:
        args, kind = self.graph.args(row), self.graph.kind[row]
        if kind == Kind.FEED:
            (instance, rect, _), device = args[0], int(self.graph.device[row])
            region = int(self.graph.region[row])
            part = self.staging.add(device, self.feeds[region], rect, self.graph.regions[region].dtype)
            return partial(self._feed, self.memory.view(instance, rect), part)
        if kind == Kind.COPY:
            return partial(self._copy, self.memory.view(*args[1][:2]), self.memory.view(*args[0][:2]))
        return super()._call(row)

    def _copy(self, target: Array, source: Array) -> None:
        self.backend.xp.copyto(target, source)

    def _feed(self, target: Array, part: Part) -> None:
        self.backend.xp.copyto(target, part.array)

    def _fold(self, row: int, views: list[Array], copies: Sequence[Array] = ()) -> Call:
        xp = self.backend.xp
        combine = xp.maximum if self.graph.combine[int(self.graph.region[row])] == "max" else xp.add
        args = self.graph.args(row)
        first = views[0] if args[0][:2] == args[1][:2] else views[1]
        return partial(_fold, xp, combine, views[0], [first, *views[2:]])

    def _one(self, view: Array, writeable: bool = True) -> Array:
        return super()._one(view, writeable) if self.backend.xp is np else view

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        found: Array = self.backend.xp.empty(shape, dtype)
        return found

    def _context(self, row: int, rects: list[Rect]) -> StreamContext:
        launch, device = self.graph.launches[int(self.graph.launch[row])], int(self.graph.device[row])
        point = int(self.graph.point[row])
        cell, workspace = partial(self.cells.add, device), self.workspaces[device]
        intervals = launch.intervals(point)
        return StreamContext(self.backend, cell, rects, intervals, self.run, workspace, point, device)

    def _kernel(self, kernel: Any) -> Any:
        return cuda_kernel(kernel) if self.backend.uses_variants else kernel

    # -- between host and device -----------------------------------------------------------------------------------

    def _fetch_all(self) -> None:
        """Copy what is fetched and lies here to the host."""
        for places in self.graph.fetches.values():
            here = next((p for p in places if p[0] in self.memory.own), None)
            if here is not None and here[1] not in self.outputs:
                self._fetch(*here)

    def _fetch(self, device: int, instance: int, rect: Rect) -> None:
        order = self.memory.order_of(instance)
        array = self.memory.view(instance, rect).transpose(order)
        pinned = self._pinned(array.shape, array.dtype)
        self.outputs[instance] = Output(pinned, order)
        stream, before = _OUTPUTS * self._devices + device, tuple(self._uses.users(instance))
        row = max((self.items[k].row for k in before), default=0)
        self.items.append(
            Item(partial(self._to_host, pinned, array, self._packed(device, array)), stream, row, "fetch", before)
        )

    def _to_host(self, pinned: Array, array: Array, packed: Array) -> None:
        if packed is not array:
            self.backend.xp.copyto(packed, array)
        self.backend.copy(pinned, packed)()

    def _to_device(self, array: Array, packed: Array, pinned: Array) -> None:
        self.backend.copy(packed, pinned)()
        if packed is not array:
            self.backend.xp.copyto(array, packed)

    def _packed(self, device: int, array: Array) -> Array:
        """`array`, or memory of its own for the same values without gaps."""
        if array.flags.c_contiguous:
            return array
        return self.backend.zeros(device, array.nbytes).view(array.dtype).reshape(array.shape)

    def _pinned(self, shape: Sequence[int], dtype: Any) -> Array:
        size = prod(shape) * np.dtype(dtype).itemsize
        found: Array = self.backend.pinned(size).view(dtype).reshape(tuple(shape))
        return found

    # -- messages --------------------------------------------------------------------------------------------------

    def _receive(self, rows: list[int]) -> None:
        parts = [self._message_part(row, 1) for row in rows]
        message = self.transport.receiver([p for _, p in parts], int(self.graph.source[rows[0]]), rows[0])
        self.program.frees.append(message.free)
        self._host(message.start, rows[0], "post")
        for row, part in zip(rows, parts, strict=True):
            self.pending[row] = (message.wait, self.graph.args(row)[1][0])
            self._arrives[row] = part

    def _send(self, rows: list[int]) -> None:
        for row in rows:
            self._before(row, [])
        parts, items = [self._message_part(row, 0) for row in rows], []
        for row, (array, pinned) in zip(rows, parts, strict=True):
            device, instance = int(self.graph.source[row]), self.graph.args(row)[0][0]
            call = partial(self._to_host, pinned, array, self._packed(device, array))
            items.append(self._add(call, row, "send", self._devices + device, [instance]))
        message = self.transport.sender([p for _, p in parts], int(self.graph.device[rows[0]]), rows[0])
        self.program.frees.append(message.free)
        self._host(message.start, rows[0], "send", items)
        self.pending.update({row: (message.wait, self.graph.args(row)[0][0]) for row in rows})

    def _message_part(self, row: int, k: int) -> tuple[Array, Array]:
        """Argument `k` of a transfer on the device, and pinned memory for it."""
        array = self.memory.view(*self.graph.args(row)[k][:2])
        return array, self._pinned(array.shape, array.dtype)

    def _await(self, row: int) -> None:
        if row not in self.pending:
            return
        wait, _ = self.pending[row]
        self._host(wait, row, "wait")
        for other in self.messages[row]:
            del self.pending[other]
            if other in self._arrives:
                self._before(other, [])
                array, pinned = self._arrives.pop(other)
                device, instance = int(self.graph.device[other]), self.graph.args(other)[1][0]
                call = partial(self._to_device, array, self._packed(device, array), pinned)
                self._add(call, other, "receive", 2 * self._devices + device, [instance])


def _fold(xp: Any, combine: Any, target: Array, parts: Sequence[Array]) -> None:
    if len(parts) == 1 and parts[0] is not target:
        xp.copyto(target, parts[0])
    first = parts[0]
    for other in parts[1:]:
        combine(first, other, out=target)
        first = target
