"""Random plans of grids and pipelines, some with a part that no system has words for."""

from dataclasses import replace

import numpy as np

from taskflow import ParallelConfig, Plan
from taskflow.bridges.exporting import ExportedPlan
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.recipe import Recipe, even_layout, with_ends
from taskflow.searching.grids import RESTS

ODD = 0.12  # of the plans: with an operator, an order or an algorithm of their own
SHARDED = 0.3, 0.64, 0.06  # nothing, parameters, state alone: torchtitan does not know the last one


def divisor(generator: np.random.Generator, number: int) -> int:
    """A random one, powers of two alone."""
    return 2 ** int(generator.integers(number.bit_length()))


def random_recipe(generator: np.random.Generator, maker: PlanMaker) -> Recipe:
    """Degrees, layout, schedule, sharding and recomputation at random; not all of them are possible."""
    devices, layers = len(maker.machine.devices), maker.layers.count
    pipeline = divisor(generator, min(4, layers)) if generator.random() < 0.6 else 1
    tensor = divisor(generator, min(8, devices // pipeline))
    context = divisor(generator, min(2, devices // pipeline // tensor))
    rest = str(generator.choice(RESTS[::2])) if tensor > 1 else RESTS[0]
    several = int(generator.integers(1, 3)) if pipeline > 1 and layers >= 2 * pipeline else 1
    layout, schedule = (), ""
    if pipeline > 1:
        schedule = "interleaved" if several > 1 else "one_f_one_b"
        counts = np.sort(generator.choice(np.arange(1, layers), pipeline * several - 1, False))
        uneven = np.diff([0, *counts.tolist(), layers]).tolist()
        layout = with_ends(uneven)
        if generator.random() < 0.5:
            layout = even_layout(pipeline * several, layers)
    parts = pipeline * divisor(generator, 2) if pipeline > 1 else divisor(generator, 4)
    sharding = str(generator.choice(["", "parameters", "state"], p=SHARDED))
    data = devices // (pipeline * tensor * context)
    if data * context == 1:
        sharding = ""
    elif context > 1 and not sharding:
        sharding = "parameters"
    return Recipe(
        tensor=tensor,
        context=context,
        data=data,
        rest=rest,
        pipeline=pipeline,
        layout=layout,
        micro_batches=parts,
        schedule=schedule if pipeline > 1 else "by_ordinal" if parts > 1 else "",
        sharding=sharding,
        gathers_again=sharding != "parameters" or pipeline > 1 or generator.random() < 0.5,
        recomputation=str(generator.choice(["", "layers"])),
    )


def random_plan(generator: np.random.Generator, maker: PlanMaker) -> Plan:
    """A plan of a random recipe that is possible; one in about eight has a part that is odd."""
    while True:
        try:
            plan = maker.plan(random_recipe(generator, maker))
        except ValueError:
            continue
        graph, _ = maker.transformed(plan)
        try:
            plan.placement(graph, maker.machine)
        except ValueError:
            continue
        return _odd(generator, plan) if generator.random() < ODD else plan


def _odd(generator: np.random.Generator, plan: Plan) -> Plan:
    kind = int(generator.integers(3))
    if kind == 0:
        return replace(plan, schedule="gpipe" if plan.schedule == "one_f_one_b" else "depth_first")
    if kind == 1:
        return replace(plan, collectives={"all-reduce": "ring"})
    strategy = plan.strategy.copy()
    name = str(generator.choice([n for n in strategy if n.endswith((".fc1", ".gelu"))]))
    devices = strategy[name].devices
    strategy[name] = ParallelConfig({"replicas": len(devices)}, devices)
    return replace(plan, strategy=strategy)


def restored(exported: ExportedPlan, recipe: Recipe, maker: PlanMaker) -> Plan:
    """The plan that was asked for: what a recipe, that of the text, says, and all that the text does not."""
    for difference in exported.unsaid:
        recipe = replace(recipe, **difference.words)  # type: ignore[arg-type]
    plan = maker.plan(recipe)
    for difference in exported.unsaid:
        plan = difference.undo(plan)
    return plan
