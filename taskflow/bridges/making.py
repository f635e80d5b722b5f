"""Plans of recipes: the strategy, micro-batches, schedule and sharding that the words of a recipe stand for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from taskflow.bridges.facts import JobFacts, divided
from taskflow.bridges.layers import Layers
from taskflow.bridges.recipe import Recipe, check_layout
from taskflow.graph.graph import Graph
from taskflow.graph.homes import is_home
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.searching.grid_plan import on_groups
from taskflow.searching.grids import Grids
from taskflow.strategy.sharded import shard_state
from taskflow.strategy.strategy import Strategy


class PlanMaker:
    """Makes plans of recipes for one graph and machine; what they share is made once."""

    def __init__(self, graph: Graph, machine: MachineModel) -> None:
        self.machine = machine
        self.layers = Layers.of(graph)
        self._known: dict[tuple[object, ...], tuple[Graph, Grids]] = {}

    @cached_property
    def facts(self) -> JobFacts:
        """What words of other systems mean for this graph and machine."""
        shape = next((region.shape for region in self.layers.graph.inputs if region.shape), (1,))
        length = shape[1] if len(shape) > 1 else 1
        return JobFacts(self.layers.count, shape[0], length, len(self.machine.devices))

    def plan(self, recipe: Recipe) -> Plan:
        """The plan of a recipe.

        Raises:
            ValueError: the machine has too few devices, the layout is that of another model, or the model cannot be
                split so.
        """
        if recipe.devices > len(self.machine.devices):
            have = len(self.machine.devices)
            raise ValueError(f"recipe: it is for {recipe.devices} devices, the machine has {have}")
        check_layout("recipe", recipe.layout, self.layers.count)
        plan = Plan(
            Strategy(),
            recipe.micro_batches,
            recipe.schedule or None,
            self.recomputed(recipe),
            self._homes(recipe),
            recipe.gathers_again if recipe.sharding == "parameters" else True,
        )
        graph, grids = self.transformed(plan)
        strategy = self._strategy(recipe, graph, grids)
        return replace(plan, strategy=shard_state(graph, strategy) if recipe.sharding else strategy)

    def transformed(self, plan: Plan) -> tuple[Graph, Grids]:
        """The graph that runs under a plan, and its grids."""
        key = plan.recomputed, plan.homes, plan.offloaded, plan.gathers_again, plan.gathers
        if key not in self._known:
            graph = plan.transform(self.layers.graph)
            self._known[key] = graph, Grids(graph)
        return self._known[key]

    def _homes(self, recipe: Recipe) -> tuple[str, ...]:
        if recipe.sharding != "parameters":
            return ()
        return tuple(region.name for region in self.layers.graph.parameters)

    def recomputed(self, recipe: Recipe) -> tuple[str, ...]:
        """Operators that are computed again; not the homes of parameters that stay gathered."""
        names = self.layers.recomputed(recipe.recomputation)
        if recipe.sharding != "parameters" or recipe.gathers_again:
            return names
        kept = {op.name for op in self.layers.graph.operators if is_home(op)}
        return tuple(name for name in names if name not in kept)

    def _strategy(self, recipe: Recipe, graph: Graph, grids: Grids) -> Strategy:
        divided(
            "recipe: expert parallelism", recipe.context * recipe.data, recipe.expert, "devices"
        )
        within = grids.strategy(
            range(recipe.group), recipe.tensor, recipe.rest, recipe.context, recipe.expert
        )
        if within is None:
            raise ValueError(
                f"recipe: the model has no grid of tensor {recipe.tensor}, context {recipe.context}, "
                f"expert {recipe.expert}, data {recipe.data}"
            )
        cuts = self.layers.cuts(recipe.layout)
        groups = recipe.groups()
        used = [groups[k] for k, _ in cuts]
        return on_groups(
            graph,
            self.machine,
            within,
            recipe.group,
            used,
            [name for _, name in cuts[1:]],
        )
