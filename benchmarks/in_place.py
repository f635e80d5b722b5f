"""Gradients of micro-batches added in place against parts that are folded: memory and seconds of a step, in turn.

    python benchmarks/in_place.py [--hidden 512] [--parts 8]

A GPT of four layers on one device and one core, one micro-batch after the other. Both sides run the same kernels but
for `Kernel.accumulates`, and give the same losses.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np

from ops.models.gpt import build
from taskflow import CostModel, Executor, Graph, MachineModel, TaskGraph, lower, reorder, stages
from taskflow.schedule import one_f_one_b
from taskflow.tasks.memory import plan_memory

MOST_SECONDS, MOST_BYTES = 1.0, 1.0  # of folds


def laid_out(graph: Graph, parts: int) -> TaskGraph:
    """Rows of all micro-batches, one after the other."""
    machine = MachineModel.uniform(1)
    rows = lower(graph, stages(graph, machine, 1, parts), machine)
    return reorder(rows, CostModel.analytic(machine), one_f_one_b)


def peak(rows: TaskGraph) -> int:
    """Bytes, in as little memory as will do."""
    return int(
        plan_memory(replace(rows, machine=rows.machine.with_rates(memory_bytes=1))).peak_bytes[0]
    )


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    sizes = {
        "batch": 2 * options.parts,
        "sequence": 32,
        "layers": 4,
        "hidden": options.hidden,
        "heads": 8,
    }
    graph = build(**sizes, vocabulary=1024, dropout=0.0)
    folded = build(**sizes, vocabulary=1024, dropout=0.0)
    folded.operators = [
        replace(op, kernel=replace(op.kernel, accumulates=False, cuda=None))
        for op in folded.operators
    ]
    both = laid_out(folded, options.parts), laid_out(graph, options.parts)
    steps = [Executor(rows, seed=0, record=False) for rows in both]
    feeds = {
        r.name: np.random.default_rng(0).integers(0, 1024, r.shape).astype(r.dtype)
        for r in graph.inputs
    }
    taken: tuple[list[float], list[float]] = [], []
    for _ in range(options.steps):
        losses = []
        for step, times in zip(steps, taken, strict=True):
            begun = time.perf_counter()
            losses.append(float(step(feeds)["loss"]))
            times.append(time.perf_counter() - begun)
        assert abs(losses[0] - losses[1]) <= 1e-4 * abs(losses[0])
    for step in steps:
        step.close()
    seconds = statistics.median(b / a for a, b in zip(*(times[2:] for times in taken), strict=True))
    bytes_ = peak(both[1]) / peak(both[0])
    print(
        f"folded {1e3 * statistics.median(taken[0]):.1f} ms, in place {1e3 * statistics.median(taken[1]):.1f} ms"
    )
    print(f"in turn x {seconds:.3f} seconds: {'ok' if seconds <= MOST_SECONDS else 'MISSED'}")
    print(
        f"peak {peak(both[1]) / 1e6:.1f} MB, x {bytes_:.3f}: {'ok' if bytes_ <= MOST_BYTES else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
