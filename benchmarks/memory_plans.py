"""Co-shard and recomputation against their acceptance: memory, and what it costs in time.

    python benchmarks/memory_plans.py [--parts ffn resident gpt]

ffn: feed-forward blocks on one device, whole against co-shard (the hidden units in 4 parts, one after another) with the
hidden units made again for the backward pass. Bytes of the arena, and seconds of a step.
resident: larger blocks, each side in a process of its own. Bytes that were resident at the peak of two steps above
those before the executor.
gpt: GPT-2 of 12 layers, small; all that is inside of layers is made again. Bytes beside what is kept between steps, and
seconds of a step, measured and predicted by measured costs of rows (see `predict.py`).

Sides take turns; bounds are on the second over the first, of medians over the rounds. Measured are the seconds that the
process computes in a step, so what others take of the cores does not count, and those of the clock, with which
predictions are compared: their rows are rehearsed by it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from cpu_memory import forget_peak, give_back, status
from predict import Run, machine_costs, make_feeds

import ops
import taskflow
from ops.models import gpt
from taskflow import Graph, ParallelConfig, Strategy, TaskGraph
from taskflow.tasks.memory import plan_memory

WIDTH, HIDDEN, SHARDS = 512, 4096, 4
SIZES = {"ffn": (2048, 2), "resident": (8192, 4)}  # tokens, blocks
SIDES = ("whole", "co-shard")
GPT = {"batch": 4, "sequence": 128, "layers": 12, "hidden": 128, "heads": 4, "vocabulary": 1000}
FFN_MEMORY, FFN_SECONDS = 0.55, 1.25
GPT_MEMORY, GPT_SECONDS, PREDICTION = 0.35, 1.36, 0.05


def blocks(tokens: int, count: int) -> Graph:
    """Residual feed-forward blocks."""
    graph = Graph()
    h = graph.input("x", (tokens, WIDTH))
    for k in range(count):
        up = ops.gelu(ops.linear(h, HIDDEN, name=f"up{k}"), "tanh", name=f"gelu{k}")
        h = ops.add(h, ops.linear(up, WIDTH, name=f"down{k}"), name=f"add{k}")
    ops.sgd(ops.mean_squared_error(h, graph.input("t", (tokens, WIDTH)), name="loss"), lr=0.1)
    return graph


def hidden(graph: Graph) -> list[str]:
    """The operators that make hidden units."""
    return [op.name for op in graph.operators if op.name[:-1] in ("up", "gelu")]


def co_shard(graph: Graph, machine: taskflow.MachineModel) -> Strategy:
    """Hidden units in SHARDS parts on one device."""
    strategy = taskflow.single_device(graph, machine)
    for name in strategy:
        axis = {"up": "o", "gelu": "o", "down": "i"}.get(name[:-1])
        if axis is not None:
            strategy[name] = ParallelConfig({axis: SHARDS}, (0,) * SHARDS)
    return strategy


def blocks_of(side: str, costs: taskflow.CostModel, tokens: int, count: int) -> TaskGraph:
    """The rows of blocks."""
    graph, machine = blocks(tokens, count), costs.machine
    if side == "whole":
        return taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    graph = taskflow.recompute(graph, hidden(graph))
    rows = taskflow.lower(graph, co_shard(graph, machine), machine)
    return taskflow.reorder(rows, costs, taskflow.schedule.by_ordinal)


def arena(rows: TaskGraph) -> np.ndarray:
    """Bytes of all instances, and of those beside what is kept between steps, with as little memory as will do."""
    plan = plan_memory(replace(rows, machine=rows.machine.with_rates(memory_bytes=1)))
    return np.array([plan.peak_bytes[0], plan.peak_bytes[0] - plan.persistent_bytes[0]], float)


def compare(what: str, figures: tuple[float, float], unit: str, most: float) -> None:
    """A line: both sides, their ratio, its bound."""
    first, second = figures
    verdict = "ok" if second <= most * first else "MISSED"
    print(
        f"  {what:36} {first:9.3f} -> {second:9.3f} {unit:2}  x {second / first:.3f} of {most}: {verdict}",
        flush=True,
    )


def compare_seconds(
    runs: list[Run], feeds: dict[str, np.ndarray], rounds: int, most: float
) -> float:
    """Two lines of seconds of a step; the ratio by the clock, by which rows are rehearsed in every second turn, too."""
    for run in runs:
        run.start(feeds)
    taken = np.empty((2 * rounds, len(runs), 2))
    for turn in range(2 * rounds):
        for k, run in enumerate(runs):
            if turn % 2 == 0:
                run.rehearse(1)
            begin = np.array([time.process_time(), time.perf_counter()])
            run.step(feeds)
            taken[turn, k] = np.array([time.process_time(), time.perf_counter()]) - begin
    (first, second), (begun, ended) = np.median(taken, axis=0).T.tolist()
    compare("step, measured", (first, second), "s", most)
    compare("step, measured by the clock", (begun, ended), "s", most)
    return ended / begun


def ffn(costs: taskflow.CostModel, rounds: int) -> None:
    """Arena and seconds of blocks."""
    tokens, count = SIZES["ffn"]
    print(
        f"{count} blocks of {WIDTH} and {HIDDEN} hidden units, {tokens} tokens: whole -> {SHARDS} parts, made again"
    )
    rows = [blocks_of(side, costs, tokens, count) for side in SIDES]
    whole, parts = (arena(each) / 1e6 for each in rows)
    compare("arena", (whole[0], parts[0]), "MB", FFN_MEMORY)
    compare("arena beside what is kept", (whole[1], parts[1]), "MB", FFN_MEMORY)
    runs = [Run(each, costs) for each in rows]
    compare_seconds(runs, make_feeds(blocks(tokens, count), 1), rounds, FFN_SECONDS)
    compare("step, predicted", (runs[0].predict(), runs[1].predict()), "s", FFN_SECONDS)


def peak_bytes(side: str) -> int:
    """What two steps add to this process at their peak, kernels loaded before by a small step."""
    costs = taskflow.CostModel.analytic(taskflow.MachineModel.local(1))
    for tokens in (16, SIZES["resident"][0]):
        count = SIZES["resident"][1]
        rows, feeds = blocks_of(side, costs, tokens, count), make_feeds(blocks(tokens, count), 1)
        give_back()
        before = status("VmRSS")
        forget_peak()
        with taskflow.Executor(rows, allow_nan=True) as step:
            for _ in range(2):
                step(feeds)
    return status("VmHWM") - before


def resident(costs: taskflow.CostModel, rounds: int) -> None:
    """Resident bytes of blocks."""
    tokens, count = SIZES["resident"]
    print(
        f"{count} blocks of {WIDTH} and {HIDDEN} hidden units, {tokens} tokens: whole -> {SHARDS} parts, made again"
    )
    command = [sys.executable, __file__, "--side"]
    runs = [
        subprocess.run([*command, side], check=True, capture_output=True, text=True)
        for side in SIDES
    ]
    compare(
        "resident above that before, at peak",
        tuple(int(run.stdout) / 1e9 for run in runs),
        "GB",
        FFN_MEMORY,
    )


def inside(graph: Graph) -> list[str]:
    """The forward operators of layers, but the last of each."""
    forward = [op.name for op in graph.operators if not op.is_backward and not op.writes]
    return [name for name in forward if name.startswith("layer") and not name.endswith(".add2")]


def recomputed_gpt(costs: taskflow.CostModel, rounds: int) -> None:
    """Memory and seconds of GPT-2, kept and made again."""
    print(
        f"GPT-2, {', '.join(f'{name} {size}' for name, size in GPT.items())}: kept -> all inside of layers made again"
    )
    graph = gpt.build(**GPT)
    graphs = graph, taskflow.recompute(graph, inside(graph))
    strategies = [taskflow.single_device(each, costs.machine) for each in graphs]
    rows = [
        taskflow.lower(each, s, costs.machine) for each, s in zip(graphs, strategies, strict=True)
    ]
    kept, again = (arena(each)[1] / 1e6 for each in rows)
    compare("arena beside what is kept", (kept, again), "MB", GPT_MEMORY)
    runs = [Run(each, costs) for each in rows]
    measured = compare_seconds(runs, make_feeds(graph, GPT["vocabulary"]), rounds, GPT_SECONDS)
    predicted = runs[0].predict(), runs[1].predict()
    compare("step, predicted", predicted, "s", GPT_SECONDS)
    off = predicted[1] / predicted[0] / measured - 1
    verdict = "ok" if abs(off) <= PREDICTION else "MISSED"
    print(f"  predicted ratio {off:+.1%} of the measured one, {PREDICTION:.0%} allowed: {verdict}")


PARTS: dict[str, Callable[[taskflow.CostModel, int], None]] = {
    "ffn": ffn,
    "resident": resident,
    "gpt": recomputed_gpt,
}


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=8, help="in which both sides take turns")
    parser.add_argument(
        "--side", choices=SIDES, help="of 'resident': measure this side here and print bytes"
    )
    options = parser.parse_args()
    if options.side:
        print(peak_bytes(options.side))
        return
    for name in options.parts:
        PARTS[name](machine_costs(False), options.rounds)


if __name__ == "__main__":
    main()
