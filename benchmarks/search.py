"""How fast strategies are judged: `python benchmarks/search.py`. One core; needs no GPU and no MPI.

Seconds are those of the processor, since the machine may be shared.

Two tables, printed line by line. First, on P100, proposals per second (proposing, lowering and simulating forward,
backward, update and communication, accepting) beside the public C++ of FlexFlow, which builds and simulates all for
each proposal: measured on one core of an AMD EPYC at -O2 with analytic kernel times. `walk/s`: one chain of
Metropolis-Hastings from data parallelism at one temperature, over all of `--seconds`. `judged/s`: the same chain, but
all of every proposal is judged, as FlexFlow does it; a walk gives up what is too slow to be accepted. `search/s`: all
chains of `taskflow.search` with a budget of `--search-seconds` (walks from several starts, then descents, of whose
proposals more are rejected early), from its call to its end: judging the starts and making the space count as time,
too. The ratios are those of walk and search. Second, a GPT of 96 layers (of 768, one sequence of 1,024 words a device)
on 1,024 H100: a strategy lowered and simulated from nothing, and proposals judged after it.

Every figure has a time limit and a process of its own; what takes longer, or more memory, is given up and says so.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection

import numpy as np

import taskflow
from taskflow.core.garbage import collect_rarely
from taskflow.searching.moves.drawn import change_chain, change_kin, change_operator
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.problem import SearchProblem
from taskflow.searching.space import Space
from taskflow.searching.walk import Walk

# Model -> samples a device; devices -> proposals per second of the public C++, and our target.
CHAINS: dict[str, tuple[int, dict[int, tuple[int, int]]]] = {
    "resnet101": (64, {4: (2183, 2000), 16: (282, 1000), 64: (36, 400)}),
    "inception_v3": (64, {4: (2784, 2500), 16: (331, 1200), 64: (41, 400)}),
    "alexnet": (256, {4: (60800, 8000), 16: (6375, 6000), 64: (688, 3000)}),
}
RANDOM = change_operator, change_kin, change_chain
BETA = 100.0  # the same for all graphs, so that rates can be compared
MEMORY_BYTES = 8 << 30  # of one figure
PROCESSES = multiprocessing.get_context("fork")

Figure = Callable[..., Iterator[str]]


def build(model: str, **sizes: int) -> taskflow.Graph:
    graph: taskflow.Graph = import_module(f"ops.models.{model}").build(**sizes)
    return graph


def staged(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Strategy:
    """Depths over the hosts, and each operator data parallel over the devices of its host.

    It is `operator_placement` with the devices of one number on all hosts taken for a host.
    """
    size = sum(d.host == 0 for d in machine.devices)
    turned = tuple(replace(d, host=k % size) for k, d in enumerate(machine.devices))
    return taskflow.operator_placement(graph, replace(machine, devices=turned))


PLANS = {"staged": staged, "data_parallel": taskflow.data_parallel}  # of the GPT


class ClockedJudge(PackedJudge):
    """Counts and clocks what it is asked."""

    def __init__(self, graph: taskflow.Graph, machine: taskflow.MachineModel) -> None:
        super().__init__(graph, machine, taskflow.CostModel.analytic(machine))
        self.proposals = self.accepted = 0
        self.start_seconds = self.seconds_judging = self.elapsed = 0.0

    def start(self, strategy: taskflow.Strategy) -> float:
        begin = time.process_time()
        step_seconds = super().start(strategy)
        self.start_seconds = time.process_time() - begin
        return step_seconds

    def propose_all(
        self, changes: Mapping[str, taskflow.ParallelConfig], limit: float = math.inf
    ) -> float:
        begin = time.process_time()
        step_seconds = super().propose_all(changes, limit)
        self.seconds_judging += time.process_time() - begin
        self.proposals += 1
        return step_seconds

    def accept(self) -> None:
        super().accept()
        self.accepted += 1


class WholeJudge(ClockedJudge):
    """Judges all of every proposal, also of what is too slow to be accepted."""

    def propose_all(
        self, changes: Mapping[str, taskflow.ParallelConfig], limit: float = math.inf
    ) -> float:
        return super().propose_all(changes)


def walk(
    judge: ClockedJudge, space: Space, start: taskflow.Strategy, seconds: float
) -> ClockedJudge:
    """Metropolis-Hastings from `start` for so many seconds."""
    problem, plan = SearchProblem(judge.graph, judge.machine, judge.costs), taskflow.Plan(start)
    variant, generator = problem.variant(plan), np.random.default_rng(0)
    variant.changes, variant.space = judge, space
    chain = Walk(problem, plan)
    if math.isinf(chain.seconds):
        raise ValueError(f"the first strategy is not feasible: {judge.refusal}")
    chain.beta = BETA / chain.seconds
    begin = time.process_time()
    with collect_rarely():
        while judge.elapsed < seconds:
            move = RANDOM[int(generator.random() * len(RANDOM))]
            changed = move(chain.plan, problem, generator)
            if changed is not None:
                chain.propose(changed, chain.limit(generator.random()))
            judge.elapsed = time.process_time() - begin
    return judge


CHAIN_HEADER = (
    f"{'model':14s}{'devices':>8s}{'walk/s':>9s}{'judged/s':>9s}{'ms each':>9s}{'judging':>9s}{'accepted':>9s}"
    f"{'start s':>9s}{'search/s':>10s}{'C++':>8s}{'walk/C++':>10s}{'search/C++':>12s}{'target':>8s}"
)


def chain(model: str, devices: int, seconds: float, search_seconds: float) -> Iterator[str]:
    """One line of the first table."""
    samples, figures = CHAINS[model]
    machine = taskflow.MachineModel.preset("p100", nodes=devices // 4)
    graph = build(model, batch=samples * devices)
    start = taskflow.data_parallel(graph, machine)
    judge = walk(ClockedJudge(graph, machine), Space(graph, machine), start, seconds)
    public, target = figures[devices]
    rate, searched = judge.proposals / judge.elapsed, search_rate(graph, machine, search_seconds)
    whole = walk(WholeJudge(graph, machine), Space(graph, machine), start, seconds)
    judged = whole.proposals / whole.elapsed
    yield (
        f"{model:14s}{devices:8d}{rate:9.1f}{judged:9.1f}{1e3 / rate:9.3f}{judge.seconds_judging / judge.elapsed:9.0%}"
        f"{judge.accepted / judge.proposals:9.1%}{judge.start_seconds:9.2f}{searched:10.1f}{public:8d}"
        f"{rate / public:9.2f}x{searched / public:11.2f}x{target:8d}"
    )


def search_rate(graph: taskflow.Graph, machine: taskflow.MachineModel, seconds: float) -> float:
    """Proposals a second of a search, beginning and end included."""
    begin = time.process_time()
    found = taskflow.search(graph, machine, taskflow.CostModel.analytic(machine), seconds=seconds)
    return found.proposals / (time.process_time() - begin)


def gpt(plan: str, devices: int, layers: int, seconds: float) -> Iterator[str]:
    """The second table, for one plan."""
    clock = Clock()
    graph = build("gpt", batch=devices, layers=layers)
    yield f"GPT, {layers} layers, {devices} devices, {plan}: {len(graph.operators)} operators, built in {clock}"
    machine = taskflow.MachineModel.preset("h100", nodes=devices // 8)
    strategy = PLANS[plan](graph, machine)
    yield f"  machine and strategy {clock}"
    task_graph = taskflow.lower(graph, strategy, machine)
    yield f"  lower {clock}: {len(task_graph)} rows"
    timeline = taskflow.simulate(task_graph, taskflow.CostModel.analytic(machine))
    yield f"  simulate {clock} (target with lowering 5 s): a step takes {timeline.seconds:.3f} s"
    judge = ClockedJudge(graph, machine)
    judge.start(strategy)
    yield f"  the judge's first strategy {clock}"
    space = Space(graph, machine)
    yield f"  space {clock}"
    walk(judge, space, strategy, seconds)
    each = judge.seconds_judging / judge.proposals
    yield f"  judge a proposal {each * 1e3:.1f} ms, mean of {judge.proposals} (target 50 ms)"


class Clock:
    """As text: the seconds since it was last asked."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def __str__(self) -> str:
        now = time.process_time()
        seconds, self.last = now - self.last, now
        return f"{seconds:.2f} s"


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
            print(
                f"{' '.join(map(str, args))}: ended with exit code {process.exitcode}", flush=True
            )
    process.kill()
    process.join()


def _send(send: Connection, figure: Figure, args: tuple[object, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for line in figure(*args):
        send.send(line)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=[*CHAINS], choices=[*CHAINS])
    parser.add_argument("--devices", nargs="*", type=int, default=[4, 16, 64], choices=[4, 16, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a chain")
    parser.add_argument("--search-seconds", type=float, default=60.0, help="budget of a search")
    parser.add_argument(
        "--limit", type=float, default=240.0, help="seconds after which a figure is given up"
    )
    parser.add_argument("--plans", nargs="*", default=[*PLANS], choices=[*PLANS], help="of the GPT")
    parser.add_argument("--gpt-devices", type=int, default=1024)
    parser.add_argument("--gpt-layers", type=int, default=96)
    options = parser.parse_args()
    if options.models and options.devices:
        print(CHAIN_HEADER)
    for model in options.models:
        for devices in options.devices:
            show(options.limit, chain, model, devices, options.seconds, options.search_seconds)
    for plan in options.plans:
        show(options.limit, gpt, plan, options.gpt_devices, options.gpt_layers, options.seconds)


if __name__ == "__main__":
    main()
