"""Lowering: graph + strategy + machine -> task graph.

Decides nothing about order or time: it partitions every operator, moves every region (`movement`), and lays the rows
out in program order, the movement of a value right behind the operator that made it. Points of an operator are cached
by its configuration and fragments of a region by the points that touch it, so that a search that changes one operator
lowers only that operator and its neighbours again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskflow.fragment import Event, Fragment, Move
from taskflow.geometry import Rect
from taskflow.graph import Graph
from taskflow.layout import memory_orders
from taskflow.machine import MachineModel
from taskflow.movement import move_region
from taskflow.operator import Kernel, Operator
from taskflow.partition import Points, partition
from taskflow.region import LogicalRegion
from taskflow.strategy import ParallelConfig, Strategy, check_strategy, effective_config
from taskflow.streams import StreamTable
from taskflow.task import COLLECTIVES, Kind, Launch, Privilege, TaskGraph

Array = np.ndarray[Any, np.dtype[Any]]


def lower(graph: Graph, strategy: Strategy, machine: MachineModel) -> TaskGraph:
    """The task graph of `graph` under `strategy` on `machine`.

    Deterministic: the same arguments give the same rows on every rank. Any topological order of the rows gives the
    numbers of one device.

    Raises:
        ValueError: the strategy does not fit the graph or the machine; the message names the operator.
    """
    return Lowering(graph, machine).lower(strategy)


@dataclass(frozen=True)
class _Rows:
    """The packed rows of one movement: row columns, argument columns, and how many arguments each row has."""

    kind: Array
    source: Array
    device: Array
    bytes: Array
    arg_count: Array
    arg_instance: Array
    arg_box: Array
    arg_privilege: Array
    collective: Array


@dataclass(frozen=True)
class _Packed:
    """A fragment as columns. `edges` has four columns: waiting slot and index, awaited slot and index."""

    fragment: Fragment
    rows: tuple[_Rows, ...]
    edges: Array
    devices: Array
    boxes: Array
    partial: Array


class Lowering:
    """`lower` with its caches, for one graph and one machine."""

    def __init__(self, graph: Graph, machine: MachineModel) -> None:
        self.graph, self.machine = graph, machine
        self.operators = tuple(graph.operators)
        self.regions = tuple(graph.regions.values())
        self._number = {r.name: k for k, r in enumerate(self.regions)}
        self._ndim = max([r.ndim for r in self.regions] + [1])
        self._orders = memory_orders(self.operators)
        self._points: dict[tuple[int, ParallelConfig], Points] = {}
        self._launches: dict[tuple[int, ParallelConfig], Launch] = {}
        self._packed: dict[tuple[object, ...], _Packed] = {}
        self._touches = self._events_by_region()
        self._fetched = {r.name: n for n, r in graph.outputs.items()}
        self._streams = StreamTable(machine)

    def lower(self, strategy: Strategy) -> TaskGraph:
        """See `taskflow.lower`."""
        if not self.operators:
            raise ValueError("lower: the graph has no operators")
        check_strategy(self.graph, strategy, len(self.machine.devices))
        points = self.points(strategy)
        used = tuple(sorted({d for p in points for d in p.devices}))
        packed = [self._fragment(k, points, used) for k in range(len(self.regions))]
        return self._assemble(points, packed)

    def points(self, strategy: Strategy) -> list[Points]:
        """The points of every operator."""
        found = []
        for k, op in enumerate(self.operators):
            config, _ = effective_config(op, strategy)
            key = (k, config)
            if key not in self._points:
                self._points[key] = partition(op, config)
            found.append(self._points[key])
        return found

    def _events_by_region(self) -> list[list[tuple[int, int, str]]]:
        """Per region, in program order: (operator, argument, read | write | update)."""
        touches: list[list[tuple[int, int, str]]] = [[] for _ in self.regions]
        for slot, op in enumerate(self.operators):
            for arg, region in enumerate(op.args):
                what = "write" if arg >= len(op.inputs) else "update" if arg in op.writes else "read"
                touches[self._number[region.name]].append((slot, arg, what))
        return touches

    def _fragment(self, number: int, points: Sequence[Points], used: tuple[int, ...]) -> _Packed:
        touches = self._touches[number]
        fetching = used if self.regions[number].name in self._fetched else ()
        key = (number, fetching, *(id(points[slot]) for slot, _, _ in touches))
        if key not in self._packed:
            events = [_event(slot, arg, what, points[slot]) for slot, arg, what in touches]
            region = self.regions[number]
            hosts = [d.host for d in self.machine.devices]
            self._packed[key] = _pack(region, move_region(region, events, fetching, hosts), self._ndim)
        return self._packed[key]

    # -- assembling ------------------------------------------------------------------------------------------------

    def _assemble(self, points: list[Points], packed: list[_Packed]) -> TaskGraph:
        op_start, move_start, layout = self._layout(points, packed)
        count = np.array([len(p.devices) for p in packed], np.int64)
        first_instance = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        blocks = [
            self._op_block(slot, points[slot], packed, first_instance)
            if version is None
            else self._move_block(slot, version, packed[slot], first_instance[slot])
            for slot, version in layout
        ]
        columns = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}
        rows = len(columns["kind"])
        dep_ptr, dep_row = _dependences(packed, op_start, move_start, rows)
        arg_ptr = np.concatenate([[0], np.cumsum(columns.pop("arg_count"))]).astype(np.int64)
        instance_device = np.concatenate([p.devices for p in packed])
        streams, groups = self._streams.of_rows(
            columns["kind"], columns["source"], columns["device"], arg_ptr, instance_device[columns["arg_instance"]]
        )
        task_graph = TaskGraph(
            machine=self.machine,
            launches=tuple(self._launch(slot, p) for slot, p in enumerate(points)),
            regions=self.regions,
            streams=streams,
            groups=groups,
            arg_ptr=arg_ptr,
            dep_ptr=dep_ptr,
            dep_row=dep_row,
            instance_region=np.repeat(np.arange(len(packed)), count),
            instance_device=instance_device,
            instance_box=np.concatenate([p.boxes for p in packed]),
            instance_partial=np.concatenate([p.partial for p in packed]),
            homes={
                r.name: tuple((int(first_instance[k]) + i, rect) for i, rect in packed[k].fragment.homes)
                for k, r in enumerate(self.regions)
                if r.is_persistent
            },
            fetches={
                name: tuple((d, int(first_instance[k]) + i, rect) for d, i, rect in packed[k].fragment.fetches)
                for name, k in ((n, self._number[r.name]) for n, r in self.graph.outputs.items())
            },
            combine=self._combine,
            orders=self._orders,
            devices_used=tuple(sorted({d for p in points for d in p.devices})),
            **columns,
        )
        task_graph.check()
        return task_graph

    def _layout(
        self, points: Sequence[Points], packed: Sequence[_Packed]
    ) -> tuple[Array, dict[tuple[int, int], int], list[tuple[int, int | None]]]:
        """First row of every operator and movement, and the blocks in row order: feeds, then program order."""
        op_start = np.zeros(len(points), np.int64)
        move_start: dict[tuple[int, int], int] = {}
        layout: list[tuple[int, int | None]] = []
        behind: dict[int, list[tuple[int, int]]] = {}
        for number, p in enumerate(packed):
            for v, version in enumerate(p.fragment.versions):
                slot = -1 if version.producer is None else version.producer.slot
                behind.setdefault(slot, []).append((number, v))
        row = 0
        for slot in range(-1, len(points)):
            if slot >= 0:
                op_start[slot], row = row, row + len(points[slot])
                layout.append((slot, None))
            for number, v in behind.get(slot, ()):
                move_start[number, v], row = row, row + len(packed[number].rows[v].kind)
                if len(packed[number].rows[v].kind):
                    layout.append((number, v))
        return op_start, move_start, layout

    def _op_block(
        self, slot: int, points: Points, packed: Sequence[_Packed], first_instance: Array
    ) -> dict[str, Array]:
        op = points.operator
        numbers = [self._number[r.name] for r in op.args]
        count, args = len(points), len(numbers)
        instance = np.empty((count, args), np.int64)
        for k, number in enumerate(numbers):
            local = np.array(packed[number].fragment.arguments[slot, k], np.int64)
            instance[:, k] = np.where(local < 0, -1, local + first_instance[number])
        boxes = np.stack([_boxes(p.rects, self._ndim) for p in points.args], axis=1) if args else None
        itemsize = np.array([r.itemsize for r in op.args], np.int64)
        volumes = np.array([[r.volume for r in p.rects] for p in points.args], np.int64).reshape(args, count)
        device = np.array(points.devices, np.int64)
        return {
            "kind": np.full(count, int(Kind.POINT), np.uint8),
            "launch": np.full(count, slot, np.int64),
            "point": np.arange(count),
            "region": np.full(count, -1, np.int64),
            "device": device,
            "source": device,
            "collective": np.zeros(count, np.uint8),
            "bytes": itemsize @ volumes,
            "flops": points.flops,
            "arg_count": np.full(count, args, np.int64),
            "arg_instance": instance.reshape(-1),
            "arg_box": np.zeros((0, 2, self._ndim), np.int64) if boxes is None else boxes.reshape(-1, 2, self._ndim),
            "arg_privilege": np.tile(np.array(_privileges(points), np.uint8), count),
        }

    def _move_block(self, number: int, v: int, packed: _Packed, first_instance: int) -> dict[str, Array]:
        rows = packed.rows[v]
        count = len(rows.kind)
        return {
            "kind": rows.kind,
            "launch": np.full(count, -1, np.int64),
            "point": np.arange(count),
            "region": np.full(count, number, np.int64),
            "device": rows.device,
            "source": rows.source,
            "collective": rows.collective,
            "bytes": rows.bytes,
            "flops": np.zeros(count),
            "arg_count": rows.arg_count,
            "arg_instance": rows.arg_instance + first_instance,
            "arg_box": rows.arg_box,
            "arg_privilege": rows.arg_privilege,
        }

    def _launch(self, slot: int, points: Points) -> Launch:
        key = (slot, points.config)
        if key not in self._launches:
            op = points.operator
            self._launches[key] = Launch(
                op.name,
                op.kernel,
                tuple(op.extents),
                points.intervals,
                tuple(self._number[r.name] for r in op.args),
                len(op.inputs),
                _identity(op),
                op.follows or op.name,
                str(points.config),
            )
        return self._launches[key]

    @property
    def _combine(self) -> dict[int, str]:
        return {
            self._number[r.name]: term.reduction
            for op in self.operators
            for r, term in zip(op.outputs, op.bound.pattern.outputs, strict=True)
        }


def _event(slot: int, arg: int, what: str, points: Points) -> Event:
    if what == "write":
        partial = points.outputs[arg - len(points.operator.inputs)].is_partial
        return Event(slot, points, arg, Privilege.REDUCE if partial else Privilege.WRITE)
    return Event(slot, points, arg, Privilege.READ_WRITE if what == "update" else Privilege.READ)


def _privileges(points: Points) -> list[Privilege]:
    op = points.operator
    inputs = [Privilege.READ_WRITE if k in op.writes else Privilege.READ for k in range(len(op.inputs))]
    return inputs + [Privilege.REDUCE if o.is_partial else Privilege.WRITE for o in points.outputs]


def _identity(op: Operator) -> str:
    """Kernel, pattern, windows and dtypes: what a kernel's time depends on besides its tile shapes."""
    dtypes = " ".join(r.dtype for r in op.args)
    return f"{kernel_name(op.kernel)} | {op.pattern} | {dict(op.windows)} | {dtypes}"


