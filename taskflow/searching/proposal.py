"""Routes: what a configuration of one operator is for another one.

Operators are adjacent where one reads what the other makes, or where they read the same parameter one after the other.
A configuration is brought over along the dimensions of the region between them: a linear layer split by its output `o`
proposes to the next one a split by its input `i`, on the same devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, permutations, product
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
    devices = np.array(config.devices).reshape([parts(degree) for _, degree in config.degrees])
    kept: list[tuple[str, Degree]] = []
    for axis, degree in config.degrees:
        if axis in axes:
            kept.append((axes[axis], degree))
        else:
            devices = devices.take(0, axis=len(kept))
    order = sorted(range(len(kept)), key=lambda k: [*op.extents].index(kept[k][0]))
    return ParallelConfig(
        dict(kept[k] for k in order), devices.transpose(order).reshape(-1).tolist()
    )


def _routes(operators: list[Operator]) -> dict[str, list[Route]]:
    """Operator -> routes from its neighbours, each once, in program order."""
    routes: dict[str, dict[Route, None]] = {op.name: {} for op in operators}
    for pair in _adjacent(operators):
        for source, target in permutations(pair):
            for axes in _axis_maps(source, target):
                routes[target.op.name][Route(source.op.name, axes)] = None
    return {name: list(of_operator) for name, of_operator in routes.items()}


class Touch(NamedTuple):
    """An argument of an operator, by number."""

    op: Operator
    argument: int

    @property
    def axes(self) -> list[str | None]:
        """Per dimension of its region the axis there, if there is one."""
        bound = self.op.bound
        dims = bound.terms[self.argument].dims
        return [bound.axis_of(names[0]) if names else None for names in dims]


def _adjacent(operators: list[Operator]) -> Iterator[tuple[Touch, Touch]]:
    """Pairs that touch one region: maker and reader, readers of one parameter."""
    touching: dict[str, list[Touch]] = {}
    for op in operators:
        for k, region in enumerate(op.args):
            touching.setdefault(region.name, []).append(Touch(op, k))
    for touches in touching.values():
        first = touches[0]
        if first.argument >= len(first.op.inputs):
            pairs: Iterable[tuple[Touch, Touch]] = product([first], touches[1:])
        elif first.op.inputs[first.argument].role == "parameter":
            pairs = pairwise(touches)
        else:
            continue
        yield from (pair for pair in pairs if pair[0].op is not pair[1].op)


def _axis_maps(source: Touch, target: Touch) -> Iterator[tuple[tuple[str, str], ...]]:
    """How axes of `source` are called in `target`: by the dimensions of the region they share, and by name."""
    shared = zip(source.axes, target.axes, strict=True)
    yield tuple((axis, here) for axis, here in shared if axis and here)
    if source.op.pattern == target.op.pattern:
        yield tuple((axis, axis) for axis in target.op.extents)
