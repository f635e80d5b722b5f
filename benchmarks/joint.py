"""Stages, micro-batches, schedules and recomputation searched for together, against brute force and against experts.

    python benchmarks/joint.py [--cases 200] [--seconds 5]       against brute force, on small random models
    python benchmarks/joint.py --gpt [--nodes 1] [--seconds 60]  a GPT-2 of 24 layers on V100 with 4 GB

Brute force: all cuts x groups of devices x micro-batches x recomputation of whole stages x policies, by the seconds of
`simulate` on rows; what a bound proves to be slower is left out. The bound counts points alone: forward passes of the
stages before one, all of its own, and the way back. Experts: 1F1B on stages with equal work, and data parallelism, each
with any number of micro-batches, and recomputation of nothing, of segments and of all layers.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import combinations, pairwise, product

import numpy as np

import ops
from taskflow import CostModel, Device, Graph, MachineModel, data_parallel, simulate, stages
from taskflow.schedule.plan import Plan
from taskflow.searching.budget import Budget
from taskflow.searching.joint import search_stages
from taskflow.searching.joint.atoms import find_atoms
from taskflow.searching.joint.cells import CellTables
from taskflow.searching.joint.costs import Pricing
from taskflow.searching.joint.estimates import Estimates
from taskflow.searching.joint.finalists import Finalists
from taskflow.searching.joint.planned import PlannedPipeline, PlannedStage
from taskflow.tasks.memory import staged_bytes

MOST_ATOMS, MOST_PARTS, BATCH = 12, 8, 32
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


def pipelines(tables: CellTables) -> Iterator[PlannedPipeline]:
    """All of them."""
    atoms, devices = len(tables.pricing.atoms), len(tables.machine.devices)
    for count in range(1, devices + 1):
        cuts = combinations(range(1, atoms), count - 1)
        sizes = [each for each in product(tables.sizes, repeat=count) if sum(each) <= devices]
        for cut, size, again in product(cuts, sizes, product((False, True), repeat=count)):
            planned, first = [], 0
            for (begin, end), many, is_again in zip(
                pairwise((0, *cut, atoms)), size, again, strict=True
            ):
                some = tables.recomputable & frozenset(range(begin, end) if is_again else ())
                planned.append(PlannedStage(begin, end, first, many, "data", some))
                first += many
            for parts in (1, 2, 4, 8):
                yield PlannedPipeline(tuple(planned), parts)


def bound(estimates: Estimates, pipeline: PlannedPipeline) -> float:
    """Seconds that it takes at least; infinite: it cannot be, or what it keeps between steps does not fit."""
    machine, found = (
        estimates.machine,
        [estimates.costs_of(stage, pipeline.parts) for stage in pipeline.stages],
    )
    rooms = [machine.devices[stage.first].memory_bytes for stage in pipeline.stages]
    if any(each is None or each.kept_bytes > room for each, room in zip(found, rooms, strict=True)):
        return math.inf
    forward, back, weight = np.array([each.spans for each in found if each is not None]).T
    before = np.concatenate([[0.0], forward.cumsum()[:-1]])
    there_and_back = before + np.concatenate([[0.0], back.cumsum()[:-1]])
    own = pipeline.parts * (forward + back)
    return float(max((before + own + pipeline.parts * weight).max(), (there_and_back + own).max()))


def brute_force(graph: Graph, machine: MachineModel) -> tuple[float, int, int]:
    """The least seconds of a plan that fits, how many pipelines there are, and how many were lowered."""
    costs = CostModel.analytic(machine)
    tables = CellTables(Pricing(graph, find_atoms(graph), machine, costs), None)
    estimates, finalists = (
        Estimates(tables),
        Finalists(graph, machine, costs, tables, Budget(None, 1e9), 0),
    )
    every = sorted(
        (bound(estimates, each), k, each) for k, each in enumerate(dict.fromkeys(pipelines(tables)))
    )
    for least, _, pipeline in every:
        if least < finalists.best_seconds:
            finalists.judge(pipeline, estimates.orders(pipeline))
    return finalists.best_seconds, len(every), finalists.budget.done


def compare(cases: int, seconds: float, first: int) -> None:
    """Search against brute force on random cases; a first one compiles."""
    ratios: list[float] = []
    with suppress(ValueError):
        search_stages(*case(1), CostModel.analytic(case(1)[1]), seconds)
    for seed in range(first, first + cases):
        graph, machine = case(seed)
        begun, found = time.perf_counter(), math.inf
        with suppress(ValueError):
            found = search_stages(graph, machine, CostModel.analytic(machine), seconds)[0].seconds
        taken = time.perf_counter() - begun
        best, many, lowered = brute_force(graph, machine)
        ratios.append(1.0 if found == best else found / best)
        spent = time.perf_counter() - begun - taken
        says = f"{len(find_atoms(graph)):2} atoms, {len(machine.devices)} devices: "
        says += f"{found * 1e6:9.2f} us in {taken:.1f} s"
        print(
            f"{seed:3} {says}; brute force {best * 1e6:9.2f} us of {many} pipelines, {lowered} plans, "
            f"in {spent:.1f} s: {ratios[-1]:.4f}",
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
    atoms, devices, samples = find_atoms(graph), len(machine.devices), graph.inputs[0].shape[0]
    layers = tuple(name for atom in atoms for name in atom.inner)
    several = [1 << k for k in range(samples.bit_length()) if samples % (1 << k) == 0]
    for parts, (said, names) in product(several, {"nothing": (), "layers": layers}.items()):
        if parts * devices <= samples:
            order = "by_ordinal" if parts > 1 else None
            yield (
                f"data parallel x {parts}, {said} recomputed",
                Plan(data_parallel(graph, machine), parts, order, names),
            )
        for count in (2, 4, 8, 16, 32, 64):
            if count <= min(devices, len(atoms)) and parts * devices // count <= samples:
                plan = Plan(stages(graph, machine, count), parts, "one_f_one_b", names)
                yield f"1F1B, {count} equal stages x {parts}, {said} recomputed", plan


def print_gpt(nodes: int, seconds: float, samples: int, hidden: int, sequence: int) -> None:
    """The search and the experts on one model."""
    machine = MachineModel.preset("v100", nodes=nodes).with_rates(memory_bytes=V100_BYTES)
    devices = len(machine.devices)
    sizes = {"layers": 24, "hidden": hidden, "heads": hidden // 64, "sequence": sequence}
    graph = import_module("ops.models.gpt").build(batch=samples * devices, **sizes)
    begun, cpu = time.perf_counter(), time.process_time()
    found = search_stages(graph, machine, CostModel.analytic(machine), seconds)
    taken = f"{time.perf_counter() - begun:.1f} s, {time.process_time() - cpu:.1f} of one core"
    print(
        f"GPT-2 {sizes}, {samples * devices} samples, {devices} V100 of 4 GiB: searched in {taken}"
    )
    for each in found[:5]:
        print(f"  {each.seconds * 1e3:8.1f} ms {each.peak_bytes / (1 << 30):6.2f} GiB  {each.name}")
    best = {"data parallel": math.inf, "1F1B": math.inf}
    for name, plan in experts(graph, machine):
        with suppress(ValueError):
            step, need = simulated(graph, machine, plan)
            kind = "1F1B" if name.startswith("1F1B") else "data parallel"
            best[kind] = min(best[kind], step if need <= V100_BYTES else math.inf)
            print(f"  {step * 1e3:8.1f} ms {need / (1 << 30):6.2f} GiB  {name}", flush=True)
    ratio = min(best.values()) / found[0].seconds
    verdict = "ok" if ratio >= LEAST_RATIO else "MISSED"
    print(
        f"data parallel {best['data parallel']:.4f} s, 1F1B {best['1F1B']:.4f}, found {found[0].seconds:.4f}: "
        f"{ratio:.3f} x: {verdict}"
    )


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="case")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--gpt", action="store_true")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--samples", type=int, default=4, help="of a device")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--sequence", type=int, default=512)
    options = parser.parse_args()
    if options.gpt:
        print_gpt(
            options.nodes,
            options.seconds or 60.0,
            options.samples,
            options.hidden,
            options.sequence,
        )
    else:
        compare(options.cases, options.seconds or 5.0, options.first)


if __name__ == "__main__":
    main()
