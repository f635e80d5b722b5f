"""The plans that a system can say: a space for `search`, and the move in it.

A move changes a word of a recipe, or moves a layer between stages. What a system cannot say is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, pairwise, permutations, product

import numpy as np

from taskflow.bridges.facts import System, divided
from taskflow.bridges.layers import Layers
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.recipe import Recipe, even_layout, with_ends
from taskflow.bridges.recognising import recognise
from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.stages import level_cuts
from taskflow.strategy.strategy import Strategy

Change = Callable[[Recipe, Layers, SearchProblem], Iterator[Recipe]]

DEGREES = ("tensor", "context", "data", "pipeline")
FACTORS = (2, 3, 5, 7)  # by which a degree grows and another one falls
KINDS = ("", "attention", "cheap", "layers")  # of recomputation
WORDS = (
    {"rest": "sequence"},
    {"rest": "replicas"},
    {"sharding": "", "gathers_again": True},
    {"sharding": "state", "gathers_again": True},
    {"sharding": "parameters", "gathers_again": True},
    {"sharding": "parameters", "gathers_again": False},
)


def _words(recipe: Recipe, layers: Layers, problem: SearchProblem) -> Iterator[Recipe]:
    """Others; less computed again may need more micro-batches, which are smaller."""
    for times, kind in product((1, 2, 4, 1 / 2), KINDS):
        parts = max(1, int(recipe.micro_batches * times))
        yield replace(recipe, recomputation=kind, micro_batches=parts)
    for words in WORDS:
        yield replace(recipe, **words)


def _layouts(recipe: Recipe, layers: Layers, problem: SearchProblem) -> Iterator[Recipe]:
    """Several stages for a group or one, even, level, and with both ends counted as layers."""
    for several in (recipe.per_group, 1, 2, 3, 4):
        count = several * recipe.pipeline
        if recipe.pipeline > 1 and count <= layers.count:
            yield replace(recipe, layout=_level_layout(count, layers, problem))
            for ends in ((0, 0), (1, 1), (0, 1)):
                yield replace(recipe, layout=even_layout(count, layers.count, *ends))


def _level_layout(stages: int, layers: Layers, problem: SearchProblem) -> tuple[str, ...]:
    """Layers so that stages take equally long, as if all were whole on the first device."""
    work = _unit_seconds(layers, problem)
    bounds = [0, *level_cuts(work, stages), len(work)]
    return tuple(layers.letters[a:b] for a, b in pairwise(bounds))


def _unit_seconds(layers: Layers, problem: SearchProblem) -> Sequence[float]:
    """Of the embedding, every layer and the loss."""
    left = iter(problem.variant(Plan(Strategy())).family_seconds)
    return [sum(next(left) for _ in unit) for unit in layers.units]


def _degrees(recipe: Recipe, layers: Layers, problem: SearchProblem) -> Iterator[Recipe]:
    """One degree falls by a factor, another one grows; tensor parallelism stays within a host."""
    for (falls, grows), factor in product(permutations(DEGREES, 2), FACTORS):
        value = getattr(recipe, falls)
        other = replace(recipe, **{falls: value // factor, grows: getattr(recipe, grows) * factor})
        if (
            value % factor
            or other.tensor * other.context > len(problem.machine.hosts[0])
            or other.pipeline > layers.count
        ):
            continue
        if other.pipeline != recipe.pipeline:
            layout = _level_layout(other.pipeline, layers, problem) if other.pipeline > 1 else ()
            other = replace(other, layout=layout)
        yield replace(other, micro_batches=max(1, recipe.micro_batches * recipe.data // other.data))


def moved(recipe: Recipe, layers: Layers, problem: SearchProblem) -> Iterator[Recipe]:
    """A layer of one stage in another one, of long ones in short ones first."""
    counts = [letters.count("t") for letters in recipe.layout]
    seconds = _stage_seconds(recipe, layers, problem)
    shortest_first = sorted(range(len(counts)), key=seconds.__getitem__)
    for k in reversed(shortest_first):
        for other in shortest_first:
            if other != k and counts[k] > 1:
                yield replace(recipe, layout=with_ends(_with_one_moved(counts, k, other)))


def _stage_seconds(recipe: Recipe, layers: Layers, problem: SearchProblem) -> list[float]:
    work = iter(_unit_seconds(layers, problem))
    return [sum(islice(work, len(letters))) for letters in recipe.layout]


def _with_one_moved(counts: Sequence[int], source: int, target: int) -> list[int]:
    return [n - (k == source) + (k == target) for k, n in enumerate(counts)]


def orders(recipe: Recipe) -> Iterator[Recipe]:
    """Of a pipeline, more eager ones: no system says how eager."""
    for eager in (":1", ":2") if recipe.pipeline > 1 else ():
        yield replace(recipe, schedule=recipe.policy + eager)


class SaidPlans:
    """The plans that a system can say, one for each recipe.

    Args:
        changes: of a recipe, in the order in which they are tried.

    Attributes:
        moves: of a search in this space.
    """

    def __init__(
        self,
        system: System,
        maker: PlanMaker,
        changes: Sequence[Change] = (_words, _layouts, _degrees, moved),
    ) -> None:
        self._system = system
        self._maker = maker
        self._changes = changes
        self.moves = (self._next_recipe,)
        self._plans: dict[Recipe, Plan | None] = {}
        self._recipes: dict[int, Recipe] = {}  # by the identity of a plan

    def own(self, plan: Plan) -> Plan | None:
        """The nearest plan that the system can say; None: there is none."""
        return self._plan(recognise(plan, self._maker)[0])

    def _next_recipe(
        self, plan: Plan, problem: SearchProblem, generator: np.random.Generator
    ) -> Plan | None:
        """The first plan with a change in its recipe that nobody judged."""
        recipe = self._recipes[id(plan)]
        changes = (change(recipe, self._maker.layers, problem) for change in self._changes)
        others = map(self._plan, chain.from_iterable(changes))
        return next(filter(problem.is_new, others), None)

    def _plan(self, recipe: Recipe) -> Plan | None:
        recipe = self._system.said(recipe, self._maker.facts)
        if recipe not in self._plans:
            self._plans[recipe] = None
            with suppress(ValueError):
                divided("recipe", self._maker.facts.samples, recipe.data, "samples of a step")
                self._plans[recipe] = plan = self._maker.plan(recipe)
                self._recipes[id(plan)] = recipe
        return self._plans[recipe]
