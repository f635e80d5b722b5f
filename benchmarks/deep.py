"""Deep models and a short search: `python benchmarks/deep.py [--layers 200 1000] [--seconds 5]`. One core; no GPU.

GPT of so many layers on 8 H100 in bfloat16, updated by AdamW. Per depth, in seconds: one lowering of data parallelism,
and what `taskflow.search` takes with a budget of `--seconds`, warm. At most 1.1 times the larger of both is asked for;
the exit status says whether it holds. What is judged at all is one plan at least that fits: of 768 a layer, 1,000
layers fit under no rule but sharded parameters, whose graph is another one, so that three are lowered.
"""

from __future__ import annotations

import argparse
import sys
import time

import grids

import taskflow
from taskflow.strategy.rules import data_parallel

LATE = 1.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    machine = grids.machine_of("8 H100", 1.0)
    costs = taskflow.CostModel.analytic(machine)
    devices = len(machine.devices)
    taskflow.search(grids.gpt(2, options.hidden)(devices), machine, costs, proposals=40)  # warm
    print("layers  lowered  searched  found, ms  best start")
    is_late = False
    for layers in options.layers:
        graph = grids.gpt(layers, options.hidden)(devices)
        begin = time.perf_counter()
        taskflow.lower(graph, data_parallel(graph, machine), machine)
        lowered = time.perf_counter() - begin
        begin = time.perf_counter()
        result = taskflow.search(graph, machine, costs, seconds=options.seconds)
        searched = time.perf_counter() - begin
        is_late |= searched > LATE * max(options.seconds, lowered)
        figures = f"{layers:6d} {lowered:8.2f} {searched:9.2f} {result.seconds * 1e3:10.1f}"
        print(f"{figures}  {result.best_start}", flush=True)
    sys.exit(is_late)


if __name__ == "__main__":
    main()
