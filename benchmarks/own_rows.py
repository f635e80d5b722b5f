"""The rows of one rank among very many: `python benchmarks/own_rows.py`. One core; needs no GPU.

GPT of 96 layers, a device a rank: CPU seconds of a fresh `lower(devices=[rank])`, the best of three processes, its
rows, of how many (up to its last), and how much more memory the process takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import taskflow
from taskflow import Graph, MachineModel, Strategy
from taskflow.searching.grids import Grids

HOST = 8  # devices
TENSOR = 8
STAGES = 16
TRIES = 3


def tensor_parallel(graph: Graph, machine: MachineModel) -> Strategy:
    """On the devices of every host, the hosts being data parallel."""
    found = Grids(graph).strategy(range(len(machine.devices)), TENSOR)
    assert found is not None
    return found


def pipeline(graph: Graph, machine: MachineModel) -> Strategy:
    """Stages of equally many devices; each is tensor parallel within hosts and data parallel between them."""
    size = len(machine.devices) // STAGES
    return taskflow.stages(
        graph,
        machine,
        count=STAGES,
        parts=4 * STAGES,
        within=Grids(graph).strategy(range(size), TENSOR),
        devices=[range(k * size, (k + 1) * size) for k in range(STAGES)],
    )


PLANS: dict[str, Callable[[Graph, MachineModel], Strategy]] = {
    "data parallel": taskflow.data_parallel,
    "tensor 8 x data": tensor_parallel,
    "16 stages x data x tensor 8": pipeline,
}


def measure(devices: int, layers: int, plan: str, rank: int) -> dict[str, float]:
    """CPU seconds, rows and more megabytes of this process."""
    build, warm = import_module("ops.models.gpt").build, MachineModel.preset("h100", nodes=STAGES)
    small = build(batch=16 * HOST * STAGES, layers=STAGES)  # compiles
    taskflow.lower(small, PLANS[plan](small, warm), warm, devices=[0])
    machine = MachineModel.preset("h100", nodes=devices // HOST)
    graph = build(batch=8 * devices, layers=layers)
    strategy = PLANS[plan](graph, machine)
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    rows = taskflow.lower(graph, strategy, machine, devices=[rank])
    seconds = time.process_time() - begin
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "rows": len(rows), "last": int(rows.numbers[-1]), "MB": more / 1024}


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--ranks", type=int, nargs="+", default=[0, 5, 1023])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = ["--devices", str(options.devices), "--layers", str(options.layers)]
    if options.one:
        plan, rank = options.one
        print(json.dumps(measure(options.devices, options.layers, plan, int(rank))))
        return
    print(f"{'plan':30}{'rank':>6}{'rows':>8}{'of about':>11}{'CPU s':>8}{'MB more':>9}")
    for plan in PLANS:
        for rank in options.ranks:
            command = [sys.executable, __file__, *sizes, "--one", plan, str(rank)]
            tries = [json.loads(subprocess.check_output(command)) for _ in range(TRIES)]
            best = min(tries, key=lambda each: each["seconds"])
            print(
                f"{plan:30}{rank:6}{best['rows']:8}{best['last'] + 1:11}{best['seconds']:8.2f}{best['MB']:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
