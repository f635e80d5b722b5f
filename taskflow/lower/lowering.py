"""Lowering: graph + strategy + machine -> task graph.

Decides nothing about order or time: it partitions every operator, moves every region (`movement`), and lays the rows
out in program order, the movement of a value right behind the operator that made it. Points of an operator are cached
by its configuration and fragments of a region by the points that touch it, so that a search that changes one operator
lowers only that operator and its neighbours again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from taskflow.cost import dtype_number
from taskflow.graph import Graph
from taskflow.layout import memory_orders
from taskflow.lower.life import lives
from taskflow.lower.movement import Fragment, Mover
from taskflow.lower.pointstore import PointStore
from taskflow.machine import MachineModel
from taskflow.operator import Kernel, Operator
from taskflow.partition import Points, to_rects
from taskflow.strategy import ParallelConfig, Strategy, check_strategy, effective_config
from taskflow.streams import StreamTable
from taskflow.task import Kind, Launch, Privilege, TaskGraph

Array = np.ndarray[Any, np.dtype[Any]]


def lower(graph: Graph, strategy: Strategy, machine: MachineModel) -> TaskGraph:
    """The task graph of `graph` under `strategy` on `machine`.

    Deterministic: the same arguments give the same rows on every rank. Any topological order of the rows gives the
    numbers of one device.

    Raises:
        ValueError: the strategy does not fit the graph or the machine; the message names the operator.
    """
    return Lowering(graph, machine).lower(strategy)


class Lowering:
    """`lower` with its caches, for one graph and one machine."""

    def __init__(self, graph: Graph, machine: MachineModel) -> None:
        self.graph, self.machine = graph, machine
        self.operators = tuple(graph.operators)
        self.regions = tuple(graph.regions.values())
        self.lives = lives(self.operators, self.regions)
        self.number = {r.name: k for k, r in enumerate(self.regions)}
        self.fetched = {self.number[r.name] for r in graph.outputs.values()}
        self._streams = StreamTable(machine)
        hosts = np.array([d.host for d in machine.devices], np.int64)
        self.mover = Mover(hosts, self._streams.lanes, self.lives, self.fetched)
        self.orders = memory_orders(self.operators)
        self.op_kind = _numbered([_kind_of(op) for op in self.operators])
        self._identities = [_identity(op, graph.precision.dtype) for op in self.operators]
        self.cost_kind = _numbered(self._identities)
        self.life_kind = _numbered([life.kind for life in self.lives])
        self._itemsize = np.array([r.itemsize for r in self.regions], np.int64)
        self.compute_dtype = [dtype_number([r.dtype for r in op.args]) for op in self.operators]
        self.dtype_kind = _numbered([r.dtype for r in self.regions])
        self.ndim = max([r.ndim for r in self.regions] + [1])
        self._arguments = self._find_arguments()
        self.store = PointStore(self.operators, self.op_kind)
        self._launches: dict[tuple[int, ParallelConfig], Launch] = {}
        self._fragments: dict[tuple[object, ...], Fragment] = {}
        self._point_columns: dict[int, dict[str, Array]] = {}  # by the identity of points

    def lower(self, strategy: Strategy) -> TaskGraph:
        """See `taskflow.lower`."""
        if not self.operators:
            raise ValueError("lower: the graph has no operators")
        check_strategy(self.graph, strategy, len(self.machine.devices))
        numbers = self.numbers(strategy)
        points = [self.store.points(n) for n in numbers.tolist()]
        used = np.unique(np.concatenate([p.place for p in points]))
        return self._assemble(points, [self.fragment(k, numbers, used) for k in range(len(self.regions))], used)

    def numbers(self, strategy: Strategy) -> Array:
        """The points of every operator, by their numbers in the store."""
        configs = (effective_config(op, strategy)[0] for op in self.operators)
        return np.array([self.store.number(slot, config) for slot, config in enumerate(configs)], np.int64)

    def fragment(self, number: int, numbers: Array, used: Array) -> Fragment:
        """The fragment of one region, given the points of all operators; regions with the same life share it."""
        fetching = used.tobytes() if number in self.fetched else b""
        key = self.life_kind[number], fetching, *numbers[list(self.lives[number].ops)].tolist()
        found = self._fragments.get(key)
        if found is None:
            found = self._fragments[key] = self.mover.move(number, numbers, used, self.store)
        return found

    def _find_arguments(self) -> list[list[tuple[int, int]]]:
        """Per operator and argument the region and the event of its life."""
        found: list[list[tuple[int, int]]] = [[(-1, -1)] * len(op.args) for op in self.operators]
        for number, life in enumerate(self.lives):
            for event, (slot, arg) in enumerate(life.touches):
                found[life.ops[slot]][arg] = number, event
        return found

    # -- assembling ------------------------------------------------------------------------------------------------

    def _assemble(self, points: Sequence[Points], fragments: Sequence[Fragment], used: Array) -> TaskGraph:
        op_start, move_start, layout, rows = self._layout(points, fragments)
        count = np.array([len(f.instance_device) for f in fragments], np.int64)
        first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        dep_ptr, dep_row = self._dependences(fragments, op_start, move_start, rows)
        task_graph = self._task_graph(
            [
                self._op_block(slot, slot, points[slot], fragments, first)
                if begin < 0
                else self._move_block(slot, begin, end, fragments[slot], int(first[slot]))
                for slot, begin, end in layout
            ],
            tuple(self._launch(slot, p) for slot, p in enumerate(points)),
            np.concatenate([f.instance_device for f in fragments]),
            dep_ptr=dep_ptr,
            dep_row=dep_row,
            instance_region=np.repeat(np.arange(len(fragments)), count),
            instance_box=np.concatenate(
                [_padded(f.instance_box[:, : r.ndim], self.ndim) for f, r in zip(fragments, self.regions, strict=True)]
            ),
            instance_partial=np.concatenate([f.instance_partial for f in fragments]).astype(np.bool_),
            homes={
                r.name: tuple(
                    zip((fragments[k].homes + first[k]).tolist(), to_rects(fragments[k].home_box[:, : r.ndim]))
                )
                for k, r in enumerate(self.regions)
                if r.is_persistent
            },
            fetches={
                name: tuple((d, int(first[k]) + i, self.regions[k].rect) for d, i in fragments[k].fetches.tolist())
                for name, k in ((n, self.number[r.name]) for n, r in self.graph.outputs.items())
            },
            devices_used=tuple(used.tolist()),
        )
        task_graph.check()
        return task_graph

    def _layout(
        self, points: Sequence[Points], fragments: Sequence[Fragment]
    ) -> tuple[Array, list[Array], list[tuple[int, int, int]], int]:
        """First row of every operator, of every version of every region; the blocks in row order; number of rows.

        A block is (operator, -1, -1) or (region, its first row among those of the region, the one behind the last).

        Feeds come first, then operators in program order, the movement of a version right behind its producer.
        """
        op_start = np.zeros(len(points), np.int64)
        move_start = [np.zeros(len(life.producer), np.int64) for life in self.lives]
        layout: list[tuple[int, int, int]] = []
        row = 0
        for slot, number, version in self.sequence:
            if slot >= 0:
                op_start[slot], row = row, row + len(points[slot])
                layout.append((slot, -1, -1))
                continue
            begin, end = fragments[number].version_row[version : version + 2].tolist()
            move_start[number][version], row = row, row + end - begin
            if end > begin:
                layout.append((number, begin, end))
        return op_start, move_start, layout, row

    @cached_property
    def sequence(self) -> list[tuple[int, int, int]]:
        """(operator, -1, -1) and (-1, region, version) in row order, whatever the configurations."""
        behind: dict[int, list[tuple[int, int, int]]] = {}
        for number, life in enumerate(self.lives):
            for version, event in enumerate(life.producer.tolist()):
                producer = -1 if event < 0 else life.ops[life.touches[event][0]]
                behind.setdefault(producer, []).append((-1, number, version))
        found = behind.get(-1, [])
        for slot in range(len(self.operators)):
            found += [(slot, -1, -1), *behind.get(slot, ())]
        return found

    def sample(self, points: Sequence[tuple[int, Points]], fragments: Sequence[tuple[int, Fragment]]) -> TaskGraph:
        """Rows of some operators, then those of some regions, without dependences: enough to ask what they cost."""
        count = [len(f.instance_device) for _, f in fragments]
        first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        blocks = [self._op_block(k, slot, p, None, first) for k, (slot, p) in enumerate(points)]
        if fragments:
            blocks.append(self._move_rows(fragments, first))
        none = np.zeros(0, np.int64)
        numbers = [number for number, _ in fragments]
        return self._task_graph(
            blocks,
            tuple(self._launch(slot, p) for slot, p in points),
            np.concatenate([none, *(f.instance_device for _, f in fragments)]),
            instance_region=np.repeat(np.array(numbers, np.int64), count),
            instance_box=none,
            instance_partial=np.concatenate([none, *(f.instance_partial for _, f in fragments)]).astype(np.bool_),
        )

    def _move_rows(self, fragments: Sequence[tuple[int, Fragment]], first_instance: Array) -> dict[str, Array]:
        """All rows of some fragments."""
        numbers = np.array([number for number, _ in fragments], np.int64)
        lengths = [len(f.row) for _, f in fragments]
        row, region = np.concatenate([f.row for _, f in fragments]), np.repeat(numbers, lengths)
        args = np.array([len(f.arg) for _, f in fragments], np.int64)
        arg = np.concatenate([f.arg for _, f in fragments])
        arg_end = row[:, 3] + np.repeat(np.cumsum(args) - args, lengths)
        boxes = [_padded(f.arg_box[:, : self.regions[n].ndim], self.ndim) for n, f in fragments]
        return self._moves(
            row, region, np.diff(arg_end, prepend=0), arg, np.concatenate(boxes), np.repeat(first_instance[:-1], args)
        )

    def _moves(
        self, row: Array, region: Array, arg_count: Array, arg: Array, arg_box: Array, first_instance: Array | int
    ) -> dict[str, Array]:
        """Columns of rows that move regions."""
        count = len(row)
        return {
            "kind": row[:, 0].astype(np.uint8),
            "launch": np.full(count, -1, np.int64),
            "point": np.arange(count),
            "region": region,
            "device": row[:, 2],
            "source": row[:, 1],
            "collective": row[:, 5].astype(np.uint8),
            "bytes": row[:, 4] * self._itemsize[region],
            "flops": np.zeros(count),
            "arg_count": arg_count,
            "arg_instance": arg[:, 0] + first_instance,
            "arg_box": arg_box,
            "arg_privilege": arg[:, 1].astype(np.uint8),
        }

    def _task_graph(
        self, blocks: Sequence[dict[str, Array]], launches: tuple[Launch, ...], instance_device: Array, **rest: Any
    ) -> TaskGraph:
        columns: dict[str, Any] = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}
        arg_ptr = np.concatenate([[0], np.cumsum(columns.pop("arg_count"))]).astype(np.int64)
        kind, source, device = columns["kind"], columns["source"], columns["device"]
        arg_device = instance_device[columns["arg_instance"]] if len(instance_device) else columns["arg_instance"]
        streams, groups = self._streams.of_rows(kind, source, device, arg_ptr, arg_device)
        no_deps = {"dep_ptr": np.zeros(len(kind) + 1, np.int64), "dep_row": np.zeros(0, np.int64)}
        given: dict[str, Any] = {"homes": {}, "fetches": {}, **no_deps, **rest}
        return TaskGraph(
            machine=self.machine,
            launches=launches,
            regions=self.regions,
            streams=streams,
            groups=groups,
            arg_ptr=arg_ptr,
            instance_device=instance_device,
            combine=self._combine,
            orders=self.orders,
            uses_tf32=self.graph.precision.dtype == "tf32",
            **given,
            **columns,
        )

    def _op_block(
        self, launch: int, slot: int, points: Points, fragments: Sequence[Fragment] | None, first_instance: Array
    ) -> dict[str, Array]:
        """The rows of an operator; without fragments, the instances are left open."""
        count, args = len(points), len(points.operator.args)
        instance = np.full((count, args), -1, np.int64)
        for k, (number, event) in enumerate(self._arguments[slot]):
            if fragments is None:
                break
            fragment = fragments[number]
            local = fragment.event_instance[fragment.event_ptr[event] : fragment.event_ptr[event + 1]]
            instance[:, k] = np.where(local < 0, -1, local + first_instance[number])
        if id(points) not in self._point_columns:  # which the store keeps
            self._point_columns[id(points)] = self._columns_of(points)
        alone = self._point_columns[id(points)]
        return alone | {"launch": np.full(count, launch, np.int64), "arg_instance": instance.reshape(-1)}

    def _columns_of(self, points: Points) -> dict[str, Array]:
        """The columns of rows that points alone decide."""
        op, count = points.operator, len(points)
        boxes, size = np.zeros((count, len(op.args), 2, self.ndim), np.int64), np.zeros(count, np.int64)
        for k, region in enumerate(op.args):
            box = points.box(k)
            boxes[:, k, :, : box.shape[1]] = box.transpose(0, 2, 1)
            size += np.prod(np.maximum(box[:, :, 1] - box[:, :, 0], 0), axis=1) * region.itemsize
        return {
            "kind": np.full(count, int(Kind.POINT), np.uint8),
            "launch": np.zeros(0, np.int64),
            "point": np.arange(count),
            "region": np.full(count, -1, np.int64),
            "device": points.place,
            "source": points.place,
            "collective": np.zeros(count, np.uint8),
            "bytes": size,
            "flops": points.flops,
            "arg_count": np.full(count, len(op.args), np.int64),
            "arg_instance": np.zeros(0, np.int64),
            "arg_box": boxes.reshape(-1, 2, self.ndim),
            "arg_privilege": np.tile(np.array(_privileges(points), np.uint8), count),
        }

    def _move_block(
        self, number: int, begin: int, end: int, fragment: Fragment, first_instance: int
    ) -> dict[str, Array]:
        """Rows `begin` to `end` of those that move a region."""
        row = fragment.row[begin:end]
        first_arg = int(fragment.row[begin - 1, 3]) if begin else 0
        args = slice(first_arg, int(row[-1, 3]))
        boxes = _padded(fragment.arg_box[args, : self.regions[number].ndim], self.ndim)
        region = np.full(end - begin, number, np.int64)
        counts = np.diff(row[:, 3], prepend=first_arg)
        return self._moves(row, region, counts, fragment.arg[args], boxes, first_instance)

    def _dependences(
        self, fragments: Sequence[Fragment], op_start: Array, move_start: Sequence[Array], rows: int
    ) -> tuple[Array, Array]:
        """All edges of all fragments as CSR, each once, sorted."""
        keys = [np.zeros(0, np.int64)]
        for life, fragment, moves in zip(self.lives, fragments, move_start, strict=True):
            if len(edges := fragment.edges):
                start = np.concatenate([op_start[list(life.ops)], moves])
                keys.append((start[edges[:, 0]] + edges[:, 1]) * rows + start[edges[:, 2]] + edges[:, 3])
        key = np.unique(np.concatenate(keys))
        waiting = key // max(rows, 1)
        dep_ptr = np.concatenate([[0], np.cumsum(np.bincount(waiting, minlength=rows))]).astype(np.int64)
        return dep_ptr, key % max(rows, 1)

    def _launch(self, slot: int, points: Points) -> Launch:
        key = (slot, points.config)
        if key not in self._launches:
            op = self.operators[slot]
            self._launches[key] = Launch(
                op.name,
                op.kernel,
                tuple(op.extents),
                points.spans,
                tuple(self.number[r.name] for r in op.args),
                len(op.inputs),
                self._identities[slot],
                op.follows or op.name,
                str(points.config),
                op.bound,
                op.members,
            )
        return self._launches[key]

    @cached_property
    def _combine(self) -> dict[int, str]:
        return {
            self.number[r.name]: term.reduction
            for op in self.operators
            for r, term in zip(op.outputs, op.bound.pattern.outputs, strict=True)
        }


def _kind_of(op: Operator) -> tuple[object, ...]:
    """What the points of an operator depend on besides its configuration."""
    windows = tuple(op.windows.items())
    itemsizes = tuple(r.itemsize for r in op.args)
    return op.pattern, tuple(op.extents.items()), windows, op.bound.shapes, op.writes, op.flops, itemsizes


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """A number for every value; equal values have the same one."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(v, len(numbers)) for v in values]


