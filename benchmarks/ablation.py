"""What each move of a search is worth: `python benchmarks/ablation.py [--rows ...] [--seeds 3] [--proposals 600]`.

Per row the seconds of the plan that `taskflow.search` finds with all moves, mean and spread over seeds, and for each
move the mean without it over that mean: above one it is worth something there. At equal proposals a move that
is left out gives its turns to the others. `inf`: without it nothing fits into memory. One core; needs no GPU.
`--literals` prints instead how many numbers but -1, 0, 1 and 2 stand in `taskflow/searching`, and where.
"""

from __future__ import annotations

import argparse
import ast
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grids
import joint
import search as searches

import taskflow
from taskflow import CostModel, Graph, MachineModel
from taskflow.core.errors import NoRoomError
from taskflow.searching.moves import MOVES, Move

Row = Callable[[], tuple[Graph, MachineModel]]


def half_precision(model: str, machine: str, memory: float = 1.0) -> Row:
    """A row of `grids.py`."""

    def row() -> tuple[Graph, MachineModel]:
        devices = grids.machine_of(machine, memory)
        return grids.MODELS[model](len(devices.devices)), devices

    return row


def paper(model: str, samples: int, devices: int) -> Row:
    """A model of FlexFlow's evaluation, on P100."""

    def row() -> tuple[Graph, MachineModel]:
        machine = MachineModel.preset("p100", nodes=devices // 4)
        return searches.build(model, batch=samples * devices), machine

    return row


ROWS: dict[str, Row] = {
    "GPT 4 x 2048, 8 H100": half_precision("GPT 4 x 2048", "8 H100"),
    "GPT 4 x 2048, 16 V100, half": half_precision("GPT 4 x 2048", "16 V100", 0.5),
    "GPT 12 x 768, 16 V100": half_precision("GPT 12 x 768", "16 V100"),
    "MoE, 8 H100": half_precision("MoE", "8 H100"),
    "AlexNet, 4 P100": paper("alexnet", 256, 4),
    "Inception-v3, 16 P100": paper("inception_v3", 64, 16),
    "RNNLM, 16 P100": paper("rnnlm", 64, 16),
    "DLRM, 4 P100": paper("dlrm", 256, 4),
    **{f"joint {case}": partial(joint.case, case) for case in range(4)},
}


def mean_seconds(
    row: Row, moves: Sequence[Move], seeds: int, proposals: int
) -> tuple[float, float]:
    """Of a step of what is found, and the spread of that over its mean."""
    graph, machine = row()
    costs, found = CostModel.analytic(machine), list[float]()
    for seed in range(seeds):
        try:
            result = taskflow.search(graph, machine, costs, proposals, seed, moves=moves)
            found.append(result.seconds)
        except NoRoomError:
            return math.inf, 0.0
    mean = statistics.mean(found)
    return mean, (max(found) - min(found)) / mean


def literals() -> None:
    """Print a line for each number that is not -1, 0, 1 or 2, and how many these are."""
    found = []
    for path in sorted(Path(taskflow.__file__).parent.joinpath("searching").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        for node in (each for each in nodes if isinstance(each, ast.Constant)):
            if type(node.value) in (int, float) and node.value not in (0, 1, 2):  # without its sign
                found.append(f"{path.name}:{node.lineno}: {node.value!r}")
    print(*found, f"{len(found)} literals", sep="\n")


def main() -> None:
    """Print a line for each row, as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=[*ROWS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--proposals", type=int, default=600)
    parser.add_argument("--literals", action="store_true", help="count them, and search nothing")
    options = parser.parse_args()
    if options.literals:
        return literals()
    names = [move.__name__ for move in MOVES]
    print(f"{'row':30}{'ms':>12}{'spread':>8}  without: " + " ".join(names))
    for name in options.rows:
        given = options.seeds, options.proposals
        mean, spread = mean_seconds(ROWS[name], MOVES, *given)
        print(f"{name:30}{mean * 1e3:12.4f}{spread:8.2%} ", end="", flush=True)
        for left_out in MOVES[1:]:  # without `next_shape` nothing is begun with
            moves = tuple(move for move in MOVES if move is not left_out)
            without = mean_seconds(ROWS[name], moves, *given)[0]
            print(f" {left_out.__name__} {without / mean:.4f}", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
