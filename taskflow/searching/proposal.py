"""Routes: what a configuration of one operator is for another one.

Operators are adjacent where one reads what the other makes, or where they read the same parameter one after the other.
A configuration is brought over along the dimensions of the region between them: a linear layer split by its output `o`
proposes to the next one a split by its input `i`, on the same devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.graph.graph import Operator
from taskflow.searching.space import Space
from taskflow.strategy.strategy import Degree, ParallelConfig, parts


class Route(NamedTuple):
    """From which operator a configuration comes, and what its axes are called here."""

    source: str
    axes: tuple[tuple[str, str], ...]


class Proposals:
    """See the module.

    Attributes:
        routes: operator -> all that lead to it.
        before: operator -> the first of them that comes from an operator before it, where there is one.
        kin: operators with equal configurations to choose from.
        choosing: operators that have a choice.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._operators = {op.name: op for op in space.operators}
        self.routes = _routes(space.operators)
        self.kin = space.kin()
        number = {name: k for k, name in enumerate(space.names)}
        self.before = {  # of several the first, which comes last
            name: route
            for name in space.names
            for route in reversed(self.routes[name])
            if number[route.source] < number[name]
        }
        self._brought: dict[object, tuple[ParallelConfig, ParallelConfig | None]] = {}
        self.choosing = [name for name in space.names if space.size(name) > 1]

    def near(self, name: str, strategy: Mapping[str, ParallelConfig]) -> list[ParallelConfig]:
        """What adjacent operators offer to the operator `name`, repeated where several offer the same."""
        brought = (self.bring(name, route, strategy[route.source]) for route in self.routes[name])
        return [config for config in brought if config is not None]

    def bring(self, name: str, route: Route, config: ParallelConfig) -> ParallelConfig | None:
        """What a configuration becomes on a route; None: there is no such configuration in the space."""
        key = name, route, id(config)
        if key not in self._brought:
            there = renamed(config, dict(route.axes), self._operators[name])
            self._brought[key] = config, self.space.find(name, there)
        return self._brought[key][1]


def renamed(config: ParallelConfig, axes: Mapping[str, str], op: Operator) -> ParallelConfig:
    """`config` with its axes renamed by `axes` and in the order of `op`.

    Of an axis that has no name here the first part stays. Whether `op` can be split so is for the caller to find out.
    """
    devices = np.array(config.devices).reshape([parts(d) for _, d in config.degrees])
    kept: list[tuple[str, Degree]] = []
    for axis, degree in config.degrees:
        if axis in axes:
            kept.append((axes[axis], degree))
        else:
            devices = devices.take(0, axis=len(kept))
    rank = {axis: k for k, axis in enumerate(op.extents)}
    order = sorted(range(len(kept)), key=lambda k: rank[kept[k][0]])
    return ParallelConfig(
        dict(kept[k] for k in order), devices.transpose(order).reshape(-1).tolist()
    )


def _routes(operators: list[Operator]) -> dict[str, list[Route]]:
    """Operator -> routes from its neighbours, each once, in program order."""
    routes: dict[str, dict[Route, None]] = {op.name: {} for op in operators}
    for one, k, other, j in _adjacent(operators):
        for source, a, target, b in ((one, k, other, j), (other, j, one, k)):
            for axes in _axis_maps(source, a, target, b):
                routes[target.name][Route(source.name, axes)] = None
    return {name: list(of_operator) for name, of_operator in routes.items()}


def _adjacent(operators: list[Operator]) -> Iterator[tuple[Operator, int, Operator, int]]:
    """(operator, argument, other operator, argument) of one region: maker and reader, readers of one parameter."""
    touching: dict[str, list[tuple[Operator, int]]] = {}
    for op in operators:
        for k, region in enumerate(op.args):
            touching.setdefault(region.name, []).append((op, k))
    for uses in touching.values():
        first, argument = uses[0]
        is_made = argument >= len(first.inputs)
        if is_made or first.inputs[argument].role == "parameter":
            pairs = [(uses[0], use) for use in uses[1:]] if is_made else pairwise(uses)
            yield from ((*a, *b) for a, b in pairs if a[0] is not b[0])


def _axis_maps(
    source: Operator, a: int, target: Operator, b: int
) -> Iterator[tuple[tuple[str, str], ...]]:
    """How axes of `source` are called in `target`: by the dimensions of the region they share, and by name."""
    from_dims, to_dims = (op.bound.terms[k].dims for op, k in ((source, a), (target, b)))
    yield tuple(
        (source.bound.axis_of(x[0]), target.bound.axis_of(y[0]))
        for x, y in zip(from_dims, to_dims, strict=True)
        if x and y
    )
    if source.pattern == target.pattern:
        yield tuple((axis, axis) for axis in target.extents)
