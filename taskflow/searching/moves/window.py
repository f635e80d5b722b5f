"""Operators that are equal across repeated layers change together, alone or with the classes behind them.

What is chosen is a configuration for every class (see `fold`) instead of every operator, so a round is over in some
hundred proposals, however many layers there are. A choice is a degree and a group of axes (see `grids`): samples over
some devices, the axis of that group over their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grids import Choice
from taskflow.searching.problem import SearchProblem, Variant
from taskflow.strategy.strategy import ParallelConfig

WIDTHS = 0, 1, 2  # classes behind the first: singles, pairs and triples

Changes = Mapping[str, ParallelConfig]  # leader -> configuration


def next_window(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """One choice for a window of classes that follow each other, or for all classes that have an axis in the group."""
    variant = problem.variant(plan)
    windows = variant.made(_windows) if problem.space is None else ()
    for changes in islice(variant.made(_turns), len(windows)):
        if (changed := problem.changed(plan, changes)) is not None:
            return changed
    return None


def _turns(variant: Variant) -> Iterator[Changes]:
    return cycle(variant.made(_windows))


def _windows(variant: Variant) -> list[Changes]:
    """Of groups, then of windows of one class, of two and of three."""
    classes = variant.classes
    if all(len(members) == 1 for members in classes):
        return []
    choices = [
        variant.grids.choices(members[0], range(len(variant.machine.devices)))
        for members in classes
    ]
    every = dict.fromkeys(chain.from_iterable(choices))
    windows = [(range(len(classes)), choice) for choice in every]
    windows += [
        (window, choice)
        for window in _runs(len(classes))
        for choice in every
        if all(choice in choices[k] for k in window)
    ]
    return [_changes(classes, choices, choice, window) for window, choice in windows]


def _runs(count: int) -> Iterator[range]:
    for more in WIDTHS:
        yield from (range(first, first + more + 1) for first in range(count - more))


def _changes(
    classes: Sequence[Sequence[str]],
    choices: Sequence[Mapping[Choice, ParallelConfig]],
    choice: Choice,
    window: Sequence[int],
) -> Changes:
    return {name: choices[k][choice] for k in window if choice in choices[k] for name in classes[k]}
