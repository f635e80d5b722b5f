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
        position = {member.name: k for k, member in enumerate(kept)}
        makers = {region.name: maker for maker in kept for region in maker.outputs}
        neighbours = {reader for region in op.inputs for reader in readers[region.name]}
        candidates = [
            earlier for earlier in kept[: position[op.name]] if earlier.name in neighbours
        ]
        pairs = (
            (o, op.kernel.absorb(op, o)) for o in candidates if _go_together(op, o, reads, fetched)
        )
        earlier, kernel = next((pair for pair in pairs if pair[1] is not None), (None, None))
        if earlier is None or kernel is None:
            continue
        at, end = position[earlier.name], position[op.name]
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
        gone = {earlier.name, op.name, *late}
        rest = [o for o in kept[at:] if o.name not in gone]
        kept[at:] = [*late.values(), _both(op, earlier, kernel), *rest]
    return kept


def _go_together(op: Operator, earlier: Operator, reads: Counter[str], fetched: set[str]) -> bool:
    """Whether one reads what the other does, nobody else what `op` reads of it, and both are on the same points."""
    names, between = _names(op.inputs), _names(op.inputs) & _names(earlier.outputs)
    rest, known = names - between, _names(earlier.inputs)
    return (
        (known <= rest or rest <= known)
        and all(reads[name] == 1 for name in between)
        and between.isdisjoint(fetched)
        and (earlier.step, earlier.pace, earlier.extents) == (op.step, op.pace, op.extents)
        and op.follows in (earlier.name, earlier.follows)
        and not any(o.writes or o.windows or o.orders for o in (op, earlier))
        and all(_dims(op)[name] == _dims(earlier)[name] for name in between | (rest & known))
    )


def _names(regions: Iterable[LogicalRegion]) -> set[str]:
    return {region.name for region in regions}


def _dims(op: Operator) -> dict[str, object]:
    """Region -> its dimensions in the pattern."""
    pattern = op.bound.pattern
    terms = (*pattern.inputs, *pattern.outputs)
    return {region.name: term.dims for region, term in zip(op.args, terms, strict=True)}


def _both(op: Operator, earlier: Operator, kernel: Kernel) -> Operator:
    of_op, of_earlier = op.bound.pattern, earlier.bound.pattern
    added = [k for k, r in enumerate(op.inputs) if r.name not in _names(earlier.args)]
    remaining = [k for k, r in enumerate(earlier.outputs) if r.name not in _names(op.inputs)]
    inputs = (*earlier.inputs, *(op.inputs[k] for k in added))
    pattern = Pattern.of(
        (*of_earlier.inputs, *(of_op.inputs[k] for k in added)),
        (*(of_earlier.outputs[k] for k in remaining), *of_op.outputs),
        of_op.fixed | of_earlier.fixed,
    )
    shapes = [region.shape for region in inputs]
    bound = bind(
        f"'{earlier.name}'", pattern, [r.name for r in inputs], shapes, earlier.extents, {}
    )
    return replace(
        earlier,
        kernel=kernel,
        bound=bound,
        inputs=inputs,
        outputs=(*(earlier.outputs[k] for k in remaining), *op.outputs),
        flops=(earlier.flops + op.flops)
        * prod(earlier.extents.values())
        / prod(bound.extents.values()),
        members=(*earlier.members, op.name),
    )
