"""FSDP of Llama 3 8B on 8 H100 and 70B on 64: how many layers ahead to gather, `python benchmarks/fsdp_lookahead.py`.

In FSDP's words: 8,192 words a GPU, bfloat16, layers computed again, every layer a unit. A look-ahead of n units is
`limit_all_gathers` at n + 1, issued while a unit computes; with and without `reshard_after_forward`. Predicted: seconds
of a step, the peak of a device, and how much faster a step is than without look-ahead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
from bridges_jobs import llama  # noqa: E402

import taskflow  # noqa: E402
from taskflow.bridges.making import PlanMaker  # noqa: E402
from taskflow.bridges.recipe import Recipe  # noqa: E402
from taskflow.searching.judge import Judge  # noqa: E402

HOSTS = {"8B": 1, "70B": 8}
LOOK_AHEAD = (0, 1, 2)


def compare(size: str) -> None:
    """Print the rows of one model."""
    machine = taskflow.MachineModel.preset("h100", nodes=HOSTS[size])
    devices = len(machine.devices)
    graph = llama(devices, size=size)
    maker = PlanMaker(graph, machine)
    judge = Judge(graph, machine, taskflow.CostModel.analytic(machine))
    for reshards in (True, False):
        seconds = dict[int, float]()
        for layers in LOOK_AHEAD:
            recipe = Recipe(
                data=devices,
                sharding="parameters",
                gathers_again=reshards,
                recomputation="layers",
                schedule=f"prefetch:{layers}",
            )
            outcome = judge.judge(maker.plan(recipe))
            seconds[layers] = outcome.with_room
            print(
                f"{size:4s} on {devices:3d}, reshard_after_forward={reshards!s:5s}, look-ahead {layers}: "
                f"{outcome.with_room:7.4f} s, {outcome.peak_bytes / 1e9:6.2f} GB"
                f"{'' if outcome.fits else ', does not fit'}, {seconds[0] / seconds[layers] - 1:+6.2%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=list(HOSTS), choices=list(HOSTS))
    for size in parser.parse_args().rows:
        compare(size)


if __name__ == "__main__":
    main()
