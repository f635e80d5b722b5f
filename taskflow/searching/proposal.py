"""Proposals: another configuration for one operator, and the Hastings correction that keeps the walk exact.

A proposal for an operator is, with probability COPIED, one that an adjacent operator has now, and otherwise any of the
operator's space, uniformly. Operators are adjacent where one reads what the other makes, or where they read the same
parameter one after the other. A configuration is brought over along the dimensions of the region between them: a linear
layer split by its output `o` proposes to the next one a split by its input `i`, on the same devices. Uniform draws find
what is new, copies remove the movement between neighbours.

So an operator of `n` configurations whose neighbours offer a list `near` proposes `c` with probability

    q(c) = (1 - w) / n + w * near.count(c) / len(near),      w = COPIED, or 0 if `near` is empty.

While the operator itself moves from `old` to `new` its neighbours stand still, so the way back has the same `near`, and
Metropolis-Hastings accepts with probability min(1, exp(-beta * (cost(new) - cost(old))) * q(old) / q(new)).

Some optima are far for one operator at a time: the steps of a recurrent layer share their weights and are split alike.
So, now and then, all kin (operators with equal configurations to choose from) that have the configuration of a random
one of them are proposed a common new one, which none of the kin may have yet. The way back picks any of the same
operators among the same kin and one of as many configurations: it is as likely, and there is nothing to correct.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from taskflow.graph.graph import Operator
from taskflow.searching.space import Space
from taskflow.strategy.strategy import Degree, ParallelConfig, parts

COPIED = 0.5
TOGETHER = 0.1  # of the proposals change kin together
ALONG = 0.25  # of the proposals change chains


@dataclass(frozen=True)
class _Route:
    """From which operator a configuration comes, and what its axes are called here.

    `brought` remembers by the identity of a configuration, which is kept, what it becomes.
    """

    source: str
    axes: tuple[tuple[str, str], ...]
    brought: dict[int, tuple[ParallelConfig, ParallelConfig | None]] = field(
        default_factory=dict, compare=False, repr=False
    )


class Proposals:
    """See the module."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._operators = {op.name: op for op in space.operators}
        self.routes = _routes(space.operators)
        self.kin = space.kin()
        self.before = _routes_from_before(space.names, self.routes)
        self._brought: dict[object, tuple[ParallelConfig, ParallelConfig]] = {}
        self._choosing = [name for name in space.names if space.size(name) > 1]

    def draw(
        self, strategy: Mapping[str, ParallelConfig], generator: np.random.Generator
    ) -> tuple[dict[str, ParallelConfig], float]:
        """Changes of `strategy` and ln q(old) - ln q(new); no changes: what was drawn is what there is.

        `strategy` holds objects of the space (`Space.include`).
        """
        kind = generator.random()
        if kind < TOGETHER and self.kin:
            return self.propose_together(strategy, generator), 0.0
        if kind >= 1 - ALONG:
            return self.propose_along(strategy, generator), 0.0
        name = self._choosing[int(generator.random() * len(self._choosing))]
        config, correction = self.propose(name, strategy, generator)
        return ({} if config is strategy[name] else {name: config}), correction

    def propose(
        self, name: str, strategy: Mapping[str, ParallelConfig], generator: np.random.Generator
    ) -> tuple[ParallelConfig, float]:
        """A configuration for the operator `name`, and ln q(old) - ln q(new); 0 where both are the same.

        `strategy` holds objects of the space (`Space.include`), the old configuration of `name` among them.
        """
        near = self.near(name, strategy)
        if near and generator.random() < COPIED:
            new = near[int(generator.random() * len(near))]
        else:
            new = self.space.draw(name, generator)
        old = strategy[name]
        if not near or new is old:
            return new, 0.0
        return new, math.log(
            self._probability(name, old, near) / self._probability(name, new, near)
        )

    def propose_together(
        self, strategy: Mapping[str, ParallelConfig], generator: np.random.Generator
    ) -> dict[str, ParallelConfig]:
        """A common new configuration for kin that have the same one; empty: none that could be taken back."""
        kin = self.kin[int(generator.random() * len(self.kin))]
        name = kin[int(generator.random() * len(kin))]
        old, new = strategy[name], self.space.draw_common(name, generator)
        if not self.space.is_common(name, old) or any(strategy[other] is new for other in kin):
            return {}
        return {other: new for other in kin if strategy[other] is old}

    def propose_along(
        self, strategy: Mapping[str, ParallelConfig], generator: np.random.Generator
    ) -> dict[str, ParallelConfig]:
        """A new configuration for an operator and the chain behind it; empty: none that could be taken back."""
        names = self.space.names
        first = int(generator.random() * len(names))
        reach = names[
            first : first + int((len(names) - first + 1) ** generator.random())
        ]  # most are short
        new = self.space.draw(reach[0], generator)
        if new is strategy[reach[0]]:
            return {}
        before = {name: strategy[name] for name in reach}
        chain, changes = self._chain(reach, before), {reach[0]: new}
        for name in chain[1:]:
            route = self.before[name]
            brought = self._bring(name, route, changes[route.source])
            if brought is None:
                return {}
            changes[name] = brought
        is_same = self._chain(reach, before | changes) == chain
        return {name: c for name, c in changes.items() if c is not before[name]} if is_same else {}

    def _chain(self, reach: Sequence[str], strategy: Mapping[str, ParallelConfig]) -> list[str]:
        """The first operator of `reach`, and those that have what `bring` makes of one before them in the chain."""
        chain = {reach[0]: None}
        for name in reach[1:]:
            route = self.before.get(name)
            if (
                route
                and route.source in chain
                and self._bring(name, route, strategy[route.source]) is strategy[name]
            ):
                chain[name] = None
        return list(chain)

    def near(self, name: str, strategy: Mapping[str, ParallelConfig]) -> list[ParallelConfig]:
        """What adjacent operators offer to the operator `name`, repeated where several offer the same."""
        brought = (self._bring(name, route, strategy[route.source]) for route in self.routes[name])
        return [config for config in brought if config is not None]

    def _probability(self, name: str, config: ParallelConfig, near: list[ParallelConfig]) -> float:
        offers = sum(other is config for other in near)  # the space has one object for equal ones
        return (1 - COPIED) / self.space.size(name) + COPIED * offers / len(near)

    def _bring(self, name: str, route: _Route, config: ParallelConfig) -> ParallelConfig | None:
        held = route.brought.get(id(config))
        if held is None or held[0] is not config:
            held = route.brought[id(config)] = (
                config,
                self.space.find(name, self._there(name, route, config)),
            )
        return held[1]

    def _there(self, name: str, route: _Route, config: ParallelConfig) -> ParallelConfig:
        """`bring`, once for all operators whose axes have the same names."""
        key = route.axes, tuple(self._operators[name].extents), id(config)
        held = self._brought.get(key)
        if held is None or held[0] is not config:
            there = bring(config, dict(route.axes), self._operators[name])
            held = self._brought[key] = config, there
        return held[1]


