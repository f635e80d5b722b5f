"""Explain: why a strategy is as fast as it is, operator by operator, and against data parallelism.

Takes what a search takes and a strategy; gives an `Explanation`: records for programs, `str()` for people. Everything
is read off the simulated timelines of this strategy, of data parallelism, and of strategies that differ in one
operator (its alternatives: what else could be done, and what it would cost); nothing is estimated beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from taskflow.core.errors import CostError
from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.offload import offloaded
from taskflow.graph.recompute import recomputed
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.report.advice import advise
from taskflow.report.breakdown import Breakdown, break_down
from taskflow.report.describe import describe_config, label_repeats, soap_letters
from taskflow.report.explanation import Alternative, Explanation, OperatorExplanation, by_label
from taskflow.report.plan import PlanExplanation, explain_plan
from taskflow.schedule import Policy, Schedule, program
from taskflow.schedule.orders import Order, order_name, reorder
from taskflow.schedule.plan import Plan
from taskflow.searching.packed_judge import PackedJudge
from taskflow.simulation.simulate import simulate
from taskflow.strategy.rules import axis_kinds, data_parallel
from taskflow.strategy.strategy import ParallelConfig, Strategy, effective_config
from taskflow.tasks.timeline import Timeline


def explain(
    graph: Graph,
    strategy: Strategy | Plan,
    machine: MachineModel,
    costs: CostModel,
    alternatives: int = 16,
    progress: Callable[[int, int], None] | None = None,
    order: Order | Policy | Schedule | str | None = None,
) -> Explanation:
    """Explain a strategy or a plan.

    Args:
        graph, machine, costs: as for `search`.
        strategy: of that graph, or a plan.
        alternatives: for how many operators other configurations are tried: those that take most of a step, one of
            those that do the same. 0: no advice is given, either.
        progress: called with (operators done, operators in all).
        order: what `reorder` takes. No alternatives are tried then, nor where there are micro-batches: they are of one
            operator, which has to keep to its stage and its micro-batches.

    Raises:
        ValueError: the strategy does not fit the graph or the machine, or the order the rows; or a plan has an order
            itself.
    """
    alternatives = whole("explain", "alternatives", alternatives, 0)
    plan = strategy if isinstance(strategy, Plan) else Plan(strategy)
    if order is not None:
        plan = plan.with_fields("explain: order=", schedule=order)
    if plan.parts > 1 and plan.schedule is None:
        plan = replace(plan, schedule=program)
    explainer = _Explainer(plan, graph, machine, costs)
    entries = {
        op.name: explainer.entry(op)
        for op in explainer.graph.operators
        if op.name in explainer.strategy
    }
    is_free = len(machine.devices) > 1 and plan.schedule is None
    chosen = [same[0] for same in by_label(entries.values())[:alternatives]] if is_free else []
    for done, entry in enumerate(chosen, 1):
        entries[entry.name] = replace(entry, alternative=explainer.alternative(entry))
        if progress is not None:
            progress(done, len(chosen))
    return Explanation(
        machine,
        tuple(entries.values()),
        explainer.step,
        explainer.baseline,
        explainer.plan,
        advise(plan, graph, machine, costs, entries.values()) if alternatives else "",
    )


class _Explainer:
    """What the entries of one plan share."""

    def __init__(self, plan: Plan, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        graph = plan.transform(graph)
        machine = machine.with_collectives(plan.collectives)
        strategy = plan.placement(graph, machine)
        self.graph = graph
        self.strategy = strategy
        self.machine = machine
        self.costs = costs
        self.lowering = Lowering(graph, machine, bucket_bytes=plan.bucket_bytes or 0)
        self.data_parallel = data_parallel(graph, machine)
        self.kinds = axis_kinds(graph)
        self.operators = {op.name: op for op in graph.operators}
        self.labels = label_repeats(
            (op, strategy[op.name]) for op in graph.operators if op.name in strategy
        )
        rows = self.lowering.lower(strategy)
        if plan.order is not None:
            rows = reorder(rows, costs, plan.order)
        timeline = simulate(rows, costs)
        self.step = self._break_down(timeline)
        self.baseline = self._simulate(self.data_parallel)
        self.plan = self._in_time(timeline, plan.order)

    def _in_time(
        self, timeline: Timeline, order: Order | Policy | Schedule | str | None
    ) -> PlanExplanation | None:
        """What the plan does besides its strategy; None: nothing."""
        again = recomputed(self.graph)
        away = offloaded(self.graph)
        if order is None and not again and not away:
            return None
        return explain_plan(timeline, order_name(order or program), again, away)

    @cached_property
    def judge(self) -> PackedJudge:
        """What ranks changes of this strategy."""
        judge = PackedJudge(self.graph, self.machine, self.costs, is_roomy=True)
        judge.start(self.strategy)
        return judge

    def entry(self, op: Operator) -> OperatorExplanation:
        """The explanation of one entry, without alternatives."""
        config = self.strategy[op.name]
        kinds = self.kinds[op.name]
        return OperatorExplanation(
            name=op.name,
            config=config,
            label=self.labels[op.name],
            soap=soap_letters(config, kinds, len(self.machine.devices)),
            split=describe_config(op, config, kinds),
            is_data_parallel=self.data_parallel.get(op.name) == config,
            share=self.step.shares[op.name],
            baseline=self.baseline.shares[op.name],
            movements=tuple(m for m in self.step.movements if m.group == op.name),
        )

    def alternative(self, entry: OperatorExplanation) -> Alternative | None:
        """See `OperatorExplanation.alternative`."""
        op = self.operators[entry.name]
        if entry.is_data_parallel:
            others = [c for c in candidates(op, len(self.machine.devices)) if c != entry.config]
            return self._best_of(op.name, others)
        if op.name in self.data_parallel:
            return self._best_of(op.name, [self.data_parallel[op.name]])
        return self._without_entry(op)

    def _best_of(self, name: str, configs: Sequence[ParallelConfig]) -> Alternative | None:
        """The fastest of `configs` that fits, for the entry `name` instead of its own; None: there are none to try."""
        seconds = [self.judge.propose_all({name: config}) for config in configs]
        refusal = self.judge.refusal
        for k in sorted(range(len(configs)), key=lambda k: seconds[k]):
            if math.isinf(seconds[k]):
                break
            changed = self.strategy.copy()
            changed[name] = configs[k]
            timeline = simulate(self.lowering.lower(changed), self.costs)
            if not timeline.shortage:
                return self._compare(configs[k], len(configs), timeline)
            refusal = timeline.shortage
        return Alternative(None, len(configs), refusal=refusal) if configs else None

    def _without_entry(self, op: Operator) -> Alternative:
        """What it would mean for an operator with an entry of its own to follow its forward operator instead."""
        changed = self.strategy.copy()
        del changed[op.name]
        try:
            timeline = simulate(self.lowering.lower(changed), self.costs)
        except CostError:
            raise
        except ValueError as error:
            return Alternative(None, 1, refusal=str(error))
        if timeline.shortage:
            return Alternative(None, 1, refusal=timeline.shortage)
        return self._compare(effective_config(op, changed)[0], 1, timeline)

    def _compare(self, config: ParallelConfig, tried: int, timeline: Timeline) -> Alternative:
        step = self.step
        changed = self._break_down(timeline)
        compute = changed.path_seconds("compute") - step.path_seconds("compute")
        return Alternative(
            config, tried, changed.seconds, compute, changed.exposed_seconds - step.exposed_seconds
        )

    def _group(self, op: Operator) -> str:
        return op.name if op.name in self.strategy else op.follows or op.name

    def _simulate(self, strategy: Strategy) -> Breakdown:
        return self._break_down(simulate(self.lowering.lower(strategy), self.costs))

    def _break_down(self, timeline: Timeline) -> Breakdown:
        return break_down(timeline, self.graph, self._group)


def candidates(op: Operator, devices: int) -> list[ParallelConfig]:
    """Every axis of `op` over all devices, over half of them, and `op` whole on device 0."""
    degrees = [degree for degree in dict.fromkeys((devices, devices // 2)) if degree > 1]
    splits = [(axis, min(degree, op.extents[axis])) for axis in op.split_axes for degree in degrees]
    configs = [ParallelConfig({axis: degree}) for axis, degree in splits if degree > 1]
    return list(dict.fromkeys([*configs, ParallelConfig({}, (0,))]))
