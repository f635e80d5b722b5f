"""Folds: operators that are equal across repeated layers, found from the graph, not from names.

Leaders (the operators that a strategy names) in program order are a sequence; what two of them and their followers do
is equal or not. A repetition is a stretch of this sequence that repeats with a period: the layers of a transformer,
the steps of a recurrent layer. Operators at the same place of a period are a class. A search that changes whole classes
has as many choices as one layer has, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.graph.graph import Graph, Operator
from taskflow.lowering.operators import kind_of


@dataclass(frozen=True)
class Repetition:
    """A stretch that repeats: `count` periods of `period` leaders each, from leader number `first`."""

    first: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """One after the last leader."""
        return self.first + self.period * self.count


def find_repetitions(content: Sequence[object]) -> list[Repetition]:
    """The repetitions in a sequence, in order: that which ties most first, then those before and behind it."""
    numbers: dict[object, int] = {}
    of_parts = np.array([numbers.setdefault(part, len(numbers)) for part in content])
    return sorted(_repetitions(of_parts, 0), key=lambda run: run.first)


def fold(graph: Graph) -> tuple[list[list[str]], list[Repetition]]:
    """Classes of leaders, in the order of their first members, and the repetitions; any other leader is alone."""
    members: dict[str, list[Operator]] = {
        op.name: [op] for op in graph.operators if op.follows is None
    }
    for op in graph.operators:
        if (
            op.follows is not None and not op.is_backward
        ):  # of these, those at the ends have more or fewer
            members[op.follows].append(op)
    runs = find_repetitions(list(map(_content, members.values())))
    place: dict[str, object] = {name: name for name in members}
    for run in runs:
        for k, name in enumerate(list(members)[run.first : run.end]):
            place[name] = run.first, k % run.period
    classes: dict[object, list[str]] = {}
    for name in members:
        classes.setdefault(place[name], []).append(name)
    return list(classes.values()), runs


def block_interiors(graph: Graph) -> tuple[str, ...]:
    """Forward operators inside the periods of repetitions: what they make is read within their period alone.

    To compute them again in the backward pass keeps what enters and leaves each layer: activation checkpointing.
    """
    forward = [op for op in graph.operators if not op.is_backward]
    block = _blocks(graph)
    leaving = {region.name for region in graph.outputs.values()}
    home: dict[str, int] = {}  # of regions
    for op in forward:
        here = block.get(op.follows or op.name, -1)
        leaving |= {region.name for region in op.inputs if home.get(region.name, here) != here}
        leaving |= {region.name for region in op.outputs if here < 0}
        home.update((region.name, here) for region in op.outputs)
    return tuple(
        op.name
        for op in forward
        if op.outputs and not op.writes and leaving.isdisjoint(region.name for region in op.outputs)
    )


def _blocks(graph: Graph) -> dict[str, int]:
    """Of leaders in a repetition, the number of the first leader of their period."""
    leaders = [op.name for op in graph.operators if op.follows is None]
    block: dict[str, int] = {}
    for run in fold(graph)[1]:
        for k in range(run.first, run.end):
            block[leaders[k]] = k - (k - run.first) % run.period
    return block


def _content(operators: Sequence[Operator]) -> tuple[object, ...]:
    """What costs depend on: kinds, and how operators share regions; not names."""
    numbers: dict[str, int] = {}
    parts = []
    for op in operators:
        shared = tuple(numbers.setdefault(r.name, len(numbers)) for r in op.args)
        parts.append((kind_of(op), shared, tuple((r.dtype, r.role) for r in op.args)))
    return tuple(parts)


def _repetitions(content: np.ndarray, first: int) -> Iterator[Repetition]:
    best = max(
        _longest(content), key=lambda run: ((run.count - 1) * run.period, -run.period), default=None
    )
    if best is None:
        return
    yield Repetition(best.first + first, best.period, best.count)
    yield from _repetitions(content[: best.first], first)
    yield from _repetitions(content[best.end :], first + best.end)


def _longest(content: np.ndarray) -> Iterator[Repetition]:
    """For every period the longest stretch that repeats."""
    for period in range(1, len(content) // 2 + 1):
        same = np.flatnonzero(np.append(content[:-period] != content[period:], True))
        lengths = np.diff(same, prepend=-1) - 1
        most = int(np.argmax(lengths))
        count = int(lengths[most]) // period + 1
        if count > 1:
            yield Repetition(int(same[most] - lengths[most]), period, count)
