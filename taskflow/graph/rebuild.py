"""A graph made of another one: what every graph -> graph function begins or ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskflow.graph.graph import Graph, LogicalRegion, Operator


def rebuild(graph: Graph, operators: Sequence[Operator]) -> Graph:
    """A graph of these operators on copies of the regions that they use, and of all that are not made by any.

    `graph` stays as it is. Names, outputs and precision are the same.
    """
    other = Graph()
    used = {r.name for op in operators for r in op.args}
    kept = [r for r in graph.regions.values() if r.role != "value" or r.name in used]
    other.regions = {r.name: replace(r, graph=other) for r in kept}

    def own(regions: Sequence[LogicalRegion]) -> tuple[LogicalRegion, ...]:
        return tuple(other.regions[r.name] for r in regions)

    other.operators = [replace(op, inputs=own(op.inputs), outputs=own(op.outputs)) for op in operators]
    other.outputs = {name: other.regions[r.name] for name, r in graph.outputs.items()}
    other.names = set(graph.names)
    other.differentiations, other.precision = graph.differentiations, graph.precision
    return other
