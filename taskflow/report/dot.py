"""Strategies and task graphs as DOT, the language of Graphviz; plain text, since pydot is no dependency.

A strategy is drawn as its entries and the regions between them. A task graph is drawn row by row, a box per device; one
of more than `most` rows has one vertex for all rows of an operator and one for all rows that move a region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from taskflow.core.text import printable
from taskflow.graph.graph import Graph
from taskflow.report.describe import describe_bytes, describe_split, soap_letters
from taskflow.strategy.rules import axis_kinds
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import Array, TaskGraph

_COLOURS = {"": "white", "S": "lightblue", "P": "orange", "A": "palegreen", "O": "lightgrey"}


def strategy_dot(graph: Graph, strategy: Strategy, devices: int) -> str:
    """The entries of a strategy for a machine of so many devices, coloured by SOAP (yellow: several dimensions).

    An edge is a region that one entry makes and another reads.
    """
    kinds = axis_kinds(graph)
    lines = list[str]()
    maker: dict[str, str] = {}
    for op in graph.operators:
        if op.name not in strategy:
            continue
        soap = soap_letters(strategy[op.name], kinds[op.name], devices)
        lines.append(
            f"{_quoted(op.name)} [label={_quoted(op.name, describe_split(strategy[op.name]))}, "
            f"fillcolor={_COLOURS.get(soap, 'yellow')}];"
        )
        lines += [
            f"{_quoted(maker[region.name])} -> {_quoted(op.name)} "
            f"[label={_quoted(f'{region.name} {describe_bytes(region.size_bytes)}')}];"
            for region in op.inputs
            if region.name in maker
        ]
        maker.update((region.name, op.name) for region in op.outputs)
    return _digraph("strategy", lines)


def task_graph_dot(task_graph: TaskGraph, most: int = 300) -> str:
    """The rows of a task graph and what each waits for; see the module."""
    lines = _rows(task_graph) if len(task_graph) <= most else _operators(task_graph)
    return _digraph("tasks", lines)


def _rows(task_graph: TaskGraph) -> list[str]:
    lines = []
    for device in np.unique(task_graph.device).tolist():
        rows = np.flatnonzero(task_graph.device == device).tolist()
        inside = [f"r{row} [label={_row_label(task_graph, row)}];" for row in rows]
        lines += [
            f"subgraph cluster_{device} {{ label={_quoted(f'device {device}')};",
            *inside,
            "}",
        ]
    return lines + [
        f"r{before} -> r{row};" for row in range(len(task_graph)) for before in task_graph.deps(row)
    ]


def _row_label(task_graph: TaskGraph, row: int) -> str:
    task = task_graph[row]
    what = task.collective or task.kind.name.lower()
    origin = f" from {task.source}" if task.source != task.device else ""
    return _quoted(f"{row}: {what} {task.name}[{task.point}]{origin}", describe_bytes(task.bytes))


def _operators(task_graph: TaskGraph) -> list[str]:
    """One vertex for each operator and each moved region, in order of their first rows."""
    key = np.where(
        task_graph.launch >= 0, task_graph.launch, len(task_graph.launches) + task_graph.region
    )
    lines = [
        f"v{vertex} [label={_rows_label(task_graph, rows)}];" for vertex, rows in _grouped(key)
    ]
    waiting = np.repeat(key, np.diff(task_graph.dep_ptr))
    edges = Counter(zip(key[task_graph.dep_row].tolist(), waiting.tolist(), strict=True))
    return lines + [f"v{a} -> v{b} [label={edges[a, b]}];" for a, b in sorted(edges) if a != b]


def _rows_label(task_graph: TaskGraph, rows: Array) -> str:
    """Of all rows of an operator, or of all that move a region."""
    what = "task" if task_graph.launch[rows[0]] >= 0 else "move"
    count = f"{len(rows)} {what}{'s' if len(rows) > 1 else ''}"
    moved = int(task_graph.bytes[rows][task_graph.is_communication[rows]].sum())
    size = f", {describe_bytes(moved)} moved" if moved else ""
    return _quoted(task_graph.name(int(rows[0])), count + size)


def _grouped(key: Array) -> list[tuple[int, Array]]:
    """(key, its rows), in order of the first row."""
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    groups = [(int(key[rows[0]]), rows) for rows in np.split(order, starts[1:])]
    return sorted(groups, key=lambda group: int(group[1][0]))


def _digraph(name: str, lines: Iterable[str]) -> str:
    head = [f"digraph {name} {{", "rankdir=TB;", "node [shape=box, style=filled, fillcolor=white];"]
    return "\n".join([*head, *lines, "}"]) + "\n"


def _quoted(*lines: str) -> str:
    """Lines of text as one DOT string."""
    escaped = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
