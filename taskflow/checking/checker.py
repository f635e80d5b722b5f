"""`check_plan`: the columns, then values, then races; gives a `Proof` or raises a `PlanError`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskflow.checking.arguments import INSTANCE, ROW, PlanColumns
from taskflow.checking.clocks import Waits, make_clocks
from taskflow.checking.collectives import Collectives, read_collectives, read_touches
from taskflow.checking.columns import check_columns, check_streams, dimensions, occupied_streams
from taskflow.checking.ends import read_ends
from taskflow.checking.pieces import make_pieces
from taskflow.checking.program import read_program
from taskflow.checking.races import OWNER, follow_order, make_arenas
from taskflow.checking.rules import BROKEN, NO_ROOM, Ends, PlanFault, explain_fault, make_fault
from taskflow.checking.terms import GraphTables
from taskflow.checking.values import EndTables, follow_values
from taskflow.core.columns import Array, pointers, spread
from taskflow.graph.graph import Graph
from taskflow.graph.repeat import repeated
from taskflow.tasks.memory import MemoryPlan, plan_memory
from taskflow.tasks.task_graph import TaskGraph

Reuse = tuple[Array, Array]


@dataclass(frozen=True)
class Proof:
    """What was checked: all of it is right.

    Attributes:
        rows, arguments, dependences: of the task graph.
        reuse: edges of the memory plan; None where no memory plan was checked.
        seconds: that the check took.
    """

    rows: int
    arguments: int
    dependences: int
    reuse: int | None
    seconds: float

    def __str__(self) -> str:
        counts = f"{self.rows} rows, {self.arguments} arguments, {self.dependences} dependences"
        memory = "" if self.reuse is None else f", {self.reuse} edges of reuse"
        what = "every value of the right pieces, each once, and no race"
        return f"proven in {self.seconds:.2f} s: {counts}{memory}: {what}"


def check_plan(
    graph: Graph,
    task_graph: TaskGraph,
    memory: MemoryPlan | None = None,
    reuse: Reuse | None = None,
) -> Proof:
    """Prove that a task graph computes what its graph says, in every order that its dependences and streams allow.

    Every instance holds the right version of the right region in every box that is read, made of the right parts, each
    once; homes and fetches hold the last versions; kernels are those of the graph; and rows that touch the same memory,
    one of them to write, are in order. Nothing is read of how the rows were made. Kernels are trusted.

    Args:
        graph: the one that was lowered; its steps are repeated as often as those of the rows.
        task_graph: its rows, in any order.
        memory: where instances lie. Without it, none shares memory with another.
        reuse: more rows that rows wait for, since they take over memory: `rows[ptr[k] : ptr[k + 1]]` for row k. By
            default those of the memory plan.

    Raises:
        PlanError: it breaks a rule; the message names the rule, the task, the region and the box.
    """
    task_graph.check_complete("check_plan")
    begin = time.perf_counter()
    if memory is not None and reuse is None:
        reuse = memory.reuse_ptr, memory.reuse_rows
    graph = graph if graph.repeat > 1 else repeated(graph, task_graph.repeat)
    check_columns(task_graph)
    tables = _read_tables(graph, task_graph)
    fault = make_fault(task_graph.arg_box.shape[2])
    if _values(task_graph, tables, fault) == BROKEN:
        raise explain_fault(task_graph, fault, tables.program.version, tables.at_end)
    check_streams(task_graph)
    if _races(task_graph, tables, memory, reuse, fault) == BROKEN:
        raise explain_fault(task_graph, fault, tables.program.version, tables.at_end)
    return Proof(
        len(task_graph),
        len(task_graph.arg_instance),
        len(task_graph.dep_row),
        None if memory is None or reuse is None else len(reuse[1]),
        time.perf_counter() - begin,
    )


def check_own_plan(task_graph: TaskGraph) -> Proof:
    """`check_plan` with the graph that the regions belong to, and with a memory plan."""
    graph = task_graph.regions[0].graph if task_graph.regions else Graph()
    return check_plan(graph, task_graph, plan_memory(task_graph))


class _PlanTables(NamedTuple):
    """What both passes read of a graph and its rows."""

    program: GraphTables
    collectives: Collectives
    ends: EndTables
    at_end: Ends


def _read_tables(graph: Graph, task_graph: TaskGraph) -> _PlanTables:
    program, latest = read_program(graph, task_graph)
    collectives = read_collectives(task_graph)
    return _PlanTables(program, collectives, *read_ends(task_graph, graph, program, latest))


# -- values ------------------------------------------------------------------------------------------------------------


def _values(graph: TaskGraph, tables: _PlanTables, fault: PlanFault) -> int:
    columns = _plan_columns(graph, tables.collectives.table)
    room = 3 * len(graph.instance_region) + 1024
    while True:
        pieces = make_pieces(len(graph.instance_region), room, graph.arg_box.shape[2])
        end = int(
            follow_values(
                tuple(columns),
                tuple(tables.program),
                tuple(tables.collectives.steps),
                tuple(tables.ends),
                tuple(pieces),
                tuple(fault),
            )
        )
        if end != NO_ROOM:
            return end
        room *= 4


def _plan_columns(graph: TaskGraph, table_of: Array) -> PlanColumns:
    row = np.empty(len(graph), ROW)
    instance = np.empty(len(graph.instance_region), INSTANCE)
    for name in ("kind", "launch", "point", "region", "device", "source"):
        row[name] = getattr(graph, name)
    row["steps"] = table_of
    instance["region"] = graph.instance_region
    instance["device"] = graph.instance_device
    instance["dims"] = dimensions(graph)
    instance["is_partial"] = graph.instance_partial
    boxes = np.ascontiguousarray(graph.instance_box), np.ascontiguousarray(graph.arg_box)
    return PlanColumns(
        row, instance, boxes[0], graph.arg_ptr, graph.arg_instance, graph.arg_privilege, boxes[1]
    )


# -- races -------------------------------------------------------------------------------------------------------------


def _races(
    graph: TaskGraph,
    tables: _PlanTables,
    memory: MemoryPlan | None,
    reuse: Reuse | None,
    fault: PlanFault,
) -> int:
    order = Waits(*_waits(graph, reuse), *occupied_streams(graph))
    touches = read_touches(graph, tables.collectives)
    return int(
        follow_order(
            tuple(order),
            tuple(make_clocks(order)),
            tuple(touches),
            tuple(make_arenas(_owners(graph, memory), len(touches.touch))),
            (tables.ends.first["instance"].copy(), tables.ends.last["instance"].copy()),
            tuple(fault),
        )
    )


def _owners(graph: TaskGraph, memory: MemoryPlan | None) -> Array:
    """`OWNER` records of instances, of which nobody has touched any yet."""
    owner = np.zeros(len(graph.instance_region), OWNER)
    owner["dims"] = dimensions(graph)
    owner["device"] = graph.instance_device
    if memory is not None:
        owner["begin"] = memory.offset
        owner["end"] = memory.offset + memory.size
    return owner


def _waits(graph: TaskGraph, reuse: Reuse | None) -> tuple[Array, Array]:
    """Dependences and edges of reuse as one table."""
    if reuse is None:
        return graph.dep_ptr, graph.dep_row
    ptr, rows = reuse
    count = np.diff(graph.dep_ptr) + np.diff(ptr)
    begin = pointers(count)
    waits = np.empty(begin[-1], np.int64)
    waits[spread(begin[:-1], np.diff(graph.dep_ptr))] = graph.dep_row
    waits[spread(begin[:-1] + np.diff(graph.dep_ptr), np.diff(ptr))] = rows
    return begin, waits
