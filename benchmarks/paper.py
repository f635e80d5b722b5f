"""FlexFlow's evaluation on simulated clusters: `python benchmarks/paper.py --seconds 300`. Needs no GPU and no MPI.

Jia, Zaharia and Aiken, "Beyond data and model parallelism for deep neural networks", MLSys 2019, section 8: six models
on 4 hosts of 4 P100 and 16 of 4 K80 (`taskflow/machines` has their published figures), and the DLRM that its web site
shows. For each, a step under data parallelism, under the rule of experts (one weird trick for the CNNs; layers over the
devices of a host for the RNNs; placed tables for DLRM), and under the strategy that a search of `--seconds` finds; the
throughput over the better of the first two stands beside the paper's range, which it gives for all devices together.

Samples are per device, as the paper's own figures need: 35.7 s of computing for a step of NMT on 64 K80 is 1.6 Tflop/s
of each with 64 samples a device, 0.02 with 64 in all. So they are in FlexFlow's public nmt.cc. DLRM's batch is 1024 on
4 devices. Nothing here is fitted to the paper.

FlexFlow can sum gradients as a parameter server, by copies. Here more than 4 devices do it by the fastest collective on
the machine, which makes data parallelism faster; with `--direct` all do it by copies. Links are shared fairly.

Columns: milliseconds of a step; throughput over data parallelism and over the better baseline; gigabytes that cross
between devices of a host, and of several; seconds of computing, summed over devices; samples a second of what was
found, per device, over those of the fewest devices of the cluster (the efficiency of its scaling).

`weak` scaling: samples are per device. `strong`: so many in all, on however many devices.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path

import taskflow
from taskflow import CostModel, Graph, MachineModel, Strategy

Rule = Callable[[Graph, MachineModel], Strategy]


@dataclass(frozen=True)
class Case:
    """A model of the evaluation: samples a device, the experts' rule, the paper's throughput over the baselines."""

    samples: int
    expert: Rule
    paper: str


CASES = {
    "alexnet": Case(256, taskflow.one_weird_trick, "1.3-3.3"),
    "inception_v3": Case(64, taskflow.one_weird_trick, "1.3-3.3"),
    "resnet101": Case(64, taskflow.one_weird_trick, "1.0"),
    "rnntc": Case(64, taskflow.operator_placement, "1.3-3.3"),
    "rnnlm": Case(64, taskflow.operator_placement, "1.3-3.3"),
    "nmt": Case(64, taskflow.operator_placement, "1.3-3.3"),
    "dlrm": Case(256, taskflow.placed_tables, "3.8*"),
}
WHAT = "GB in", "GB out", "s"  # bytes within hosts, between hosts, and seconds of computing
CLUSTERS = {"p100": (4, 16), "k80": (4, 16, 64)}  # devices, four a host
NOTES = """
* over data parallelism alone, 4 devices, the web site's own simulation
NMT on 64 K80 in the paper: 1.7-2.4x; 65.8, 24.2 and 12.1 GB moved; 35.7, 28.2 and 28.7 s of computing. An all-reduce of
65.8 GB on 64 devices is one of 131 million parameters; with the vocabulary of nmt.cc there are 99.7 million"""


@dataclass(frozen=True)
class Prediction:
    """What the simulator says of one strategy; infinitely slow if it does not fit into memory."""

    seconds: float
    within_bytes: int
    between_bytes: int
    computing_seconds: float


def predict(
    graph: Graph, strategy: Strategy, machine: MachineModel, costs: CostModel
) -> Prediction:
    task_graph = taskflow.lower(graph, strategy, machine)
    timeline = taskflow.simulate(task_graph, costs)
    fits = all(
        peak <= d.memory_bytes for peak, d in zip(timeline.peak_bytes, machine.devices, strict=True)
    )
    computing = costs.seconds(task_graph)[~task_graph.is_transfer].sum()
    return Prediction(
        timeline.seconds if fits else math.inf, *timeline.class_bytes().values(), float(computing)
    )


COLUMNS = "DP", "expert", "found"
HEADER = (
    f"{'cluster':8s}{'devices':>8s} {'scaling':8s}{'model':13s}"
    + "".join(f"{'ms: ' + c if c == 'DP' else c:>10s}" for c in COLUMNS)
    + f"{'x DP':>7s}{'x best':>7s}{'paper':>8s} |"
    + " |".join(
        "".join(f"{what + ': ' + c if c == 'DP' else c:>12s}" for c in COLUMNS) for what in WHAT
    )
    + f" |{'scales':>7s} |{'proposals':>10s}{'seconds':>8s}"
)


class Scaling:
    """Throughput of a model per device, over that of the fewest devices of the cluster that were tried."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], float] = {}

    def efficiency(
        self, key: tuple[str, str, str], samples: int, devices: int, seconds: float
    ) -> float:
        """Of cluster, kind of scaling and model, by seconds of a step."""
        each = samples / devices / seconds
        return each / self._first.setdefault(key, each)


