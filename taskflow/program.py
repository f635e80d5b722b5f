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
    """The cell from which the feed rows of one region read; filled before each step."""

    value: Any = None

    def into(self, target: Array, rect: Rect) -> None:
        """Copy the box `rect` of the fed value: of an array, or of a function Rect -> array."""
        target[...] = self.value(rect) if callable(self.value) else self.value[rect.slices()]


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
    """The arenas of the devices that this rank drives, and an array for every instance in them."""

    def __init__(self, task_graph: TaskGraph, plan: MemoryPlan, transport: Transport) -> None:
        self.task_graph, self.plan = task_graph, plan
        devices = range(len(task_graph.machine.devices))
        self.arenas = {d: np.zeros(int(plan.peak_bytes[d]), np.uint8) for d in devices if transport.drives(d)}
        self.arrays: dict[int, Array] = {}
        self._origins: dict[int, tuple[int, ...]] = {}
        for k in range(len(task_graph.instance_region)):
            device = int(task_graph.instance_device[k])
            if device in self.arenas and (plan.last[k] >= 0 or self._is_home(k)):
                self.bind(k, self._array(k, device))

    def _is_home(self, instance: int) -> bool:
        region = self.task_graph.regions[int(self.task_graph.instance_region[instance])]
        return region.is_persistent

    def _array(self, instance: int, device: int) -> Array:
        region = self.task_graph.regions[int(self.task_graph.instance_region[instance])]
        rect, start = self.task_graph.instance_rect(instance), int(self.plan.offset[instance])
        size = rect.volume * region.itemsize
        return self.arenas[device][start : start + size].view(region.dtype).reshape(rect.shape)

    def bind(self, instance: int, array: Array) -> None:
        """Use `array` as the memory of an instance."""
        self.arrays[instance] = array
        self._origins[instance] = self.task_graph.instance_rect(instance).lo

    def view(self, instance: int, rect: Rect) -> Array:
        """The box `rect` (global coordinates) of an instance."""
        return self.arrays[instance][rect.slices(self._origins[instance])]

    def local_box(self, instance: int, rect: Rect) -> Rect:
        """`rect` in the coordinates of the instance's array."""
        return rect.relative_to(self._origins[instance])


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


def compile_program(
    task_graph: TaskGraph,
    plan: MemoryPlan,
    memory: Memory,
    transport: Transport,
    feeds: dict[int, Feed],
    run: Run,
    check: bool = False,
) -> Program:
    """Compile the rows of this rank; with `check` memory is poisoned and every point verified (see `check`)."""
    return _Compiler(task_graph, plan, memory, transport, feeds, run, check).compile()


class _Compiler:
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
        self.receivers: dict[int, tuple[Call, Call]] = {}
        self.workspaces = {d: Workspace() for d in memory.arenas}

    def compile(self) -> Program:
        graph, transport = self.graph, self.transport
        posts: dict[int, list[int]] = {}
        for row in np.flatnonzero(graph.is_transfer).tolist():
            if transport.size > 1 and transport.drives(int(graph.device[row])):
                posts.setdefault(int(self.plan.receive[row]), []).append(row)
        for row in range(len(graph)):
            for transfer in posts.get(row, ()):
                self._post(transfer)
            device, source = int(graph.device[row]), int(graph.source[row])
            if transport.size > 1 and graph.kind[row] == Kind.COPY and source != device:
                if transport.drives(source):
                    self._send(row)
            elif transport.drives(device):
                self._local(row)
        for row in list(self.pending):
            self._await(row)
        return self.program

    def _post(self, row: int) -> None:
        (_, (target, rect, _)) = self.graph.args(row)
        self._before(row, [target])
        start, wait = self.transport.receiver(
            self.memory.arrays[target], self.memory.local_box(target, rect), int(self.graph.source[row]), row
        )
        self.program.add(start, row, "post")
        self.pending[row] = (wait, target)

    def _send(self, row: int) -> None:
        ((source, rect, _), _) = self.graph.args(row)
        self._before(row, [source])
        start, wait = self.transport.sender(
            self.memory.arrays[source], self.memory.local_box(source, rect), int(self.graph.device[row]), row
        )
        self.program.add(start, row, "send")
        self.pending[row] = (wait, source)

    def _local(self, row: int) -> None:
        args = self.graph.args(row)
        self._before(row, [i for i, _, _ in args if i >= 0])
        region = None if self.graph.launch[row] >= 0 else self.graph.regions[int(self.graph.region[row])]
        views = [self._view(row, k, i, rect) for k, (i, rect, _) in enumerate(args)]
        kind = self.graph.kind[row]
        if kind == Kind.POINT:
            call = self._point(row, views, [rect for _, rect, _ in args])
        elif kind == Kind.COPY:
            call = partial(np.copyto, views[1], views[0])
        elif kind == Kind.FOLD:
            in_place = args[0][:2] == args[1][:2]
            combine = np.maximum if self.graph.combine[int(self.graph.region[row])] == "max" else np.add
            call = partial(fold, combine, views[0], *([views[0]] if in_place else views[1:2]), *views[2:])
        else:
            assert region is not None
            call = partial(self.feeds[int(self.graph.region[row])].into, views[0], args[0][1])
        self.program.add(call, row, "run")

    def _view(self, row: int, k: int, instance: int, rect: Rect) -> Array:
        if instance >= 0:
            return self.memory.view(instance, rect)
        region = self.graph.regions[self.graph.launches[int(self.graph.launch[row])].args[k]]
        return np.empty(tuple(max(n, 0) for n in rect.shape), region.dtype)

    def _point(self, row: int, views: list[Array], rects: list[Rect]) -> Call:
        launch = self.graph.launches[int(self.graph.launch[row])]
        intervals = dict(zip(launch.axes, launch.intervals[int(self.graph.point[row])], strict=True))
        context = Context(rects, intervals, self.run, self.workspaces[int(self.graph.device[row])])
        privileges = [privilege for _, _, privilege in self.graph.args(row)]
        for k, privilege in enumerate(privileges):
            if privilege == Privilege.READ:
                views[k] = views[k].view()
                views[k].flags.writeable = False
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
            if instance in self.born:
                continue
            self.born.add(instance)
            for transfer, (_, other) in list(self.pending.items()):
                if other != instance and self._shares_bytes(instance, other):
                    self._await(transfer)
            region = self.graph.regions[int(self.graph.instance_region[instance])]
            if self.check and not region.is_persistent:
                self.program.add(partial(poison, self.memory.arrays[instance]), row, "poison")

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