def bring(config: ParallelConfig, axes: Mapping[str, str], op: Operator) -> ParallelConfig:
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


def _routes(operators: list[Operator]) -> dict[str, list[_Route]]:
    """Operator -> routes from its neighbours, each once, in program order."""
    routes: dict[str, dict[_Route, None]] = {op.name: {} for op in operators}
    for one, k, other, j in _adjacent(operators):
        for source, a, target, b in ((one, k, other, j), (other, j, one, k)):
            for axes in _axis_maps(source, a, target, b):
                routes[target.name][_Route(source.name, axes)] = None
    return {name: list(found) for name, found in routes.items()}


def _routes_from_before(
    names: Sequence[str], routes: Mapping[str, Sequence[_Route]]
) -> dict[str, _Route]:
    """Operator -> the first route from one that comes before it, where there is one."""
    number = {name: k for k, name in enumerate(names)}
    first = {n: next((r for r in routes[n] if number[r.source] < number[n]), None) for n in names}
    return {name: route for name, route in first.items() if route is not None}


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
        (_axis(source, x[0]), _axis(target, y[0]))
        for x, y in zip(from_dims, to_dims, strict=True)
        if x and y
    )
    if source.pattern == target.pattern:
        yield tuple((axis, axis) for axis in target.extents)


def _axis(op: Operator, name: str) -> str:
    return op.windows[name].axis if name in op.windows else name
