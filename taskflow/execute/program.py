"""Programs: the rows of one rank compiled into a flat list of bound calls.

Takes a task graph, its memory plan and a transport; gives arrays bound to arenas and the calls of a step in order.
A step replays the list: nothing is looked up, allocated or analysed in it (what Legion calls tracing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend import Context, Run, Workspace
from taskflow.comm.transport import Message, Transport
from taskflow.core.geometry import Rect
from taskflow.execute.check import GuardedWorkspace, checked, poison
from taskflow.execute.feed import Feed
from taskflow.execute.fold import fold_call
from taskflow.graph.kernel import Kernel
from taskflow.tasks.memory import ALIGNMENT, MemoryPlan
from taskflow.tasks.parts import added_outputs, for_parts
from taskflow.tasks.task_graph import JOINED, Array, Kind, Launch, Privilege, TaskGraph, access
from taskflow.tasks.threads.crew import Crew, crew
from taskflow.tasks.threads.division import Part

Call = Callable[[], object]
Args = tuple[tuple[int, Rect, Privilege], ...]

GUARD, NOTE, REPLAY = "wait for all ranks", "note", "replay"  # roles of calls
_MERGED_BYTES = 4096  # transfers of more are worth a message of their own


@dataclass
class RankProgram:
    """Calls of one step in order; `rows[k]` is the row that call k belongs to and `roles[k]` what it does for it."""

    calls: list[Call] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    frees: list[Call] = field(default_factory=list)

    def add(self, call: Call, row: int, role: str) -> None:
        """Append a call."""
        self.calls.append(call)
        self.rows.append(row)
        self.roles.append(role)

    def close(self) -> None:
        """Forget the calls and free what MPI holds for them; whose they were can still be asked."""
        for free in self.frees:
            free()
        self.calls.clear()
        self.frees.clear()


class Memory:
    """The arenas of the devices that this rank drives, and arrays for the instances in them.

    With `share_memory` the arenas of all ranks of a host are mapped, so that peers read instances in place.
    """

    def __init__(
        self, task_graph: TaskGraph, plan: MemoryPlan, transport: Transport, share_memory: bool = False
    ) -> None:
        self.task_graph, self.plan, self.transport = task_graph, plan, transport
        self.own = [d for d in range(len(task_graph.machine.devices)) if transport.drives(d)]
        self.arenas: dict[int, Array] = {}
        self._arrays: dict[int, Array] = {}
        self._wholes: dict[int, tuple[Array, tuple[int, ...]]] = {}  # in the region's order, and where they begin
        size: list[int] = plan.peak_bytes.tolist()
        shared = self.share(sum(size[d] for d in self.own)) if share_memory else None
        self.is_shared = shared is not None
        if shared is None:
            self.arenas = {d: self.make_arena(d, size[d]) for d in self.own}
            return
        taken = [0] * len(shared)
        for device, rank in enumerate(transport.ranks_of(len(size)).tolist()):
            arena = shared[rank] if rank < len(shared) else None
            if arena is not None:
                self.arenas[device] = arena[taken[rank] : taken[rank] + size[device]]
                taken[rank] += size[device]

    def share(self, size_bytes: int) -> Sequence[Array | None] | None:
        """One zeroed byte array of every rank of this host, this one's of that size, which all of them use in place.

        None for ranks of other hosts; None in all where memory cannot be shared.
        """
        return self.transport.shared_arrays(size_bytes)

    def make_arena(self, device: int, size_bytes: int) -> Array:
        """Zeroed bytes in the memory of a device, which begin where a cache line does."""
        room = np.zeros(size_bytes + ALIGNMENT, np.uint8)
        return room[-room.ctypes.data % ALIGNMENT :][:size_bytes]

    def array(self, instance: int) -> Array:
        """The memory of an instance, row-major: its dimensions stand in the region's memory order."""
        if instance not in self._arrays:
            graph, start = self.task_graph, int(self.plan.offset[instance])
            region = graph.regions[int(graph.instance_region[instance])]
            rect = graph.instance_rect(instance)
            order = self.order_of(instance)
            part = self.arenas[int(graph.instance_device[instance])][start : start + rect.volume * region.itemsize]
            self._arrays[instance] = part.view(region.dtype).reshape([rect.shape[d] for d in order])
        return self._arrays[instance]

    def bind(self, instance: int, array: Array) -> None:
        """Use `array`, of the instance's shape, as its memory."""
        self._arrays[instance] = array.transpose(self.order_of(instance))
        self._wholes.pop(instance, None)

    def view(self, instance: int, rect: Rect) -> Array:
        """The box `rect` (global coordinates) of an instance, in the region's own order of dimensions."""
        if instance not in self._wholes:
            whole = self.array(instance).transpose(np.argsort(self.order_of(instance)).tolist())
            self._wholes[instance] = whole, self.task_graph.instance_rect(instance).lo
        whole, lo = self._wholes[instance]
        return whole[rect.slices(lo)]

    def get(self, instance: int, rect: Rect) -> Array:
        """The box `rect` of an instance in the host's memory: as it lies there, or a copy."""
        return self.view(instance, rect)

    def put(self, instance: int, rect: Rect, value: Array) -> None:
        """Overwrite the box `rect` of an instance with an array of the host."""
        self.view(instance, rect)[...] = value

    def fill(self, instance: int, rect: Rect, values: Callable[[Array], object]) -> None:
        """Have `values` write the box `rect` of an instance."""
        values(self.view(instance, rect))

    def local_box(self, instance: int, rect: Rect) -> Rect:
        """`rect` in the coordinates of `array(instance)`."""
        local, order = rect.relative_to(self.task_graph.instance_rect(instance).lo), self.order_of(instance)
        return Rect(tuple(local.lo[d] for d in order), tuple(local.hi[d] for d in order))

    def order_of(self, instance: int) -> tuple[int, ...]:
        """The dimensions of an instance as they lie in memory, slowest first."""
        return self.task_graph.order(int(self.task_graph.instance_region[instance]))


