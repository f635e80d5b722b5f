"""Collectives: the price of a row against its steps spelled out as rows and simulated; and MultiTree's rounds.

    python benchmarks/collectives.py [--largest 64]

Every algorithm that serves a collective, on eight machines, with four sizes: `simulate` of the row, and of what the
executor runs in its place. Prints the lines of acceptance.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import taskflow
from taskflow import CostModel, Kind, MachineModel
from taskflow.collective.algorithms import everyone, serving
from taskflow.collective.group import group_of
from taskflow.collective.multitree import multitree
from taskflow.collective.price import CollectiveCosts, GroupPrices
from taskflow.execute.expand import expand
from taskflow.machine.topology import fat_tree, mesh, torus
from taskflow.simulation.sharing import schedule_fairly
from taskflow.tasks.streams import StreamTable
from tests.collectives import NAMED, one_collective

SIZES = 3 << 12, 3 << 18, 3 << 22, 3 << 24  # bytes; every algorithm's pieces are equal
MACHINES = {
    "uniform 8": MachineModel.uniform(8, taskflow.Device("cuda")),
    "two V100 hosts (DGX-1)": MachineModel.preset("v100", nodes=2),
    "two P100 hosts": MachineModel.preset("p100", nodes=2),
    "32 H100": MachineModel.preset("h100", nodes=4),
    "torus 8x8": torus((8, 8)),
    "mesh 8x8": mesh((8, 8)),
    "fat tree 64": fat_tree(8, 8),
    "V100 host and P100 host": MachineModel.join(
        [MachineModel.preset("v100"), MachineModel.preset("p100")]
    ),
}
ROUNDS = [("torus", 4, 5), ("torus", 8, 17), ("torus", 16, 66), ("mesh", 4, 8), ("mesh", 8, 32)]


def ratios(machine: MachineModel, size: int) -> dict[str, float]:
    """Collective and algorithm -> seconds of the row over those of its steps, for a box of so many bytes."""
    count, found = len(machine.devices), {}
    for name, algorithm in NAMED:
        task_graph, algorithms = one_collective(
            name, algorithm, machine, (count, size // (8 * count))
        )
        if algorithms.get(name) != algorithm:
            raise SystemExit(f"{name} by {algorithm} on {machine.name}: lowered as {algorithms}")
        costs, rows = CostModel.analytic(machine), expand(task_graph)
        row = int(np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)[0])
        own = rows.origin == row
        seconds = np.where(own, costs.seconds(rows.task_graph), 0.0)
        start, end, _ = schedule_fairly(rows.task_graph, seconds)
        found[f"{name} by {algorithm}"] = costs.seconds(task_graph)[row] / (
            end[own].max() - start[own].min()
        )
    return found


# Cycles of an all-reduce on a mesh by BookSim, at 1 GHz, links of 25 GB/s, 16 flits of data to 1 of head, with the
# authors' trees of so many rounds (Huang et al., ISCA 2021): nodes, elements of 4 bytes, rounds, ring, MultiTree.
BOOKSIM = [
    (16, 1 << 24, 10, 5_485_432, 3_683_593),
    (16, 1 << 28, 10, 87_792_717, 58_535_312),
    (64, 1 << 24, 34, 5_763_235, 3_491_597),
    (64, 1 << 28, 34, 92_166_381, 49_941_871),
]
FREE = taskflow.Device("cuda", memory_bandwidth=1e20, overhead_seconds=0.0, sends_by_link=True)


def print_booksim() -> None:
    """Own trees take fewer rounds than the authors' on a mesh; their seconds are stretched to as many rounds."""
    for nodes, elements, rounds, _, cycles in BOOKSIM:
        extent = round(nodes**0.5)
        machine = mesh((extent, extent), FREE, 25e9 * 16 / 17, 0.0)
        group = group_of(machine, StreamTable(machine), range(nodes))[0]
        own = int(multitree(group, everyone(group)).round[-1]) + 1
        found = 1e9 * GroupPrices(group).seconds("all-reduce", "multitree", 4 * elements)
        off = found * rounds / own / cycles - 1
        is_held = (nodes, elements) != (64, 1 << 24)
        verdict = ("ok" if abs(off) <= 0.05 else "MISSED") if is_held else "not held to it"
        print(
            f"MultiTree mesh {nodes} nodes, {4 * elements >> 20} MB: {found:,.0f} ns in {own} rounds, stretched to the "
            f"authors' {rounds}: {off:+.1%} of {cycles:,} cycles (<= 5 %): {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=64, help="devices of the largest machine")
    options = parser.parse_args()
    worst = 0.0
    for name, machine in MACHINES.items():
        if len(machine.devices) > options.largest:
            continue
        for size in SIZES:
            found = ratios(machine, size)
            off = max(found, key=lambda each: abs(found[each] - 1))
            worst = max(worst, abs(found[off] - 1))
            print(
                f"{name:25s}{size:>10d} B: {len(found)} rows / steps, furthest: {found[off]:.4f} ({off})",
                flush=True,
            )
    tried = sum(len(machine.devices) <= options.largest for machine in MACHINES.values())
    verdict = (
        "MISSED" if worst > 0.01 else "ok" if tried == len(MACHINES) else "not all machines tried"
    )
    print(f"row against steps, {tried} machines: within {worst:.2%} (<= 1 %): {verdict}")
    for shape, extent, most in ROUNDS:
        machine = {"torus": torus, "mesh": mesh}[shape]((extent, extent))
        group = group_of(machine, StreamTable(machine), range(extent * extent))[0]
        multitree(group, everyone(group))
        begin = time.perf_counter()
        rounds = multitree(group, everyone(group)).round[-1] + 1
        took = time.perf_counter() - begin
        print(
            f"MultiTree {shape} {extent}x{extent}: {rounds} rounds (<= {most}), built in {took * 1e3:.1f} ms"
        )
    print_booksim()
    for name, least in (("torus 8x8", 3.6), ("mesh 8x8", 1.9)):
        free = MACHINES[name].with_rates(memory_bandwidth=1e20, overhead_seconds=0.0)
        prices = CollectiveCosts(free).prices(tuple(range(64)))
        ring, trees = (
            prices.seconds("all-reduce", each, 2.0**30) for each in ("ring", "multitree")
        )
        every = {
            each: prices.seconds("all-reduce", each, 2.0**30) for each in serving("all-reduce")
        }
        chosen = prices.choose("all-reduce", 2.0**30)
        verdict = (
            "ok" if ring / trees >= least and chosen.seconds == min(every.values()) else "MISSED"
        )
        print(
            f"{name}: ring / MultiTree at 1 GB: {ring / trees:.2f} (>= {least}), chosen: {chosen.algorithm}: {verdict}"
        )


if __name__ == "__main__":
    main()
