"""Fusion: chains of operators on the same tiles become one operator. A graph -> graph transformation.

An operator is fused into the one that reads its result where all of this holds:

* nothing else reads the result;
* both see it whole and under the same axis names, so a tile of one is a tile of the other;
* both use the same configuration anyway, or each would be named in a strategy;
* their kernels can become one (`taskflow.Pointwise`).

The result between them needs no memory any more. The fused operator has the name of the last one, so that regions keep
their names. Its flops are the sum; an axis that either of them never splits stays whole.

Casts of parameters to half come first: on a GPU all of them are one launch then.

Fusion comes after `differentiate` and the optimizer, whose operators are fused like any others, and before a strategy.
The numbers are those of the graph before, bit for bit. In half precision they are nearer to those of float32, since
the result between the two is not rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from taskflow.core.dtypes import HALF
from taskflow.graph.binding import bind
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.pattern import BoundPattern, Pattern
from taskflow.graph.precision import casts_parameter
from taskflow.graph.rebuild import rebuild


def fuse(graph: Graph) -> Graph:
    """A graph of the same regions, less those inside of fused operators, and the same numbers.

    It is complete: no operator has a backward any more, nothing can be differentiated. A strategy names a fused
    operator by the name of its last member.

    Args:
        graph: any, with its optimizer if it has one; it stays as it is.
    """
    fusion = _Fusion(graph)
    for position, op in enumerate(graph.operators):
        fusion.append(op, position)
    return rebuild(graph, _casts_first(fusion.finished()))


def _casts_first(operators: Sequence[Operator]) -> list[Operator]:
    """The operators with casts of parameters at the front, unless something updates the parameter before."""
    written, first, others = set[str](), list[Operator](), list[Operator]()
    for op in operators:
        is_first = casts_parameter(op) and op.inputs[0].name not in written
        (first if is_first else others).append(op)
        written.update(op.inputs[k].name for k in op.writes)
    return first + others


class _Fusion:
    """The operators so far, each with what could be fused into it, by name."""

    def __init__(self, graph: Graph) -> None:
        self._operators: dict[str, Operator] = {}
        self._position: dict[str, int] = {}  # of the first member
        self._updated: dict[str, int] = {}  # region -> where it was updated in place last
        self._makers: dict[str, str] = {}
        self._fetched = {region.name for region in graph.outputs.values()}
        self._reads = Counter(region.name for op in graph.operators for region in op.inputs)
        self._became: dict[str, str] = {}  # a leader -> the operator that it is a member of

    def append(self, op: Operator, position: int) -> None:
        while (found := self._join_one(op)) is not None:
            other, fused = found
            del self._operators[other.name]
            position = min(position, self._position.pop(other.name))
            if other.follows is None:
                self._became[other.name] = fused.name
            op = fused
        self._operators[op.name], self._position[op.name] = op, position
        self._makers.update({region.name: op.name for region in op.outputs})
        self._updated.update({op.inputs[k].name: position for k in op.writes})

    def finished(self) -> list[Operator]:
        """All operators, which follow those that the operators that they followed have become part of."""
        return [
            replace(op, backward=None, follows=None if op.follows is None else self._leader(op))
            for op in self._operators.values()
        ]

    def _leader(self, op: Operator) -> str:
        name = op.follows or op.name
        while name in self._became:
            name = self._became[name]
        return name

    def _join_one(self, op: Operator) -> tuple[Operator, Operator] | None:
        """An operator that makes an input of `op`, and both as one."""
        for k, region in enumerate(op.inputs):
            other = self._operators.get(self._makers.get(region.name, ""))
            if other is None or self._reads[region.name] > 1 or region.name in self._fetched or region.dtype in HALF:
                continue  # half of a chain is rounded in between
            if self._go_together(op, other) and not self._is_outdated(other):
                fused = _fused(op, k, other)
                if fused is not None:
                    return other, fused
        return None

    def _go_together(self, op: Operator, other: Operator) -> bool:
        """Whether they use the same ParallelConfig, or would each be given one."""
        is_one = (op.follows is None and other.follows is None) or self._leader(op) == self._leader(other)
        return is_one and op.beside == other.beside

    def _is_outdated(self, other: Operator) -> bool:
        """Whether something that `other` reads has been updated since."""
        return any(self._updated.get(r.name, -1) >= self._position[other.name] for r in other.inputs)


def _fused(op: Operator, k: int, other: Operator) -> Operator | None:
    """`op` with `other`, which makes its input `k`, in it; None where they stay two."""
    outer, inner = op.kernel.expression, other.kernel.expression
    if outer is None or inner is None or not _are_alike(op, k, other):
        return None
    join = outer.join or inner.join
    if join is None or (kernel := join(outer, k, inner)) is None:
        return None
    inputs = (*op.inputs[:k], *other.inputs, *op.inputs[k + 1 :])
    return replace(
        op,
        kernel=kernel,
        bound=_joined_pattern(op, k, other, inputs),
        inputs=inputs,
        flops=op.flops + other.flops,
        follows=None if op.follows is None or other.follows is None else op.follows,
        members=(*(other.members or (other.name,)), *(op.members or (op.name,))),
    )


def _are_alike(op: Operator, k: int, other: Operator) -> bool:
    """Whether each writes one region, both on the points of the region between them, under the same names."""
    between, (made, *more) = op.bound.pattern.inputs[k].dims, op.bound.pattern.outputs
    axes = {axis for dim in between for axis in dim}
    return (
        between == made.dims == other.bound.pattern.outputs[0].dims
        and axes == op.extents.keys() == other.extents.keys()
        and not (more or other.outputs[1:] or op.windows or other.windows)
        and not (op.writes or other.writes or op.orders or other.orders)
    )


def _joined_pattern(op: Operator, k: int, other: Operator, inputs: tuple[LogicalRegion, ...]) -> BoundPattern:
    mine, its = op.bound.pattern, other.bound.pattern
    pattern = Pattern.of((*mine.inputs[:k], *its.inputs, *mine.inputs[k + 1 :]), mine.outputs, mine.fixed | its.fixed)
    return bind(f"'{op.name}'", pattern, [r.name for r in inputs], [r.shape for r in inputs], op.extents, {})