class Compiler:
    """Compiles rows in order; transfers become messages. `taskflow.execute.shared` has the variant for shared memory.

    With `fuses`, calls that only move a little data between the same ranks and follow each other are one, which is
    faster, but then their rows have no time of their own.
    """

    fuses, merges = False, True  # merges: several transfers may be one message
    guard: Callable[[], object] | None = None  # called before row `guard_row`
    guard_row = 0
    notes: Mapping[int, Call] = {}  # behind rows before it
    xp: Any = np  # the array module of the devices

    def __init__(
        self,
        task_graph: TaskGraph,
        plan: MemoryPlan,
        memory: Memory,
        transport: Transport,
        feeds: dict[int, Feed],
        run: Run,
        check: bool,
    ) -> None:
        self.graph, self.plan, self.memory, self.transport = task_graph, plan, memory, transport
        self.feeds, self.run, self.check = feeds, run, check
        self.program = RankProgram()
        self.pending: dict[int, Call] = {}  # row of a transfer under way -> its wait
        self.born: set[int] = set()
        self.views: dict[int, list[Array]] = {}  # of points, as their kernels may use them
        self._views: dict[tuple[object, ...], Array] = {}
        self._latest: tuple[int, Args] = -1, ()
        self.messages: dict[int, list[int]] = {}  # transfer -> the transfers of its message
        self.workspaces = {d: GuardedWorkspace() if check else Workspace() for d in memory.own}
        self._other_workspaces: dict[tuple[int, int], Workspace] = {}  # of the other threads of a device
        self.crew = crew() if {d.kind for d in task_graph.machine.devices} == {"cpu"} and not check else Crew(1)

    def compile(self) -> RankProgram:
        """All rows of this rank in order, and at the end the waits for what is still under way."""
        graph, drives = self.graph, self.transport.drives
        if np.any(is_sent := self._sent_rows()):
            self.messages = messages(graph, _MERGED_BYTES if self.fuses and self.merges else 0, is_sent)
        heads = {rows[0]: rows for rows in self.messages.values()}
        posts: dict[int, list[list[int]]] = {}
        for head, rows in heads.items():
            if drives(int(graph.device[head])):
                posts.setdefault(self._post_row(rows), []).append(rows)
        for row in range(len(graph)):
            self._reach(row)
            for rows in posts.get(row, ()):
                self._receive(rows)
            if row not in self.messages:
                self._unsent(row)
                continue
            if row in heads and drives(int(graph.source[row])):
                self._send(heads[row])
            self._end_of(row)
        self._reach(len(graph))
        for row in list(self.pending):
            self._await(row)
        return self.program

    def _reach(self, row: int) -> None:
        """What comes before a row, or before the end."""
        if self.guard is not None and row >= self.guard_row:
            self.program.add(self.guard, min(row, len(self.graph) - 1), GUARD)
            self.guard = None

    def _post_row(self, rows: list[int]) -> int:
        """The row before which the message with these transfers is posted."""
        return int(self.plan.receive[rows].max())

    def _end_of(self, row: int) -> None:
        """What a rank does at a transfer that it sends or receives, or that others do."""

    def _sent_rows(self) -> Array:
        """Which rows are sent as messages."""
        graph, rank = self.graph, self.transport.ranks_of(len(self.graph.machine.devices))
        crossing: Array = graph.is_transfer & (rank[graph.source] != rank[graph.device])
        return crossing

    def _unsent(self, row: int) -> None:
        """What this rank does for a row that is no message."""
        if self.transport.drives(int(self.graph.device[row])):
            self._local(row)

    def _receive(self, rows: list[int]) -> None:
        parts = self._parts(rows, 1)
        message = self.transport.receiver(parts, int(self.graph.source[rows[0]]), rows[0])
        self._start(message, rows, "post")

    def _send(self, rows: list[int]) -> None:
        parts = self._parts(rows, 0)
        message = self.transport.sender(parts, int(self.graph.device[rows[0]]), rows[0])
        self._start(message, rows, "send")

    def _start(self, message: Message, rows: list[int], role: str) -> None:
        """Start a message now; until it is awaited, the memory of its transfers is in use."""
        self.program.add(message.start, rows[0], role)
        self.program.frees.append(message.free)
        self.pending.update(dict.fromkeys(rows, message.wait))

    def _parts(self, rows: list[int], k: int) -> list[Array]:
        """The memory of argument `k` of every transfer of a message, ready to be used."""
        parts = []
        for row in rows:
            instance, rect, _ = self._args(row)[k]
            self._before(row, [instance])
            parts.append(self.memory.array(instance)[self.memory.local_box(instance, rect).slices()])
        return parts

    def _local(self, row: int) -> None:
        own, device = self.graph.instance_device, self.graph.device[row]
        self._before(row, [i for i, _, _ in self._args(row) if i >= 0 and own[i] == device])
        self.program.add(self._call(row), row, "run")
        self._note(row)

    def _note(self, row: int) -> None:
        """What comes behind a row."""
        if row in self.notes:
            self.program.add(self.notes[row], row, NOTE)

    def _call(self, row: int) -> Call:
        """The bound call of a row that runs on a device of this rank."""
        args, kind = self._args(row), self.graph.kind[row]
        views = [self._view(row, k, i, rect) for k, (i, rect, _) in enumerate(args)]
        if kind == Kind.POINT:
            return self._point(row, views, [rect for _, rect, _ in args])
        if kind == Kind.COPY:
            return partial(self.xp.copyto, views[1], views[0])
        if kind == Kind.FOLD:
            return self._fold(row, views)
        return partial(self.feeds[int(self.graph.region[row])].into, views[0], args[0][1])

    def _args(self, row: int) -> Args:
        """`TaskGraph.args`, which several ask for one after the other."""
        if row != self._latest[0]:
            self._latest = row, self.graph.args(row)
        return self._latest[1]

    def _fold(self, row: int, views: list[Array], copies: Sequence[Array] = ()) -> Call:
        combine, args = self.graph.combine[int(self.graph.region[row])], self._args(row)
        first = views[0] if args[0][:2] == args[1][:2] else views[1]
        return self.fold_call(combine, views[0], [first, *views[2:]], copies)

    def fold_call(self, combine: str, target: Array, parts: Sequence[Array], copies: Sequence[Array]) -> Call:
        """See `taskflow.execute.fold.fold_call`; `combine` is `sum` or `max`."""
        return fold_call(np.maximum if combine == "max" else np.add, target, parts, copies)

    def _view(self, row: int, k: int, instance: int, rect: Rect) -> Array:
        if instance >= 0:
            return self._one(self.memory.view(instance, rect))
        region = self.graph.regions[self.graph.launches[int(self.graph.launch[row])].args[k]]
        return self._one(self.xp.empty(tuple(max(n, 0) for n in rect.shape), region.dtype))

    def _one(self, view: Array, writeable: bool = True) -> Array:
        """One array object for equal views of the host: rows whose instances take turns in some memory share it.

        A step of thousands of small rows waits for its own objects to come from memory more than it computes.
        """
        if self.xp is not np:
            return view
        key = (view.__array_interface__["data"][0] if view.size else 0, view.shape, view.strides, view.dtype, writeable)
        if key not in self._views:
            self._views[key] = view.view()
            self._views[key].flags.writeable = writeable
        return self._views[key]

    def _point(self, row: int, views: list[Array], rects: list[Rect]) -> Call:
        launch = self._launch(row)
        context = self._context(row, rects)
        privileges = [privilege for _, _, privilege in self._args(row)]
        for k, privilege in enumerate(privileges):
            if privilege == Privilege.READ:
                views[k] = self._one(views[k], writeable=False)
        self.views[row] = views
        kernel = for_parts(self._kernel(launch.kernel), launch, privileges).for_dtypes(views, *access(privileges))
        if self.check:
            return self._checked(row, views, privileges, partial(kernel, context))
        return kernel.call(context, views) if self.crew.size == 1 else partial(kernel, context, *views)

    def _checked(self, row: int, views: list[Array], privileges: list[Privilege], call: Callable[..., object]) -> Call:
        """The call of a point on its arrays with its privileges verified."""
        workspace = self.workspaces[int(self.graph.device[row])]
        assert isinstance(workspace, GuardedWorkspace)
        return checked(str(self.graph[row]), views, privileges, call, workspace)

    def _launch(self, row: int) -> Launch:
        return self.graph.launches[int(self.graph.launch[row])]

    def _context(self, row: int, rects: list[Rect]) -> Context:
        return self.part_context(row, Part(self._launch(row).intervals(int(self.graph.point[row])), tuple(rects)), 0)

    def part_context(self, row: int, part: Part, thread: int) -> Context:
        """The context of a point, or of the part that a thread has of it."""
        device = int(self.graph.device[row])
        workspace = self.workspaces[device]
        if thread:
            workspace = self._other_workspaces.setdefault((device, thread), Workspace())
        return Context(part.rects, part.intervals, self.run, workspace, *self._point_facts(row))

    def _point_facts(self, row: int) -> tuple[int, int, Sequence[int]]:
        """What a context knows of a point: its number, steps ahead, and the outputs to which it adds."""
        launch, privileges = self._launch(row), [privilege for _, _, privilege in self._args(row)]
        return int(self.graph.point[row]), launch.step, added_outputs(launch, privileges)

    def _kernel(self, kernel: Kernel) -> Kernel:
        """What a device runs for an operator's kernel."""
        return kernel

    def _before(self, row: int, instances: Sequence[int] = ()) -> None:
        """Await the transfers that `row` waits for; then instances may begin their lives."""
        for dep in self.graph.deps(row):
            self._await(dep)
        for instance in instances:
            self._begin_life(row, instance)

    def _begin_life(self, row: int, instance: int) -> None:
        """When `row` is the first to use an instance, poison it before (if memory is checked)."""
        if instance not in self.born:
            self.born.add(instance)
            region = self.graph.regions[int(self.graph.instance_region[instance])]
            if self.check and not region.is_persistent:
                self.program.add(partial(poison, self.memory.array(instance)), row, "poison")

    def _await(self, row: int) -> None:
        if row in self.pending:
            self.program.add(self.pending[row], row, "wait")
            for other in self.messages[row]:
                del self.pending[other]


def messages(graph: TaskGraph, most_bytes: int, is_sent: Array | None = None) -> dict[int, list[int]]:
    """Transfer row -> the transfers that travel with it in one message, in order; all, or those that are sent.

    Transfers of at most `most_bytes` between the same two devices, and those that are JOINED, are one message where
    neither device has a row between them: so all of it is ready when the first is, and nothing waits for the first
    alone.
    """
    is_sent = graph.is_transfer if is_sent is None else is_sent
    found: dict[int, list[int]] = {}
    latest: dict[int, int] = {}  # device -> its last row
    for row in range(len(graph)):
        source, device = int(graph.source[row]), int(graph.device[row])
        if is_sent[row]:
            last = latest.get(source, -1)
            rows = found.get(last, []) if last == latest.get(device) else []
            is_alike = bool(rows) and (graph.source[last], graph.device[last]) == (source, device)
            is_small = is_alike and max(graph.bytes[last], graph.bytes[row]) <= most_bytes
            if not is_alike or not (is_small or graph.algorithm[row] == JOINED):
                rows = []
            rows.append(row)
            found[row] = rows
        latest[source] = latest[device] = row
    return found
