"""Programs: the rows of one rank compiled into a flat list of bound calls.

Takes a task graph, its memory plan and a transport; gives arrays bound to arenas and the calls of a step in order.
A step replays the list: nothing is looked up, allocated or analysed in it (what Legion calls tracing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from taskflow.backend import Context, Run, Workspace
from taskflow.check import checked, poison
from taskflow.comm import Transport
from taskflow.geometry import Rect
from taskflow.memory import MemoryPlan
from taskflow.task import Array, Kind, Privilege, TaskGraph

Call = Callable[[], object]


@dataclass
class Feed:
    """The cell from which the feed rows of the region `name` read; filled before each step."""

    name: str
    value: Any = None

    def into(self, target: Array, rect: Rect) -> None:
        """Copy the box `rect` of the fed value: of an array, or of a function Rect -> array."""
        if not callable(self.value):
            target[...] = self.value[rect.slices()]
            return
        value = np.asarray(self.value(rect))
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(
                f"feed '{self.name}': the function gave {value.shape} {value.dtype} for the box {rect}, "
                f"which is {target.shape} {target.dtype}"
            )
        target[...] = value


@dataclass
class Program:
    """Calls of one step in order; `rows[k]` is the row that call k belongs to and `roles[k]` what it does for it."""

    calls: list[Call] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)

    def add(self, call: Call, row: int, role: str) -> None:
        """Append a call."""
        self.calls.append(call)
        self.rows.append(row)
        self.roles.append(role)


class Memory:
    """The arenas of the devices that this rank drives, and arrays for the instances in them.

    With `share_memory` the arenas of all ranks of a host are mapped, so that peers read instances in place.
    """

    def __init__(
        self, task_graph: TaskGraph, plan: MemoryPlan, transport: Transport, share_memory: bool = False
    ) -> None:
        self.task_graph, self.plan = task_graph, plan
        self.own = [d for d in range(len(task_graph.machine.devices)) if transport.drives(d)]
        self.arenas: dict[int, Array] = {}
        self._arrays: dict[int, Array] = {}
        size = {d: int(plan.peak_bytes[d]) for d in self.own}
        shared = transport.shared_arrays(sum(size.values())) if share_memory else None
        self.is_shared = shared is not None
        if shared is not None:
            self.arenas = dict(enumerate(shared))
        else:
            self.arenas = {d: np.zeros(size[d], np.uint8) for d in self.own}

    def array(self, instance: int) -> Array:
        """The memory of an instance, row-major: its dimensions stand in the region's memory order."""
        if instance not in self._arrays:
            graph, start = self.task_graph, int(self.plan.offset[instance])
            region = graph.regions[int(graph.instance_region[instance])]
            rect = graph.instance_rect(instance)
            order = self._order(instance)
            part = self.arenas[int(graph.instance_device[instance])][start : start + rect.volume * region.itemsize]
            self._arrays[instance] = part.view(region.dtype).reshape([rect.shape[d] for d in order])
        return self._arrays[instance]

    def bind(self, instance: int, array: Array) -> None:
        """Use `array`, of the instance's shape, as its memory."""
        self._arrays[instance] = array.transpose(self._order(instance))

    def view(self, instance: int, rect: Rect) -> Array:
        """The box `rect` (global coordinates) of an instance, in the region's own order of dimensions."""
        whole = self.array(instance).transpose(np.argsort(self._order(instance)))
        return whole[rect.slices(self.task_graph.instance_rect(instance).lo)]

    def local_box(self, instance: int, rect: Rect) -> Rect:
        """`rect` in the coordinates of `array(instance)`."""
        local, order = rect.relative_to(self.task_graph.instance_rect(instance).lo), self._order(instance)
        return Rect(tuple(local.lo[d] for d in order), tuple(local.hi[d] for d in order))

    def _order(self, instance: int) -> tuple[int, ...]:
        return self.task_graph.order(int(self.task_graph.instance_region[instance]))


def fold(combine: np.ufunc, target: Array, first: Array, *others: Array) -> None:
    """`target` = the combination of partial results; `first` may be `target` itself."""
    if first is not target:
        if not others:
            np.copyto(target, first)
            return
        combine(first, others[0], out=target)
        others = others[1:]
    for other in others:
        combine(target, other, out=target)


