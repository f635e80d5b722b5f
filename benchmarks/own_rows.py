"""The rows of one rank among very many: `python benchmarks/own_rows.py`. One core; needs no GPU.

GPT of 96 layers, a device a rank: CPU seconds from a plan to a program that is ready to bind memory (a fresh
`lower(devices=[rank])`, the memory plan, collectives spelled out, memory that is taken over), the best of three
processes, and how much of that is lowering; rows, of how many (up to the last), and rows that run; how much more memory
the process takes. All ranks must have one digest. `--host`: a rank has the rows of its host's eight devices.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import taskflow
from taskflow import Graph, MachineModel, Strategy
from taskflow.execute.expand import expand, expand_plan
from taskflow.searching.grids import Grids
from taskflow.tasks.memory import plan_memory, with_reuse
from taskflow.tasks.task_graph import TaskGraph

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


def prepare(
    graph: Graph, strategy: Strategy, machine: MachineModel, devices: Sequence[int]
) -> tuple[TaskGraph, TaskGraph, float]:
    """The rows of some devices, the rows that run, and CPU seconds of the first; see `Executor`."""
    begin = time.process_time()
    rows = taskflow.lower(graph, strategy, machine, devices=devices)
    seconds = time.process_time() - begin
    plan, expansion = plan_memory(rows), expand(rows)
    return rows, with_reuse(expansion.task_graph, expand_plan(plan, expansion)), seconds


def measure(options: argparse.Namespace, plan: str, rank: int) -> dict[str, float | str]:
    """CPU seconds, rows and more megabytes of this process."""
    build, warm = import_module("ops.models.gpt").build, MachineModel.preset("h100", nodes=STAGES)
    small = build(batch=16 * HOST * STAGES, layers=STAGES)  # compiles
    prepare(small, PLANS[plan](small, warm), warm, [0])
    machine = MachineModel.preset("h100", nodes=options.devices // HOST)
    graph = build(batch=8 * options.devices, layers=options.layers)
    strategy = PLANS[plan](graph, machine)
    first = rank - rank % HOST
    devices = range(first, first + HOST) if options.host else [rank]
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    rows, running, lowering = prepare(graph, strategy, machine, devices)
    seconds = time.process_time() - begin
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert rows.own is not None
    return {
        "digest": rows.own.agreed,
        "rows": len(rows),
        "last": int(rows.numbers[-1]),
        "running": len(running),
        "lowering": lowering,
        "seconds": seconds,
        "MB": more / 1024,
    }


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--ranks", type=int, nargs="+", default=[0, 5, 1023])
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--plans", nargs="+", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = ["--devices", str(options.devices), "--layers", str(options.layers)]
    sizes += ["--host"] if options.host else []
    if options.one:
        plan, rank = options.one
        print(json.dumps(measure(options, plan, int(rank))))
        return
    titles = f"{'rows':>8}{'of about':>11}{'that run':>10}{'lower s':>9}{'CPU s':>8}{'MB more':>9}"
    print(f"{'plan':30}{'rank':>6}{titles}")
    for plan in options.plans:
        digests = set()
        for rank in options.ranks:
            command = [sys.executable, __file__, *sizes, "--one", plan, str(rank)]
            tries = [json.loads(subprocess.check_output(command)) for _ in range(TRIES)]
            best = min(tries, key=lambda each: each["seconds"])
            digests.add(best["digest"])
            counts = f"{best['rows']:8}{best['last'] + 1:11}{best['running']:10}"
            costs = f"{best['lowering']:9.2f}{best['seconds']:8.2f}{best['MB']:9.0f}"
            print(f"{plan:30}{rank:6}{counts}{costs}", flush=True)
        print(f"{plan:30}" + ("one digest" if len(digests) == 1 else "DIGESTS DIFFER"))


if __name__ == "__main__":
    main()
