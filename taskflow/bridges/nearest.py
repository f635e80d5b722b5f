"""The best plan that a system can say: a climb over recipes, judged by the simulator.

From a recipe one word is changed after the other, and kept where a step is shorter; of what does not fit into memory
that which needs least is kept. What a system cannot say is not tried. Layers are moved between stages, too.

Counts steer, not clocks: a budget in seconds is of those that this process computes, so what else a machine does takes
nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product
from math import inf
from time import process_time

import numpy as np

from taskflow.bridges.facts import ACCUMULATING, JobFacts, divided, in_whole_samples
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.megatron import regular, schedule_of
from taskflow.bridges.recipe import Recipe, even_layout, with_ends
from taskflow.cost.model import CostModel
from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.judge import Judge
from taskflow.searching.outcome import Outcome
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.stages import level_cuts
from taskflow.strategy.strategy import Strategy

DEGREES = ("tensor", "context", "data", "pipeline")
FACTORS = (2, 3, 5, 7)  # by which a degree grows and another one falls
SHARDINGS = ("", "state", "parameters")
TOLD_BY_STAGES = "", ACCUMULATING, "one_f_one_b", "interleaved"  # orders
KINDS = ("", "attention", "cheap", "layers")  # of recomputation


@dataclass(frozen=True)
class SaidPlan:
    """A recipe and what comes of it."""

    recipe: Recipe
    outcome: Outcome

    @property
    def rank(self) -> tuple[bool, float]:
        """Less is better: seconds, where it fits into memory; else bytes."""
        is_large = not self.outcome.fits
        return is_large, self.outcome.peak_bytes if is_large else self.outcome.seconds


def in_own_words(recipe: Recipe, facts: JobFacts) -> Recipe:
    """Any order of rows, and 1F1B or interleaved as groups have one stage or several."""
    found, eager = in_whole_samples(recipe, facts), recipe.schedule[len(recipe.policy) :]
    if recipe.policy not in TOLD_BY_STAGES:
        return found
    found = regular(found, facts)
    return replace(found, schedule=schedule_of(found) + eager * (found.pipeline > 1))


class RecipeSearch:
    """Recipes that a system can say, judged once each.

    Args:
        said: the nearest recipe that can be said, as of a `System`.
        start: from which it climbs.
        proposals, seconds: the budget, in judged recipes or in seconds of this process.

    Attributes:
        best: so far.
        history: all that were the best when they were judged, the first one included.
    """

    def __init__(
        self,
        said: Callable[[Recipe, JobFacts], Recipe],
        maker: PlanMaker,
        costs: CostModel,
        start: Recipe,
        proposals: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._said, self._maker, self._costs = said, maker, costs
        self._budget = Budget(proposals, seconds, now=process_time)
        self._judge = Judge(maker.layers.graph, maker.machine, costs)
        self._known: dict[Recipe, SaidPlan | None] = {}
        first = self.judge(start)
        if first is None:
            raise ValueError("recipe: the model cannot be split so on the machine")
        self.best, self.history = first, [first]

    def judge(self, recipe: Recipe) -> SaidPlan | None:
        """What comes of the nearest recipe that the system can say; None: there is no such plan."""
        recipe = self._said(recipe, self._maker.facts)
        if recipe not in self._known:
            self._budget.spent += 1
            self._known[recipe] = self._said_plan(recipe)
        return self._known[recipe]

    def _said_plan(self, recipe: Recipe) -> SaidPlan | None:
        try:
            divided("recipe", self._maker.facts.samples, recipe.data, "samples of a step")
            plan = self._maker.plan(recipe)
        except ValueError:
            return None
        outcome = self._judge.judge(plan)
        return SaidPlan(recipe, outcome) if outcome.with_room < inf else None

    def climb(self) -> SaidPlan:
        """Change one word after the other until nothing helps, or the budget is spent."""
        before: SaidPlan | None = None
        while before is not self.best and not self._is_over:
            before = self.best
            for change in CHANGES:
                self.try_all(change)
        return self.best

    def beyond(self) -> SaidPlan:
        """The best so far in the order that is the fastest, whether or not it can be said."""
        said, self._said = self._said, in_own_words
        faster = (self.judge(each) for each in orders(self.best.recipe, self))
        found = min([self.best, *filter(None, faster)], key=lambda each: each.rank)
        self._said = said
        return found

    @property
    def _is_over(self) -> bool:
        return self._budget.used >= 1

    def try_all(self, change: Change) -> None:
        """The changes of one kind, again from where one helped."""
        helped = True
        while helped and not self._is_over:
            helped = False
            for recipe in change(self.best.recipe, self):
                if self._is_over or helped:
                    break
                found = self.judge(recipe)
                if found and found.rank < self.best.rank:
                    self.best, helped = found, True
                    self.history.append(found)

    def level_layout(self, stages: int) -> tuple[str, ...]:
        """Layers so that stages take equally long, as if all were whole on the first device."""
        letters, work = self._maker.layers.letters, self.unit_seconds
        bounds = [0, *level_cuts(work, stages), len(work)]
        return tuple(letters[a:b] for a, b in pairwise(bounds))

    @cached_property
    def unit_seconds(self) -> Sequence[float]:
        """Of the embedding, every layer and the loss."""
        layers = self._maker.layers
        problem = SearchProblem(layers.graph, self._maker.machine, self._costs)
        left = iter(problem.variant(Plan(Strategy())).family_seconds)
        return [sum(next(left) for _ in unit) for unit in layers.units]

    @property
    def layers(self) -> int:
        """Of the model."""
        return self._maker.layers.count

    @property
    def host(self) -> int:
        """Devices of a host."""
        return len(self._maker.machine.hosts[0])


Change = Callable[[Recipe, RecipeSearch], Iterator[Recipe]]


def _rests(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    yield from (replace(recipe, rest=rest) for rest in ("sequence", "replicas"))


def _shardings(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    for sharding in SHARDINGS:
        for again in (True, False) if sharding == "parameters" else (True,):
            yield replace(recipe, sharding=sharding, gathers_again=again)


def _recomputations(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    """Less of it may need more micro-batches, which are smaller."""
    for times, kind in product((1, 2, 4), KINDS):
        parts = recipe.micro_batches * times
        yield replace(recipe, recomputation=kind, micro_batches=parts)


def _micro_batches(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    yield replace(recipe, micro_batches=recipe.micro_batches * 2)
    if recipe.micro_batches % 2 == 0:
        yield replace(recipe, micro_batches=recipe.micro_batches // 2)


def layouts(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    """Several stages for a group or one, even, level, and with both ends counted as layers."""
    if recipe.pipeline == 1:
        return
    for several in dict.fromkeys((recipe.per_group, 1, 2, 3, 4)):
        count = several * recipe.pipeline
        if count <= search.layers:
            for layout in dict.fromkeys(
                (
                    search.level_layout(count),
                    even_layout(count, search.layers),
                    even_layout(count, search.layers, 1, 1),
                    even_layout(count, search.layers, 0, 1),
                )
            ):
                yield replace(recipe, layout=layout)


def moved(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    """A layer of one stage in another one, of long ones in short ones first."""
    counts = [letters.count("t") for letters in recipe.layout]
    work, ends = search.unit_seconds, np.cumsum([len(letters) for letters in recipe.layout])
    seconds = [sum(work[end - len(s) : end]) for end, s in zip(ends, recipe.layout, strict=True)]
    shortest_first = sorted(range(len(counts)), key=lambda k: seconds[k])
    for k in reversed(shortest_first):
        for other in shortest_first:
            if other != k and counts[k] > 1:
                other_counts = [n - (j == k) + (j == other) for j, n in enumerate(counts)]
                yield replace(recipe, layout=with_ends(other_counts))


def _degrees(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    """One degree falls by a factor, another one grows; tensor parallelism stays within a host."""
    for (falls, grows), factor in product(permutations(DEGREES, 2), FACTORS):
        value, layout = getattr(recipe, falls), recipe.layout
        changed = {falls: value // factor, grows: getattr(recipe, grows) * factor}
        other = replace(recipe, **changed)
        if value % factor or other.tensor * other.context > search.host:
            continue
        if other.pipeline > search.layers:
            continue
        if other.pipeline != recipe.pipeline:
            layout = search.level_layout(other.pipeline) if other.pipeline > 1 else ()
        parts = max(1, recipe.micro_batches * recipe.data // other.data)
        yield replace(other, micro_batches=parts, layout=layout)


def orders(recipe: Recipe, search: RecipeSearch) -> Iterator[Recipe]:
    """Of a pipeline, more or less eager."""
    for eager in ("", ":1", ":2") if recipe.pipeline > 1 else ():
        yield replace(recipe, schedule=recipe.policy + eager)


CHANGES: tuple[Change, ...] = (
    _recomputations,
    _rests,
    _shardings,
    layouts,
    _micro_batches,
    _degrees,
    orders,
    moved,
)
