"""Two operators that read the same become one: a loss and its gradient, the gradients of a norm.

before:  loss, levels = entropy(scores, t)   ...   one = 1   slopes = gradient(one, scores, levels, t)
after:   one = 1   loss, slopes = both(scores, t, one)   ...

One of the two reads all that the other one reads, but what that makes for it alone. The operator of both stands where
the first one stood and has its name and its configuration. What the second one reads besides has to be there by then,
or to be made of parameters and states alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from taskflow.graph.binding import bind
from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.graph.kernel import Kernel
from taskflow.graph.pattern import Pattern


def absorb(operators: Sequence[Operator], fetched: set[str]) -> list[Operator]:
    """The operators, each that absorbs an earlier one in its place; `fetched` are regions that are read outside."""
    kept = list(operators)
    reads = Counter(region.name for op in operators for region in op.inputs)
    readers: dict[str, list[str]] = {}
    for op in operators:
        for region in op.inputs:
            readers.setdefault(region.name, []).append(op.name)
    for op in operators:
        if op.kernel.absorb is None:
            continue
        position = {other.name: k for k, other in enumerate(kept)}
        makers = {region.name: other for other in kept for region in other.outputs}
        near = {other for region in op.inputs for other in readers[region.name]}
        own = [other for other in kept[: position[op.name]] if other.name in near]
        pairs = ((o, op.kernel.absorb(op, o)) for o in own if _go_together(op, o, reads, fetched))
        other, kernel = next((pair for pair in pairs if pair[1] is not None), (None, None))
        if other is None or kernel is None:
            continue
        at, end = position[other.name], position[op.name]
        late = {
            maker.name: maker
            for maker in (makers[r.name] for r in op.inputs if r.name in makers)
            if position[maker.name] > at
        }
        updated = {o.inputs[k].name for o in kept[at:end] for k in o.writes}
        read = [region for o in (op, *late.values()) for region in o.inputs]
        is_made = any(not r.is_persistent for o in late.values() for r in o.inputs)
        if is_made or not updated.isdisjoint(region.name for region in read):
            continue
        gone = {other.name, op.name, *late}
        rest = [o for o in kept[at:] if o.name not in gone]
        kept[at:] = [*late.values(), _both(op, other, kernel), *rest]
    return kept


def _go_together(op: Operator, other: Operator, reads: Counter[str], fetched: set[str]) -> bool:
    """Whether one reads what the other does, nobody else what `op` reads of it, and both are on the same points."""
    names, between = _names(op.inputs), _names(op.inputs) & _names(other.outputs)
    rest, known = names - between, _names(other.inputs)
    return (
        (known <= rest or rest <= known)
        and all(reads[name] == 1 for name in between)
        and between.isdisjoint(fetched)
        and (other.step, other.extents) == (op.step, op.extents)
        and op.follows in (other.name, other.follows)
        and not any(o.writes or o.windows or o.orders for o in (op, other))
        and all(_dims(op)[name] == _dims(other)[name] for name in between | (rest & known))
    )


def _names(regions: Iterable[LogicalRegion]) -> set[str]:
    return {region.name for region in regions}


def _dims(op: Operator) -> dict[str, object]:
    """Region -> its dimensions in the pattern."""
    pattern = op.bound.pattern
    terms = (*pattern.inputs, *pattern.outputs)
    return {region.name: term.dims for region, term in zip(op.args, terms, strict=True)}


def _both(op: Operator, other: Operator, kernel: Kernel) -> Operator:
    mine, its = op.bound.pattern, other.bound.pattern
    more = [k for k, r in enumerate(op.inputs) if r.name not in _names(other.args)]
    left = [k for k, r in enumerate(other.outputs) if r.name not in _names(op.inputs)]
    inputs = (*other.inputs, *(op.inputs[k] for k in more))
    pattern = Pattern.of(
        (*its.inputs, *(mine.inputs[k] for k in more)),
        (*(its.outputs[k] for k in left), *mine.outputs),
        mine.fixed | its.fixed,
    )
    shapes = [region.shape for region in inputs]
    bound = bind(f"'{other.name}'", pattern, [r.name for r in inputs], shapes, other.extents, {})
    return replace(
        other,
        kernel=kernel,
        bound=bound,
        inputs=inputs,
        outputs=(*(other.outputs[k] for k in left), *op.outputs),
        flops=(other.flops + op.flops)
        * prod(other.extents.values())
        / prod(bound.extents.values()),
        members=(*other.members, op.name),
    )
