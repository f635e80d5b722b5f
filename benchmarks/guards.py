"""What it costs that a step on what is not finite changes nothing: `python benchmarks/guards.py`.

Seconds of a step on CPUs with and without a guard (`Executor(allow_nan=True)`), the least of alternate steps; with
updates behind all gradients, where the guard looks at gradients alone, and as soon as they can be, where it keeps
parameters.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import taskflow
from ops.models import gpt, mlp


def feeds_of(graph: taskflow.Graph) -> dict[str, np.ndarray]:
    """Classes and words are all 0."""
    random = np.random.default_rng(0)
    return {
        r.name: random.random(r.shape, np.float32) if r.is_floating else np.zeros(r.shape, r.dtype)
        for r in graph.inputs
    }


def seconds(
    rows: taskflow.TaskGraph, feeds: dict[str, np.ndarray], steps: int
) -> tuple[float, float]:
    """The fastest step with a guard, and without."""
    guarded, plain = (
        taskflow.Executor(rows, record=False, allow_nan=allows) for allows in (False, True)
    )
    times: tuple[list[float], list[float]] = [], []
    for _ in range(steps):
        for step, found in zip((guarded, plain), times):
            begin = time.perf_counter()
            step(feeds)
            found.append(time.perf_counter() - begin)
    return min(times[0]), min(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=15)
    steps: int = parser.parse_args().steps
    models = {
        "MLP 3 x 512": mlp.build(batch=64, inputs=256, hidden=(512,) * 3),
        "GPT 2 x 128": gpt.build(
            batch=4, sequence=64, layers=2, hidden=128, heads=4, vocabulary=1000
        ),
    }
    print("model         updates   guarded, ms  plain, ms  ratio")
    for name, graph in models.items():
        machine = taskflow.MachineModel.local(devices=1)
        rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
        costs, feeds = taskflow.CostModel.analytic(machine), feeds_of(graph)
        early = taskflow.reorder(rows, costs, taskflow.schedule.first_ready)
        for when, one in (("at the end", rows), ("early", early)):
            guarded, plain = seconds(one, feeds, steps)
            print(
                f"{name:12s}  {when:10s}  {guarded * 1e3:9.3f}  {plain * 1e3:9.3f}  {guarded / plain:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
