"""Fusion: chains of operators on the same tiles become one operator. A graph -> graph transformation.

An operator is fused into the one that reads its result first where all of this holds:

* both see it whole and under the same axis names, so a tile of one is a tile of the other, and where it is a sum over
  more axes, these are not split then;
* both use the same configuration anyway, or each would be named in a strategy, or one is a cast that follows another;
* the kernel of one of them knows a kernel of both (`Kernel.join`): of two expressions, of an update and the casts and
  sums of its gradient, of a normalization and what is added before or computed behind it.

What reads the same, such as a loss and its gradient, is one operator before that (`absorb`).

The result between them needs no memory any more, unless others read it, too, and the kernel of both writes it beside
its own. The fused operator has the name of the last one, so that regions keep their names. Its flops are the sum; an
axis that either of them never splits stays whole.

What is made of parameters alone and in one launch on a GPU, such as casts to half, comes first: all of it is one then.

Fusion comes after `differentiate` and the optimizer, whose operators are fused like any others, and before a strategy.
The numbers are those of the graph before, bit for bit. In half precision they are nearer to those of float32, since
the result between the two is not rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from taskflow.graph.absorb import absorb
from taskflow.graph.binding import bind
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Join, Kernel
from taskflow.graph.pattern import BoundPattern, Pattern
from taskflow.graph.precision import casts_parameter, is_cast, is_exact
from taskflow.graph.rebuild import rebuild


def fuse(graph: Graph) -> Graph:
    """A graph of the same regions, less those inside of fused operators, and the same numbers.

    It is complete: no operator has a backward any more, nothing can be differentiated. A strategy names a fused
    operator by the name of its last member.

    Args:
        graph: any, with its optimizer if it has one; it stays as it is.
    """
    fetched = {region.name for region in graph.outputs.values()}
    operators = absorb(graph.operators, fetched)
    fusion = _Fusion(operators, fetched)
    for position, op in enumerate(operators):
        fusion.append(op, position)
    return rebuild(graph, _parameters_first(fusion.finished()))


def _parameters_first(operators: Sequence[Operator]) -> list[Operator]:
    """The operators with those of parameters alone at the front, if several of them are one launch on a GPU.

    Not where something updates the parameter before.
    """
    written = set[str]()
    first = list[Operator]()
    others = list[Operator]()
    for op in operators:
        is_first = _is_of_parameters(op) and written.isdisjoint(r.name for r in op.inputs)
        (first if is_first else others).append(op)
        written.update(op.inputs[k].name for k in op.writes)
    return first + others


def _is_of_parameters(op: Operator) -> bool:
    """Whether it casts a parameter to half, or reads several parameters and updates none."""
    is_grouped = op.kernel.for_points is not None and not op.writes
    is_one_of_several = is_grouped and len(op.inputs) > 1
    return casts_parameter(op) or (
        is_one_of_several and all(region.role == "parameter" for region in op.inputs)
    )


class _Fusion:
    """The operators so far, each with what could be fused into it, by name."""

    def __init__(self, operators: Sequence[Operator], fetched: set[str]) -> None:
        self._operators: dict[str, Operator] = {}
        self._position: dict[str, int] = {}  # of the first member
        self._updated: dict[str, int] = {}  # region -> where it was updated in place last
        self._makers: dict[str, str] = {}
        self._fetched = fetched
        self._read = Counter[str]()  # how often by the operators so far
        self._reads = Counter(region.name for op in operators for region in op.inputs)
        self._joins = list(
            dict.fromkeys(o.kernel.join for o in operators if o.kernel.join and o.kernel.expression)
        )
        self._became: dict[str, str] = {}  # a leader -> the operator that it is a member of

    def append(self, op: Operator, position: int) -> None:
        self._updated.update({op.inputs[k].name: position for k in op.writes})
        while (joined := self._join_one(op)) is not None:
            other, fused = joined
            del self._operators[other.name]
            self._read.subtract(region.name for region in other.inputs)
            position = min(position, self._position.pop(other.name))
            if other.follows is None:
                self._became[other.name] = fused.name
            op = fused
        self._operators[op.name] = op
        self._position[op.name] = position
        self._makers.update({region.name: op.name for region in op.outputs})
        self._read.update(region.name for region in op.inputs)

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
            if other is None or op.inputs.count(region) > 1:
                continue
            if any(self._read[made.name] for made in other.outputs):
                continue
            is_kept = self._reads[region.name] > 1 or region.name in self._fetched
            if (
                (op.step, op.pace) == (other.step, other.pace)
                and self._go_together(op, other)
                and not self._is_outdated(other)
            ):
                fused = _fused(op, k, other, is_kept, self._joins)
                if fused is not None:
                    return other, fused
        return None

    def _go_together(self, op: Operator, other: Operator) -> bool:
        """Whether they use the same ParallelConfig, or would each be given one; a cast may use any."""
        if other.follows is not None and other.inputs and is_cast(other, other.inputs[0].dtype):
            return True
        is_one = (op.follows is None and other.follows is None) or self._leader(op) == self._leader(
            other
        )
        return is_one and op.beside == other.beside

    def _is_outdated(self, other: Operator) -> bool:
        """Whether something that `other` reads has been updated since."""
        return any(
            self._updated.get(r.name, -1) >= self._position[other.name] for r in other.inputs
        )


def _fused(
    op: Operator, k: int, other: Operator, is_kept: bool, more: Sequence[Join]
) -> Operator | None:
    """`op` with `other`, which makes its input `k`, in it; None where they stay two.

    Expressions that know no kernel of both, such as sums of gradients, are joined as `more` join expressions. What
    `other` makes besides stays as it is, so the kernel of `other` has to know how.
    """
    kernel = _kernel_of_both(op, k, other, is_kept, more)
    if kernel is None:
        return None
    inputs = (*op.inputs[:k], *other.inputs, *op.inputs[k + 1 :])
    bound = _joined_pattern(op, k, other, inputs, is_kept)
    return replace(
        op,
        kernel=kernel,
        bound=bound,
        inputs=inputs,
        outputs=(*op.outputs, *other.outputs[not is_kept :]),
        writes=tuple(w + (len(other.inputs) - 1) * (w > k) for w in op.writes),
        orders=_joined_orders(op, k, other, is_kept),
        flops=(op.flops * prod(op.extents.values()) + other.flops * prod(other.extents.values()))
        / prod(bound.extents.values()),
        work=other.work,
        follows=None if op.follows is None or other.follows is None else op.follows,
        members=(*_members(other), *_members(op)),
    )


def _kernel_of_both(
    op: Operator, k: int, other: Operator, is_kept: bool, more: Sequence[Join]
) -> Kernel | None:
    """That of `_fused`."""
    kernels = (op.kernel, other.kernel) if len(other.outputs) == 1 else (other.kernel,)
    joins = [kernel.join for kernel in kernels if kernel.join]
    joins = joins or [*(more if op.kernel.expression and other.kernel.expression else ())]
    if not joins or not _are_alike(op, k, other) or not (is_exact(op) and is_exact(other)):
        return None
    return next(filter(None, (join(op, k, other, is_kept) for join in joins)), None)


def _members(op: Operator) -> tuple[str, ...]:
    """With its own name, which an operator that absorbed others does not count."""
    return op.members if op.name in op.members else (*op.members, op.name)


def _are_alike(op: Operator, k: int, other: Operator) -> bool:
    """Whether `other` makes that region first, and both are on the points of it, under the same names.

    Axes that `other` sums over are not split in the fused operator; `op` may have more that are never split.
    """
    between = op.bound.pattern.inputs[k]
    (made, *_) = other.bound.pattern.outputs or (None,)
    axes = set(between.names)
    updated = {op.inputs[w].name for w in op.writes}
    return (
        made is not None
        and op.inputs[k].name == other.outputs[0].name
        and between.dims == made.dims
        and axes <= other.extents.keys()
        and axes <= op.extents.keys() <= axes | op.bound.pattern.fixed
        and not (op.windows or other.writes or op.adds)
        and (not op.orders or not other.orders or op.orders[k] == other.orders[len(other.inputs)])
        and updated.isdisjoint(region.name for region in other.inputs)
    )


def _joined_pattern(
    op: Operator, k: int, other: Operator, inputs: tuple[LogicalRegion, ...], is_kept: bool
) -> BoundPattern:
    mine = op.bound.pattern
    its = other.bound.pattern
    pattern = Pattern.of(
        (*mine.inputs[:k], *its.inputs, *mine.inputs[k + 1 :]),
        (*mine.outputs, *its.outputs[not is_kept :]),
        mine.fixed | its.fixed | (other.extents.keys() - op.extents.keys()),
    )
    return bind(
        f"'{op.name}'",
        pattern,
        [r.name for r in inputs],
        [r.shape for r in inputs],
        {**other.extents, **op.extents},
        other.windows,
    )


def _joined_orders(
    op: Operator, k: int, other: Operator, is_kept: bool
) -> tuple[tuple[int, ...], ...]:
    """The memory orders that one of both asks for; what the other one is computed with lies as what is between."""
    if not op.orders and not other.orders:
        return ()
    between = op.orders[k] if op.orders else other.orders[len(other.inputs)]

    def of(one: Operator) -> list[tuple[int, ...]]:
        ranks = [len(region.shape) for region in one.args]
        return [*(one.orders or (between if n == len(between) else tuple(range(n)) for n in ranks))]

    mine = of(op)
    its = of(other)
    count = len(other.inputs)
    return (*mine[:k], *its[:count], *mine[k + 1 :], *its[count + (not is_kept) :])
