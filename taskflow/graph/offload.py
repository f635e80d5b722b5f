"""Offload: what forward operators make is kept on another device until the backward pass reads it.

A graph -> graph function. An identity operator `<region>.away` stands behind the maker, and `<region>.back`, right
before the first backward operator that reads the region; backward operators read what that makes. Both follow the
maker, and nothing moves, until a strategy names `<region>.away`: on a device of host memory, say. The other is split
and placed as it is, so the region comes back when it is needed and not before.

Source: Rhu et al., "vDNN", MICRO 2016.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.precision import cast
from taskflow.graph.program_order import ProgramOrder
from taskflow.graph.rebuild import rebuild
from taskflow.graph.recompute import forward_operators

AWAY = "away"
BACK = "back"  # those of `x` are `x.away` and `x.back`


def offload(graph: Graph, names: Iterable[str] | str) -> Graph:
    """The graph with operators that take what some forward operators make away, and back for the backward pass.

    What no backward operator reads stays. Numbers are the same. Executors run machines with devices of one kind, so a
    host is a device of the kind that computes.

    Args:
        graph: with its backward operators; it stays as it is.
        names: of forward operators.

    Raises:
        ValueError: there is no such operator, it is not a forward one, or what it makes is updated in place.
    """
    chosen = forward_operators("offload", graph, names)
    other = rebuild(graph, graph.operators)
    operators = other.operators
    other.operators = ProgramOrder()
    read = {r.name for op in operators if op.is_backward for r in op.inputs}
    made: dict[str, tuple[Operator, int]] = {}  # region -> its maker, and as which argument
    away: dict[str, LogicalRegion] = {}
    back: dict[str, LogicalRegion] = {}
    for op in operators:
        if op.is_backward:
            for name in (r.name for r in op.inputs if r.name in made and r.name not in back):
                back[name] = _identity(away[name], name, BACK, *made[name])
            op = replace(op, inputs=tuple(back.get(r.name, r) for r in op.inputs))
        other.operators.append(op)
        for k, region in enumerate(op.outputs if op.name in chosen else ()):
            if region.name in read:
                made[region.name] = op, len(op.inputs) + k
                away[region.name] = _identity(region, region.name, AWAY, *made[region.name])
        _check_updates(op, made)
    return other


def _identity(
    region: LogicalRegion, name: str, suffix: str, leader: Operator, k: int
) -> LogicalRegion:
    """Append the operator `<name>.<suffix>` on `region`, beside `name`, which is argument `k` of `leader`."""
    made = cast(region, region.dtype, leader, k, f"{name}.{suffix}")
    operators = made.graph.operators
    is_back = suffix == BACK
    operators[-1] = replace(operators[-1], beside=name, is_backward=is_back, backward=None)
    return made


def _check_updates(op: Operator, made: dict[str, tuple[Operator, int]]) -> None:
    for name in (op.inputs[k].name for k in op.writes):
        if name in made:
            where = f"offload: '{made[name][0].name}' makes '{name}'"
            raise ValueError(f"{where}, which '{op.name}' updates in place")