def _padded(boxes: Array, ndim: int) -> Array:
    """Boxes (n, dimensions, 2) as (n, 2, ndim); dimensions that a box lacks are (0, 0)."""
    found = np.zeros((len(boxes), 2, ndim), np.int64)
    found[:, :, : boxes.shape[1]] = boxes.transpose(0, 2, 1)
    return found


def _privileges(points: Points) -> list[Privilege]:
    op = points.operator
    inputs = [Privilege.READ_WRITE if k in op.writes else Privilege.READ for k in range(len(op.inputs))]
    return inputs + [Privilege.REDUCE if p else Privilege.WRITE for p in points.partial]


def _identity(op: Operator, precision: str) -> str:
    """Kernel, pattern, windows and dtypes: what a kernel's time depends on besides its tile shapes."""
    dtypes = " ".join([r.dtype for r in op.args] + ["in tf32"] * (precision == "tf32"))
    return f"{kernel_name(op.kernel)} | {op.pattern} | {dict(op.windows)} | {dtypes}"


def kernel_name(kernel: Kernel) -> str:
    """A name for a kernel that is equal from run to run: module, qualified name and bound arguments."""
    function = getattr(kernel, "func", kernel)
    keywords = {k: kernel_name(v) if callable(v) else v for k, v in (getattr(kernel, "keywords", None) or {}).items()}
    bound = (getattr(kernel, "args", ()), sorted(keywords.items()))
    return f"{function.__module__}.{function.__qualname__}{bound if any(bound) else ''}"
