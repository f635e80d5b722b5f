"""Programs: the rows of one rank compiled into a flat list of bound calls.

Takes a task graph, its memory plan and a transport; gives arrays bound to arenas and the calls of a step in order.
A step replays the list: nothing is looked up, allocated or analysed in it (what Legion calls tracing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from taskflow.backend import Context, Run, Workspace
from taskflow.comm.transport import Message, Transport
from taskflow.core.dtypes import HALF
from taskflow.core.geometry import Rect
from taskflow.execute.check import GuardedWorkspace, checked, poison
from taskflow.execute.feed import Feed
from taskflow.execute.fold import fold_call
from taskflow.execute.memory import Memory
from taskflow.execute.views import ArgumentViews
from taskflow.graph.kernel import Kernel
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.parts import added_outputs, boxes_of, for_parts
from taskflow.tasks.task_graph import JOINED, Array, Kind, Launch, Privilege, TaskGraph, access
from taskflow.tasks.threads.crew import Crew, crew
from taskflow.tasks.threads.division import Part, may_save

Call = Callable[[], object]
Args = tuple[tuple[int, Rect, Privilege], ...]

GUARD = "wait for all ranks"
NOTE = "note"
REPLAY = "replay"  # roles of calls
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


@dataclass(frozen=True)
class BoundKernel:
    """A kernel on arguments of some privileges: what runs, to which outputs it adds, whether one is of half size."""

    kernel: Kernel
    step: int
    pace: int
    privileges: list[Privilege]
    added: Sequence[int]
    has_half: bool


class Compiler:
    """Compiles rows in order; transfers become messages. `taskflow.execute.shared` has the variant for shared memory.

    With `fuses`, calls that only move a little data between the same ranks and follow each other are one, which is
    faster, but then their rows have no time of their own.
    """

    fuses = False
    merges = True  # merges: several transfers may be one message
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
        self.graph = task_graph
        self.plan = plan
        self.memory = memory
        self.transport = transport
        self.feeds = feeds
        self.run = run
        self.check = check
        self.program = RankProgram()
        self.pending: dict[int, Call] = {}  # row of a transfer under way -> its wait
        self.born: set[int] = set()
        self.views: dict[int, list[Array]] = {}  # of points, as their kernels may use them
        self._views: dict[tuple[object, ...], Array] = {}
        self._makers: dict[int, Callable[[int, list[Array]], Call]] = {
            int(Kind.POINT): self._point,
            int(Kind.COPY): self._copy,
            int(Kind.FOLD): self._fold,
            int(Kind.FEED): self._feed,
        }
        self._kernels: dict[tuple[int, bytes], BoundKernel] = {}
        self._latest: tuple[int, Args] = -1, ()
        self.messages: dict[int, list[int]] = {}  # transfer -> the transfers of its message
        self._tags: dict[int, int] = {}  # of the first transfer of a message
        self.workspaces = {d: GuardedWorkspace() if check else Workspace() for d in memory.devices}
        self._other_workspaces: dict[
            tuple[int, int], Workspace
        ] = {}  # of the other threads of a device
        self.crew = (
            crew()
            if {d.kind for d in task_graph.machine.devices} == {"cpu"} and not check
            else Crew(1)
        )
        self.is_divided = self.crew.size > 1 and any(
            may_save(task_graph, d) for d in memory.devices
        )

    def compile(self) -> RankProgram:
        """All rows of this rank in order, and at the end the waits for what is still under way."""
        graph = self.graph
        drives = self.transport.drives
        if np.any(is_sent := self._sent_rows()):
            most_bytes = _MERGED_BYTES if self.fuses and self.merges else 0
            self.messages = messages(graph, np.where(self._is_near(), most_bytes, 0), is_sent)
        heads = {rows[0]: rows for rows in self.messages.values()}
        self._tags = self._count(heads)
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

    def _is_near(self) -> Array:
        """Which rows are within a host: there alone both ends know all rows of both."""
        graph = self.graph
        host = np.array(self.transport.hosts)[self.transport.ranks_of(len(graph.machine.devices))]
        is_near: Array = host[graph.source] == host[graph.device]
        return is_near

    def _count(self, heads: Iterable[int]) -> dict[int, int]:
        """The tag of every message: how many go before it from one of the two ranks to the other."""
        rank = self.transport.rank_of
        last = dict[tuple[int, int], int]()
        tags = {}
        for head in sorted(heads):
            ends = rank(int(self.graph.source[head])), rank(int(self.graph.device[head]))
            tags[head] = last[ends] = last.get(ends, -1) + 1
        return tags

    def _reach(self, row: int) -> None:
        """What comes before a row, or before the end."""
        if self.guard is not None and row >= self.guard_row:
            self.program.add(self.guard, max(min(row, len(self.graph) - 1), 0), GUARD)
            self.guard = None

    def _post_row(self, rows: list[int]) -> int:
        """The row before which the message with these transfers is posted."""
        return int(self.plan.receive[rows].max())

    def _end_of(self, row: int) -> None:
        """What a rank does at a transfer that it sends or receives, or that others do."""

    def _sent_rows(self) -> Array:
        """Which rows are sent as messages."""
        graph = self.graph
        rank = self.transport.ranks_of(len(self.graph.machine.devices))
        crossing: Array = graph.is_transfer & (rank[graph.source] != rank[graph.device])
        return crossing

    def _unsent(self, row: int) -> None:
        """What this rank does for a row that is no message."""
        if self.transport.drives(int(self.graph.device[row])):
            self._local(row)

    def _receive(self, rows: list[int]) -> None:
        parts = self._parts(rows, 1)
        message = self.transport.receiver(
            parts, int(self.graph.source[rows[0]]), self._tags[rows[0]]
        )
        self._start(message, rows, "post")

    def _send(self, rows: list[int]) -> None:
        parts = self._parts(rows, 0)
        message = self.transport.sender(parts, int(self.graph.device[rows[0]]), self._tags[rows[0]])
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
            parts.append(
                self.memory.array(instance)[self.memory.local_box(instance, rect).slices()]
            )
        return parts

    def _local(self, row: int) -> None:
        self._before(row, self._own_instances(row) if self.check else ())
        self.program.add(self._call(row), row, "run")
        self._note(row)

    def _own_instances(self, row: int) -> list[int]:
        """Of a row's arguments, those on its device."""
        device_of = self.graph.instance_device
        device = self.graph.device[row]
        return [i for i, _, _ in self._args(row) if i >= 0 and device_of[i] == device]

    def _note(self, row: int) -> None:
        """What comes behind a row."""
        if row in self.notes:
            self.program.add(self.notes[row], row, NOTE)

    def _call(self, row: int) -> Call:
        """The bound call of a row that runs on a device of this rank."""
        return self._makers[int(self.graph.kind[row])](row, self._arrays(row))

    def _copy(self, row: int, views: list[Array]) -> Call:
        return partial(self.xp.copyto, views[1], views[0])

    def _feed(self, row: int, views: list[Array]) -> Call:
        return partial(
            self.feeds[int(self.graph.region[row])].into, views[0], self._args(row)[0][1]
        )

    def _args(self, row: int) -> Args:
        """`TaskGraph.args`, which several ask for one after the other."""
        if row != self._latest[0]:
            self._latest = row, self.graph.args(row)
        return self._latest[1]

    def _fold(self, row: int, views: list[Array], copies: Sequence[Array] = ()) -> Call:
        combine = self.graph.combine[int(self.graph.region[row])]
        args = self._args(row)
        first = views[0] if args[0][:2] == args[1][:2] else views[1]
        return self.fold_call(combine, views[0], [first, *views[2:]], copies)

    def fold_call(
        self, combine: str, target: Array, parts: Sequence[Array], copies: Sequence[Array]
    ) -> Call:
        """See `taskflow.execute.fold.fold_call`; `combine` is `sum` or `max`."""
        return fold_call(np.maximum if combine == "max" else np.add, target, parts, copies)

    @cached_property
    def _argument_views(self) -> ArgumentViews:
        return ArgumentViews(self.graph, self.plan, self.memory.arenas, self.memory.elsewhere)

    def _arrays(self, row: int) -> list[Array]:
        """The arrays of a row's arguments, as its kernel may use them."""
        views = self._argument_views.of(row)
        return [self._view(row, k) if view is None else view for k, view in enumerate(views)]

    def _view(self, row: int, k: int) -> Array:
        instance, rect, privilege = self._args(row)[k]
        if instance >= 0:
            is_read = self.graph.kind[row] == Kind.POINT and privilege == Privilege.READ
            return self._one(self.memory.view(instance, rect), writeable=not is_read)
        region = self.graph.regions[self.graph.launches[int(self.graph.launch[row])].args[k]]
        return self._one(self.xp.empty(tuple(max(n, 0) for n in rect.shape), region.dtype))

    def _one(self, view: Array, writeable: bool = True) -> Array:
        """One array object for equal views of the host, as `ArgumentViews` has it."""
        if self.xp is not np:
            return view
        key = (
            view.__array_interface__["data"][0] if view.size else 0,
            view.shape,
            view.strides,
            view.dtype,
            writeable,
        )
        if key not in self._views:
            self._views[key] = view.view()
            self._views[key].flags.writeable = writeable
        return self._views[key]

    def _point(self, row: int, views: list[Array]) -> Call:
        bound = self._bound(row)
        context = self._context(row, bound)
        self.views[row] = views
        kernel = (
            bound.kernel.for_dtypes(views, *access(bound.privileges))
            if bound.has_half
            else bound.kernel
        )
        if self.check:
            return self._checked(row, views, bound.privileges, partial(kernel, context))
        return partial(kernel, context, *views) if self.is_divided else kernel.call(context, views)

    def _bound(self, row: int) -> BoundKernel:
        """What points of one operator with equal privileges share."""
        number = int(self.graph.launch[row])
        graph = self.graph
        marks = graph.arg_privilege[graph.arg_ptr[row] : graph.arg_ptr[row + 1]]
        if (bound := self._kernels.get((number, key := marks.tobytes()))) is None:
            launch = graph.launches[number]
            privileges = [*map(Privilege, marks.tolist())]
            bound = BoundKernel(
                for_parts(self._kernel(launch.kernel), launch, privileges),
                launch.step,
                launch.pace,
                privileges,
                added_outputs(launch, privileges),
                any(graph.regions[k].dtype in HALF for k in launch.args),
            )
            self._kernels[number, key] = bound
        return bound

    def _checked(
        self, row: int, views: list[Array], privileges: list[Privilege], call: Callable[..., object]
    ) -> Call:
        """The call of a point on its arrays with its privileges verified."""
        workspace = self.workspaces[int(self.graph.device[row])]
        assert isinstance(workspace, GuardedWorkspace)
        return checked(str(self.graph[row]), views, privileges, call, workspace)

    def _launch(self, row: int) -> Launch:
        return self.graph.launches[int(self.graph.launch[row])]

    def _context(self, row: int, bound: BoundKernel) -> Context:
        workspace = self.workspaces[int(self.graph.device[row])]
        made = Context(
            partial(boxes_of, self.graph, row), None, self.run, workspace, *self._facts(row, bound)
        )
        launch = int(self.graph.launch[row])
        if self.graph.launches[launch].kernel.claims:
            made.claims_from(partial(self.memory.claim_next, launch))
        return made

    def part_context(self, row: int, part: Part, thread: int) -> Context:
        """The context of a point, or of the part that a thread has of it."""
        device = int(self.graph.device[row])
        workspace = self.workspaces[device]
        if thread:
            workspace = self._other_workspaces.setdefault((device, thread), Workspace())
        return Context(
            part.rects, part.intervals, self.run, workspace, *self._facts(row, self._bound(row))
        )

    def _facts(self, row: int, bound: BoundKernel) -> tuple[int, int, Sequence[int], int]:
        """What a context knows of a point: its number, steps ahead, the outputs to which it adds, and its pace."""
        return int(self.graph.point[row]), bound.step, bound.added, bound.pace

    def _kernel(self, kernel: Kernel) -> Kernel:
        """What a device runs for an operator's kernel."""
        return kernel

    def _before(self, row: int, instances: Sequence[int] = ()) -> None:
        """Await the transfers that `row` waits for; then instances may begin their lives."""
        for dep in self.graph.deps(row) if self.pending else ():
            self._await(dep)
        for instance in instances if self.check else ():
            self._begin_life(row, instance)

    def _begin_life(self, row: int, instance: int) -> None:
        """When `row` is the first to use an instance of checked memory, poison it before."""
        if instance not in self.born:
            self.born.add(instance)
            if not self.graph.regions[int(self.graph.instance_region[instance])].is_persistent:
                self.program.add(partial(poison, self.memory.array(instance)), row, "poison")

    def _await(self, row: int) -> None:
        if row in self.pending:
            self.program.add(self.pending[row], row, "wait")
            for other in self.messages[row]:
                del self.pending[other]