def compare(
    cluster: str, devices: int, name: str, kind: str, scaling: Scaling, options: argparse.Namespace
) -> str:
    """A line of the table."""
    case, machine = CASES[name], MachineModel.preset(cluster, nodes=devices // 4)
    if options.direct:
        machine = machine.with_collectives({"all-reduce": "copies", "all-gather": "copies"})
    samples = case.samples * (devices if kind == "weak" else 1)
    graph: Graph = import_module(f"ops.models.{name}").build(batch=samples)
    costs = CostModel.analytic(machine)
    budget = {"proposals": options.proposals, "seconds": options.seconds}
    begin = time.perf_counter()
    found = taskflow.search(graph, machine, costs, seed=options.seed, **budget)
    searched = time.perf_counter() - begin
    strategies = taskflow.data_parallel(graph, machine), case.expert(graph, machine), found.strategy
    rows = [predict(graph, strategy, machine, costs) for strategy in strategies]
    parallel, expert, best = (row.seconds for row in rows)
    figures = [(r.within_bytes / 1e9, r.between_bytes / 1e9, r.computing_seconds) for r in rows]
    efficiency = scaling.efficiency((cluster, kind, name), samples, devices, best)
    return (
        f"{cluster:8s}{devices:8d} {kind:8s}{name:13s}"
        + "".join(f"{row.seconds * 1e3:10.2f}" for row in rows)
        + f"{parallel / best:7.2f}{min(parallel, expert) / best:7.2f}{case.paper:>8s} |"
        + " |".join(
            "".join(f"{figure:12.3f}" for figure in column) for column in zip(*figures, strict=True)
        )
        + f" |{efficiency:7.2f} |{found.proposals:10d}{searched:8.0f}"
    )


def main() -> None:
    """Print the table, and write it to a file if one is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clusters", nargs="*", default=[*CLUSTERS], choices=[*CLUSTERS])
    parser.add_argument("--devices", nargs="*", type=int, default=[4, 16, 64], choices=[4, 16, 64])
    parser.add_argument("--models", nargs="*", default=[*CASES], choices=[*CASES])
    parser.add_argument("--seconds", type=float, default=300.0, help="budget of each search")
    parser.add_argument("--proposals", type=int, help="most proposals of each search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--direct", action="store_true", help="sums by copies, as by a parameter server"
    )
    parser.add_argument(
        "--scaling", nargs="*", default=["weak", "strong"], choices=["weak", "strong"]
    )
    parser.add_argument("--out", type=Path, help="a text file for the table")
    options = parser.parse_args()
    lines = []

    def show(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n")

    show(HEADER)
    scaling = Scaling()
    for kind, cluster in product(options.scaling, options.clusters):
        for devices in (n for n in CLUSTERS[cluster] if n in options.devices):
            for name in (
                n for n in options.models if n != "dlrm" or (devices == 4 and kind == "weak")
            ):
                show(compare(cluster, devices, name, kind, scaling, options))
    show(NOTES)


if __name__ == "__main__":
    main()
