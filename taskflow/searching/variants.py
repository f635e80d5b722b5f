"""Variants of a graph: what is computed again, and what has a home. Each has judges, a space and grids of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property

from taskflow.cost.model import CostModel
from taskflow.graph.family import families
from taskflow.graph.graph import Graph
from taskflow.lowering.limits import check_room
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.bound import whole_seconds
from taskflow.searching.fold import block_interiors
from taskflow.searching.grids import Grids
from taskflow.searching.judge import Judge, WholeChanges
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.proposal import Proposals
from taskflow.searching.space import Space
from taskflow.strategy.sharded import ShardedState
from taskflow.strategy.strategy import Strategy

_log = logging.getLogger(__name__)

POINT_ROWS = 2  # rows for a point of every operator on every device, about: with what it moves


class Variant:
    """One graph that strategies are for; its parts are made when they are first asked for.

    Args:
        plan: says how the graph is transformed.
        space: of the graph as it is, if one was given: then the search is limited to it.
    """

    def __init__(
        self, graph: Graph, machine: MachineModel, costs: CostModel, plan: Plan, space: Space | None
    ) -> None:
        self.plan, self.machine, self.costs = plan, machine, costs
        self._given, self._space = graph, space
        self.is_limited = space is not None

    @cached_property
    def graph(self) -> Graph:
        """The graph that runs."""
        return self.plan.transform(self._given)

    @cached_property
    def judge(self) -> Judge:
        """Of its strategies as wholes."""
        return Judge(self.graph, self.machine, self.costs, self.plan)

    @cached_property
    def changes(self) -> PackedJudge | WholeChanges:
        """The judge of what changes in a strategy: it holds all rows, where there is memory for them."""
        try:
            check_room(POINT_ROWS * len(self.graph.operators) * len(self.machine.devices))
        except MemoryError as error:
            _log.info("search: every change is judged as a whole: %s", error)
            return WholeChanges(self.judge)
        return PackedJudge(self.graph, self.machine, self.costs)

    @cached_property
    def space(self) -> Space:
        """The given one, or all."""
        return self._space or Space(self.graph, self.machine)

    @cached_property
    def proposals(self) -> Proposals:
        """In the space."""
        return Proposals(self.space)

    @cached_property
    def grids(self) -> Grids:
        """Of experts."""
        return Grids(self.graph)

    @cached_property
    def family_seconds(self) -> list[float]:
        """Of every family of operators, not split, on the first device."""
        found = {family.leader.name: 0.0 for family in families(self.graph)}
        for op, each in zip(
            self.graph.operators, whole_seconds(self.graph, self.machine, self.costs), strict=True
        ):
            found[op.follows or op.name] += float(each[0])
        return list(found.values())

    @cached_property
    def sharded(self) -> ShardedState:
        """Of its strategies."""
        return ShardedState(self.graph)


def leaner_variants(first: Variant) -> Iterator[Variant]:
    """Variants that take less memory and more time: what layers make is computed again, parameters have homes, both."""
    graph, parameters = first.graph, tuple(region.name for region in first.graph.parameters)
    interiors = block_interiors(graph) if graph.differentiations else ()
    for key in dict.fromkeys([(interiors, ()), ((), parameters), (interiors, parameters)]):
        if any(key):
            plan = Plan(Strategy({}), recomputed=key[0], homes=key[1])
            yield Variant(graph, first.machine, first.costs, plan, None)
