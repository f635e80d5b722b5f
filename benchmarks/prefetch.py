"""FSDP of a GPT of 13B on 8 and on 64 H100: what orders of gathers cost in seconds and memory.

    python benchmarks/prefetch.py [--layers 40]

Predicted, with and without recomputation of layers. Two figures count: tokens a GPU on 64 over those on 8 (published
systems lose nothing), and the peak over that of rows as lowered.
"""

from __future__ import annotations

import argparse
import sys

import ops
import taskflow
from ops.models import gpt
from taskflow import CostModel, MachineModel, reorder, simulate
from taskflow.lowering import Lowering

SEQUENCE, HIDDEN, HEADS, VOCABULARY = 2048, 5120, 40, 50368
ORDERS = (
    "lowered",
    "prefetch",
    "prefetch:2",
    "critical_path",
    "first_ready",
    "depth_first",
    "forward_first",
)
SAMPLES = {
    False: 2,
    True: 10,
}  # of each GPU, by whether layers are computed again: what fits into 80 GB
UNIT_BYTES = 1 << 30  # of collectives that are one call: all of a layer's, as a unit of FSDP
LEAST_TOKENS, MOST_PEAK = 0.95, 1.1


def sharded(layers: int, samples: int, again: bool) -> taskflow.Graph:
    """The training graph with homes; `samples` in all."""
    graph = gpt.build(
        samples, SEQUENCE, layers, HIDDEN, HEADS, VOCABULARY, dropout=0.0, training=False
    )
    graph = taskflow.precision(graph, "bfloat16")
    ops.adamw(graph.outputs["loss"], lr=1e-4)
    if again:
        names = [
            op.name
            for op in graph.operators
            if op.name.startswith("layer")
            and not (op.is_backward or op.writes or op.name.endswith("add2"))
        ]
        graph = taskflow.recompute(graph, names)
    return taskflow.homes(graph)


def predict(layers: int, samples: int, again: bool) -> dict[str, list[tuple[float, int]]]:
    """By order, tokens a second of a GPU and peak bytes, on 8 and on 64."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in ORDERS}
    for nodes in (1, 8):
        machine = MachineModel.preset("h100", nodes=nodes)
        graph = sharded(layers, samples * len(machine.devices), again)
        costs = CostModel.analytic(machine)
        lowering = Lowering(graph, machine, bucket_bytes=UNIT_BYTES)
        rows = lowering.rows_to_simulate(taskflow.fully_sharded(graph, machine), costs)
        for name in ORDERS:
            timeline = simulate(rows if name == "lowered" else reorder(rows, costs, name), costs)
            found[name].append((samples * SEQUENCE / timeline.seconds, max(timeline.peak_bytes)))
    return found


def main() -> int:
    """Print a table; 1 where `prefetch` loses more than it may, or an order what recomputation saves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=40)
    options, is_missed = parser.parse_args(), False
    for again, samples in SAMPLES.items():
        found = predict(options.layers, samples, again)
        print("layers computed again:" if again else "all kept:")
        for name, ((few, _), (many, peak)) in found.items():
            above = float(peak / found["lowered"][1][1])
            is_bad = (name == "prefetch" and many / few < LEAST_TOKENS) or (
                (again or name == "prefetch") and name != "prefetch:2" and above > MOST_PEAK
            )
            is_missed |= is_bad
            print(
                f"  {name:14} {few:7.0f} tokens/s/GPU on 8, {many:7.0f} on 64 ({many / few:.3f}); "
                f"peak {peak / 2**30:6.2f} GiB, {above:.3f} times as lowered{' MISSED' * is_bad}"
            )
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
