"""The problem of a search: a graph, a machine and costs, the judges of its plans, and what moves ask of them.

A plan may change the graph: operators are computed again, parameters have homes. So everything that is made of a graph,
its space, grids and the judge of its changes, is that of a variant, which is made when it is first asked for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.family import families
from taskflow.graph.graph import Graph
from taskflow.graph.repeat import repeated
from taskflow.lowering.limits import check_room
from taskflow.machine import MachineModel
from taskflow.schedule.orders import forward_first
from taskflow.schedule.plan import Plan
from taskflow.searching.bound import seconds_on
from taskflow.searching.fold import fold
from taskflow.searching.grids import Grids
from taskflow.searching.judge import Judge, transformed
from taskflow.searching.outcome import Outcome
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.proposal import Proposals
from taskflow.searching.shapes import ONE_STAGE, PlanShape, Turn
from taskflow.searching.space import Space
from taskflow.strategy.sharded import ShardedState
from taskflow.strategy.strategy import ParallelConfig, Strategy

_log = logging.getLogger(__name__)

T = TypeVar("T")
Order = Any  # what a plan takes for its schedule

POINT_ROWS = 2  # rows for a point of every operator on every device, about: with what it moves


class PlanSpace(Protocol):
    """Plans of some kind, and no others; what makes another one of one is a move of its own."""

    def own(self, plan: Plan) -> Plan | None:
        """The plan as the space has it; None: it has none like it."""


class SearchProblem:
    """What is searched.

    Args:
        space: to which the search is limited: strategies of the graph as it is, or plans.
        repeat: steps in a row, see `Judge`.

    Attributes:
        judge: of whole plans.
        shapes: of plans that are laid out by a rule, by their identity, the rule.
        plans: of rules, the plan; None: there is none.
        order: that of rows which was the fastest so far.
        gains: what such a change of a rule gained of late, as a logarithm.
    """

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        costs: CostModel,
        space: Space | PlanSpace | None = None,
        repeat: int = 1,
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.costs = costs
        self.space = space
        self.repeat = repeat
        self.judge = Judge(graph, machine, costs, repeat)
        self.shapes: dict[int, PlanShape] = {}
        self.plans: dict[PlanShape, Plan | None] = {}
        self.order: Order = None
        self.gains: dict[Turn, float] = {}
        self._shaped: dict[object, Plan] = {}
        self._variants: dict[object, Variant] = {}

    @property
    def first_order(self) -> str | None:
        """That of rows before others are tried: of steps in a row the earlier one goes first, and idle is nobody."""
        return forward_first.__name__ if self.repeat > 1 else None

    @property
    def has_strategies(self) -> bool:
        """Whether strategies by rule, at random and with single operators changed are in the space, or may be."""
        return self.space is None or isinstance(self.space, Space)

    @cached_property
    def can_walk(self) -> bool:
        """Whether changes of a strategy are judged by what differs: there is memory for all its rows."""
        try:
            points = self.repeat * len(self.graph.operators) * len(self.machine.devices)
            check_room(POINT_ROWS * points)
        except MemoryError as error:
            _log.info("search: every change is judged as a whole: %s", error)
            return False
        return self.has_strategies

    @property
    def has_orders(self) -> bool:
        """Whether an order of rows may stay the fastest."""
        return self.space is None and self.has_final_costs

    @property
    def has_final_costs(self) -> bool:
        """Whether rehearsals do not change costs: by others another plan is the fastest."""
        return not isinstance(self.costs, MeasuredCosts)

    def variant(self, plan: Plan) -> Variant:
        """The graph that a plan runs, and what is made of it."""
        if (key := transformed(plan)) not in self._variants:
            self._variants[key] = Variant(self, plan)
        return self._variants[key]

    @property
    def plain(self) -> Variant:
        """The graph as it is."""
        return self.variant(Plan(Strategy({})))

    def fitted(self, plan: Plan) -> Plan:
        """A plan whose graph has changed, with what its strategy says of operators that are there."""
        strategy = self.variant(plan).part(plan.strategy)
        return plan if len(strategy) == len(plan.strategy) else replace(plan, strategy=strategy)

    def changed(self, plan: Plan, changes: Mapping[str, ParallelConfig]) -> Plan | None:
        """The plan with other configurations of some operators, and of sharded state with them; None: it has these."""
        now = plan.strategy.data
        if all(now.get(name) == config for name, config in changes.items()):
            return None
        strategy = plan.strategy.copy()
        strategy.update(self.variant(plan).sharded.follow(plan.strategy, changes))
        return replace(plan, strategy=strategy)

    def shaped(self, plan: Plan, shape: PlanShape | None) -> Plan:
        """A plan that is laid out by a rule, in some order and buckets: of equal ones the first."""
        if shape is not None:
            plan = self._shaped.setdefault((shape, plan.schedule, plan.bucket_bytes), plan)
            self.shapes[id(plan)] = shape
        return plan

    def first_new(self, plan: Plan, others: Iterable[Plan]) -> Plan | None:
        """The first of other plans that nobody judged; they are laid out by the rule of this one, if by any."""
        shape = self.shapes.get(id(plan))
        shaped = (self.shaped(other, shape) for other in others)
        return next(filter(self.is_new, shaped), None)

    def in_parts(self, plan: Plan, parts: int) -> Plan:
        """A plan in so many micro-batches; several of one stage go one after the other."""
        several = plan.schedule if plan.parts > 1 else ONE_STAGE[0]
        return replace(plan, parts=parts, schedule=several if parts > 1 else self.first_order)

    def learn(self, before: Plan, after: Plan, gain: float) -> None:
        """Note what a change of rules gained."""
        old = self.shapes.get(id(before))
        new = self.shapes.get(id(after))
        for field in PlanShape._fields if old and new else ():
            if getattr(old, field) != getattr(new, field):
                turn = field, getattr(new, field) > getattr(old, field)
                self.gains[turn] = (self.gains.get(turn, gain) + gain) / 2

    def outcome(self, plan: Plan, limit: float = math.inf) -> Outcome:
        """What the judge of whole plans says; of one that takes longer than the limit, only that it does.

        The judge of changes knows that long before a plan is lowered. It takes rows in program order, and operators
        that are computed again, or parameters that have homes, add to what it knows; a ring does not.
        """
        is_plain = plan.parts == plan.ring == self.repeat == 1
        is_bounded = self.has_final_costs and self.can_walk and is_plain
        if (
            is_bounded
            and math.isfinite(limit)
            and self.is_new(plan)
            and self.plain.changes.is_slower(self.plain.part(plan.strategy), limit)
        ):
            self.judge.refuse(plan, f"it takes more than {limit:.3g} s")
        return self.judge.judge(plan)

    def is_new(self, plan: Plan | None) -> bool:
        """Whether it is a plan that nobody judged."""
        return plan is not None and not self.judge.is_known(plan)


class Variant:
    """The graph that runs; its parts are made when they are first asked for."""

    def __init__(self, problem: SearchProblem, plan: Plan) -> None:
        self.machine = problem.machine
        self.costs = problem.costs
        self.plan = replace(plan, collectives={})
        self._problem = problem
        self._made: dict[object, object] = {}

    def made(self, make: Callable[[Variant], T]) -> T:
        """What a function makes of it, once."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    @cached_property
    def graph(self) -> Graph:
        """The graph that runs."""
        return self._problem.judge.graph_of(self.plan)

    @cached_property
    def changes(self) -> PackedJudge:
        """The judge of what changes in a strategy, in all steps in a row: it holds all rows."""
        if self._problem.repeat == 1:
            lowering = self._problem.judge.lowering(self.plan)
            return PackedJudge(self.graph, self.machine, self.costs, lowering=lowering)
        graph = repeated(self.graph, self._problem.repeat)
        graph.outputs.clear()  # in program order the next step would wait for them to be there
        return PackedJudge(graph, self.machine, self.costs)

    @cached_property
    def space(self) -> Space:
        """The given one, or all."""
        given = self._problem.space
        return given if isinstance(given, Space) else Space(self.graph, self.machine)

    @cached_property
    def proposals(self) -> Proposals:
        """In the space."""
        return Proposals(self.space)

    @cached_property
    def grids(self) -> Grids:
        """Of experts."""
        return Grids(self.graph)

    @cached_property
    def classes(self) -> Sequence[Sequence[str]]:
        """Leaders that are equal across repeated layers."""
        return fold(self.graph)[0]

    @cached_property
    def family_seconds(self) -> list[float]:
        """Of every family of operators, not split, on the first device."""
        seconds = {family.leader.name: 0.0 for family in families(self.graph)}
        whole = seconds_on(0, self._problem.judge.lowering(self.plan), self.costs)
        for op, of_operator in zip(self.graph.operators, whole.tolist(), strict=True):
            seconds[op.follows or op.name] += of_operator
        return list(seconds.values())

    @cached_property
    def sharded(self) -> ShardedState:
        """Of its strategies."""
        return ShardedState(self.graph)

    def part(self, strategy: Strategy) -> Strategy:
        """What a strategy says of operators of this graph."""
        names = {op.name for op in self.graph.operators}
        kept = {name: config for name, config in strategy.data.items() if name in names}
        return Strategy.of_graph(self.graph, kept)
