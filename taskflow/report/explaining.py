"""Explain: why a strategy is as fast as it is, operator by operator, and against data parallelism.

Takes what a search takes and a strategy; gives an `Explanation`: records for programs, `str()` for people. Everything
is read off the simulated timelines of this strategy, of data parallelism, and of strategies that differ in one
operator; nothing is estimated beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.report.alternatives import Alternative, best_alternative, candidates, without_entry
from taskflow.report.breakdown import Breakdown, break_down
from taskflow.report.describe import describe_config, soap_letters
from taskflow.report.explanation import Explanation, OperatorExplanation, by_label
from taskflow.report.repeats import label_repeats
from taskflow.searching.judge import Judge
from taskflow.simulation.simulate import schedule, simulate
from taskflow.strategy.rules import axis_kinds, data_parallel
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.timeline import Timeline


def explain(
    graph: Graph,
    strategy: Strategy,
    machine: MachineModel,
    costs: CostModel,
    alternatives: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> Explanation:
    """Explain a strategy.

    Args:
        graph, machine, costs: as for `search`.
        strategy: of that graph.
        alternatives: for how many operators other configurations are tried: those that take most of a step, one of
            those that do the same.
        progress: called with (operators done, operators in all).

    Raises:
        ValueError: the strategy does not fit the graph or the machine.
    """
    explainer = _Explainer(graph, strategy, machine, costs)
    found = {op.name: explainer.entry(op) for op in graph.operators if op.name in strategy}
    chosen = [same[0] for same in by_label(found.values())[:alternatives]] if len(machine.devices) > 1 else []
    for done, entry in enumerate(chosen, 1):
        found[entry.name] = replace(entry, alternative=explainer.alternative(entry))
        if progress is not None:
            progress(done, len(chosen))
    return Explanation(machine, tuple(found.values()), explainer.step, explainer.baseline)


class _Explainer:
    """What the entries of one strategy share."""

    def __init__(self, graph: Graph, strategy: Strategy, machine: MachineModel, costs: CostModel) -> None:
        self.graph, self.strategy, self.machine, self.costs = graph, strategy, machine, costs
        self.lowering, self.judge = Lowering(graph, machine), Judge(graph, machine, costs)
        self.judge.start(strategy)
        self.data_parallel, self.kinds = data_parallel(graph, machine), axis_kinds(graph)
        self.operators = {op.name: op for op in graph.operators}
        self.labels = label_repeats((op, strategy[op.name]) for op in graph.operators if op.name in strategy)
        self.step, self.baseline = self._simulate(strategy), self._simulate(self.data_parallel)

    def entry(self, op: Operator) -> OperatorExplanation:
        """The explanation of one entry, without alternatives."""
        config, kinds = self.strategy[op.name], self.kinds[op.name]
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
            return best_alternative(self.judge, op.name, others, self.step, self._divide)
        if op.name in self.data_parallel:
            return best_alternative(self.judge, op.name, [self.data_parallel[op.name]], self.step, self._divide)
        return without_entry(self.judge, op, self.step, self._divide)

    def _group(self, op: Operator) -> str:
        return op.name if op.name in self.strategy else op.follows or op.name

    def _simulate(self, strategy: Strategy) -> Breakdown:
        return break_down(simulate(self.lowering.lower(strategy), self.costs), self.graph, self._group)

    def _divide(self, strategy: Strategy) -> Breakdown:
        """Without a memory plan, which takes longer than all the rest."""
        task_graph = self.lowering.lower(strategy)
        timeline = Timeline(task_graph, *schedule(task_graph, self.costs.seconds(task_graph)), np.zeros(0, np.int64))
        return break_down(timeline, self.graph, self._group)
