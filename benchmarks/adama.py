"""AdamA against Adam with accumulated gradients, on a GPT of characters: memory, numbers, losses and seconds.

    python benchmarks/adama.py [--steps 300] [--seeds 3]

Both take the same micro-batches, one after the other (`taskflow.schedule.one_f_one_b` on one device). Memory is that of
the memory plan; most of it is parameters P, moments and gradients: 4 P of Adam, 3 P and the largest gradient of AdamA.
Numbers: 8 parts on one device, 4 on each of two, 2 on each of four. Losses: means of the last tenth of all steps, over
seeds. Seconds: medians of steps that take turns, on one core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np

import ops
from ops.models.gpt import build
from taskflow import CostModel, Executor, Graph, MachineModel, TaskGraph, lower, reorder, stages
from taskflow.schedule import one_f_one_b
from taskflow.tasks.memory import plan_memory

PARTS, MOST_RATIO, MOST_ERROR = 8, 1.05, 1e-12
MARGIN = 0.02  # of memory, for activations of one micro-batch and the like
TEXT = Path(__file__).parents[1] / "LICENSE"


def optimize(graph: Graph, name: str, lr: float) -> Graph:
    """With one of both optimizers."""
    loss = graph.outputs["loss"]
    _ = ops.adama(loss, PARTS, lr) if name == "adama" else ops.adamw(loss, lr, weight_decay=0.0)
    return graph


def model(name: str, lr: float = 1e-3, dtype: str = "float32", **extents: int) -> Graph:
    """A GPT of characters."""
    sizes = {
        "batch": 16,
        "sequence": 32,
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "vocabulary": 128,
    } | extents
    return optimize(build(**sizes, dropout=0.0, training=False, dtype=dtype), name, lr)


def laid_out(graph: Graph, devices: int = 1) -> TaskGraph:
    """Rows of all micro-batches, one after the other on every device."""
    machine = MachineModel.uniform(devices)
    plan = stages(graph, machine, 1, PARTS // devices, devices=[tuple(range(devices))])
    rows = lower(graph, plan, machine)
    return reorder(rows, CostModel.analytic(machine), one_f_one_b)


def batches(graph: Graph, seed: int):
    """Feeds of characters of a text and the ones that follow."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32) % 128
    batch, sequence = next(r.shape for r in graph.inputs)
    random = np.random.default_rng(seed)
    while True:
        first = random.integers(0, len(text) - sequence - 1, batch)[:, None] + np.arange(sequence)
        yield dict(zip([r.name for r in graph.inputs], (text[first], text[first + 1]), strict=True))


def memory() -> None:
    """Peak bytes of both, in as little memory as will do."""
    peaks = {}
    for name in ("adamw", "adama"):
        graph = model(name, batch=PARTS, sequence=16, layers=4, hidden=256)
        rows = laid_out(graph)
        tight = rows.machine.with_rates(memory_bytes=1)
        peaks[name] = int(plan_memory(replace(rows, machine=tight)).peak_bytes[0])
    sizes = [r.size_bytes for r in graph.parameters]
    most = (3 * sum(sizes) + max(sizes)) / (4 * sum(sizes)) + MARGIN
    ratio = peaks["adama"] / peaks["adamw"]
    both = ", ".join(f"{name} {peak / 1e6:.1f} MB" for name, peak in peaks.items())
    print(
        f"memory: P {sum(sizes) / 1e6:.1f} MB, largest gradient {max(sizes) / 1e6:.2f} MB; peaks {both}"
    )
    print(f"        {ratio:.3f} of Adam, at most {most:.3f}: {verdict(ratio <= most)}")


def numbers() -> None:
    """The parameters after some steps on 1, 2 and 4 devices, in float64."""
    found = []
    for devices in (1, 2, 4):
        graph = model("adama", dtype="float64")
        with Executor(laid_out(graph, devices), seed=0) as step:
            feeds = batches(graph, 0)
            for _ in range(5):
                step(next(feeds))
            found.append({p.name: step.read(p.name) for p in graph.parameters})
    error = max(float(abs(other[n] - v).max()) for other in found[1:] for n, v in found[0].items())
    print(
        f"numbers: 8 x 1, 4 x 2 and 2 x 4 parts differ by {error:.1e}: {verdict(error <= MOST_ERROR)}"
    )


def losses(steps: int, seeds: int) -> None:
    """The loss at the end of training, over seeds."""
    ends: dict[str, list[float]] = {"adamw": [], "adama": []}
    for name, found in ends.items():
        graph = model(name)
        rows = laid_out(graph)
        for seed in range(seeds):
            with Executor(rows, seed=seed) as step:
                feeds = batches(graph, seed)
                curve = [float(step(next(feeds))["loss"]) for _ in range(steps)]
            found.append(statistics.mean(curve[-max(steps // 10, 1) :]))
    (adam, adam_spread), (adama, spread) = (
        (statistics.mean(e), statistics.pstdev(e)) for e in ends.values()
    )
    noise = 2 * max(adam_spread, spread)
    print(
        f"losses after {steps} steps, {seeds} seeds: Adam {adam:.3f} +- {adam_spread:.3f}, AdamA {adama:.3f} +- "
        f"{spread:.3f}: {verdict(adama - adam <= noise)}"
    )


def seconds(steps: int) -> None:
    """A step of each in turn."""
    graphs = {name: model(name, batch=32, sequence=64, hidden=128) for name in ("adamw", "adama")}
    executors = {
        name: Executor(laid_out(graph), seed=0, record=False) for name, graph in graphs.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    feeds = next(batches(graphs["adamw"], 0))
    for _ in range(steps):
        for name, step in executors.items():
            begun = time.perf_counter()
            step(feeds)
            taken[name].append(time.perf_counter() - begun)
    ratio = statistics.median(
        a / b for a, b in zip(taken["adama"][2:], taken["adamw"][2:], strict=True)
    )
    each = {name: 1e3 * statistics.median(some) for name, some in taken.items()}
    print(
        f"seconds: Adam {each['adamw']:.1f} ms, AdamA {each['adama']:.1f} ms, in turn x {ratio:.3f}: "
        f"{verdict(ratio <= MOST_RATIO)}"
    )


def verdict(holds: bool) -> str:
    """As every benchmark says it."""
    return "ok" if holds else "MISSED"


def main() -> None:
    """Print all four."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    memory()
    numbers()
    seconds(21)
    losses(options.steps, options.seeds)


if __name__ == "__main__":
    main()
