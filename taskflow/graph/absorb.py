"""Two operators that read the same become one: a loss and its gradient, the gradients of a norm.

before:  loss, levels = entropy(scores, t)   ...   one = 1   slopes = gradient(one, scores, levels, t)
after:   one = 1   loss, slopes = both(scores, t, one)   ...

One of the two reads all that the other one reads, but what that makes for it alone. The operator of both stands where
the first one stood and has its name and its configuration. What the second one reads besides has to be there by then,
or to be made of parameters and states alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from taskflow.graph.binding import bind
from taskflow.graph.graph import LogicalRegion, Operator
from taskflow.graph.kernel import Kernel
from taskflow.graph.pattern import Pattern


def absorb(operators: Sequence[Operator], fetched: set[str]) -> list[Operator]:
    """The operators, each that absorbs an earlier one in its place; `fetched` are regions that are read outside."""
    joined = list(operators)
    readers: dict[str, list[str]] = {}  # region -> who reads it, once for each time
    for op in operators:
        for region in op.inputs:
            readers.setdefault(region.name, []).append(op.name)
    for op in operators:
        if op.kernel.absorb is not None:
            before = joined[: _place(op, joined)]
            partner = _partner(op, before, readers, fetched)
            if partner is not None:
                joined[: len(before) + 1] = _absorbed(op, *partner, before)
    return joined


def _place(op: Operator, operators: Sequence[Operator]) -> int:
    return next(k for k, other in enumerate(operators) if other.name == op.name)


def _partner(
    op: Operator, before: Sequence[Operator], readers: Mapping[str, list[str]], fetched: set[str]
) -> tuple[Operator, Kernel] | None:
    """The first of the operators before `op` that goes together with it, and the kernel of both."""
    neighbours = {reader for region in op.inputs for reader in readers[region.name]}
    for earlier in before:
        if earlier.name in neighbours and _go_together(op, earlier, readers, fetched):
            assert op.kernel.absorb is not None
            if (kernel := op.kernel.absorb(op, earlier)) is not None:
                return earlier, kernel
    return None


def _absorbed(
    op: Operator, earlier: Operator, kernel: Kernel, before: Sequence[Operator]
) -> list[Operator]:
    """The operators up to `op` with both in the place of the earlier one, or as they are where that cannot be.

    What makes the inputs of `op` after the earlier one moves ahead of both, if it reads parameters and states alone and
    nothing between has updated these.
    """
    place = _place(earlier, before)
    needed = _names(op.inputs)
    late = [o for o in before[place + 1 :] if not needed.isdisjoint(_names(o.outputs))]
    if not _can_move(late, needed, before[place:]):
        return [*before, op]
    rest = [o for o in before[place + 1 :] if needed.isdisjoint(_names(o.outputs))]
    return [*before[:place], *late, _both(op, earlier, kernel), *rest]


def _can_move(late: Sequence[Operator], needed: set[str], passed: Sequence[Operator]) -> bool:
    """Whether `late` may go ahead of others, with all that is `needed` as it was."""
    read = [region for maker in late for region in maker.inputs]
    updated = {op.inputs[k].name for op in passed for k in op.writes}
    return all(region.is_persistent for region in read) and updated.isdisjoint(
        needed | _names(read)
    )


def _go_together(
    op: Operator, earlier: Operator, readers: Mapping[str, list[str]], fetched: set[str]
) -> bool:
    """Whether one reads what the other does, nobody else what `op` reads of it, and both are on the same points."""
    between = _names(op.inputs) & _names(earlier.outputs)
    rest = _names(op.inputs) - between
    before = _names(earlier.inputs)
    return (
        (before <= rest or rest <= before)
        and all(len(readers[name]) == 1 for name in between)
        and between.isdisjoint(fetched)
        and (earlier.step, earlier.pace, earlier.extents) == (op.step, op.pace, op.extents)
        and op.follows in (earlier.name, earlier.follows)
        and not any(o.writes or o.windows or o.orders for o in (op, earlier))
        and all(_dims(op)[name] == _dims(earlier)[name] for name in between | (rest & before))
    )


def _names(regions: Iterable[LogicalRegion]) -> set[str]:
    return {region.name for region in regions}


def _dims(op: Operator) -> dict[str, object]:
    """Region -> its dimensions in the pattern."""
    pattern = op.bound.pattern
    terms = (*pattern.inputs, *pattern.outputs)
    return {region.name: term.dims for region, term in zip(op.args, terms, strict=True)}


def _both(op: Operator, earlier: Operator, kernel: Kernel) -> Operator:
    added = [k for k, r in enumerate(op.inputs) if r.name not in _names(earlier.args)]
    remaining = [k for k, r in enumerate(earlier.outputs) if r.name not in _names(op.inputs)]
    inputs = (*earlier.inputs, *(op.inputs[k] for k in added))
    bound = bind(
        f"'{earlier.name}'",
        _pattern_of_both(op.bound.pattern, earlier.bound.pattern, added, remaining),
        [r.name for r in inputs],
        [r.shape for r in inputs],
        earlier.extents,
        {},
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


def _pattern_of_both(
    pattern: Pattern, earlier: Pattern, added: Sequence[int], remaining: Sequence[int]
) -> Pattern:
    """With these inputs added, and these outputs of the earlier one remaining."""
    return Pattern.of(
        (*earlier.inputs, *(pattern.inputs[k] for k in added)),
        (*(earlier.outputs[k] for k in remaining), *pattern.outputs),
        pattern.fixed | earlier.fixed,
    )
