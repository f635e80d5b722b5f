"""Random plans of grids and pipelines out to other systems and in again: `python benchmarks/bridges_round_trip.py`.

Of each of `--plans` plans (`tests/bridges/random_recipes.py`) the text of Megatron-LM and of torchtitan is written and
read: how many come back as they were, to the bit; and, for the others, whether what the export named as not said,
undone in what came back, gives the same predicted seconds. GPT of 4 layers on 8 H100.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import taskflow
from ops.models import gpt

sys.path[:0] = [str(Path(__file__).parents[1])]
from taskflow.bridges.exporting import SYSTEMS, import_job, said_in  # noqa: E402
from taskflow.bridges.making import PlanMaker  # noqa: E402
from taskflow.bridges.recognising import recognise  # noqa: E402
from taskflow.searching.outcome import judged  # noqa: E402
from tests.bridges.random_recipes import random_plan, restored  # noqa: E402

FILES = {"megatron": "run.sh", "torchtitan": "config.py"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = gpt.build(
        batch=32, sequence=32, layers=4, hidden=64, heads=8, vocabulary=512, dropout=0.0, fused=True
    )
    machine = taskflow.MachineModel.preset("h100")
    costs, maker = taskflow.CostModel.analytic(machine), PlanMaker(graph, machine)
    generator, counted = np.random.default_rng(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.plans):
            plan = random_plan(generator, maker)
            for name, file in FILES.items():
                exported = said_in(SYSTEMS[name], maker, plan, costs)
                path = Path(folder) / file
                path.write_text(exported.text, encoding="utf-8")
                back = import_job(str(path), graph, machine).plan
                counted[f"{name}: the text says another plan than it was to"] += (
                    back != exported.plan
                )
                counted[f"{name}: identical"] += back == plan
                if back != plan:
                    undone = restored(exported, recognise(back, maker)[0], maker)
                    same = judged(graph, machine, costs, undone).with_room
                    is_same = same == exported.original.with_room
                    counted[f"{name}: the same seconds once what was named is undone"] += is_same
                    counted[f"{name}: other seconds"] += not is_same
    for line, count in counted.items():
        print(f"{count:5d} of {options.plans}  {line}")


if __name__ == "__main__":
    main()