def kernel_name(kernel: Kernel) -> str:
    """A name for a kernel that is equal from run to run: module, qualified name and bound arguments."""
    function = getattr(kernel, "func", kernel)
    bound = (getattr(kernel, "args", ()), sorted((getattr(kernel, "keywords", None) or {}).items()))
    return f"{function.__module__}.{function.__qualname__}{bound if any(bound) else ''}"


def _pack(region: LogicalRegion, fragment: Fragment, ndim: int) -> _Packed:
    rows = tuple(_pack_rows(region, version, ndim) for version in fragment.versions)
    edges = np.array([(*a, *b) for a, b in fragment.edges], np.int64).reshape(-1, 4)
    return _Packed(
        fragment,
        rows,
        edges,
        np.array(fragment.devices, np.int64),
        _boxes(fragment.rects, ndim),
        np.array(fragment.partial, np.bool_),
    )


def _pack_rows(region: LogicalRegion, version: Any, ndim: int) -> _Rows:
    moves = version.moves
    args = [a for m in moves for a in m.args]
    return _Rows(
        np.array([m.kind for m in moves], np.uint8),
        np.array([m.source for m in moves], np.int64),
        np.array([m.device for m in moves], np.int64),
        np.array([_move_volume(m) * region.itemsize for m in moves], np.int64),
        np.array([len(m.args) for m in moves], np.int64),
        np.array([a[0] for a in args], np.int64),
        _boxes([a[1] for a in args], ndim),
        np.array([a[2] for a in args], np.uint8),
        np.array([COLLECTIVES.index(_collective(m, version.collective)) for m in moves], np.uint8),
    )


