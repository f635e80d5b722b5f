"""The strategy on the model graph, for a page: entries that do the same are one vertex, in layers from the input on.

The entries of equal layers are one vertex (`label_repeats`), so the graph of a deep model has cycles: an edge to what
comes earlier in the program is `back`, and does not count for the layers. Within a layer vertices stand near the middle
of what they read (the barycentre heuristic of Sugiyama et al., 1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taskflow.graph.graph import Graph, Operator
from taskflow.report.breakdown import Breakdown, Share
from taskflow.report.describe import describe_config, describe_split, label_repeats, soap_letters
from taskflow.strategy.rules import axis_kinds
from taskflow.strategy.strategy import Strategy


def entry_labels(graph: Graph, strategy: Strategy) -> dict[str, str]:
    """Operator name -> the vertex that its entry belongs to, for all operators of the graph that have one."""
    labels = label_repeats((op, strategy[op.name]) for op in graph.operators if op.name in strategy)
    by_operator = {
        op.name: labels.get(op.name) or labels.get(op.follows or "") for op in graph.operators
    }
    return {name: label for name, label in by_operator.items() if label}


def group_of(labels: Mapping[str, str]) -> Callable[[Operator], str]:
    """The vertex of an operator; one without an entry is a group of its own, with those that follow it."""
    return lambda op: labels.get(op.name) or labels.get(op.follows or "") or op.follows or op.name


def model_columns(
    graph: Graph, strategy: Strategy, devices: int, step: Breakdown, compared: Breakdown | None
) -> dict[str, Any]:
    """Vertices, in program order, and edges between them.

    Args:
        graph: that runs.
        strategy: its placement.
        devices: of the machine.
        step: of the strategy, by vertices (`group_of`).
        compared: the same under another plan.
    """
    labels = entry_labels(graph, strategy)
    members: dict[str, list[Operator]] = defaultdict(list)
    for op in graph.operators:
        if op.name in strategy:
            members[labels[op.name]].append(op)
    edges = _edges(graph, strategy, labels, list(members))
    vertices = _vertices(graph, strategy, devices, members)
    for vertex in vertices:
        vertex |= _share("", step.shares.get(vertex["name"]))
        if compared is not None:
            vertex |= _share("compared_", compared.shares.get(vertex["name"]))
    layers = _layers(len(members), [edge[:2] for edge in edges if edge[0] < edge[1]])
    return {"vertices": vertices, "edges": edges, "layers": _ordered(layers, edges)}


def _vertices(
    graph: Graph, strategy: Strategy, devices: int, members: Mapping[str, Sequence[Operator]]
) -> list[dict[str, Any]]:
    kinds = axis_kinds(graph)
    return [
        {
            "name": name,
            "operators": [op.name for op in ops]
            if len(ops) <= 4
            else [ops[0].name, "...", ops[-1].name],
            "count": len(ops),
            "pattern": ops[0].pattern,
            "split": describe_split(strategy[ops[0].name]),
            "words": describe_config(ops[0], strategy[ops[0].name], kinds[ops[0].name]),
            "soap": soap_letters(strategy[ops[0].name], kinds[ops[0].name], devices),
        }
        for name, ops in members.items()
    ]


def _share(prefix: str, share: Share | None) -> dict[str, float]:
    share = share or Share()
    return {
        f"{prefix}compute_seconds": share.compute_seconds,
        f"{prefix}communication_seconds": share.communication_seconds,
        f"{prefix}bytes_moved": share.bytes_moved,
    }


def _edges(
    graph: Graph, strategy: Strategy, labels: Mapping[str, str], names: Sequence[str]
) -> list[tuple[int, int, int]]:
    """From, to and bytes of the regions that entries make and other entries read, in program order."""
    place = {name: k for k, name in enumerate(names)}
    maker: dict[str, int] = {}
    sizes: dict[tuple[int, int], int] = {}
    for op in graph.operators:
        if op.is_backward or op.name not in labels or (op.follows and op.name in strategy):
            continue  # gradients and updates would double every edge
        vertex = place[labels[op.name]]
        for region in op.inputs:
            source = maker.get(region.name, vertex)
            if source != vertex:
                sizes[source, vertex] = sizes.get((source, vertex), 0) + region.size_bytes
        maker.update((region.name, vertex) for region in op.outputs)
    return [(a, b, size) for (a, b), size in sizes.items()]


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Vertices by their longest way from the beginning; edges lead to higher numbers."""
    depth = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        depth[target] = max(depth[target], depth[source] + 1)
    by_depth: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for vertex, layer in enumerate(depth):
        by_depth[layer].append(vertex)
    return by_depth


def _ordered(layers: list[list[int]], edges: Sequence[tuple[int, int, int]]) -> list[list[int]]:
    """The vertices of each layer from left to right."""
    sources: dict[int, list[int]] = defaultdict(list)
    for source, target, _ in edges:
        if source < target:
            sources[target].append(source)
    place: dict[int, float] = {}
    rows = []
    for layer in layers:
        middle = {
            v: sum(place[s] for s in sources[v]) / len(sources[v]) if sources[v] else 0.0
            for v in layer
        }
        row = sorted(layer, key=lambda v: (middle[v], v))
        place |= {v: k - (len(row) - 1) / 2 for k, v in enumerate(row)}
        rows.append(row)
    return rows
