"""How fast strategies are judged: `python benchmarks/search.py`. One core; needs no GPU and no MPI.

Two tables, printed line by line. First, Metropolis-Hastings from data parallelism on P100: proposals per second over
the whole chain (proposing, lowering and simulating forward, backward, update and communication, accepting) beside the
public C++ of FlexFlow, which builds and simulates all for each proposal: measured on one core of an AMD EPYC at -O2
with analytic kernel times. Second, a GPT of 96 layers with the extents of GPT-3 (Brown et al., 2020) on 1,024 H100: a
strategy lowered and simulated from nothing, and proposals judged after it.

Every figure has a time limit and a process of its own; what takes longer, or more memory, is given up and says so.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import taskflow
from taskflow.judge import Judge
from taskflow.operator import Operator
from taskflow.rules import leaders, random_config

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

# Model -> samples a device; devices -> proposals per second of the public C++, and our target.
CHAINS: dict[str, tuple[int, dict[int, tuple[int, int]]]] = {
    "resnet101": (64, {4: (2183, 2000), 16: (282, 1000), 64: (36, 400)}),
    "inception_v3": (64, {4: (2784, 2500), 16: (331, 1200), 64: (41, 400)}),
    "alexnet": (256, {4: (60800, 8000), 16: (6375, 6000), 64: (688, 3000)}),
}
BETA = 50.0  # as in a search
GPT = {"batch": 1024, "sequence": 2048, "layers": 96, "hidden": 12288, "heads": 96}
GPT_PLANS = ("staged", "data_parallel")
GPT_TARGETS = "5 s", "50 ms"
MEMORY_BYTES = 8 << 30  # of one figure
PROCESSES = multiprocessing.get_context("fork")

Figure = Callable[..., Iterator[str]]


def build(model: str, **sizes: Any) -> taskflow.Graph:
    graph: taskflow.Graph = import_module(f"models.{model}").build(**sizes)
    return graph


def staged(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Strategy:
    """Depths over the hosts, and each operator data parallel over the devices of its host.

    It is `operator_placement` with the devices of one number on all hosts taken for a host.
    """
    size = sum(d.host == 0 for d in machine.devices)
    turned = tuple(replace(d, host=k % size) for k, d in enumerate(machine.devices))
    return taskflow.operator_placement(graph, replace(machine, devices=turned))


class Chain:
    """Metropolis-Hastings over the configurations of single operators; counts and clocks what it does."""

    def __init__(self, graph: taskflow.Graph, machine: taskflow.MachineModel, start: taskflow.Strategy) -> None:
        self.judge, self.machine = Judge(graph, machine, taskflow.CostModel.analytic(machine)), machine
        self.operators: list[Operator] = leaders(graph)
        self.generator = np.random.default_rng(0)
        begin = time.perf_counter()
        self.seconds = self.start_seconds = self.judge.start(start)
        self.full_judge_seconds = time.perf_counter() - begin
        self.proposals = self.accepted = 0
        self.judging = self.elapsed = 0.0

    def walk(self, seconds: float) -> None:
        """Propose until the time is over."""
        begin = time.perf_counter()
        while self.elapsed < seconds:
            op = self.operators[self.generator.integers(len(self.operators))]
            config = random_config(op, self.machine, self.generator)
            limit = self.seconds - math.log(1.0 - self.generator.random()) * self.start_seconds / BETA
            judged = time.perf_counter()
            found = self.judge.propose(op.name, config, limit)
            self.judging += time.perf_counter() - judged
            self.proposals += 1
            if found <= limit:
                self.judge.accept()
                self.accepted, self.seconds = self.accepted + 1, found
            self.elapsed = time.perf_counter() - begin

    def __str__(self) -> str:
        rate, each = self.proposals / self.elapsed, self.elapsed / self.proposals
        judged, accepted = self.judging / self.elapsed, self.accepted / self.proposals
        return f"{rate:10.1f} {each * 1e3:11.3f} {judged:7.0%} {accepted:9.1%} {self.full_judge_seconds:8.2f}"


CHAIN_HEADER = (
    f"{'model':14s} {'devices':>7s} {'proposals/s':>11s} {'ms each':>11s} {'judging':>7s} {'accepted':>9s} "
    f"{'start s':>8s} {'C++':>7s} {'ratio':>7s} {'target':>7s}"
)


def chain(model: str, devices: int, seconds: float) -> Iterator[str]:
    """One line of the first table."""
    samples, figures = CHAINS[model]
    machine = taskflow.MachineModel.preset("p100", nodes=devices // 4)
    graph = build(model, batch=samples * devices)
    walked = Chain(graph, machine, taskflow.data_parallel(graph, machine))
    walked.walk(seconds)
    public, target = figures[devices]
    ratio = walked.proposals / walked.elapsed / public
    yield f"{model:14s} {devices:7d}  {walked} {public:7d} {ratio:6.2f}x {target:7d}"


def gpt(plan: str, devices: int, layers: int, seconds: float) -> Iterator[str]:
    """The second table, for one plan."""
    begin = time.perf_counter()
    graph = build("gpt", **{**GPT, "layers": layers})
    yield f"GPT, {layers} layers, {devices} devices, {plan}:"
    yield f"  build {time.perf_counter() - begin:.2f} s: {len(graph.operators)} operators"
    machine = taskflow.MachineModel.preset("h100", nodes=devices // 8)
    rule = staged if plan == "staged" else taskflow.data_parallel
    strategy = rule(graph, machine)
    begin = time.perf_counter()
    task_graph = taskflow.lower(graph, strategy, machine)
    lowered = time.perf_counter()
    timeline = taskflow.simulate(task_graph, taskflow.CostModel.analytic(machine))
    done = time.perf_counter()
    yield f"  lower {lowered - begin:.2f} s, simulate {done - lowered:.2f} s (target together {GPT_TARGETS[0]})"
    yield f"  {len(task_graph)} rows, a step of {timeline.seconds:.3f} s"
    walked = Chain(graph, machine, strategy)
    yield f"  the judge's first strategy {walked.full_judge_seconds:.2f} s"
    walked.walk(seconds)
    each = walked.elapsed / walked.proposals * 1e3
    yield f"  a proposal {each:.1f} ms, mean of {walked.proposals} (target {GPT_TARGETS[1]})"


def show(limit_seconds: float, figure: Figure, *args: object) -> None:
    """Print the lines of a figure as they come; end its process at the limit."""
    receive, send = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_send, args=(send, figure, args))
    process.start()
    send.close()
    end = time.monotonic() + limit_seconds
    try:
        while receive.poll(max(0.0, end - time.monotonic())):
            print(receive.recv(), flush=True)
        print(f"{' '.join(map(str, args))}: not within {limit_seconds:.0f} s", flush=True)
    except EOFError:
        process.join()
        if process.exitcode:
            print(f"{' '.join(map(str, args))}: ended with exit code {process.exitcode}", flush=True)
    process.kill()
    process.join()


def _send(send: Connection, figure: Figure, args: tuple[object, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for line in figure(*args):
        send.send(line)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[*CHAINS], choices=[*CHAINS])
    parser.add_argument("--devices", nargs="*", type=int, default=[4, 16, 64], choices=[4, 16, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a chain")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a figure is given up")
    parser.add_argument("--plans", nargs="*", default=[*GPT_PLANS], choices=GPT_PLANS, help="of the GPT")
    parser.add_argument("--gpt-devices", type=int, default=1024)
    parser.add_argument("--gpt-layers", type=int, default=96)
    options = parser.parse_args()
    if options.models and options.devices:
        print(CHAIN_HEADER)
    for model in options.models:
        for devices in options.devices:
            show(options.limit, chain, model, devices, options.seconds)
    for plan in options.plans:
        show(options.limit, gpt, plan, options.gpt_devices, options.gpt_layers, options.seconds)


if __name__ == "__main__":
    main()
