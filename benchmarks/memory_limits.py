"""Random limits of memory: what a search refuses though a grid of experts fits: `python benchmarks/memory_limits.py`.

Twenty pairs of a small model and a machine, ten limits each, drawn by their logarithm between nine tenths of what the
leanest grid needs on its fullest device and what the largest needs. Grids are those of `benchmarks/grids.py`,
each as it is, with layers computed again, with sharded parameters and with both; what each needs is the peak of its
rows. One line per pair: limits at which a grid fits, and how many of those the search refused, which must be none;
limits at which none fits, how many of those the search fits still (by stages and micro-batches), and what the last
refusal says.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
from grids import grids

import ops
import taskflow
from taskflow.core.errors import NoRoomError
from taskflow.core.text import describe_memory
from taskflow.searching.moves.shape import plan_of
from taskflow.searching.problem import SearchProblem
from taskflow.simulation.simulate import simulate

LOWEST = 0.9  # of what the leanest grid needs
PROPOSALS = 30


def of_examples(name: str, **sizes: int) -> Callable[[int], taskflow.Graph]:
    def build(devices: int) -> taskflow.Graph:
        graph: taskflow.Graph = import_module(f"ops.models.{name}").build(
            batch=2 * devices, training=False, **sizes
        )
        ops.adam(graph.outputs["loss"], lr=1e-3)
        return graph

    return build


TRANSFORMER = {"layers": 3, "hidden": 128, "heads": 4, "sequence": 64, "vocabulary": 512}
MODELS = {
    "gpt": of_examples("gpt", **TRANSFORMER),
    "bert": of_examples("bert", **TRANSFORMER, masked=8),
    "moe": of_examples("moe", **TRANSFORMER),
    "mlp": of_examples("mlp", inputs=256),
    "alexnet": of_examples("alexnet"),
}
MACHINES = ("p100", 4), ("p100", 8), ("h100", 8), ("v100", 16)


def needs(graph: taskflow.Graph, machine: taskflow.MachineModel) -> Iterator[int]:
    """Bytes of the fullest device under every grid."""
    problem = SearchProblem(graph, machine, taskflow.CostModel.analytic(machine))
    for shape in grids(len(machine.devices)):
        if plan := plan_of(shape, problem):
            outcome = problem.judge.judge(plan)
            if math.isfinite(
                outcome.with_room
            ):  # else it cannot be, such as of groups of a convolution
                yield outcome.peak_bytes


def tried(graph: taskflow.Graph, machine: taskflow.MachineModel, seed: int) -> str:
    """The refusal of a search; empty: it found a plan, which fits."""
    costs = taskflow.CostModel.analytic(machine)
    try:
        found = taskflow.search(graph, machine, costs, proposals=PROPOSALS, seed=seed)
    except NoRoomError as error:
        return str(error)
    rows = found.plan.apply(graph, machine, costs)[1]
    peak, room = int(simulate(rows, costs).peak_bytes.max()), machine.devices[0].memory_bytes
    if peak > room:
        raise AssertionError(f"a plan was returned that needs {peak} bytes, of {room}")
    return ""


def main() -> None:
    """Print the table; ends with 1 if a search refused what a grid fits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--limits", type=int, default=10, help="of a pair of model and machine")
    options = parser.parse_args()
    generator, refused, cases = np.random.default_rng(0), 0, 0
    for model in options.models:
        for preset, devices in MACHINES:
            each = len(taskflow.MachineModel.preset(preset).devices)
            machine = taskflow.MachineModel.preset(preset, nodes=devices // each)
            graph = MODELS[model](devices)
            grids = sorted(needs(graph, machine))
            low, high = np.log([LOWEST * grids[0], grids[-1]])
            limits = np.exp(generator.uniform(low, high, options.limits)).astype(int)
            says = {
                int(limit): tried(graph, machine.with_rates(memory_bytes=int(limit)), 0)
                for limit in limits
            }
            fits = [limit for limit in says if limit >= grids[0]]
            wrong = [limit for limit in fits if says[limit]]
            none = [limit for limit in says if limit < grids[0]]
            last = next((says[limit] for limit in reversed(says) if says[limit]), "")
            cases, refused = cases + len(says), refused + len(wrong)
            print(
                f"{model:8s} {devices} {preset}, {len(grids)} grids need {describe_memory(grids[0])} to "
                f"{describe_memory(grids[-1])}: {len(fits)} limits fit a grid, {len(wrong)} refused {wrong}; "
                f"{len(none)} fit none, {sum(not says[limit] for limit in none)} found still; {last}",
                flush=True,
            )
    print(f"{cases} limits, {refused} refused where a grid fits: {'MISSED' if refused else 'ok'}")
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()
