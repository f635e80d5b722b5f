"""Expansion: a task graph whose collectives are spelled out as copies and folds, for the executor.

Takes a task graph and gives one with the rows of every collective in its place, as `exchange` plans them, and for every
row the one that it comes from. Of the rows of some devices there are the steps that touch these. Dependences follow
from what the new rows touch, in row order; what lies on other devices is the matter of those. Memory is not planned
again: an instance lives as long and lies where it does in the plan of the collectives, so what `simulate` says of
memory is what the executor takes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from taskflow.core.columns import pointers, spread
from taskflow.execute.spelling import Spelled, spell
from taskflow.execute.waits import Accesses, find_dependences
from taskflow.tasks.launch import crossing_of
from taskflow.tasks.memory import ALIGNMENT, MemoryPlan, receive_rows
from taskflow.tasks.reuse import reuse_edges
from taskflow.tasks.streams import StreamTable
from taskflow.tasks.task_graph import ROW_COLUMNS, Array, Kind, TaskGraph

ARGUMENTS = "arg_instance", "arg_box", "arg_privilege"
INSTANCES = "instance_region", "instance_device", "instance_box", "instance_partial"


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
    """`task_graph` with its collectives spelled out, but for the rows `kept`."""
    rows = np.setdiff1d(np.flatnonzero(task_graph.kind == Kind.COLLECTIVE), list(kept))
    if len(rows):
        return spell_out(task_graph, rows)
    instances = np.arange(len(task_graph.instance_device))
    return Expansion(task_graph, np.arange(len(task_graph)), instances, np.zeros_like(instances))


def expand_plan(plan: MemoryPlan, expansion: Expansion) -> MemoryPlan:
    """The memory plan of the graph with collectives, for the rows of `expansion`.

    These wait for the same memory, but step by step: a collective waits when any of its steps does. Memory that its
    algorithm does not use is taken over by nobody: who comes next waits for who was there before.
    """
    graph = expansion.task_graph
    origin = expansion.origin
    root = expansion.lies_in
    plan, rows = _with_other_ends(plan, int(root.max(initial=-1)) + 1), len(plan.receive)
    begin = np.searchsorted(
        origin, np.arange(rows + 2)
    )  # of every row; the end for what lives to the end
    is_used = np.isin(np.arange(len(plan.last)), root[graph.arg_instance[graph.arg_instance >= 0]])
    last = np.where(is_used & (plan.last >= 0), begin[plan.last + 1] - 1, -1)
    last[plan.last >= rows] = len(graph)
    posted = receive_rows(graph)
    held = plan.receive[origin]
    receive = np.where(
        held >= 0, begin[held], np.where(posted >= 0, np.maximum(posted, begin[origin]), -1)
    )
    unit = np.where(expansion.offset > 0, 1, ALIGNMENT)
    size = np.where(
        root == np.arange(len(root)), plan.size[root], -(-graph.instance_bytes() // unit) * unit
    )
    lives = plan.offset[root] + expansion.offset, size, begin[plan.first][root], last[root]
    edges = reuse_edges(graph, *lives, root)
    of_devices = plan.peak_bytes, plan.persistent_bytes, plan.host_bytes
    return MemoryPlan(*lives, *of_devices, receive, *edges)


def _with_other_ends(plan: MemoryPlan, count: int) -> MemoryPlan:
    """The plan with so many instances; those that it lacks are on other devices, and take no memory here."""
    more = np.zeros(max(count - len(plan.size), 0), np.int64)
    columns = {"offset": more, "size": more, "first": more, "last": more - 1}
    return replace(
        plan, **{name: np.append(getattr(plan, name), column) for name, column in columns.items()}
    )


def spell_out(task_graph: TaskGraph, rows: Array) -> Expansion:
    """The task graph in which these collectives are spelled out."""
    devices = task_graph.devices
    is_own = np.zeros(len(task_graph.machine.devices), np.bool_)
    is_own[slice(None) if devices is None else list(devices)] = True
    expander = _Expander(task_graph)
    alike = _alike(task_graph, rows)
    spelled = [spell(task_graph, int(some[0]), is_own) for some in alike]
    expander.make_room(rows, spelled, alike)
    for form, some in zip(spelled, alike, strict=True):
        expander.fill(form, some)
    return expander.expansion(is_own)


def _alike(graph: TaskGraph, rows: Array) -> list[Array]:
    """The rows of every kind of collective: their steps differ in the numbers of instances alone."""
    keys = dict[tuple[int, int], bytes]()
    groups = dict[bytes, list[int]]()
    for row in rows.tolist():
        table, number = graph.with_all_arguments(row)
        if (key := keys.get((id(table), number))) is None:
            key = keys[id(table), number] = _look(table, number)
        groups.setdefault(key, []).append(row)
    return [np.array(some, np.int64) for some in groups.values()]


def _look(graph: TaskGraph, row: int) -> bytes:
    """All that the steps of a collective depend on, but for the numbers of its instances."""
    args = slice(int(graph.arg_ptr[row]), int(graph.arg_ptr[row + 1]))
    instance = graph.arg_instance[args]
    columns = (
        graph.instance_device[instance],
        graph.instance_partial[instance],
        instance - instance[0],
        graph.instance_box[instance],
        graph.arg_privilege[args],
        graph.arg_box[args],
    )
    itemsize = graph.regions[int(graph.region[row])].itemsize
    hasher = blake2b()
    for column in (np.array([graph.collective[row], graph.algorithm[row], itemsize]), *columns):
        hasher.update(column.tobytes())
    return hasher.digest()


class _Expander:
    """Puts the steps of collectives in their place.

    Attributes:
        graph: with collectives.
        step, arg, piece: of every row the first new row, the first argument of that, and the first instance that it
            adds; then their numbers.
        origin: of every new row.
        columns, args: of the new rows: see `ROW_COLUMNS`, and how many arguments each has.
        arguments, instances: columns of arguments, and of all instances.
    """

    def __init__(self, task_graph: TaskGraph) -> None:
        self.graph = task_graph

    def make_room(self, rows: Array, spelled: Sequence[Spelled], alike: Sequence[Array]) -> None:
        """Columns in which all is filled in but these collectives."""
        graph = self.graph
        is_kept = np.ones(len(graph), np.bool_)
        is_kept[rows] = False
        kept = np.flatnonzero(is_kept)
        uses = np.diff(graph.arg_ptr)
        count = np.stack([np.ones_like(uses), uses, np.zeros_like(uses)])
        for form, some in zip(spelled, alike, strict=True):
            count[:, some] = [[len(form.args)], [len(form.place)], [len(form.pieces.place)]]
        self.step, self.arg, self.piece = map(pointers, count)
        self.piece += len(graph.instance_device)
        self.origin = np.repeat(np.arange(len(graph)), count[0])
        self.columns: dict[str, Any] = {
            name: getattr(graph, name)[self.origin] for name in ROW_COLUMNS
        }
        self.args = uses[self.origin]
        old, new = (spread(first[kept], uses[kept]) for first in (graph.arg_ptr, self.arg))
        self.arguments: dict[str, Any] = {
            name: _placed(getattr(graph, name), old, new, self.arg[-1]) for name in ARGUMENTS
        }
        at = np.arange(len(graph.instance_device))
        end = self.piece[-1]
        self.instances: dict[str, Any] = {
            name: _placed(getattr(graph, name), at, at, end) for name in INSTANCES
        }
        self.lies_in = np.arange(end)
        self.offset = np.zeros(end, np.int64)

    def fill(self, spelled: Spelled, rows: Array) -> None:
        """Fill in collectives that are alike."""
        graph = self.graph
        pieces = spelled.pieces
        step, arg, piece = (first[rows][:, None] for first in (self.step, self.arg, self.piece))
        at = step + np.arange(len(spelled.args))
        for name, column in spelled.columns.items():
            self.columns[name][at] = column
        self.args[at] = spelled.args

        begin = graph.arg_ptr[rows][:, None]
        of_row = graph.arg_instance[begin + np.maximum(spelled.place, 0)]
        at = arg + np.arange(len(spelled.place))
        instance = np.where(spelled.place < 0, piece + spelled.piece, of_row)
        self.arguments["arg_instance"][at] = instance
        self.arguments["arg_box"][at] = spelled.box
        self.arguments["arg_privilege"][at] = spelled.privilege

        of_row = graph.arg_instance[begin + np.maximum(pieces.place, 0)]
        at = piece + np.arange(len(pieces.place))
        self.lies_in[at] = np.where(pieces.place < 0, piece + pieces.within, of_row)
        self.offset[at] = pieces.offset
        columns = graph.region[rows][:, None], pieces.device, pieces.box, pieces.is_partial
        for name, column in zip(INSTANCES, columns, strict=True):
            self.instances[name][at] = column

    def expansion(self, is_own: Array) -> Expansion:
        """What has been filled in, and what the new rows wait for on the devices that are marked."""
        graph = self.graph
        arg_ptr = pointers(self.args)
        device = self.instances["instance_device"][self.arguments["arg_instance"]]
        kind, source, to = (self.columns[name] for name in ("kind", "source", "device"))
        table = StreamTable(graph.machine)
        crossing = crossing_of(graph.launches, self.columns["launch"])
        ends = kind, source, to, crossing
        self.columns["streams"], groups = table.of_rows(*ends, arg_ptr, device)
        expanded = replace(
            graph,
            **self.columns,
            **self.arguments,
            **self.instances,
            own=graph.own and graph.own.spelled(self.origin),
            groups=groups,
            arg_ptr=arg_ptr,
        )
        accesses = _accesses(expanded, self.lies_in, is_own)
        dep_ptr, dep_row = find_dependences(accesses, len(self.origin))
        expanded = replace(expanded, dep_ptr=dep_ptr, dep_row=dep_row)
        return Expansion(expanded, self.origin, self.lies_in, self.offset)


def _placed(values: Array, old: Array, new: Array, count: int) -> Array:
    """So many values, of which those at `new` are `values[old]`."""
    placed = np.zeros((count, *values.shape[1:]), values.dtype)
    placed[new] = values[old]
    return placed


def _accesses(graph: TaskGraph, lies_in: Array, is_own: Array) -> Accesses:
    """What the arguments touch, by the memory that each lies in. Pieces that pass through scratch use all of it.

    Memories are instances, not regions, which would order writers of two copies of one region for no reason.
    """
    instance = graph.arg_instance
    memory = lies_in[instance]
    box = np.where((memory == instance)[:, None, None], graph.arg_box, graph.instance_box[memory])
    dims = np.array([region.ndim for region in graph.regions])[graph.instance_region[memory]]
    box[:, 1][np.arange(box.shape[2]) >= dims[:, None]] = 1
    kept = (instance >= 0) & is_own[graph.instance_device[memory]]
    return Accesses(graph.arg_row[kept], memory[kept], box[kept], graph.arg_privilege[kept])
