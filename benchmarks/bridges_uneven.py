"""Uneven pipelines: Llama 3 70B on 64 and 405B on 512 H100, `python benchmarks/bridges_uneven.py [--rows 70B 405B]`.

`--bounds`: what whole layers allow. Of every pipeline the work of the slowest group of devices with Megatron's layers
between groups, and the least that it can be with any, virtual stages or not: by so much a step of many micro-batches
can be shorter; of few the groups wait for each other as well. Work is seconds of operators of a micro-batch, without
updates.

Layers between stages, for one to `SEVERAL` stages of each group of devices: as Megatron-LM has them where they divide,
evenly, or with the loss, or it and the embedding, counted as layers (`--account-for-embedding-in-pipeline-split`,
`--account-for-loss-in-pipeline-split`); and the best that `RecipeSearch` finds in `--proposals` from the fastest of
these, in no more memory. Of both the seconds of a step, the memory of every group of devices, and the layout.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
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
from taskflow.graph.phases import Phase  # noqa: E402
from taskflow.searching.budget import Budget  # noqa: E402

COUNTED = {"even": (0, 0), "loss": (0, 1), "embedding and loss": (1, 1)}
SEVERAL = 5


PIPELINES = {"70B": [(8, 4), (8, 8), (4, 8), (4, 16)], "405B": [(8, 8), (8, 16), (8, 32)]}
RECOMPUTED = ("", "layers")


def unit_work(size: str, hosts: int, tensor: int, stages: int, kind: str) -> np.ndarray:
    """Seconds of a micro-batch of one sample on its slowest device: of the embedding, a layer and the loss."""
    data = hosts * 8 // tensor // stages
    machine = taskflow.MachineModel.preset("h100", nodes=hosts)
    graph, costs = llama(data, size=size), taskflow.CostModel.analytic(machine)
    maker, layers = PlanMaker(graph, machine), LLAMA[size]["num_hidden_layers"]
    layout = even_layout(stages, layers)
    words = {"sharding": "state", "recomputation": kind, "schedule": "one_f_one_b"}
    recipe = Recipe(tensor, data=data, rest="sequence", pipeline=stages, layout=layout, **words)
    plan = maker.plan(recipe)
    rows = plan.predict(graph, machine, costs).task_graph
    seconds = costs.seconds(rows)
    unit = {name: k for k, names in enumerate(maker.layers.units) for name in names}
    found = np.zeros((layers + 2, len(machine.devices)))
    for row in np.flatnonzero(rows.launch >= 0).tolist():
        launch = rows.launches[int(rows.launch[row])]
        if launch.phase != Phase.UPDATE and launch.leader in unit:
            found[unit[launch.leader], rows.device[row]] += seconds[row]
    slowest = found.max(axis=1)
    return np.array([slowest[0], np.median(slowest[1:-1]), slowest[-1]])


def least_work(layers: int, stages: int, first: float, layer: float, last: float) -> float:
    """Of the slowest group, with the layers between groups that make it least."""
    ends = {0.0, first, last}
    able = sorted(end + layer * count for end in ends for count in range(layers + 1))

    def fitting(work: float, end: float) -> int:
        return int((work - end) / layer + 1e-9) if work >= end else -layers

    return next(
        w
        for w in able
        if fitting(w, first) + (stages - 2) * fitting(w, 0.0) + fitting(w, last) >= layers
    )


def show_bounds(size: str) -> None:
    """A line of every pipeline and kind of recomputation."""
    layers, hosts = LLAMA[size]["num_hidden_layers"], ROWS[size][0].hosts
    for tensor, stages in PIPELINES[size]:
        for kind in RECOMPUTED:
            first, layer, last = unit_work(size, hosts, tensor, stages, kind)
            known = {}
            for name, ends in COUNTED.items():
                each, rest = divmod(layers + sum(ends), stages)
                if rest == 0:
                    counts = each - ends[0], each, each - ends[1]
                    known[name] = max(
                        count * layer + end
                        for count, end in zip(counts, (first, 0.0, last), strict=True)
                    )
            name = min(known, key=lambda n: known[n])
            least = least_work(layers, stages, first, layer, last)
            print(
                f"Llama 3 {size} tensor {tensor} pipeline {stages:2d} recomputed {kind or 'none':6s}  embedding "
                f"{first / layer:.2f}, loss {last / layer:.2f} layers;  {name} {known[name] / layer:.2f}, "
                f"least {least / layer:.2f}: {known[name] / least - 1:.1%} faster",
                flush=True,
            )


class Uneven(NamedTuple):
    """A model on hosts of eight, tensor parallel within; `stages` groups, `parts` samples for each of `data`."""

    hosts: int
    stages: int
    parts: int


ROWS = {
    "70B": [Uneven(8, 4, 16), Uneven(8, 8, 16)],
    "405B": [Uneven(64, 8, 8), Uneven(64, 16, 16)],
}


def compare(size: str, row: Uneven, proposals: int) -> None:
    """Print the layouts of one row."""
    data = row.hosts // row.stages
    machine = taskflow.MachineModel.preset("h100", nodes=row.hosts)
    graph, costs = llama(data * row.parts, size=size), taskflow.CostModel.analytic(machine)
    maker, layers = PlanMaker(graph, machine), LLAMA[size]["num_hidden_layers"]
    options = [
        (f"{name}, {several} a group", even_layout(several * row.stages, layers, *ends))
        for several in range(1, SEVERAL + 1)
        for name, ends in COUNTED.items()
        if (layers + sum(ends)) % (several * row.stages) == 0
    ]
    recipe = Recipe(
        tensor=8,
        data=data,
        rest="sequence",
        pipeline=row.stages,
        layout=options[0][1],
        micro_batches=row.parts,
        sharding="state",
        recomputation="layers",
    )
    print(f"Llama 3 {size}, {row.hosts * 8} H100, {row}", flush=True)
    budget = Budget(proposals + len(options), None)
    search, known = RecipeSearch(MEGATRON, maker, costs, recipe, budget), dict[str, SaidPlan]()
    for name, layout in options:
        if judged := search.judge(replace(recipe, layout=layout)):
            known[name] = judged
            outcome = judged.outcome
            print(
                f"  {name:34s} {outcome.with_room:8.4f} s  {outcome.peak_bytes / 1e9:.1f} GB",
                flush=True,
            )
    name = min((n for n in known if known[n].outcome.fits), key=lambda n: known[n].outcome.seconds)
    least = search.best = known[name]
    search.most_bytes, search.history = least.outcome.peak_bytes, [least]
    for change in (layouts, moved):
        search.try_all(change)
    show(name, least, maker, costs)
    show("searched", search.best, maker, costs)
    gain = least.outcome.seconds / search.best.outcome.seconds - 1
    print(f"  {gain:.1%} faster than the fastest of Megatron's that divide\n", flush=True)


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
    parser.add_argument("--bounds", action="store_true")
    options = parser.parse_args()
    for size in options.rows:
        if options.bounds:
            show_bounds(size)
            continue
        for row in ROWS[size]:
            compare(size, row, options.proposals)


if __name__ == "__main__":
    main()
