"""Additions of partial results are the numbers of one device, and what they save.

    python benchmarks/additions.py [--graphs 500]

Random graphs: a region that two to four layers read, products or convolutions with halos, split alike into parts,
micro-batches and replicas, all else at random; law 1 (float64, 1e-10), the plan checker and a random order of the rows.
Then a tensor-parallel step of GPT: bytes of the sums behind queries, keys and values, with and without.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import taskflow
from ops.models import gpt
from taskflow import CostModel, MachineModel, lower, simulate
from taskflow.lowering.additions import Additions
from taskflow.searching.grids import Grids

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import laws
from tests.lowering.test_additions import fans, reads_parts

LEAST_SAVED = 0.66  # of the bytes of three sums


def random_graphs(count: int) -> Counter[str]:
    """How many graphs were held to the laws, and what was among them; an AssertionError says what is wrong."""
    seen = Counter[str]()

    @settings(
        max_examples=4 * count,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(fans(), st.integers(0, 99))
    def hold(fan: tuple[laws.Model, MachineModel, taskflow.Strategy], seed: int) -> None:
        model, machine, strategy = fan
        if seen["graphs"] >= count or not reads_parts(
            rows := lower(model.graph, strategy, machine)
        ):
            return
        laws.any_strategy_is_one_device(model, machine, strategy, steps=1)
        laws.any_order_is_the_same(model, machine, strategy, orders=1, seed=seed)
        is_sum = [launch.kernel.is_addition for launch in rows.launches]
        sums = [
            k
            for k in range(len(rows))
            if rows.kind[k] == taskflow.Kind.POINT and is_sum[rows.launch[k]]
        ]
        seen.update(
            {
                "graphs": 1,
                "halos": any(op.windows for op in model.graph.operators),
                "micro-batches": any(rows.ordinal[k] > 0 for k in sums),
            }
        )

    hold()
    return seen


def saved(tensor: int) -> float:
    """The share of bytes that the sums behind queries, keys and values no longer move."""
    graph = gpt.build(
        batch=8, sequence=128, layers=2, hidden=256, heads=8, vocabulary=512, dropout=0.0
    )
    machine = MachineModel.preset("h100")
    strategy = Grids(graph).strategy(range(8), tensor)
    assert strategy is not None

    def moved() -> tuple[int, float]:
        rows = lower(graph, strategy, machine)
        names = [rows.regions[k].name for k in rows.region[rows.is_communication]]
        of_inputs = [
            ("attention" in name and name.endswith((".q.dx", ".k.dx", ".v.dx"))) or ".norm1" in name
            for name in names
        ]
        bytes_ = sum(
            int(b) for b, is_one in zip(rows.bytes[rows.is_communication], of_inputs) if is_one
        )
        return bytes_, simulate(rows, CostModel.analytic(machine)).seconds

    with mock.patch.object(Additions, "settle"):
        apart, slow = moved()
    together, fast = moved()
    print(
        f"GPT, tensor {tensor}: sums behind q, k, v move {apart:,} bytes one by one, {together:,} added first: "
        f"{1 - together / apart:.1%} fewer; predicted step {slow / fast:.3f} times as fast"
    )
    return 1 - together / apart


def main() -> int:
    """Print all; 1 where less is saved than should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=500)
    options = parser.parse_args()
    least = min(saved(tensor) for tensor in (2, 8))
    begin = time.process_time()
    seen = random_graphs(options.graphs)
    print(
        f"{dict(seen)}: numbers of one device, {time.process_time() - begin:.0f} s of the processor"
    )
    return int(least < LEAST_SAVED)


if __name__ == "__main__":
    sys.exit(main())