class Compiler:
    """Compiles rows in order; transfers become messages. `taskflow.shared` has the variant for shared memory."""

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
        self.program = Program()
        self.pending: dict[int, tuple[Call, int]] = {}  # row of a transfer -> (wait, instance on this rank)
        self.born: set[int] = set()
        self._views: dict[tuple[object, ...], Array] = {}
        self.receivers: dict[int, tuple[Call, Call]] = {}
        self.workspaces = {d: Workspace() for d in memory.own}

    def compile(self) -> Program:
        """All rows of this rank in order, and at the end the waits for what is still under way."""
        graph, transport = self.graph, self.transport
        transfers = graph.is_transfer if transport.size > 1 else np.zeros(len(graph), np.bool_)
        posts: dict[int, list[int]] = {}
        for row in np.flatnonzero(transfers).tolist():
            if transport.drives(int(graph.device[row])):
                posts.setdefault(self._receive_at(row), []).append(row)
        for row in range(len(graph)):
            for transfer in posts.get(row, ()):
                self._receive(transfer)
            self._row(row, bool(transfers[row]))
        for row in list(self.pending):
            self._await(row)
        return self.program

    def _row(self, row: int, is_transfer: bool) -> None:
        if is_transfer:
            if self.transport.drives(int(self.graph.source[row])):
                self._send(row)
        elif self.transport.drives(int(self.graph.device[row])):
            self._local(row)

    def _receive_at(self, row: int) -> int:
        """The row before which the receive of the transfer `row` is issued."""
        return int(self.plan.receive[row])

    def _receive(self, row: int) -> None:
        (_, (target, rect, _)) = self.graph.args(row)
        self._before(row, [target])
        start, wait = self.transport.receiver(
            self.memory.array(target), self.memory.local_box(target, rect), int(self.graph.source[row]), row
        )
        self.program.add(start, row, "post")
        self.pending[row] = (wait, target)

    def _send(self, row: int) -> None:
        ((source, rect, _), _) = self.graph.args(row)
        self._before(row, [source])
        start, wait = self.transport.sender(
            self.memory.array(source), self.memory.local_box(source, rect), int(self.graph.device[row]), row
        )
        self.program.add(start, row, "send")
        self.pending[row] = (wait, source)

    def _local(self, row: int) -> None:
        self._before(row, [i for i, _, _ in self.graph.args(row) if i >= 0])
        self.program.add(self._call(row), row, "run")

    def _call(self, row: int) -> Call:
        """The bound call of a row that runs on a device of this rank."""
        args, kind = self.graph.args(row), self.graph.kind[row]
        views = [self._view(row, k, i, rect) for k, (i, rect, _) in enumerate(args)]
        if kind == Kind.POINT:
            return self._point(row, views, [rect for _, rect, _ in args])
        if kind == Kind.COPY:
            return partial(np.copyto, views[1], views[0])
        if kind == Kind.FOLD:
            return self._fold(row, np.maximum if self._combine(row) == "max" else np.add, views)
        return partial(self.feeds[int(self.graph.region[row])].into, views[0], args[0][1])

    def _combine(self, row: int) -> str:
        return self.graph.combine[int(self.graph.region[row])]

    def _fold(self, row: int, combine: np.ufunc, views: list[Array]) -> Call:
        args = self.graph.args(row)
        first = views[0] if args[0][:2] == args[1][:2] else views[1]
        return partial(fold, combine, views[0], first, *views[2:])

    def _view(self, row: int, k: int, instance: int, rect: Rect) -> Array:
        if instance >= 0:
            return self._one(self.memory.view(instance, rect))
        region = self.graph.regions[self.graph.launches[int(self.graph.launch[row])].args[k]]
        return self._one(np.empty(tuple(max(n, 0) for n in rect.shape), region.dtype))

    def _one(self, view: Array, writeable: bool = True) -> Array:
        """One array object for equal views: rows whose instances take turns in some memory share it.

        A step of thousands of small rows waits for its own objects to come from memory more than it computes.
        """
        key = (view.ctypes.data if view.size else 0, view.shape, view.strides, view.dtype, writeable)
        if key not in self._views:
            self._views[key] = view.view()
            self._views[key].flags.writeable = writeable
        return self._views[key]

    def _point(self, row: int, views: list[Array], rects: list[Rect]) -> Call:
        launch = self.graph.launches[int(self.graph.launch[row])]
        point = int(self.graph.point[row])
        intervals = dict(zip(launch.axes, launch.intervals[point], strict=True))
        context = Context(rects, intervals, self.run, self.workspaces[int(self.graph.device[row])], point)
        privileges = [privilege for _, _, privilege in self.graph.args(row)]
        for k, privilege in enumerate(privileges):
            if privilege == Privilege.READ:
                views[k] = self._one(views[k], writeable=False)
        call = partial(launch.kernel, context, *views)
        if not self.check:
            return call
        makes = [v for v, p in zip(views, privileges, strict=True) if p in (Privilege.WRITE, Privilege.REDUCE)]
        return checked(str(self.graph[row]), views[: len(views) - len(makes)], makes, call)

    def _before(self, row: int, instances: list[int]) -> None:
        """Await the transfers that `row` depends on, and those that still use memory which is born here."""
        for dep in self.graph.deps(row):
            if dep in self.pending:
                self._await(dep)
        for instance in instances:
            if instance not in self.born:
                for transfer, (_, other) in list(self.pending.items()):
                    if other != instance and self._shares_bytes(instance, other):
                        self._await(transfer)
                self._begin_life(row, instance)

    def _begin_life(self, row: int, instance: int) -> None:
        """When `row` is the first to use an instance, poison it before (if memory is checked)."""
        if instance not in self.born:
            self.born.add(instance)
            region = self.graph.regions[int(self.graph.instance_region[instance])]
            if self.check and not region.is_persistent:
                self.program.add(partial(poison, self.memory.array(instance)), row, "poison")

    def _shares_bytes(self, a: int, b: int) -> bool:
        plan = self.plan
        return bool(
            self.graph.instance_device[a] == self.graph.instance_device[b]
            and plan.offset[a] < plan.offset[b] + plan.size[b]
            and plan.offset[b] < plan.offset[a] + plan.size[a]
        )

    def _await(self, row: int) -> None:
        wait, _ = self.pending.pop(row)
        self.program.add(wait, row, "wait")
