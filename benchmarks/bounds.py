"""How far from optimal the best known strategies are at most: `python benchmarks/bounds.py`. One core; needs no GPU.

Six models on P100, four a host. `found`: the fastest of the rules on all devices, and of a search if `--seconds` are
given. `bound`: no strategy of the space is faster (`searching.bound`).
`weak`: samples are per device. `strong`: as many in all as weak scaling has on 16 devices. Judged as in a walk.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from itertools import product

import taskflow
from taskflow import CostModel, Graph, MachineModel, Space
from taskflow.searching.bound import lower_bound
from taskflow.searching.packed_judge import PackedJudge
from taskflow.strategy.rules import RULES

SAMPLES = {"alexnet": 256, "mlp": 64, "gpt": 1, "rnntc": 64, "rnnlm": 64, "nmt": 64}  # a device
STRONG_DEVICES = 16
HEADER = (
    f"{'model':8s}{'devices':>8s} {'scaling':8s}{'best start':>11s}{'searched':>9s}"
    f"{'bound':>9s}{'CPU s':>7s}{'found/bound':>12s}  (ms a step)"
)


def line(name: str, devices: int, scaling: str, seconds: float | None) -> str:
    """One model on so many devices."""
    machine = MachineModel.preset("p100", nodes=devices // 4)
    graph: Graph = import_module(f"ops.models.{name}").build(
        batch=SAMPLES[name] * (devices if scaling == "weak" else STRONG_DEVICES)
    )
    costs = CostModel.analytic(machine)
    judge = PackedJudge(graph, machine, costs)
    found = start = min(judge.propose_all(rule(graph, machine)) for rule in RULES.values())
    searched = ""
    if seconds:
        result = taskflow.search(graph, machine, costs, seconds=seconds)
        found, searched = min(found, result.seconds), f"{result.seconds * 1e3:.2f}"
    clock = time.process_time()
    bound = lower_bound(Space(graph, machine), costs)
    return (
        f"{name:8s}{devices:8d} {scaling:8s}{start * 1e3:11.2f}{searched:>9s}"
        f"{bound * 1e3:9.2f}{time.process_time() - clock:7.1f}{found / bound:12.2f}"
    )


def main() -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=[*SAMPLES], choices=[*SAMPLES])
    parser.add_argument("--devices", nargs="*", type=int, default=[4, 16, 64], choices=[4, 16, 64])
    parser.add_argument(
        "--scaling", nargs="*", default=["weak", "strong"], choices=["weak", "strong"]
    )
    parser.add_argument("--seconds", type=float, help="of a search")
    options = parser.parse_args()
    print(HEADER)
    for scaling, devices, name in product(options.scaling, options.devices, options.models):
        print(line(name, devices, scaling, options.seconds), flush=True)


if __name__ == "__main__":
    main()