def messages(
    graph: TaskGraph, most_bytes: Array | int, is_sent: Array | None = None
) -> dict[int, list[int]]:
    """Transfer row -> the transfers that travel with it in one message, in order; all, or those that are sent.

    Transfers of at most `most_bytes` (one number, or one of each) between the same two devices, and those that are
    JOINED, are one message where neither device has a row between them: so all of it is ready when the first is, and
    nothing waits for the first alone.
    """
    is_sent = graph.is_transfer if is_sent is None else is_sent
    most = np.broadcast_to(most_bytes, len(graph)).tolist()
    message_of: dict[int, list[int]] = {}
    latest: dict[int, int] = {}  # device -> its last row
    for row in range(len(graph)):
        source = int(graph.source[row])
        device = int(graph.device[row])
        if is_sent[row]:
            last = latest.get(source, -1)
            rows = message_of.get(last, []) if last == latest.get(device) else []
            is_alike = bool(rows) and (graph.source[last], graph.device[last]) == (source, device)
            is_small = is_alike and max(graph.bytes[last], graph.bytes[row]) <= most[row]
            if not is_alike or not (is_small or graph.algorithm[row] == JOINED):
                rows = []
            rows.append(row)
            message_of[row] = rows
        latest[source] = latest[device] = row
    return message_of
