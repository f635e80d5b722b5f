"""What to do next about a plan: of single changes to it, and of single rates of its machine, what shortens a step most.

Changes are those that a search makes (`taskflow.searching.moves`), but for whole plans that are laid out anew, and the
alternatives of operators that an explanation has tried; rates are twice as good each. All of them are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.machine.scaling import OF_LINKS, SCALES, scalable, scale_machine
from taskflow.report.explanation import OperatorExplanation
from taskflow.schedule.orders import order_name
from taskflow.schedule.plan import Plan
from taskflow.searching.moves import CHANGES, MOVES
from taskflow.searching.moves.shape import next_shape
from taskflow.searching.problem import SearchProblem

_DRAWS = 2  # of every move
_LESS_IS_BETTER = {"latency", "overhead"}
_NOTICED = 0.995  # what shortens a step by less is not worth a word


def advise(
    plan: Plan,
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    operators: Iterable[OperatorExplanation],
) -> str:
    """One sentence: the change of the plan and the rate of the machine that shorten a step most.

    Args:
        operators: whose alternatives were tried.
    """
    problem = SearchProblem(graph, machine, costs)
    now = problem.judge.judge(plan)
    if now.shortage:
        fits = [what for seconds, what in _changes(plan, problem) if math.isfinite(seconds)]
        return f"Next: {fits[0]} makes it fit." if fits else "Next: a search for what fits."
    tried = [*_changes(plan, problem), *_alternatives(operators)]
    seconds, change = min(tried, default=(math.inf, ""))
    if seconds < _NOTICED * now.seconds:
        said = f"Next: {change} makes a step {seconds / now.seconds:.3g}x as long"
    else:
        said = f"Next: none of {len(tried)} single changes to the plan shortens a step"
    seconds, rate = min(_rates(plan, graph, machine, costs), default=(math.inf, ""))
    if seconds < _NOTICED * now.seconds:
        said += f"; {rate} would make it {seconds / now.seconds:.3g}x"
    return f"{said}."


def _changes(plan: Plan, problem: SearchProblem) -> Iterator[tuple[float, str]]:
    """Seconds of a step with each of some changes, and what it is."""
    generator = np.random.default_rng(0)
    for move in (move for move in MOVES if move not in {*CHANGES, next_shape}):
        for _ in range(_DRAWS):
            other = move(plan, problem, generator)
            if other is not None and problem.is_new(other):
                yield problem.judge.judge(other).seconds, _difference(plan, other)


def _difference(plan: Plan, other: Plan) -> str:
    """What another plan does otherwise."""
    again, no_longer = (
        [name for name in one.recomputed if name not in two.recomputed]
        for one, two in ((other, plan), (plan, other))
    )
    if again:
        return f"computing {_counted(again)} again"
    if no_longer:
        return f"keeping {_counted(no_longer)} instead of computing it again"
    if other.offloaded != plan.offloaded:
        count = len(set(other.offloaded) ^ set(plan.offloaded))
        return f"keeping {count} regions in another memory"
    if other.parts != plan.parts:
        return f"{other.parts} micro-batches" if other.parts > 1 else "no micro-batches"
    if other.strategy != plan.strategy:
        return "moving a border between stages"
    return f"the order {order_name(other.schedule or 'program')}"


def _counted(names: list[str]) -> str:
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _alternatives(operators: Iterable[OperatorExplanation]) -> Iterator[tuple[float, str]]:
    for entry in operators:
        if entry.alternative is not None and entry.alternative.config is not None:
            yield entry.alternative.seconds, f"'{entry.name}' as {entry.alternative.config}"


def _rates(
    plan: Plan, graph: Graph, machine: MachineModel, costs: CostModel
) -> Iterator[tuple[float, str]]:
    """Seconds of a step with each rate twice as good, and which; where costs are measured, those of links alone."""
    for name in scalable(machine):
        if name in OF_LINKS or (name != "memory" and not isinstance(costs, MeasuredCosts)):
            less = name in _LESS_IS_BETTER
            scaled = scale_machine(machine, {name: 1 / 2 if less else 2})
            seconds = plan.predict(graph, scaled, costs.on(scaled)).seconds
            yield seconds, f"{'half' if less else 'twice'} the {SCALES[name]}"
