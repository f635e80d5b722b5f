"""Uneven pipelines: Llama 3 70B on 64 and 405B on 512 H100, `python benchmarks/bridges_uneven.py [--rows 70B 405B]`.

Layers between stages as Megatron-LM has them: evenly, or with the loss, or it and the embedding, counted as layers
(`--account-for-embedding-in-pipeline-split`, `--account-for-loss-in-pipeline-split`), as many stages for each group of
devices as divide them, nothing computed again or all in layers. From the fastest of these that fits `RecipeSearch`
goes on in `--proposals`: other orders of rows, layers moved between stages. It does so on devices that have no more
memory than that one takes. Of both the seconds of a step, the memory of every group of devices, and the layout.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).parent)]
from bridges_jobs import LLAMA, llama  # noqa: E402

import taskflow  # noqa: E402
from taskflow.bridges.layout import layout_text  # noqa: E402
from taskflow.bridges.making import PlanMaker  # noqa: E402
from taskflow.bridges.megatron import MEGATRON  # noqa: E402
from taskflow.bridges.nearest import RecipeSearch, SaidPlan, in_own_words, moved, orders  # noqa: E402
from taskflow.bridges.recipe import Recipe, even_layout  # noqa: E402

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
    start = next(iter(recipes.values()))
    search, known = RecipeSearch(MEGATRON.said, maker, costs, start), dict[str, SaidPlan]()
    for name, recipe in recipes.items():
        if judged := search.judge(recipe):
            known[name] = judged
            fits = "" if judged.outcome.fits else ", does not fit"
            seconds, peak = judged.outcome.with_room, judged.outcome.peak_bytes / 1e9
            print(f"  {name:48s} {seconds:8.4f} s  {peak:.1f} GB{fits}", flush=True)
    name = min(known, key=lambda n: known[n].rank)
    least = known[name]
    show(name, least, maker, costs)
    machine = machine.with_rates(memory_bytes=int(least.outcome.peak_bytes))
    maker, costs = PlanMaker(graph, machine), taskflow.CostModel.analytic(machine)
    search = RecipeSearch(in_own_words, maker, costs, least.recipe, proposals)
    for change in (orders, moved):
        search.try_all(change)
    show(f"searched: {search.best.recipe.schedule}", search.best, maker, costs)
    gain = least.outcome.seconds / search.best.outcome.with_room - 1
    print(f"  {gain:.1%} faster than the fastest of Megatron's\n", flush=True)


def show(name: str, each: SaidPlan, maker: PlanMaker, costs: taskflow.CostModel) -> None:
    """One line."""
    graph, machine = maker.layers.graph, maker.machine
    peak = each.outcome.plan.predict(graph, machine, costs).peak_bytes
    groups = np.array(peak).reshape(each.recipe.pipeline, -1).max(axis=1) / 1e9
    memory = " ".join(f"{gigabytes:.1f}" for gigabytes in groups)
    text = layout_text(each.recipe.layout)
    print(f"  {name:48s} {each.outcome.with_room:8.4f} s  {memory} GB  {text}", flush=True)


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
