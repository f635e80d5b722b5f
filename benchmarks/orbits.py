"""Orbits of the grids of experts: `python benchmarks/orbits.py`. One core; needs no GPU.

Per model and number of devices: how many orbits the grids have (tensor parallelism of 1 to 8, what is left as replicas,
samples or sequence, with and without sharded state), the fewest and the most, and the seconds that finding them takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from taskflow import Graph, MachineModel, Strategy
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


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--devices", type=int, nargs="+", default=[64, 1024, 4096])
    options = parser.parse_args()
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
