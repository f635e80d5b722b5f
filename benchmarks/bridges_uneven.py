"""Uneven pipelines: Llama 3 70B on 64 and 405B on 512 H100, `python benchmarks/bridges_uneven.py [--rows 70B 405B]`.

Layers between stages: even, as Megatron-LM has them, and with the loss, or it and the embedding, counted as layers
(`--account-for-embedding-in-pipeline-split`, `--account-for-loss-in-pipeline-split`), also where they do not divide;
and the best that `RecipeSearch` finds in `--proposals`, with no more memory than the fastest of Megatron's that divide.
Of every layout its seconds of a step, the memory of every group of devices, and its string.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).parent)]
from bridges_jobs import LLAMA, llama  # noqa: E402

import taskflow  # noqa: E402
from taskflow.bridges.layout import layout_text  # noqa: E402
from taskflow.bridges.making import PlanMaker  # noqa: E402
from taskflow.bridges.megatron import MEGATRON  # noqa: E402
from taskflow.bridges.nearest import RecipeSearch, SaidPlan, layouts, moved  # noqa: E402
from taskflow.bridges.recipe import Recipe, even_layout  # noqa: E402
from taskflow.searching.budget import Budget  # noqa: E402

COUNTED = {"even": (0, 0), "loss": (0, 1), "embedding and loss": (1, 1)}


class Uneven(NamedTuple):
    """A model on hosts of eight, tensor parallel within; `stages` groups, `parts` samples for each of `data`."""

    hosts: int
    stages: int
    parts: int
    several: int = 1
    tensor: int = 8


ROWS = {
    "70B": [
        Uneven(8, 4, 16),
        Uneven(8, 4, 16, 3),
        Uneven(8, 8, 16),
        Uneven(8, 16, 32, tensor=4),
    ],
    "405B": [Uneven(64, 8, 8), Uneven(64, 16, 16)],
}


def compare(size: str, row: Uneven, proposals: int) -> None:
    """Print the layouts of one row."""
    data = row.hosts * 8 // (row.stages * row.tensor)
    machine = taskflow.MachineModel.preset("h100", nodes=row.hosts)
    graph, costs = llama(data * row.parts, size=size), taskflow.CostModel.analytic(machine)
    maker, layers = PlanMaker(graph, machine), LLAMA[size]["num_hidden_layers"]
    count = row.stages * row.several
    recipe = Recipe(
        tensor=row.tensor,
        data=data,
        rest="sequence",
        pipeline=row.stages,
        layout=even_layout(count, layers),
        micro_batches=row.parts,
        sharding="state",
        recomputation="layers",
    )
    print(f"Llama 3 {size}, {row.hosts * 8} H100, {row}", flush=True)
    search = RecipeSearch(MEGATRON, maker, costs, recipe, Budget(proposals + len(COUNTED), None))
    known = dict[str, SaidPlan]()
    for name, ends in COUNTED.items():
        layout = even_layout(count, layers, *ends)
        divides = "" if (layers + sum(ends)) % count == 0 else ", do not divide"
        judged = search.judge(Recipe(**{**vars(recipe), "layout": layout}))
        if judged:
            known[name + divides] = judged
    able = [each for name, each in known.items() if "not" not in name] or list(known.values())
    least = min(able, key=lambda each: each.outcome.with_room)
    search.best, search.most_bytes = least, least.outcome.peak_bytes
    search.history = [least]
    for change in (layouts, moved):
        search.try_all(change)
    for name, each in {**known, "searched": search.best}.items():
        show(name, each, maker, costs)
    gain = least.outcome.with_room / search.best.outcome.with_room - 1
    print(f"  {gain:.1%} faster than the best of Megatron's that divide\n", flush=True)


def show(name: str, each: SaidPlan, maker: PlanMaker, costs: taskflow.CostModel) -> None:
    """One line."""
    graph, machine = maker.layers.graph, maker.machine
    peak = each.outcome.plan.predict(graph, machine, costs).peak_bytes
    groups = np.array(peak).reshape(each.recipe.pipeline, -1).max(axis=1) / 1e9
    memory = " ".join(f"{gigabytes:.1f}" for gigabytes in groups)
    text = layout_text(each.recipe.layout)
    print(f"  {name:34s} {each.outcome.with_room:8.4f} s  {memory} GB  {text}", flush=True)


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
