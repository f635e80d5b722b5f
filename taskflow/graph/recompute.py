"""Recomputation: what forward operators make is made again for the backward pass, instead of being kept for it.

A graph -> graph function. Every backward operator that reads what a named operator makes reads a clone of it, which
stands right before the first such reader and computes the same from the same. A clone follows its original, so one
strategy serves both graphs, and numbers are the same to the bit: random numbers depend on names that kernels hold.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174, 2016.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter

from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.rebuild import emptied

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
    other, operators = emptied(graph)
    number = {op.name: k for k, op in enumerate(operators)}
    updates = _updates(operators)
    maker = {r.name: op for op in operators if op.name in chosen for r in op.outputs}
    again: dict[str, LogicalRegion] = {}
    for position, op in enumerate(operators):
        if op.is_backward:
            for original in sorted(_needed(op, maker, again), key=lambda old: number[old.name]):
                _check_inputs(original, updates, number[original.name], position)
                other.operators.append(_clone(other, original, again))
            op = replace(op, inputs=tuple(again.get(r.name, r) for r in op.inputs))
        other.operators.append(op)
    return other


def forward_operators(where: str, graph: Graph, names: Iterable[str] | str) -> dict[str, Operator]:
    """The operators of these names; ValueError if one of them is a backward one."""
    named = {name: graph.operator(name) for name in ([names] if isinstance(names, str) else names)}
    for name, op in named.items():
        if op.is_backward:
            raise ValueError(f"{where}: '{name}' is a backward operator")
    return named


def _check(graph: Graph, names: Iterable[str] | str) -> set[str]:
    operators = forward_operators("recompute", graph, names)
    for name, op in operators.items():
        if op.writes:
            updated = op.inputs[op.writes[0]].name
            raise ValueError(
                f"recompute: '{name}' updates '{updated}' in place; a second time would be one too many"
            )
    return set(operators)


def recomputed(graph: Graph) -> tuple[str, ...]:
    """The operators that `recompute` had cloned for this graph, in program order."""
    names = {op.name for op in graph.operators}
    cloned = {
        name: match[1]
        for name in names
        if (match := re.fullmatch(rf"(.+)\.{AGAIN}(_\d+)?", name)) and match[1] in names
    }
    originals = set(cloned.values()) - cloned.keys()
    return tuple(op.name for op in graph.operators if op.name in originals)


def _needed(
    op: Operator, maker: dict[str, Operator], again: dict[str, LogicalRegion]
) -> list[Operator]:
    """The operators of which `op` needs clones that are not there yet."""
    needed: dict[str, Operator] = {}
    left = [r.name for r in op.inputs]
    while left:
        name = left.pop()
        if name in maker and name not in again and maker[name].name not in needed:
            needed[maker[name].name] = maker[name]
            left += [r.name for r in maker[name].inputs]
    return list(needed.values())


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
        op,
        name=name,
        inputs=inputs,
        outputs=outputs,
        backward=None,
        follows=leader,
        members=(),
        is_backward=True,
    )


def _updates(operators: Sequence[Operator]) -> dict[str, list[tuple[int, str]]]:
    """Region -> the operators that update it in place, and where they stand."""
    updates: dict[str, list[tuple[int, str]]] = {}
    for position, op in enumerate(operators):
        for k in op.writes:
            updates.setdefault(op.inputs[k].name, []).append((position, op.name))
    return updates


def _check_inputs(
    op: Operator, updates: Mapping[str, list[tuple[int, str]]], first: int, until: int
) -> None:
    """What an operator read is the same when it is computed again."""
    for region in op.inputs:
        updating = updates.get(region.name, [])
        behind = updating[(k := bisect_right(updating, first, key=itemgetter(0))) : k + 1]
        if behind and behind[0][0] < until:
            where = f"recompute: '{op.name}' reads '{region.name}'"
            raise ValueError(f"{where}, which '{behind[0][1]}' has updated since")


def _segments(graph: Graph) -> set[str]:
    """Forward operators that no segment ends with, of about sqrt(n) segments with as many operators each."""
    forward = [op for op in graph.operators if not op.is_backward and not op.writes]
    last_read: dict[str, int] = {}
    for k, op in enumerate(forward):
        last_read |= {r.name: k for r in op.inputs}
    count = max(1, math.isqrt(len(forward)))
    lives = [(r, k, last_read.get(r.name, -1)) for k, op in enumerate(forward) for r in op.outputs]
    crossing = _crossing(lives, len(forward))
    cuts = []
    for segment in range(1, count):
        middle, half = segment * len(forward) // count, max(1, len(forward) // (2 * count))
        near = range(max(0, middle - half), min(len(forward), middle + half))
        cuts.append(min(near, key=lambda k: (crossing[k], abs(k - middle))))
    cuts.sort()
    kept = {r.name for r, made, last in lives if bisect_left(cuts, made) < bisect_left(cuts, last)}
    return {op.name for op in forward if not any(r.name in kept for r in op.outputs)}


def _crossing(lives: Sequence[tuple[LogicalRegion, int, int]], count: int) -> list[int]:
    """Bytes of what is made by the operators up to each of so many, and read by later ones; see `lives`."""
    change = [0] * (count + 1)
    for region, made, last in lives:
        if last > made:
            change[made] += region.size_bytes
            change[last] -= region.size_bytes
    return list(accumulate(change))
