"""Stages, micro-batches, schedules and recomputation searched for together, against brute force and against experts.

    python benchmarks/joint.py [--cases 200] [--proposals 3000]  against brute force, on small random models
    python benchmarks/joint.py --gpt [--nodes 1] [--seconds 60]  a GPT-2 of 24 layers on V100 with 4 GB

Brute force: cuts x groups of devices x micro-batches x recomputation x policies, by the seconds of `simulate` on rows.
Experts: 1F1B on stages with equal work, and data parallelism, each
with any number of micro-batches, and recomputation of nothing, of segments and of all layers.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import combinations, product

import numpy as np

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    Strategy,
    data_parallel,
    search,
    simulate,
    stages,
)
from taskflow.core.errors import NoRoomError
from taskflow.schedule.plan import Plan
from taskflow.searching.moves.again import recomputable
from taskflow.searching.problem import SearchProblem
from taskflow.tasks.memory import staged_bytes

LEAST_OPERATORS, BATCH = 2, 32
POLICIES = "one_f_one_b", "zb_h1"
LEAST_SHARE, MOST_GAP, LEAST_RATIO = 0.95, 1.01, 1.05
V100_BYTES = 4 << 30


# -- brute force -------------------------------------------------------------------------------------------------------


def case(seed: int) -> tuple[Graph, MachineModel]:
    """A chain of linear layers and activations, on two to four devices, of which memory may be short."""
    rng = np.random.default_rng(seed)
    graph, layers = Graph(), int(rng.integers(1, 6))
    h = graph.input("x", (BATCH, int(rng.choice([64, 128, 256]))))
    for k in range(layers):
        h = ops.linear(h, int(rng.choice([64, 128, 256, 512])), name=f"fc{k}")
        h = ops.relu(h, name=f"relu{k}") if rng.random() < 0.8 else h
    ops.adam(ops.mean_squared_error(h, graph.input("t", h.shape), name="loss"))
    rates = {
        "flops_per_second": 10 ** rng.uniform(9, 11),
        "memory_bandwidth": 1e10,
        "overhead_seconds": 2e-6,
    }
    device, link = Device("emulated", **rates), 10 ** rng.uniform(8.5, 10)
    machine = MachineModel.uniform(int(rng.integers(2, 5)), device, bandwidth=link)
    need = int(simulated(graph, machine, Plan(data_parallel(graph, machine)))[1])
    return graph, machine.with_rates(memory_bytes=int(need * rng.uniform(0.4, 1.5)))


def simulated(graph: Graph, machine: MachineModel, plan: Plan) -> tuple[float, float]:
    """Seconds of a step, and bytes of the fullest device."""
    costs = CostModel.analytic(machine)
    rows = plan.apply(graph, machine, costs)[1]
    timeline = simulate(rows, costs)
    return timeline.seconds, float((timeline.peak_bytes + staged_bytes(rows)).max())


def pipelines(problem: SearchProblem) -> Iterator[Plan]:
    """All of them, of stages of at least LEAST_OPERATORS operators."""
    names, devices = problem.variant(Plan(Strategy({}))).space.names, len(problem.machine.devices)
    inner = problem.variant(Plan(Strategy({}))).made(recomputable)
    for count in range(1, devices + 1):
        cuts = combinations(range(LEAST_OPERATORS, len(names), LEAST_OPERATORS), count - 1)
        sizes = [
            each for each in product(range(1, devices + 1), repeat=count) if sum(each) <= devices
        ]
        for cut, size, parts, again in product(cuts, sizes, (1, 2, 4, 8), {(), inner}):
            ends = np.cumsum(size).tolist()
            groups = [range(end - many, end) for end, many in zip(ends, size, strict=True)]
            with suppress(ValueError):
                strategy = stages(
                    problem.graph, problem.machine, cuts=[names[k] for k in cut], devices=groups
                )
                for policy in POLICIES if parts > 1 else (None,):
                    yield Plan(strategy, parts, policy, again)


def brute_force(problem: SearchProblem) -> tuple[float, int]:
    """The least seconds of a plan that fits, and how many there are."""
    seconds = [problem.judge.judge(plan).seconds for plan in pipelines(problem)]
    return min(seconds), len(seconds)


def compare(cases: int, proposals: int, first: int) -> None:
    """Search against brute force on random cases."""
    ratios: list[float] = []
    for seed in range(first, first + cases):
        graph, machine = case(seed)
        costs, begun, found = CostModel.analytic(machine), time.process_time(), math.inf
        with suppress(NoRoomError):
            found = search(graph, machine, costs, proposals=proposals).seconds
        taken = time.process_time() - begun
        best, many = brute_force(SearchProblem(graph, machine, costs))
        ratios.append(1.0 if found == best else found / best)
        print(
            f"{seed:3} {len(machine.devices)} devices: {found * 1e6:9.2f} us in {taken:.1f} s; "
            f"brute force {best * 1e6:9.2f} us of {many} plans: {ratios[-1]:.4f}",
            flush=True,
        )
    equal, worst = np.mean(np.array(ratios) <= 1 + 1e-9), max(ratios)
    verdict = "ok" if equal >= LEAST_SHARE and worst <= MOST_GAP else "MISSED"
    print(
        f"{len(ratios)} cases: {equal:.1%} equal or better, {np.mean(np.array(ratios) < 1 - 1e-9):.1%} better, worst "
        f"{worst:.4f}: {verdict}"
    )


# -- a GPT-2 -----------------------------------------------------------------------------------------------------------


def experts(graph: Graph, machine: MachineModel) -> Iterator[tuple[str, Plan]]:
    """What an expert writes down."""
    devices, samples = len(machine.devices), graph.inputs[0].shape[0]
    plain = Plan(Strategy({}))
    first = SearchProblem(graph, machine, CostModel.analytic(machine)).variant(plain)
    layers = first.made(recomputable)
    several = [1 << k for k in range(samples.bit_length()) if samples % (1 << k) == 0]
    for parts, (said, names) in product(several, {"nothing": (), "layers": layers}.items()):
        if parts * devices <= samples:
            order = "by_ordinal" if parts > 1 else None
            yield (
                f"data parallel x {parts}, {said} recomputed",
                Plan(data_parallel(graph, machine), parts, order, names),
            )
        for count in (2, 4, 8, 16, 32, 64):
            if (
                count <= min(devices, len(first.space.names))
                and parts * devices // count <= samples
            ):
                plan = Plan(stages(graph, machine, count), parts, "one_f_one_b", names)
                yield f"1F1B, {count} equal stages x {parts}, {said} recomputed", plan


def print_gpt(nodes: int, seconds: float, samples: int, hidden: int, sequence: int) -> None:
    """The search and the experts on one model."""
    machine = MachineModel.preset("v100", nodes=nodes).with_rates(memory_bytes=V100_BYTES)
    devices = len(machine.devices)
    sizes = {"layers": 24, "hidden": hidden, "heads": hidden // 64, "sequence": sequence}
    graph = import_module("ops.models.gpt").build(batch=samples * devices, **sizes)
    begun, cpu = time.perf_counter(), time.process_time()
    result = search(graph, machine, CostModel.analytic(machine), seconds=seconds)
    taken = f"{time.perf_counter() - begun:.1f} s, {time.process_time() - cpu:.1f} of one core"
    print(
        f"GPT-2 {sizes}, {samples * devices} samples, {devices} V100 of 4 GiB: searched in {taken}"
    )
    for each in result.pareto:
        print(f"  {each.seconds * 1e3:8.1f} ms {each.peak_bytes / (1 << 30):6.2f} GiB  {each.name}")
    best = {"data parallel": math.inf, "1F1B": math.inf}
    for name, plan in experts(graph, machine):
        with suppress(ValueError):
            step, need = simulated(graph, machine, plan)
            kind = "1F1B" if name.startswith("1F1B") else "data parallel"
            best[kind] = min(best[kind], step if need <= V100_BYTES else math.inf)
            print(f"  {step * 1e3:8.1f} ms {need / (1 << 30):6.2f} GiB  {name}", flush=True)
    ratio = min(best.values()) / result.seconds
    verdict = "ok" if ratio >= LEAST_RATIO else "MISSED"
    print(
        f"data parallel {best['data parallel']:.4f} s, 1F1B {best['1F1B']:.4f}, found {result.seconds:.4f}: "
        f"{ratio:.3f} x: {verdict}"
    )


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="case")
    parser.add_argument("--seconds", type=float, default=60.0, help="of --gpt")
    parser.add_argument("--proposals", type=int, default=3000)
    parser.add_argument("--gpt", action="store_true")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--samples", type=int, default=4, help="of a device")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--sequence", type=int, default=512)
    options = parser.parse_args()
    if options.gpt:
        print_gpt(
            options.nodes,
            options.seconds,
            options.samples,
            options.hidden,
            options.sequence,
        )
    else:
        compare(options.cases, options.proposals, options.first)


if __name__ == "__main__":
    main()