def _collective(move: Move, of_version: str) -> str:
    return move.name or (of_version if move.source != move.device else "")


def _move_volume(move: Move) -> int:
    """Elements carried by a copy, a feed or a collective, read and written by a fold."""
    if move.kind is Kind.COLLECTIVE:
        return move.volume
    volume: int = move.args[0][1].volume
    return volume * len(move.args) if move.kind is Kind.FOLD else volume


def _boxes(rects: Sequence[Rect], ndim: int) -> Array:
    """Boxes as an array (n, 2, ndim); dimensions that a box lacks are (0, 0)."""
    boxes = np.zeros((len(rects), 2, ndim), np.int64)
    if rects and (d := len(rects[0].lo)):
        boxes[:, 0, :d] = [r.lo for r in rects]
        boxes[:, 1, :d] = [r.hi for r in rects]
    return boxes


def _dependences(
    packed: Sequence[_Packed], op_start: Array, move_start: dict[tuple[int, int], int], rows: int
) -> tuple[Array, Array]:
    """All edges of all fragments as CSR, each once, sorted."""
    parts = []
    for number, p in enumerate(packed):
        if not len(p.edges):
            continue
        versions = len(p.fragment.versions)
        starts = np.concatenate([op_start, [move_start[number, v] for v in reversed(range(versions))]])
        # slot -1 - v counts from the end: version 0 is the last entry
        parts.append(np.stack([starts[p.edges[:, 0]] + p.edges[:, 1], starts[p.edges[:, 2]] + p.edges[:, 3]], axis=1))
    edges = np.concatenate([np.zeros((0, 2), np.int64), *parts])
    keys = np.unique(edges[:, 0] * rows + edges[:, 1])
    waiting = keys // max(rows, 1)
    dep_ptr = np.concatenate([[0], np.cumsum(np.bincount(waiting, minlength=rows))]).astype(np.int64)
    return dep_ptr, keys % max(rows, 1)
