"""Two ranks of which one is k times slower: parts in proportion to measured speeds against equal ones.

    mpirun -n 2 python benchmarks/unequal.py [--times 1,2,3,4] [--steps 7]

Rank 1 is slow because all that it computes runs k times: every kernel of the model, and every product by which
`measure_machine` compares ranks. Nobody says so: the rates that it finds give a search the start `proportional`, which
is compared with data parallelism, and so is what a short search finds; steps in turn. Equal halves take (k + 1) / 2
times as long as parts in proportion to speed, if that were all: sums of gradients, and updates, which each rank does
whole, are in a step, too.

`clock`: medians of steps, of the rank that is last. `work`: the same by seconds of the processor that kernels took,
which others on the machine disturb less. `predicted`: by `simulate`. `gradients`: the largest difference between both,
of the largest gradient, in float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import ops
import taskflow
from taskflow.cost import measure

WORLD = MPI.COMM_WORLD
LEAST_SHARE, MOST_DIFFERENCE = 0.85, 1e-10
LAYERS, WIDTH = 4, 512
Array = np.ndarray[Any, Any]


class Slowness:
    """How many times this rank does everything, and seconds of the processor that its kernels have taken."""

    times, work_seconds = 1, 0.0


def repeated(op: taskflow.Operator) -> taskflow.Kernel:
    """The kernel of an operator, which runs `Slowness.times` times."""
    return taskflow.Kernel(
        partial(repeat, op.kernel, op.overwrites), is_compiled=op.kernel.is_compiled
    )


def repeat(
    kernel: taskflow.Kernel, written: Sequence[int], ctx: taskflow.Context, *arrays: Array
) -> None:
    """Run a kernel so many times, all but the last on copies of what it updates in place."""
    begin = time.thread_time()
    for _ in range(Slowness.times - 1):
        kernel(ctx, *(a.copy() if k in written else a for k, a in enumerate(arrays)))
    kernel(ctx, *arrays)
    Slowness.work_seconds += time.thread_time() - begin


def measured_machine() -> taskflow.MachineModel:
    """The machine at hand, on which what is timed runs as many times as kernels do."""
    true = measure.calls_per_second
    measure.calls_per_second = lambda call: true(lambda: [call() for _ in range(Slowness.times)])
    try:
        return taskflow.measure_machine(taskflow.MachineModel.local())
    finally:
        measure.calls_per_second = true


def model(batch: int) -> taskflow.Graph:
    """Linear layers; the weights change by their gradients."""
    graph = taskflow.Graph()
    h = graph.input("x", (batch, WIDTH), "float64")
    for k in range(LAYERS):
        h = ops.linear(h, WIDTH, name=f"fc{k}")
    ops.sgd(
        ops.mean_squared_error(h, graph.input("t", (batch, WIDTH), "float64"), name="loss"), lr=1.0
    )
    graph.operators = [replace(op, kernel=repeated(op)) for op in graph.operators]
    return graph


Feeds = Mapping[str, Array]


def gradients(step: taskflow.Executor, feeds: Feeds) -> Array:
    """Those of all weights, by the first step."""
    names = [f"fc{k}.weight" for k in range(LAYERS)]
    before = [step.read(name) for name in names]
    step(feeds)
    return np.array([old - step.read(name) for old, name in zip(before, names, strict=True)])


def timed(step: taskflow.Executor, feeds: Feeds) -> tuple[float, float]:
    """Seconds of a step by the clock, and of work, both of the rank that takes longest."""
    WORLD.Barrier()
    Slowness.work_seconds = 0.0
    step(feeds)
    return WORLD.allreduce(step.timeline.seconds, MPI.MAX), WORLD.allreduce(
        Slowness.work_seconds, MPI.MAX
    )


def compare(times: int, options: argparse.Namespace) -> None:
    """Print the gains for one slowness."""
    Slowness.times = times if WORLD.rank else 1
    machine, graph = measured_machine(), model(options.batch)
    costs = taskflow.CostModel.analytic(machine)
    result = taskflow.search(graph, machine, costs, proposals=options.proposals)
    strategies = {
        "equal": taskflow.data_parallel(graph, machine),
        "proportional": taskflow.proportional(graph, machine),
        "found": result.strategy,
    }
    rows = {name: taskflow.lower(graph, strategy, machine) for name, strategy in strategies.items()}
    predicted = {name: taskflow.simulate(each, costs).seconds for name, each in rows.items()}
    generator = np.random.default_rng(0)
    feeds = {name: generator.standard_normal((options.batch, WIDTH)) for name in ("x", "t")}
    steps = {name: taskflow.Executor(each, seed=0, record=True) for name, each in rows.items()}
    try:
        first = {name: gradients(step, feeds) for name, step in steps.items()}
        taken = np.array(
            [[timed(step, feeds) for step in steps.values()] for _ in range(options.steps)]
        )
    finally:
        for step in steps.values():
            step.close()
    difference = (
        max(np.abs(g - first["equal"]).max() for g in first.values()) / np.abs(first["equal"]).max()
    )
    if WORLD.rank == 0:
        print(
            f"k = {times}: parts {shares(strategies['proportional'])}, best start {result.best_start}",
            flush=True,
        )
        for number, name in enumerate(("proportional", "found"), 1):
            clock, work = np.median(taken[:, 0] / taken[:, number], axis=0)
            report(name, times, (clock, work, predicted["equal"] / predicted[name]), difference)


def shares(strategy: taskflow.Strategy) -> str:
    """The parts of the samples."""
    bounds = (
        strategy["fc0"].bounds("b", 1000) if "b" in dict(strategy["fc0"].degrees) else [0, 1000]
    )
    return " : ".join(f"{part / 1000:.3f}" for part in np.diff(bounds).tolist())


def report(name: str, times: int, gains: Sequence[float], difference: float) -> None:
    """A line of gains over equal parts, each with its share of the ideal."""
    ideal = (times + 1) / 2
    named = zip(("clock", "work", "predicted"), gains, strict=True)
    words = (f"{what} {gain:.2f}x ({share(gain, ideal)})" for what, gain in named)
    text, verdict = ", ".join(words), "ok" if difference <= MOST_DIFFERENCE else "MISSED"
    print(f"  {name:12} {text} of {ideal:g}x; gradients {difference:.1e}: {verdict}", flush=True)


def share(gain: float, ideal: float) -> str:
    """The part of the ideal that was reached."""
    return f"{gain / ideal:.2f}" + ("" if gain >= LEAST_SHARE * ideal else " MISSED")


def main() -> None:
    """Compare for every slowness that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", default="1,2,3,4", help="how many times slower rank 1 is")
    parser.add_argument("--steps", type=int, default=7, help="timed of each")
    parser.add_argument("--batch", type=int, default=1536)
    parser.add_argument("--proposals", type=int, default=300)
    options = parser.parse_args()
    if WORLD.size != 2:
        raise SystemExit("start two ranks: mpirun -n 2 python benchmarks/unequal.py")
    for times in map(int, options.times.split(",")):
        compare(times, options)


if __name__ == "__main__":
    main()
