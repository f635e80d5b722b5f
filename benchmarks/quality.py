"""How good what a search finds is: `python benchmarks/quality.py MODE`. One core; needs no GPU and no MPI.

optimality: LeNet and an RNNLM of two steps on 4 P100. `search_exhaustively` proves the fastest strategy of a declared
    space: degrees that are powers of two, on a few lists of devices. Beside it stand 20 searches that keep to that
    space, each with the default budget and a seed of its own.
neighbours: the ten models on 2, 4 and 8 V100. A search goes on until no change of one operator helps; then every
    configuration that a new space has for any one operator is judged, and none may be faster, without waits for memory
    and with links as walks take them (`simulate.schedule`); about `--lowered` of them also from the rows of the changed
    strategy, lowered from nothing, which must give the same seconds to the bit.

Models of the second are cut to the sizes in SIZES, so that a core goes through all neighbours in minutes. What is never
worse than a start, and never too large, is in `tests/searching/test_search.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import taskflow
from taskflow import CostModel, Graph, MachineModel, ParallelConfig, Space, Strategy
from taskflow.searching.packed_judge import PackedJudge
from taskflow.simulation.simulate import schedule

ONE_OR_ALL = [(0,), (1,), (2,), (3,), (0, 1, 2, 3)]
PARTS = [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]
# Sizes, and the lists of devices of the declared space. Those of PARTS leave too much of LeNet to prove, and its
# accuracy, which is small and may lie anywhere, multiplies the strategies that are nearly as fast.
PROVEN: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "lenet": ({"metrics": False}, ONE_OR_ALL),
    "rnnlm": ({"steps": 2, "group": 1}, PARTS),
}

SIZES: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 63, "channels": (16, 32, 32, 32, 32), "hidden": 256, "classes": 100},
    "inception_v3": {"image": 107, "width": 1 / 8, "modules": (1, 1, 1), "classes": 100},
    "resnet101": {"image": 64, "blocks": (1, 1, 1, 1), "width": 16, "classes": 100},
    "rnntc": {"steps": 4, "hidden": 128, "layers": 2, "embed": 128, "vocabulary": 1000, "group": 4},
    "rnnlm": {"steps": 4, "hidden": 128, "embed": 128, "vocabulary": 1000, "group": 4},
    "nmt": {"steps": 4, "hidden": 128, "layers": 1, "embed": 128, "vocabulary": 1000, "group": 4},
    "gpt": {"sequence": 64, "layers": 2, "hidden": 128, "heads": 4, "vocabulary": 1000},
    "bert": {
        "sequence": 64,
        "masked": 8,
        "layers": 1,
        "hidden": 128,
        "heads": 4,
        "vocabulary": 1000,
    },
    "dlrm": {"tables": 4, "rows": 10_000, "bottom": (64, 128, 64), "top": (128, 128, 1)},
    "mlp": {"inputs": 256, "hidden": (1024, 1024)},
}


def build(model: str, batch: int, **sizes: Any) -> Graph:
    graph: Graph = import_module(f"ops.models.{model}").build(batch=batch, **sizes)
    return graph


# -- optimality --------------------------------------------------------------------------------------------------------


def optimality(options: argparse.Namespace) -> Iterator[str]:
    """A line per model when its optimum is proven, and one for its searches."""
    machine = MachineModel.preset("p100", nodes=1)
    costs = CostModel.analytic(machine)
    for model in (m for m in PROVEN if m in options.models):
        sizes, lists = PROVEN[model]
        graph = build(model, 64, **sizes)

        space = Space(graph, machine, taskflow.power_of_two, lists)
        begin, found = time.process_time(), []
        for seed in range(options.seeds):
            found.append(taskflow.search(graph, machine, costs, seed=seed, space=space))
        searched = (time.process_time() - begin) / options.seeds
        best = min(found, key=lambda result: result.seconds)
        begin = time.process_time()
        optimum = taskflow.search_exhaustively(
            graph, machine, costs, space, [best.strategy], options.visits
        )
        yield f"{model}: {optimum}, {time.process_time() - begin:.0f} s"
        hits = sum(result.seconds <= optimum.seconds for result in found)
        worst = max(result.seconds for result in found)
        yield (
            f"{model}: {hits} of {options.seeds} searches find it (target 19 of 20), {found[0].proposals} proposals "
            f"and {searched:.1f} s each; the worst is {worst / optimum.seconds - 1:.2%} slower; best start "
            f"{min(found[0].baseline_seconds.values()) / optimum.seconds:.3f} times as long"
        )


# -- neighbours --------------------------------------------------------------------------------------------------------


def neighbours(options: argparse.Namespace) -> Iterator[str]:
    """A line per model and number of devices."""
    yield (
        f"{'model':14s}{'devices':>8s}{'operators':>10s}{'neighbours':>11s}{'lowered':>9s}{'found ms':>10s}"
        f"{'best start':>11s}{'next':>9s}{'faster':>8s}{'seconds':>9s}"
    )
    for model in (m for m in SIZES if m in options.models):
        for devices in options.devices:
            yield _neighbours_of(model, devices, options)


def _neighbours_of(model: str, devices: int, options: argparse.Namespace) -> str:
    begin, machine = time.process_time(), MachineModel.preset("v100").take(devices)
    graph, costs = build(model, 8 * devices, **SIZES[model]), CostModel.analytic(machine)
    found = taskflow.search(graph, machine, costs, proposals=options.proposals, until_local=True)
    judge, changes = (
        PackedJudge(graph, machine, costs, is_roomy=True),
        list(_changes(Space(graph, machine), found.strategy)),
    )
    here = judge.start(found.strategy)
    if (exact := _lowered_seconds(graph, found.strategy, machine, costs)) != here:
        raise AssertionError(f"{model}: {here} judged, {exact} lowered")
    seconds = [judge.propose_all({name: config}) for name, config in changes]
    checked = range(0, len(changes), max(1, len(changes) // max(options.lowered, 1)))
    for k in checked:
        other = found.strategy.copy()
        other.update([changes[k]])
        exact = _lowered_seconds(graph, other, machine, costs)
        if exact != seconds[k]:
            raise AssertionError(f"{model}, {changes[k]}: {seconds[k]} judged, {exact} lowered")
    return (
        f"{model:14s}{devices:8d}{len(found.strategy):10d}{len(changes):11d}{len(checked):9d}"
        f"{found.seconds * 1e3:10.4f}{min(found.baseline_seconds.values()) / found.seconds:10.3f}x"
        f"{min(seconds) / here:8.4f}x{sum(s < here for s in seconds):8d}"
        f"{time.process_time() - begin:9.0f}"
    )


def _changes(space: Space, strategy: Strategy) -> Iterator[tuple[str, ParallelConfig]]:
    """Every other configuration of every operator."""
    for name in space.names:
        yield from ((name, config) for config in space.configs(name) if config != strategy[name])


def _lowered_seconds(
    graph: Graph, strategy: Strategy, machine: MachineModel, costs: CostModel
) -> float:
    """By one pass over rows that are lowered from nothing; infinite if they cannot be."""
    try:
        rows = taskflow.lower(graph, strategy, machine)
    except ValueError:
        return math.inf
    return schedule(rows, costs.seconds(rows))[2]


MODES: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "optimality": optimality,
    "neighbours": neighbours,
}


def main() -> None:
    """Print the lines of a mode as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=[*MODES])
    parser.add_argument("--models", nargs="*", default=[*PROVEN, *SIZES], choices=[*PROVEN, *SIZES])
    parser.add_argument("--seeds", type=int, default=20, help="optimality: searches of each model")
    parser.add_argument(
        "--visits", type=int, help="optimality: bound so many sets at most; then nothing is proven"
    )
    parser.add_argument(
        "--devices", nargs="*", type=int, default=[2, 4, 8], help="neighbours: of one host of V100"
    )
    parser.add_argument(
        "--proposals", type=int, default=1000, help="neighbours: before the last descent"
    )
    parser.add_argument(
        "--lowered",
        type=int,
        default=200,
        help="neighbours: judged from nothing too, about so many",
    )
    options = parser.parse_args()
    for line in MODES[options.mode](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
