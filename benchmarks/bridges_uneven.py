"""Uneven pipelines: Llama 3 70B on 64 and 405B on 512 H100, `python benchmarks/bridges_uneven.py [--rows 70B 405B]`.

Layers between stages as Megatron-LM has them: evenly, or with the loss, or it and the embedding, counted as layers
(`--account-for-embedding-in-pipeline-split`, `--account-for-loss-in-pipeline-split`), as many stages for each group of
devices as divide them, nothing computed again or all in layers. From the fastest of these that fits `search`
goes on for `--proposals`: more eager orders of rows, layers moved between stages. It does so on devices that have no
more memory than that one takes. Of both the seconds of a step, the memory of every group of devices, and the layout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).parent)]
from bridges_jobs import LLAMA, llama  # noqa: E402

import taskflow  # noqa: E402
from taskflow import Plan  # noqa: E402
from taskflow.bridges.facts import JobFacts  # noqa: E402
from taskflow.bridges.layout import layout_text  # noqa: E402
from taskflow.bridges.making import PlanMaker  # noqa: E402
from taskflow.bridges.megatron import MEGATRON  # noqa: E402
from taskflow.bridges.nearest import SaidPlans, moved, orders  # noqa: E402
from taskflow.bridges.recipe import Recipe, even_layout  # noqa: E402
from taskflow.bridges.recognising import recognise  # noqa: E402
from taskflow.searching.judge import Judge  # noqa: E402
from taskflow.searching.outcome import Outcome  # noqa: E402

COUNTED = {"even": (0, 0), "loss": (0, 1), "embedding and loss": (1, 1)}
RECOMPUTED = ("", "layers")


class Uneven(NamedTuple):
    """A model on hosts of eight, tensor parallel within; `stages` groups, `parts` samples for each of `data`."""

    hosts: int
    stages: int
    parts: int


ROWS = {
    "70B": [Uneven(8, 4, 16), Uneven(8, 8, 16)],
    "405B": [Uneven(64, 8, 8), Uneven(64, 16, 16)],
}


def said_by_megatron(layers: int, row: Uneven) -> dict[str, Recipe]:
    """All layouts of whole layers that divide, by name."""
    found = dict[str, Recipe]()
    words = {"rest": "sequence", "sharding": "state", "micro_batches": row.parts}
    for several, (name, ends) in product(range(1, layers // row.stages + 2), COUNTED.items()):
        if (layers + sum(ends)) % (several * row.stages) == 0:
            layout = even_layout(several * row.stages, layers, *ends)
            for kind in RECOMPUTED:
                recipe = Recipe(8, data=row.hosts // row.stages, pipeline=row.stages, **words)
                recipe = replace(recipe, layout=layout, recomputation=kind)
                found[f"{name}, {several} a group, recomputed: {kind or 'nothing'}"] = recipe
    return found


def compare(size: str, row: Uneven, proposals: int) -> None:
    """Print the layouts of one row."""
    machine = taskflow.MachineModel.preset("h100", nodes=row.hosts)
    graph = llama(row.hosts // row.stages * row.parts, size=size)
    recipes = said_by_megatron(LLAMA[size]["num_hidden_layers"], row)
    print(f"Llama 3 {size}, {row.hosts * 8} H100, {row}", flush=True)
    maker, costs = PlanMaker(graph, machine), taskflow.CostModel.analytic(machine)
    judge, known = Judge(graph, machine, costs), dict[str, Outcome]()
    for name, recipe in recipes.items():
        said = MEGATRON.said(recipe, maker.facts)
        outcome = known[name] = judge.judge(maker.plan(said))
        fits = "" if outcome.fits else ", does not fit"
        seconds, peak = outcome.with_room, outcome.peak_bytes / 1e9
        print(f"  {name:48s} {seconds:8.4f} s  {peak:.1f} GB{fits}", flush=True)
    name = min(known, key=lambda n: known[n].seconds)
    least = known[name]
    show(name, least.plan, maker, costs)
    machine = machine.with_rates(memory_bytes=int(least.peak_bytes))
    maker, costs = PlanMaker(graph, machine), taskflow.CostModel.analytic(machine)
    ours = SaidPlans(replace(MEGATRON, said=said_by_us), maker, (more_eager, moved))
    given = {"starts": {name: least.plan}, "space": ours, "moves": ours.moves}
    found = taskflow.search(graph, machine, costs, proposals, **given)
    show(f"searched: {found.plan.schedule}", found.plan, maker, costs)
    gain = least.seconds / found.seconds - 1
    print(f"  {gain:.1%} faster than the fastest of Megatron's\n", flush=True)


def said_by_us(recipe: Recipe, facts: JobFacts) -> Recipe:
    """As Megatron-LM says it, however eager."""
    found, eager = MEGATRON.said(recipe, facts), recipe.schedule[len(recipe.policy) :]
    return replace(found, schedule=found.schedule + eager)


def more_eager(recipe: Recipe, *given: object) -> Iterator[Recipe]:
    """Orders of rows."""
    return orders(recipe)


def show(name: str, plan: Plan, maker: PlanMaker, costs: taskflow.CostModel) -> None:
    """One line."""
    timeline = plan.predict(maker.layers.graph, maker.machine, costs)
    recipe, _ = recognise(plan, maker)
    groups = np.array(timeline.peak_bytes).reshape(recipe.pipeline, -1).max(axis=1) / 1e9
    memory = " ".join(f"{gigabytes:.1f}" for gigabytes in groups)
    text = layout_text(recipe.layout)
    print(f"  {name:48s} {timeline.seconds:8.4f} s  {memory} GB  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--proposals", type=int, default=8)
    options = parser.parse_args()
    for size in options.rows:
        for row in ROWS[size]:
            compare(size, row, options.proposals)


if __name__ == "__main__":
    main()
