"""Recognition: the recipe of a plan, from its strategy, and what of the plan the recipe does not say.

Takes any plan; gives the `Recipe` whose plan is most like it, and the differences between both plans. How a plan was
made is not asked: the degrees are those with which most operators are split as they are. A difference that is undone
in the plan of the recipe gives that part of the plan back, to the bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product

import numpy as np

from taskflow.bridges.layers import RECOMPUTED
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.recipe import Recipe, even_layout
from taskflow.graph.family import families
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.samples import sample_groups
from taskflow.report.describe import describe_seconds, describe_split
from taskflow.schedule.orders import order_name
from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS, Grids
from taskflow.searching.space import without_ones
from taskflow.strategy.micro_batches import micro_batches
from taskflow.strategy.strategy import ParallelConfig, Strategy, parts

FIELDS = ("parts", "schedule", "recomputed", "homes", "gathers_again", "collectives", "ring")
SHOWN = 3  # operators of a difference


@dataclass(frozen=True)
class Difference:
    """A part of a plan that another plan lacks.

    Attributes:
        what: it is, for people.
        fields: of the plan, as the first plan has them.
        entries: operator -> its configuration in the first plan; None: that does not name it.
        words: fields of a recipe, as the first plan has them.
        seconds: by which it alone makes a step longer; None: it stands with others alone, or there are many.
    """

    what: str
    fields: Mapping[str, object] = field(default_factory=dict)
    entries: Mapping[str, ParallelConfig | None] = field(default_factory=dict)
    words: Mapping[str, object] = field(default_factory=dict)
    seconds: float | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return self.what
        return (
            f"{self.what} ({'-' if self.seconds < 0 else '+'}{describe_seconds(abs(self.seconds))})"
        )

    def undo(self, plan: Plan) -> Plan:
        """The other plan with this part as the first has it."""
        strategy = plan.strategy.copy()
        for name, config in self.entries.items():
            if config is None:
                strategy.pop(name, None)
            else:
                strategy[name] = config
        return replace(plan, strategy=strategy, **self.fields)  # type: ignore[arg-type]


def differences(plan: Plan, other: Plan) -> list[Difference]:
    """What is different in `other`: fields one by one, operators by how they are split in both."""
    fields = [
        Difference(
            f"{name}: {_shown(getattr(plan, name))} instead of {_shown(getattr(other, name))}",
            {name: getattr(plan, name)},
        )
        for name in FIELDS
        if getattr(plan, name) != getattr(other, name)
    ]
    return [*fields, *_unlike_operators(plan, other)]


def _unlike_operators(plan: Plan, other: Plan) -> Iterator[Difference]:
    entries_of: dict[str, dict[str, ParallelConfig | None]] = {}
    for name in dict.fromkeys([*plan.strategy, *other.strategy]):
        here = plan.strategy.get(name)
        there = other.strategy.get(name)
        if (here and without_ones(here)) != (there and without_ones(there)):
            splits = f"{_split(here)} instead of {_split(there)}"
            entries_of.setdefault(splits, {})[name] = here
    for splits, entries in entries_of.items():
        named = ", ".join(list(entries)[:SHOWN]) + " ..." * (len(entries) > SHOWN)
        yield Difference(f"{len(entries)} operators ({named}): {splits}", entries=entries)


def _split(config: ParallelConfig | None) -> str:
    return "as the operator it follows" if config is None else describe_split(config)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names"
    if isinstance(value, int | Mapping):
        return str(value)
    return "as lowered" if value is None else order_name(value)  # type: ignore[arg-type]


def recognise(plan: Plan, maker: PlanMaker) -> tuple[Recipe, Plan]:
    """The recipe that is most like the plan, and the plan with all its micro-batches in `parts`."""
    graph, grids = maker.transformed(plan)
    plan = _with_parts(graph, plan)
    schedule = order_name(plan.schedule) if plan.schedule is not None else ""
    layout, groups = _stages(
        [_devices_of(unit, plan.strategy) for unit in maker.layers.units],
        maker.layers.letters,
        schedule,
    )
    recipe = Recipe(
        pipeline=len(groups),
        layout=layout,
        micro_batches=plan.parts,
        schedule=schedule if isinstance(plan.schedule, str) else "",
        sharding=_sharding(graph, plan),
        gathers_again=plan.gathers_again if plan.homes else True,
    )
    recipe = replace(recipe, recomputation=_recomputation(plan, maker, recipe))
    recipe = _with_grid(
        recipe,
        len(groups[0]),
        grids,
        _in_groups(plan.strategy, maker.layers.units, groups),
    )
    return recipe, plan


def _in_groups(
    strategy: Strategy, units: Sequence[Sequence[str]], groups: Sequence[tuple[int, ...]]
) -> dict[str, ParallelConfig]:
    """How operators of both ends and of the first layer are split in their groups."""
    names = [name for unit in (units[0], *units[1:-1][:1], units[-1]) for name in unit]
    return {name: without_ones(_in_group(strategy[name], groups)) for name in names}


def _with_grid(
    recipe: Recipe, size: int, grids: Grids, wanted: Mapping[str, ParallelConfig]
) -> Recipe:
    """The recipe with the grid of so many devices that gives the most operators what they have."""
    best = -1
    for other in _candidates(recipe, size, wanted):
        alike = _alike(other, size, grids, wanted)
        if alike > best:
            best = alike
            recipe = other
    return recipe


def _alike(recipe: Recipe, size: int, grids: Grids, wanted: Mapping[str, ParallelConfig]) -> int:
    """How many operators have what is wanted in the grid of a recipe; -1: there is no such grid."""
    made = grids.strategy(range(size), recipe.tensor, recipe.rest, recipe.context, recipe.expert)
    if not made:
        return -1
    return sum(n in made and without_ones(made[n]) == config for n, config in wanted.items())


def _candidates(
    recipe: Recipe, size: int, wanted: Mapping[str, ParallelConfig]
) -> Iterator[Recipe]:
    """With degrees that occur: of tensor, context and expert parallelism, and what is left over, plain ones first."""
    able = sorted(n for n in _degrees_in(wanted) if size % n == 0)
    for expert, context, tensor in product(able, repeat=3):
        if size % (tensor * context) == 0 and (size // tensor) % expert == 0:
            for rest in RESTS if tensor > 1 else RESTS[:1]:
                yield replace(
                    recipe,
                    tensor=tensor,
                    context=context,
                    expert=expert,
                    data=size // (tensor * context),
                    rest=rest,
                )


def _degrees_in(configs: Mapping[str, ParallelConfig]) -> set[int]:
    return {parts(n) for config in configs.values() for _, n in config.degrees} | {1}


def _with_parts(graph: Graph, plan: Plan) -> Plan:
    """The plan with a strategy of one micro-batch, where all its micro-batches are equal tiles of one."""
    count = max(
        (len(config.devices) // len(set(config.devices)) for config in plan.strategy.values()),
        default=1,
    )
    if count < 2:
        return plan
    sample = sample_groups(graph)
    one = plan.strategy.copy()
    for family in families(graph, plan.strategy):
        name = family.leader.name
        if name in plan.strategy:
            config = plan.strategy[name]
            one[name] = _one_part(family.leader, config, sample.get(name, ()), count)
    try:
        is_same = micro_batches(graph, one, count) == plan.strategy
    except ValueError:
        is_same = False
    return replace(plan, strategy=one, parts=plan.parts * count) if is_same else plan


def _one_part(
    op: Operator, config: ParallelConfig, axes: Sequence[str], count: int
) -> ParallelConfig:
    """A configuration without its micro-batches, or as it is."""
    degrees = dict(config.degrees)
    able = (
        axis for axis in axes if axis in op.split_axes and parts(degrees.get(axis, 1)) % count == 0
    )
    axis = next(able, None)
    if axis is None or len(config.devices) % count:
        return config
    points = np.array(config.devices).reshape([*map(parts, degrees.values())])
    kept = np.split(points, count, axis=list(degrees).index(axis))[0]
    degrees[axis] = parts(degrees[axis]) // count
    if degrees[axis] == 1:
        del degrees[axis]
    return ParallelConfig(degrees, kept.reshape(-1).tolist())


def _devices_of(unit: Sequence[str], strategy: Strategy) -> tuple[int, ...]:
    """The devices of most of its operators, without those that make numbers alone; none: it has no operators."""
    counted = Counter(tuple(sorted(set(strategy[name].devices))) for name in unit)
    return max(counted, key=lambda devices: (counted[devices], len(devices)), default=())


def _stages(
    units: Sequence[tuple[int, ...]], letters: str, schedule: str
) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The letters of every stage, and the groups of devices in their order."""
    filled = list(units)
    for k, devices in enumerate(units):
        if not devices:
            filled[k] = filled[k - 1] if k else next(d for d in units if d)
    runs = [(d, len(list(run))) for d, run in groupby(filled)]
    groups = list(dict.fromkeys(d for d, _ in runs))
    ends = np.cumsum([n for _, n in runs]).tolist()
    layout = tuple(letters[end - n : end] for end, (_, n) in zip(ends, runs, strict=True))
    way = Recipe(pipeline=len(groups), layout=layout, schedule=schedule).groups()
    is_regular = [groups.index(d) for d, _ in runs] == way
    is_apart = len({d for group in groups for d in group}) == sum(map(len, groups))
    is_even = len({len(group) for group in groups}) == 1
    if is_regular and is_apart and is_even:
        return layout if len(layout) > 1 else (), groups
    every = tuple(sorted({d for group in groups for d in group}))
    if is_apart and is_even and len(groups) <= len(letters) - 2:
        return even_layout(len(groups), len(letters) - 2), groups
    return (), [every]


def _in_group(config: ParallelConfig, groups: Sequence[tuple[int, ...]]) -> ParallelConfig:
    """A configuration as if its group were devices 0, 1, ...; as it is where it is on others."""
    devices = set(config.devices)
    group = next((g for g in groups if devices <= set(g)), None)
    if group is None:
        return config
    place = {device: k for k, device in enumerate(group)}
    return ParallelConfig(dict(config.degrees), [place[d] for d in config.devices])


def _sharding(graph: Graph, plan: Plan) -> str:
    if plan.homes:
        return "parameters"
    followers = {op.name for op in graph.operators if op.follows is not None and op.beside}
    return "state" if followers & plan.strategy.keys() else ""


def _recomputation(plan: Plan, maker: PlanMaker, recipe: Recipe) -> str:
    """The kind of recomputation that has most names in common, and fewest others; the recipe says all but that."""

    def unlike(kind: str) -> int:
        return len(
            set(plan.recomputed) ^ set(maker.recomputed(replace(recipe, recomputation=kind)))
        )

    return min(RECOMPUTED, key=unlike)
