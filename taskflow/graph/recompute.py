"""Recomputation: what forward operators make is made again for the backward pass, instead of being kept for it.

A graph -> graph function. Every backward operator that reads what a named operator makes reads a clone of it, which
stands right before the first such reader and computes the same from the same. A clone follows its original, so one
strategy serves both graphs, and numbers are the same to the bit: random numbers depend on names that kernels hold.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174, 2016.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.rebuild import rebuild

AGAIN = "again"  # a clone of `x` is `x.again`


def recompute(graph: Graph, names: Iterable[str] | str = "auto") -> Graph:
    """The graph with clones of some forward operators for its backward pass.

    Args:
        graph: with its backward operators.
        names: of forward operators whose results are not kept; "auto": all but those that end one of about sqrt(n)
            segments of n operators, cut where the least is kept.

    Raises:
        ValueError: there is no such operator, it is not a forward one, it updates a region in place, or it reads one
            that is updated before the backward pass.
    """
    chosen = _segments(graph) if names == "auto" else _check(graph, names)
    number = {op.name: k for k, op in enumerate(graph.operators)}
    maker = {r.name: op for op in graph.operators if op.name in chosen for r in op.outputs}
    again: dict[str, LogicalRegion] = {}
    operators: list[Operator] = []
    other = Graph()
    other.regions, other.outputs, other.names = dict(graph.regions), dict(graph.outputs), set(graph.names)
    other.differentiations, other.precision = graph.differentiations, graph.precision
    for position, op in enumerate(graph.operators):
        if op.is_backward:
            for original in sorted(_needed(op, maker, again), key=lambda each: number[each.name]):
                _check_inputs(graph, original, number[original.name], position)
                operators.append(_clone(other, original, again))
            op = replace(op, inputs=tuple(again.get(r.name, r) for r in op.inputs))
        operators.append(op)
    return rebuild(other, operators)


def forward_operators(where: str, graph: Graph, names: Iterable[str] | str) -> dict[str, Operator]:
    """The operators of these names; ValueError if one of them is a backward one."""
    found = {name: graph.operator(name) for name in ([names] if isinstance(names, str) else names)}
    for name, op in found.items():
        if op.is_backward:
            raise ValueError(f"{where}: '{name}' is a backward operator")
    return found


def _check(graph: Graph, names: Iterable[str] | str) -> set[str]:
    found = forward_operators("recompute", graph, names)
    for name, op in found.items():
        if op.writes:
            updated = op.inputs[op.writes[0]].name
            raise ValueError(f"recompute: '{name}' updates '{updated}' in place; a second time would be one too many")
    return set(found)


def recomputed(graph: Graph) -> tuple[str, ...]:
    """The operators that `recompute` had cloned for this graph, in program order."""
    clones = {re.sub(rf"\.{AGAIN}(_\d+)?$", "", op.name) for op in graph.operators if f".{AGAIN}" in op.name}
    return tuple(op.name for op in graph.operators if op.name in clones and f".{AGAIN}" not in op.name)


def _needed(op: Operator, maker: dict[str, Operator], again: dict[str, LogicalRegion]) -> list[Operator]:
    """The operators of which `op` needs clones that are not there yet."""
    found: dict[str, Operator] = {}
    left = [r.name for r in op.inputs]
    while left:
        name = left.pop()
        if name in maker and name not in again and maker[name].name not in found:
            found[maker[name].name] = maker[name]
            left += [r.name for r in maker[name].inputs]
    return list(found.values())


def _clone(graph: Graph, op: Operator, again: dict[str, LogicalRegion]) -> Operator:
    """A clone of `op` on clones of what it reads, as far as there are any; its regions join `graph` and `again`."""
    name = graph.unique_name(f"{op.name}.{AGAIN}")
    inputs = tuple(again.get(r.name, r) for r in op.inputs)
    for region in op.outputs:
        again[region.name] = replace(region, name=graph.unique_name(f"{region.name}.{AGAIN}"))
        graph.regions[again[region.name].name] = again[region.name]
    graph.names.add(name)  # only now: an operator and what it makes have one name
    outputs = tuple(again[r.name] for r in op.outputs)
    leader = op.follows or op.name
    return replace(
        op, name=name, inputs=inputs, outputs=outputs, backward=None, follows=leader, members=(), is_backward=True
    )


def _check_inputs(graph: Graph, op: Operator, first: int, until: int) -> None:
    """What an operator read is the same when it is computed again."""
    read = {r.name for r in op.inputs}
    for other in graph.operators[first + 1 : until]:
        for k in other.writes:
            if other.inputs[k].name in read:
                where = f"recompute: '{op.name}' reads '{other.inputs[k].name}'"
                raise ValueError(f"{where}, which '{other.name}' has updated since")


def _segments(graph: Graph) -> set[str]:
    """Forward operators that no segment ends with, of about sqrt(n) segments with as many operators each."""
    forward = [op for op in graph.operators if not op.is_backward and not op.writes]
    last_read: dict[str, int] = {}
    for k, op in enumerate(forward):
        last_read |= {r.name: k for r in op.inputs}
    count = max(1, math.isqrt(len(forward)))
    made = {r.name: r.size_bytes for op in forward for r in op.outputs}
    kept: set[str] = set()
    for segment in range(1, count):
        middle, half = segment * len(forward) // count, max(1, len(forward) // (2 * count))
        near = range(max(0, middle - half), min(len(forward), middle + half))
        best = min(near, key=lambda k: (_crossing(forward, k, last_read, made), abs(k - middle)))
        kept |= {name for name in made if name in _alive(forward, best, last_read)}
    return {op.name for op in forward if not any(r.name in kept for r in op.outputs)}


def _alive(forward: Sequence[Operator], k: int, last_read: dict[str, int]) -> set[str]:
    """What is made by the operators up to number k and read by later ones."""
    return {r.name for op in forward[: k + 1] for r in op.outputs if last_read.get(r.name, -1) > k}


def _crossing(forward: Sequence[Operator], k: int, last_read: dict[str, int], size: dict[str, int]) -> int:
    return sum(size[name] for name in _alive(forward, k, last_read))
