"""The space of a search: for every operator that a strategy names, the set of configurations that it may have.

The set of an operator is indexable: it has a size and a configuration for every number below it, so that a uniform draw
is one random number and an enumeration a loop. It holds every legal tuple of degrees, each with every placement of its
points (see `placement`). Degrees are legal when the operator and those that follow it can be split so (see
`taskflow.graph.family`), found once for all operators of which this is decided alike. Configurations are made when they
are first asked for, and an equal configuration is the same object, for all operators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from math import prod

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.family import Conflict, Family, families
from taskflow.graph.graph import Graph, Operator
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.placement import Allows, Placement, Placements, turn
from taskflow.strategy.strategy import Degree, ParallelConfig, Strategy, parts

Axes = tuple[tuple[str, int], ...]  # and the most parts of each
_Kind = tuple[Axes, frozenset[Conflict]]  # what decides how a family may be split


def any_degree(degree: int) -> bool:
    """Allow every degree."""
    return True


def power_of_two(degree: int) -> bool:
    """Allow 1, 2, 4, ..."""
    return degree & (degree - 1) == 0


class Space:
    """The configurations of every operator that a strategy has to name.

    Args:
        graph: whose operators are split; those that follow another have no configuration of their own.
        machine: whose devices are used.
        allows: which degrees along an axis the space has.
        device_lists: the only lists of devices to use; default: those of `placement`.

    Raises:
        ValueError: an operator has no configuration with these degrees and lists.
    """

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        allows: Allows = any_degree,
        device_lists: Sequence[Sequence[int]] | None = None,
    ) -> None:
        every = families(graph)
        self.graph = graph
        self.machine = machine
        self.operators = [family.leader for family in every]
        self._configs: dict[ParallelConfig, ParallelConfig] = {}
        self._extra = defaultdict[str, list[ParallelConfig]](list)
        self._named: set[str] = set()
        placements = Placements(machine, device_lists)
        choices_of = dict[_Kind, _Choices]()
        self._choices: dict[str, _Choices] = {}
        for family in every:
            kind = _axes(family), family.conflicts
            if kind not in choices_of:
                choices_of[kind] = _Choices(family, placements, allows, self._configs)
            if not choices_of[kind].size:
                raise ValueError(
                    "space: no list of devices has as many as operator "
                    f"'{family.leader.name}' may have points"
                )
            self._choices[family.leader.name] = choices_of[kind]
        self.names = list(self._choices)

    def size(self, name: str) -> int:
        """Number of configurations of the operator `name`."""
        return self._choices[name].size + len(self._extra[name])

    def config(self, name: str, number: int) -> ParallelConfig:
        """Configuration `number` of the operator `name`, below its size."""
        choices = self._choices[name]
        if number < choices.size:
            return choices.config(number)
        return self._extra[name][number - choices.size]

    def draw(self, name: str, generator: np.random.Generator) -> ParallelConfig:
        """A configuration of the operator `name`, all with equal probability."""
        return self.config(name, int(generator.random() * self.size(name)))

    def configs(self, name: str) -> Iterator[ParallelConfig]:
        """All configurations of the operator `name`."""
        return (self.config(name, k) for k in range(self.size(name)))

    def find(self, name: str, config: ParallelConfig) -> ParallelConfig | None:
        """The space's own object for `config`; None if the operator `name` has no such configuration."""
        config = without_ones(config)
        if self._choices[name].has(config) or config in self._extra[name]:
            return self._configs.setdefault(config, config)
        return None

    def kin(self) -> list[list[str]]:
        """Operators with equal configurations to choose from, such as the steps of a recurrent layer; two or more."""
        groups: dict[int, list[str]] = {}
        for name in self.names:
            groups.setdefault(id(self._choices[name]), []).append(name)
        return [group for group in groups.values() if len(group) > 1]

    def draw_common(self, name: str, generator: np.random.Generator) -> ParallelConfig:
        """A configuration that all kin of the operator `name` may have, all with equal probability."""
        choices = self._choices[name]
        return choices.config(int(generator.random() * choices.size))

    def degrees(self, name: str) -> tuple[tuple[str, ...], Array]:
        """The axes along which the operator `name` may be split, and all tuples of their degrees, one a row."""
        choices = self._choices[name]
        rows = [degrees for degrees, _ in choices.rows]
        rows += map(choices.degrees, self._extra[name])
        return choices.axes, np.array(rows, np.int64).reshape(len(rows), len(choices.axes))

    def is_even(self, op: Operator) -> bool:
        """Whether all parts of `op`, which may follow another, are those of `degrees`, and have equal work."""
        leader = op.follows or op.name
        is_named = op.name != leader and op.name in self._named
        uneven = any(not isinstance(d, int) for c in self._extra[leader] for _, d in c.degrees)
        return not (is_named or uneven or op.work or self._choices[leader].has_fractions)

    def draw_strategy(self, generator: np.random.Generator) -> Strategy:
        """A strategy of configurations drawn one by one."""
        return Strategy.of_graph(
            self.graph, {name: self.draw(name, generator) for name in self.names}
        )

    def own(self, plan: Plan) -> Plan | None:
        """A strategy in the space's own objects; None if the plan has more than that, or what the space has not."""
        configs: dict[str, ParallelConfig] = {}
        for name in self.names:
            config = self.find(name, plan.strategy[name])
            if config is None:
                return None
            configs[name] = config
        here = Plan(Strategy.of_graph(self.graph, configs))
        has_more = len(plan.strategy) > len(configs)  # names of operators that follow another
        return None if has_more or replace(plan, strategy=here.strategy) != here else here

    def include(self, strategy: Strategy) -> Strategy:
        """Add what `strategy` uses, if it is missing; gives the strategy in the space's own objects."""
        mine = strategy.copy()
        self._named.update(strategy)
        for name in self.names:
            config = self.find(name, strategy[name])
            if config is None:
                config = without_ones(strategy[name])
                config = self._configs.setdefault(config, config)
                self._extra[name].append(config)
            mine[name] = config
        return mine


