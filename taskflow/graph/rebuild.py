"""A graph made of another one: what every graph -> graph function begins or ends with.

* `rebuild`: of operators of the graph.
* `replace_regions`: with regions of another dtype, role or name, so that weights are tied or frozen.
* `copy_into`: a graph that has others in it, such as steps in a row or jobs beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.program_order import ProgramOrder


def replace_regions(graph: Graph, changed: Mapping[str, LogicalRegion]) -> Graph:
    """The graph with `changed[name]` in the place of the region `name`: of another dtype, role or name.

    Regions that get one name become one: so weights are tied. `dataclasses.replace` makes the regions. `graph` stays as
    it is.

    Raises:
        ValueError: there is no region of a name, one of another shape takes its place, or regions that become one
            differ in shape, dtype or role, or are made by operators.
    """
    for name, new in changed.items():
        if name not in graph.regions:
            raise ValueError(f"replace_regions: the graph has no region '{name}'")
        if new.shape != graph.regions[name].shape:
            raise ValueError(
                f"replace_regions: '{name}' is {graph.regions[name].shape}, '{new.name}' is {new.shape}"
            )
    return rebuild(graph, graph.operators, changed)


def rebuild(
    graph: Graph, operators: Sequence[Operator], changed: Mapping[str, LogicalRegion] | None = None
) -> Graph:
    """A graph of these operators on copies of the regions that they use, and of all that are not made by any.

    `graph` stays as it is. Names, outputs and precision are the same; `changed` is that of `replace_regions`.
    """
    other = Graph()
    mine = _copy_regions(other, graph, {r.name for op in operators for r in op.args}, changed or {})

    def copies(regions: Sequence[LogicalRegion]) -> tuple[LogicalRegion, ...]:
        return tuple(mine[r.name] for r in regions)

    for op in operators:
        other.operators.append(
            replace(
                op,
                inputs=copies(op.inputs),
                outputs=copies(op.outputs),
                beside=mine[op.beside].name if op.beside in mine else op.beside,
            )
        )
    other.outputs = {name: mine[r.name] for name, r in graph.outputs.items()}
    other.names = set(graph.names)
    other.differentiations = graph.differentiations
    other.precision = graph.precision
    return other


def _copy_regions(
    other: Graph, graph: Graph, used: set[str], changed: Mapping[str, LogicalRegion]
) -> dict[str, LogicalRegion]:
    """By its name in `graph`, the copy in `other` of each region that is used, or made by no operator."""
    mine: dict[str, LogicalRegion] = {}
    for name, region in graph.regions.items():
        if region.role != "value" or name in used:
            new = replace(changed.get(name, region), graph=other)
            mine[name] = one = other.regions.setdefault(new.name, new)
            if one is not new and (one.role == "value" or not _are_alike(one, new)):
                raise ValueError(
                    f"replace_regions: '{name}' cannot be '{one.name}': {_text(new)}, {_text(one)}"
                )
    return mine


def emptied(
    graph: Graph, changed: Mapping[str, LogicalRegion] | None = None
) -> tuple[Graph, ProgramOrder[Operator]]:
    """`rebuild` without operators, and these: for who appends them anew, and others between them."""
    other = rebuild(graph, graph.operators, changed)
    operators = other.operators
    other.operators = ProgramOrder()
    return other, operators


def copy_into(
    other: Graph,
    graph: Graph,
    region: Callable[[LogicalRegion], LogicalRegion],
    operator: Callable[[str], str],
    output: Callable[[str], str],
    clash: Callable[[str, str], str],
    *,
    step: int = 0,
    pace: int = 1,
    job: str = "",
    **fields: Any,
) -> None:
    """Append to `other` copies of all operators, regions and outputs of `graph`, which stays as it is.

    Args:
        other: what gets them.
        graph: whose they are.
        region: what a region becomes; one that keeps its name is one with a region of this name in `other`.
        operator, output: name -> that of the copy.
        clash: the message where the new name is taken, of what has it (`a region`) and the name.
        step, pace: so many steps of `graph` later, and of how many in one step of `other`.
        job: which `graph` is in `other`; its own jobs become `<job>/<own job>`.
        fields: of the operators, besides.

    Raises:
        ValueError: a name is taken.
    """
    mine: dict[str, LogicalRegion] = {}
    for name, old in graph.regions.items():
        new = replace(region(old), graph=other)
        mine[name] = one = other.regions.setdefault(new.name, new)
        if one is not new and (new.name != name or not _are_alike(one, new)):
            raise ValueError(clash("a region", new.name))
    for op in graph.operators:
        if other.operators.called(operator(op.name)):
            raise ValueError(clash("an operator", operator(op.name)))
        renamed: dict[str, Any] = {
            "name": operator(op.name),
            "inputs": tuple(mine[r.name] for r in op.inputs),
            "outputs": tuple(mine[r.name] for r in op.outputs),
            "follows": op.follows and operator(op.follows),
            "members": tuple(map(operator, op.members)),
            "beside": mine[op.beside].name if op.beside in mine else op.beside,
            "step": op.step + op.pace * step,
            "pace": op.pace * pace,
            "job": "/".join(filter(None, (job, op.job))),
        }
        other.operators.append(replace(op, **renamed, **fields))
    for name, made in graph.outputs.items():
        if output(name) in other.outputs:
            raise ValueError(clash("an output", output(name)))
        other.outputs[output(name)] = mine[made.name]
    other.names |= set(map(operator, graph.names))


def _are_alike(one: LogicalRegion, other: LogicalRegion) -> bool:
    return (one.shape, one.dtype, one.role) == (other.shape, other.dtype, other.role)


def _text(region: LogicalRegion) -> str:
    return f"a {region.role} of {region.dtype} {region.shape}"
