"""Expansion: a task graph whose collectives are spelled out as copies and folds, for the executor.

Takes a task graph and gives one with the rows of every collective in its place, as `exchange` plans them, and for every
row the one that it comes from. Dependences follow from what the new rows touch, in row order. Memory is not planned
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
from taskflow.tasks.exchange import ExchangeStep
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
    rows = len(plan.receive)
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

    def expand(self) -> Expansion:
        """See `taskflow.expand.expand`."""
        graph = self.graph
        for row in range(len(graph)):
            if graph.kind[row] == Kind.COLLECTIVE and row not in self.kept:
                args = graph.args(row)
                exchange = graph.exchange(row)
                for number, step in enumerate(exchange.steps()):
                    self._add_step(row, number, step, args, exchange.scratch)
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

    def _add_step(
        self, row: int, number: int, step: ExchangeStep, args: tuple[Argument, ...], scratch: range
    ) -> None:
        graph, itemsize = self.graph, self.graph.regions[int(self.graph.region[row])].itemsize
        numbers, offset = (step.target, *step.parts), step.offset * itemsize
        target, *parts = (
            self._instance(args[k][0], step.box, offset if k in scratch else None) for k in numbers
        )
        device, source = (int(graph.instance_device[self.lies_in[k]]) for k in (target, parts[0]))
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

    def _instance(self, instance: int, box: Rect, offset: int | None) -> int:
        """An instance for `box` in the memory of `instance`: itself, if that holds it.

        In scratch memory one of its own, `offset` bytes behind the beginning.
        """
        if offset is None and self.graph.instance_rect(instance).covers(box):
            return instance
        key = instance, box, offset or 0
        if key not in self.pieces:
            self.pieces[key] = len(self.lies_in)
            self.lies_in.append(instance)
            self.offset.append(key[2])
        return self.pieces[key]

    def _build(self, origin: Array, lies_in: Array) -> TaskGraph:
        graph = self.graph
        columns = {name: getattr(graph, name)[origin] for name in ROW_COLUMNS}
        for row, values in self.steps.items():
            for name, value in values.items():
                columns[name][row] = value
        flat = [arg for args in self.args for arg in args]
        arg_ptr = pointers([len(args) for args in self.args])
        arg_instance = np.array([instance for instance, _, _ in flat], np.int64)
        instance_device = graph.instance_device[lies_in]
        columns["streams"], groups = StreamTable(graph.machine).of_rows(
            columns["kind"],
            columns["source"],
            columns["device"],
            arg_ptr,
            instance_device[arg_instance],
        )
        boxes = self._boxes([box for _, box, _ in self.pieces])
        arg_box = self._boxes([box for _, box, _ in flat])
        arg_privilege = np.array([privilege for _, _, privilege in flat], np.uint8)
        accesses = self._accesses(
            arg_ptr, lies_in[arg_instance], arg_instance, arg_box, arg_privilege
        )
        dep_ptr, dep_row = find_dependences(accesses, len(origin))
        return replace(
            graph,
            **columns,
            groups=groups,
            arg_ptr=arg_ptr,
            arg_instance=arg_instance,
            arg_box=arg_box,
            arg_privilege=arg_privilege,
            dep_ptr=dep_ptr,
            dep_row=dep_row,
            instance_region=graph.instance_region[lies_in],
            instance_device=instance_device,
            instance_box=np.concatenate([graph.instance_box, boxes]),
            instance_partial=graph.instance_partial[lies_in],
        )

    def _boxes(self, boxes: list[Rect]) -> Array:
        """Boxes as an array (n, 2, dimensions), zero-padded."""
        found = np.zeros((len(boxes), *self.graph.instance_box.shape[1:]), np.int64)
        for k, box in enumerate(boxes):
            found[k, :, : len(box.lo)] = box.lo, box.hi
        return found

    def _accesses(
        self, arg_ptr: Array, memory: Array, instance: Array, box: Array, privilege: Array
    ) -> Accesses:
        """What the arguments touch, by the memory that each lies in. Pieces that pass through scratch use all of it.

        Memories are instances, not regions, which would order writers of two copies of one region for no reason.
        """
        graph = self.graph
        box = np.where((memory == instance)[:, None, None], box, graph.instance_box[memory])
        dims = np.array([region.ndim for region in graph.regions])[graph.instance_region[memory]]
        box[:, 1][np.arange(box.shape[2]) >= dims[:, None]] = 1
        row = np.repeat(np.arange(len(arg_ptr) - 1), np.diff(arg_ptr))
        kept = instance >= 0
        return Accesses(row[kept], memory[kept], box[kept], privilege[kept])
