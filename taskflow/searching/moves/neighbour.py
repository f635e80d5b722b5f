"""Changes of one operator, each in turn: where a round of them finds nothing faster, a strategy is a local optimum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem, Variant
from taskflow.strategy.strategy import ParallelConfig


def next_neighbour(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """The next change of one operator that the plan does not have."""
    variant = problem.variant(plan)
    neighbours = variant.made(_neighbours)
    for _ in range(count_neighbours(variant)):
        name, config = next(neighbours)
        if (changed := problem.changed(plan, {name: config})) is not None:
            return changed
    return None


def count_neighbours(variant: Variant) -> int:
    """How many there are in a round, those that a plan has among them."""
    return sum(variant.space.size(name) for name in variant.space.names)


def _neighbours(variant: Variant) -> Iterator[tuple[str, ParallelConfig]]:
    """Operators take turns, each in an order that has no pattern, so what is stopped early has treated all alike."""
    space = variant.space
    while True:
        sizes = [space.size(name) for name in space.names]
        orders = {size: np.random.default_rng(size).permutation(size).tolist() for size in sizes}
        for k in range(max(sizes)):
            for name, size in zip(space.names, sizes, strict=True):
                if k < size:
                    yield name, space.config(name, orders[size][k])