class _Choices:
    """The configurations of families that may be split alike, numbered: for every tuple of degrees, its placements."""

    def __init__(
        self,
        family: Family,
        placements: Placements,
        allows: Allows,
        configs: dict[ParallelConfig, ParallelConfig],
    ) -> None:
        most = dict(_axes(family))
        self.axes = tuple(most)
        self.rows = [
            (degrees, lists)
            for degrees, lists in placements.split(list(most.values()), allows)
            if not family.conflicts or family.allows(dict(zip(self.axes, degrees, strict=True)))
        ]
        different = {id(lists): lists for _, lists in self.rows}.values()
        self.has_fractions = any(one.fractions for lists in different for one in lists)
        self._ends = list(accumulate(len(lists) for _, lists in self.rows))
        self.size = self._ends[-1] if self._ends else 0
        self._placements = placements
        self._legal = {degrees for degrees, _ in self.rows}
        self._configs = configs
        self.config = cache(self._config)
        self.has = cache(self._has)

    def _config(self, number: int) -> ParallelConfig:
        """Configuration `number`."""
        row = bisect_right(self._ends, number)
        degrees, placements = self.rows[row]
        config = self._make(degrees, placements[number - self._ends[row] + len(placements)])
        return self._configs.setdefault(config, config)

    def degrees(self, config: ParallelConfig) -> tuple[int, ...]:
        """In how many parts every axis is."""
        split = dict(config.degrees)
        return tuple(parts(split.get(axis, 1)) for axis in self.axes)

    def _has(self, config: ParallelConfig) -> bool:
        """Whether `config`, which has no degree of one, is among the configurations."""
        split = dict(config.degrees)
        if [a for a in self.axes if a in split] != list(split):
            return False  # an axis that is not split here, or another order
        degrees = self.degrees(config)
        fractions = {d if isinstance(d, tuple) else None for d in split.values()} or {None}
        if degrees not in self._legal or len(fractions) > 1:
            return False
        extents = [n for n in degrees if n > 1]
        return self._placements.has(extents, config.devices, *fractions)

    def _make(self, degrees: tuple[int, ...], placement: Placement) -> ParallelConfig:
        split: dict[str, Degree] = {a: d for a, d in zip(self.axes, degrees, strict=True) if d > 1}
        if placement.fractions is not None:
            split = dict.fromkeys(split, placement.fractions)
        devices = placement.devices
        extents = [d for d in degrees if d > 1]
        return ParallelConfig(split, turn(devices, extents) if placement.is_turned else devices)


def _axes(family: Family) -> Axes:
    """Those along which it can be split."""
    return tuple((axis, most) for axis, most in family.most.items() if most > 1)


def without_ones(config: ParallelConfig) -> ParallelConfig:
    """The same configuration without the axes that it leaves whole."""
    if all(parts(d) > 1 for _, d in config.degrees):
        return config
    return ParallelConfig({a: d for a, d in config.degrees if parts(d) > 1}, config.devices)


def count_strategies(space: Space) -> int:
    """Number of strategies of the space: the product of the sizes."""
    return prod(space.size(name) for name in space.names)
