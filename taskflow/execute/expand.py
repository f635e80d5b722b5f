"""Expansion: a task graph whose collectives are spelled out as copies and folds, for the executor.

Takes a task graph and gives one with the rows of every collective in its place, as `exchange` plans them, and for every
row the one that it comes from. Of the rows of some devices there are the steps that touch these. Dependences follow
from what the new rows touch, in row order; what lies on other devices is the matter of those. Memory is not planned
again: an instance lives as long and lies where it does in the plan of the collectives, so what `simulate` says of
memory is what the executor takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from taskflow.collective.library import is_by_library
from taskflow.core.columns import pointers
from taskflow.core.geometry import Rect
from taskflow.execute.waits import Accesses, find_dependences
from taskflow.machine.library import LIBRARY
from taskflow.tasks.exchange import SUMS, Exchange, ExchangeStep
from taskflow.tasks.memory import ALIGNMENT, MemoryPlan, receive_rows
from taskflow.tasks.reuse import reuse_edges
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import (
    COLLECTIVES,
    JOINED,
    ROW_COLUMNS,
    Array,
    Kind,
    Privilege,
    TaskGraph,
)

Argument = tuple[int, Rect, Privilege]


@dataclass(frozen=True, eq=False)
class Expansion:
    """A task graph without collectives, or with few.

    Attributes:
        task_graph: the rows.
        origin: per row, the row of the graph with collectives.
        lies_in: per instance, the one whose memory it uses: itself, but for pieces that pass through scratch memory.
        offset: per instance, so many bytes behind the beginning of that memory.
    """

    task_graph: TaskGraph
    origin: Array
    lies_in: Array
    offset: Array


def expand(task_graph: TaskGraph, kept: Collection[int] = ()) -> Expansion:
    """`task_graph` with its collectives spelled out, but for the rows `kept`.

    Raises:
        ValueError: a library carries one out, which has no steps, and it is not kept.
    """
    for row in np.flatnonzero(is_by_library(task_graph)).tolist():
        if row not in kept:
            name, region = (
                COLLECTIVES[int(task_graph.collective[row])],
                task_graph.regions[int(task_graph.region[row])],
            )
            raise ValueError(
                f"machine '{task_graph.machine.name}': {name} of '{region.name}' (row {row}) is by '{LIBRARY}', which "
                f"only GPUs of several ranks with NCCL have; name another: collectives={{'{name}': 'ring'}}"
            )
    if all(row in kept for row in np.flatnonzero(task_graph.kind == Kind.COLLECTIVE).tolist()):
        instances = np.arange(len(task_graph.instance_device))
        return Expansion(
            task_graph, np.arange(len(task_graph)), instances, np.zeros_like(instances)
        )
    return _Expander(task_graph, kept).expand()


def expand_plan(plan: MemoryPlan, expansion: Expansion) -> MemoryPlan:
    """The memory plan of the graph with collectives, for the rows of `expansion`.

    These wait for the same memory, but step by step: a collective waits when any of its steps does. Memory that its
    algorithm does not use is taken over by nobody: who comes next waits for who was there before.
    """
    graph, origin, root = expansion.task_graph, expansion.origin, expansion.lies_in
    plan, rows = _with_other_ends(plan, int(root.max(initial=-1)) + 1), len(plan.receive)
    begin = np.searchsorted(
        origin, np.arange(rows + 2)
    )  # of every row; the end for what lives to the end
    is_used = np.isin(np.arange(len(plan.last)), root[graph.arg_instance[graph.arg_instance >= 0]])
    last = np.where(is_used & (plan.last >= 0), begin[plan.last + 1] - 1, -1)
    last[plan.last >= rows] = len(graph)
    posted, held = receive_rows(graph), plan.receive[origin]
    receive = np.where(
        held >= 0, begin[held], np.where(posted >= 0, np.maximum(posted, begin[origin]), -1)
    )
    unit = np.where(expansion.offset > 0, 1, ALIGNMENT)
    size = np.where(
        root == np.arange(len(root)), plan.size[root], -(-graph.instance_bytes() // unit) * unit
    )
    lives = plan.offset[root] + expansion.offset, size, begin[plan.first][root], last[root]
    edges = reuse_edges(graph, *lives, root)
    return MemoryPlan(*lives, plan.peak_bytes, plan.persistent_bytes, receive, *edges)


def _with_other_ends(plan: MemoryPlan, count: int) -> MemoryPlan:
    """The plan with so many instances; those that it lacks are on other devices, and take no memory here."""
    more = np.zeros(max(count - len(plan.size), 0), np.int64)
    columns = {"offset": more, "size": more, "first": more, "last": more - 1}
    return replace(
        plan, **{name: np.append(getattr(plan, name), column) for name, column in columns.items()}
    )


class _Expander:
    """Collects the new rows."""

    def __init__(self, task_graph: TaskGraph, kept: Collection[int] = ()) -> None:
        self.graph, self.kept = task_graph, kept
        self.origin: list[int] = []
        self.args: list[list[Argument]] = []
        self.steps: dict[
            int, dict[str, int]
        ] = {}  # new row -> its columns, where they differ from its origin's
        self.lies_in = list(range(len(task_graph.instance_device)))
        self.offset = [0] * len(self.lies_in)
        self.pieces: dict[tuple[int, Rect, int], int] = {}
        self.device: list[int] = task_graph.instance_device.tolist()
        self.ends: dict[
            tuple[int, int], int
        ] = {}  # of collectives on other devices: row and argument -> instance
        self.added: list[tuple[int, bool, Rect]] = []  # all instances that are added
        known = range(len(task_graph.machine.devices))
        self.own = set(known if task_graph.devices is None else task_graph.devices)

    def expand(self) -> Expansion:
        """See `taskflow.expand.expand`."""
        graph = self.graph
        for row in range(len(graph)):
            if graph.kind[row] == Kind.COLLECTIVE and row not in self.kept:
                exchange = graph.exchange(row)
                for number, step in enumerate(exchange.steps()):
                    devices = {exchange.devices[k] for k in (step.target, *step.parts)}
                    if not self.own.isdisjoint(devices):
                        self._add_step(row, number, step, exchange)
            else:
                self._add(row, list(graph.args(row)))
        lies_in = np.array(self.lies_in, np.int64)
        expanded, origin = (
            self._build(np.array(self.origin, np.int64), lies_in),
            np.array(self.origin),
        )
        return Expansion(expanded, origin, lies_in, np.array(self.offset, np.int64))

    def _add(self, row: int, args: list[Argument]) -> None:
        self.origin.append(row)
        self.args.append(args)

    def _add_step(self, row: int, number: int, step: ExchangeStep, exchange: Exchange) -> None:
        graph, itemsize = self.graph, self.graph.regions[int(self.graph.region[row])].itemsize
        numbers, offset = (step.target, *step.parts), step.offset * itemsize
        target, *parts = (
            self._instance(
                self._whole(row, k, exchange), step.box, offset if k in exchange.scratch else None
            )
            for k in numbers
        )
        device, source = exchange.devices[step.target], exchange.devices[step.parts[0]]
        is_copy, reads = len(parts) == 1, [(k, step.box, Privilege.READ) for k in parts]
        privilege = Privilege.READ_WRITE if target == parts[0] else Privilege.WRITE
        write = (target, step.box, privilege)
        size = step.box.volume * itemsize
        self.steps[len(self.origin)] = {
            "kind": Kind.COPY if is_copy else Kind.FOLD,
            "point": number,
            "device": device,
            "source": source,
            "collective": int(graph.collective[row]) if source != device else 0,
            "algorithm": JOINED if step.follows else -1,
            "bytes": size if is_copy else size * (1 + len(parts)),
        }
        self._add(row, [*reads, write] if is_copy else [write, *reads])

    def _whole(self, row: int, k: int, exchange: Exchange) -> int:
        """The instance of argument `k` of a collective; one that is added, where the row has it not."""
        if exchange.instances[k] >= 0:
            return exchange.instances[k]
        if (row, k) not in self.ends:
            is_summed = exchange.name in SUMS and k in exchange.having
            is_partial = is_summed or k in exchange.scratch
            self.ends[row, k] = self._add_instance(len(self.lies_in), 0, exchange.devices[k])
            self.added.append((int(self.graph.region[row]), is_partial, exchange.boxes[k]))
        return self.ends[row, k]

    def _add_instance(self, lies_in: int, offset: int, device: int) -> int:
        self.lies_in.append(lies_in)
        self.offset.append(offset)
        self.device.append(device)
        return len(self.lies_in) - 1

    def _instance(self, instance: int, box: Rect, offset: int | None) -> int:
        """An instance for `box` in the memory of `instance`: itself, if that holds it.

        In scratch memory one of its own, `offset` bytes behind the beginning.
        """
        region, is_partial, whole = self._facts(instance)
        if offset is None and whole.covers(box):
            return instance
        key = instance, box, offset or 0
        if key not in self.pieces:
            self.pieces[key] = self._add_instance(instance, key[2], self.device[instance])
            self.added.append((region, is_partial, box))
        return self.pieces[key]

    def _facts(self, instance: int) -> tuple[int, bool, Rect]:
        """Region, whether it is a partial result, and box of an instance."""
        graph, count = self.graph, len(self.graph.instance_device)
        if instance >= count:
            return self.added[instance - count]
        region, is_partial = graph.instance_region[instance], graph.instance_partial[instance]
        return int(region), bool(is_partial), graph.instance_rect(instance)

    def _build(self, origin: Array, lies_in: Array) -> TaskGraph:
        graph = self.graph
        columns = {name: getattr(graph, name)[origin] for name in ROW_COLUMNS}
        for row, values in self.steps.items():
            for name, value in values.items():
                columns[name][row] = value
        flat = [arg for args in self.args for arg in args]
        arg_ptr = pointers([len(args) for args in self.args])
        arg_instance = np.array([instance for instance, _, _ in flat], np.int64)
        instance_device = np.array(self.device, np.int64)
        columns["streams"], groups = StreamTable(graph.machine).of_rows(
            columns["kind"],
            columns["source"],
            columns["device"],
            arg_ptr,
            instance_device[arg_instance],
        )
        added = [(region, is_partial) for region, is_partial, _ in self.added]
        region, is_partial = np.array(added, np.int64).reshape(-1, 2).T
        boxes = self._boxes([box for *_, box in self.added])
        arg_box = self._boxes([box for _, box, _ in flat])
        arg_privilege = np.array([privilege for _, _, privilege in flat], np.uint8)
        expanded = replace(
            graph,
            **columns,
            number=graph.numbers[origin],
            wholes=None,
            whole=None,
            groups=groups,
            arg_ptr=arg_ptr,
            arg_instance=arg_instance,
            arg_box=arg_box,
            arg_privilege=arg_privilege,
            instance_region=np.concatenate([graph.instance_region, region]),
            instance_device=instance_device,
            instance_box=np.concatenate([graph.instance_box, boxes]),
            instance_partial=np.concatenate([graph.instance_partial, is_partial.astype(np.bool_)]),
        )
        accesses = self._accesses(expanded, lies_in)
        dep_ptr, dep_row = find_dependences(accesses, len(origin))
        return replace(expanded, dep_ptr=dep_ptr, dep_row=dep_row)

    def _boxes(self, boxes: list[Rect]) -> Array:
        """Boxes as an array (n, 2, dimensions), zero-padded."""
        found = np.zeros((len(boxes), *self.graph.instance_box.shape[1:]), np.int64)
        for k, box in enumerate(boxes):
            found[k, :, : len(box.lo)] = box.lo, box.hi
        return found

    def _accesses(self, graph: TaskGraph, lies_in: Array) -> Accesses:
        """What the arguments touch, by the memory that each lies in. Pieces that pass through scratch use all of it.

        Memories are instances, not regions, which would order writers of two copies of one region for no reason.
        """
        instance, is_own = graph.arg_instance, np.zeros(len(graph.machine.devices), np.bool_)
        is_own[list(self.own)] = True
        memory = lies_in[instance]
        is_whole = (memory == instance)[:, None, None]
        box = np.where(is_whole, graph.arg_box, graph.instance_box[memory])
        dims = np.array([region.ndim for region in graph.regions])[graph.instance_region[memory]]
        box[:, 1][np.arange(box.shape[2]) >= dims[:, None]] = 1
        row = np.repeat(np.arange(len(graph)), np.diff(graph.arg_ptr))
        kept = (instance >= 0) & is_own[graph.instance_device[memory]]
        return Accesses(row[kept], memory[kept], box[kept], graph.arg_privilege[kept])
