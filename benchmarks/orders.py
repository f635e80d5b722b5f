"""What orders of rows cost to find, and to apply: `python benchmarks/orders.py [--old CHECKOUT]`.

Seconds of the processor for a GPT of 24 layers of 2,048 on 64 H100, tensor parallelism of 4, sequence parallel: every
order by list scheduling, and `TaskGraph.reordered`. Second runs, since the first compile. With `--old`, the same in
another checkout (`git worktree add`), and the ratio of both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import ops
import taskflow
from taskflow.schedule import critical_path, depth_first, first_ready, forward_first
from taskflow.searching.grids import Grids

ORDERS = critical_path, forward_first, depth_first, first_ready


def seconds_of(call: Callable[[], Any]) -> tuple[float, Any]:
    """Of the second call, and what it gives."""
    call()
    begin = time.process_time()
    found = call()
    return time.process_time() - begin, found


def build() -> taskflow.Graph:
    """The model of the checkout whose package runs."""
    gpt = import_module("ops.models.gpt").build(
        batch=64, layers=24, hidden=2048, heads=16, training=False
    )
    graph = taskflow.precision(gpt, "bfloat16")
    ops.adamw(graph.outputs["loss"], lr=1e-4)
    return graph


def measure() -> dict[str, float]:
    """Name -> seconds."""
    machine, graph = taskflow.MachineModel.preset("h100", nodes=8), build()
    strategy = Grids(graph).strategy(range(64), 4, "sequence")
    assert strategy is not None
    rows, costs = taskflow.lower(graph, strategy, machine), taskflow.CostModel.analytic(machine)
    seconds, found = costs.seconds(rows), {"rows": float(len(rows))}
    for order in ORDERS:
        found[order.__name__], issued = seconds_of(partial(order, rows, seconds))
    found["reordered"], _ = seconds_of(lambda: rows.reordered(issued))
    return found


def measure_in(checkout: Path) -> dict[str, float]:
    """What this script prints there."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    return dict(
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="another checkout")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    new = measure()
    if options.json:
        print(json.dumps(new))
        return
    old = measure_in(options.old.resolve()) if options.old else {}
    print(f"{int(new.pop('rows'))} rows, seconds" + ", old seconds, old / new" * bool(old))
    for name, seconds in new.items():
        print(
            f"{name:14s} {seconds:6.3f}"
            + (f" {old[name]:6.3f} {old[name] / seconds:6.1f}" if old else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
