"""Orbits of the grids of experts: `python benchmarks/orbits.py [--kinds]`. One core; needs no GPU.

Per model and number of devices: how many orbits the grids have (tensor parallelism of 1 to 8, what is left as replicas,
samples or sequence, with and without sharded state), the fewest and the most, and the seconds that finding them takes.
With `--kinds`, of grids of a CNN on P100: processor seconds of lowering and simulating the rows of representatives and
all rows, and rows for each kind of region; `lowering.ROWS_OF_A_KIND` says when the former are worth it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from taskflow import CostModel, Graph, MachineModel, Strategy, simulate
from taskflow.lowering import Lowering, lowering
from taskflow.searching.grids import RESTS, Grids
from taskflow.strategy.orbits import orbits_of
from taskflow.strategy.sharded import shard_state

MODELS = {"gpt": {"layers": 96}, "bert": {}, "moe": {}, "resnet101": {}}
TENSOR = 1, 2, 4, 8


def grids(graph: Graph, devices: int) -> Iterator[Strategy]:
    """The grids that there are."""
    every = Grids(graph)
    for tensor in TENSOR:
        for rest in RESTS if tensor > 1 else RESTS[:1]:
            found = every.strategy(range(devices), tensor, rest)
            if found is not None:
                yield found
                yield shard_state(graph, found)


def kinds() -> Iterator[str]:
    """Lines of a table."""
    yield f"{'model':14}{'devices':>8}{'tensor':>7}{'rows a kind':>12}{'representatives':>16}{'all':>8}"
    for model, devices, tensor in product(("alexnet", "inception_v3"), (4, 16, 64), (1, 2, 4)):
        machine = MachineModel.preset("p100", nodes=devices // 4)
        graph = import_module(f"ops.models.{model}").build(batch=64 * devices)
        strategy, costs = Grids(graph).strategy(range(devices), tensor), CostModel.analytic(machine)
        seconds, ready = list[float](), Lowering(graph, machine)._ready(strategy)
        for rows_of_a_kind in (0, 1 << 40):
            lowering.ROWS_OF_A_KIND = rows_of_a_kind
            begin = time.process_time()
            rows = Lowering(graph, machine).rows_to_simulate(strategy, costs)
            simulate(rows, costs)
            seconds.append(time.process_time() - begin)
        each = len(rows) / len(ready.by_region.fragments)
        yield f"{model:14}{devices:8}{tensor:7}{each:12.0f}{seconds[0]:16.3f}{seconds[1]:8.3f}"


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--devices", type=int, nargs="+", default=[64, 1024, 4096])
    parser.add_argument("--kinds", action="store_true")
    options = parser.parse_args()
    if options.kinds:
        for line in kinds():
            print(line, flush=True)
        return
    print(f"{'model':12}{'devices':>8}{'grids':>7}{'orbits':>10}{'seconds':>13}")
    for model in options.models:
        for devices in options.devices:
            machine = MachineModel.preset("h100", nodes=devices // 8)
            graph = import_module(f"ops.models.{model}").build(batch=devices, **MODELS[model])
            orbits, seconds = [], []
            for strategy in grids(graph, devices):
                begin = time.perf_counter()
                orbits.append(len(orbits_of(graph, strategy, machine)))
                seconds.append(time.perf_counter() - begin)
            of = f"{min(orbits)}-{max(orbits)}"
            took = f"{min(seconds):.2f}-{max(seconds):.2f}"
            print(f"{model:12}{devices:8}{len(orbits):7}{of:>10}{took:>13}", flush=True)


if __name__ == "__main__":
    main()
