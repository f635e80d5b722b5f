"""Searched schedules of known placements, and periods against CP-SAT (OR-tools, a peer that nothing needs).

    python benchmarks/schedules.py --placements 0                 the known ones
    pip install ortools; python benchmarks/schedules.py [--placements 80] [--seconds 5]
    python benchmarks/schedules.py --alone                        nodes of random ones, without CP-SAT

Known: on eight devices the V takes Tessel 117 s; on four, an M of 32 micro-batches takes 330 units in 1F1B+ by hand.
Random placements: chains there and back over random devices, one or two of them, perhaps joined on all devices;
backward passes whole or split; spans of 1 to 4 units; memory from what one micro-batch needs up to what all need.
Both get the same seconds and one core. A period is of one micro-batch; ours may be of several, which is shorter.
Nodes are choices (which of two blocks is how many periods first) that were tried until a period of one micro-batch was
proven, or until time was up; beside them CPU seconds, which are to be half of what is given, for a host half as fast.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taskflow.schedule import Block, find_period, find_schedule
from taskflow.schedule.blocks import Table, table_of
from taskflow.schedule.found import least_memory
from taskflow.schedule.period import _search as search_period
from taskflow.schedule.period import least_period

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.schedule.placements import (
    check,
    k_shape,
    m_shape,
    nn_shape,
    v_shape,
    x_shape,
    zbv_shape,
)

WORST_SHARE = 0.9  # of all are proven optimal, at least
MOST_V_SECONDS = 1.0
SHAPES = {
    "V": (v_shape, (2, 3, 4)),
    "M": (m_shape, (3, 4, 5, 6)),
    "X": (x_shape, (3, 4, 5)),
    "NN": (nn_shape, (5, 6, 8)),
    "K": (k_shape, (2, 3, 4)),
    "ZBV": (zbv_shape, (4, 5, 6, 8)),
}
M_PARTS, M_MEMORY, M_BY_HAND, LEAST_M_RATIO = 32, 6, 330.0, 1.2


class Proven(NamedTuple):
    """Of the shortest period: whether there is one, choices that were tried, CPU seconds."""

    is_proven: bool
    nodes: int
    seconds: float


def placement(rng: np.random.Generator) -> tuple[list[Block], float]:
    """Blocks, and memory of a device."""
    devices, blocks = int(rng.integers(2, 6)), list[Block]()
    ends = []
    for _ in range(int(rng.integers(1, 3))):
        way = [devices_of(rng, devices) for _ in range(int(rng.integers(2, 6)))]
        ends.append(append_chain(blocks, way, rng, bool(rng.integers(2))))
    if len(ends) == 2 and rng.integers(2):
        blocks = joined(blocks, ends, devices)
    least = least_memory(blocks)
    return blocks, least + float(rng.integers(0, 4))


def devices_of(rng: np.random.Generator, devices: int) -> tuple[int, ...]:
    """One device, seldom two."""
    count = 1 + int(rng.random() < 0.15)
    return tuple(sorted(rng.choice(devices, count, replace=False).tolist()))


def append_chain(
    blocks: list[Block], way: list[tuple[int, ...]], rng: np.random.Generator, is_split: bool
) -> tuple[int, int]:
    """Forward over the way, and back; the last forward block and the first backward one."""
    forward, backward = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    for k, devices in enumerate(way):
        blocks.append(Block(forward, 1, devices, (len(blocks) - 1,) if k else ()))
    turn = len(blocks) - 1
    before = turn
    for devices in reversed(way):
        blocks.append(Block(backward, 0 if is_split else -1, devices, (before,)))
        before = len(blocks) - 1
        if is_split:
            blocks.append(Block(backward, -1, devices, (before,)))
    return turn, turn + 1


def joined(blocks: list[Block], ends: list[tuple[int, int]], devices: int) -> list[Block]:
    """Two chains that turn together on all devices."""
    turn = len(blocks)
    found = [*blocks, Block(1, 0, range(devices), tuple(last for last, _ in ends))]
    for _, first in ends:
        found[first] = found[first]._replace(after=(turn,))
    return found


def solve(table: Table, seconds: float) -> tuple[int | None, bool]:
    """The least period of one micro-batch that CP-SAT finds, from below; and whether all shorter ones are excluded."""
    until, is_proven = time.perf_counter() + seconds, True
    least = max(int(np.ceil(least_period(table) - 1e-9)), int(table.span.max()))
    for period in range(least, int(table.span.sum()) + 1):
        left = until - time.perf_counter()
        if left <= 0:
            return None, False
        status = feasible(table, period, left)
        if status == "feasible":
            return period, is_proven
        is_proven = is_proven and status == "infeasible"
    return None, is_proven


def feasible(table: Table, period: int, seconds: float) -> str:
    """`feasible`, `infeasible` or `unknown`."""
    from ortools.sat.python import cp_model

    model, blocks = cp_model.CpModel(), range(len(table.span))
    offset = [model.new_int_var(0, period - 1, f"o{k}") for k in blocks]
    lap = [model.new_int_var(0, len(table.span) * 2, f"l{k}") for k in blocks]
    for block in blocks:
        for before in np.flatnonzero(table.after[block]).tolist():
            start, end = offset[block] + period * lap[block], offset[before] + period * lap[before]
            model.add(start >= end + int(table.span[before]))
    first = {}
    for a in blocks:
        for b in range(a + 1, len(table.span)):
            if (table.on[a] & table.on[b]).any():
                first[a, b] = is_first = model.new_bool_var(f"f{a}_{b}")
                gap = offset[b] - offset[a]
                model.add(gap >= int(table.span[a])).only_enforce_if(is_first)
                model.add(gap <= period - int(table.span[b])).only_enforce_if(is_first)
                model.add(-gap >= int(table.span[b])).only_enforce_if(~is_first)
                model.add(-gap <= period - int(table.span[a])).only_enforce_if(~is_first)
    for device, limit in enumerate(table.limit.tolist()):
        here = np.flatnonzero(table.on[:, device] & (table.memory != 0)).tolist()
        for taker in here:
            if table.memory[taker] > 0:
                level = [int(table.memory[k]) * (begun(first, k, taker) - lap[k]) for k in here]
                model.add(sum(level) <= int(limit))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 1
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "feasible"
    return "infeasible" if status == cp_model.INFEASIBLE else "unknown"


def begun(first: dict[tuple[int, int], Any], block: int, at: int) -> Any:
    """1 where a block starts in a period when block `at` does, or before."""
    if block == at:
        return 1
    return first[block, at] if block < at else 1 - first[at, block]


def print_v(parts: int, least: int) -> None:
    """How long the V of eight devices takes to search."""
    begun = time.perf_counter()
    period, found = (
        find_period(v_shape(8), 8, MOST_V_SECONDS),
        find_schedule(v_shape(8), 8, parts, MOST_V_SECONDS),
    )
    taken = time.perf_counter() - begun
    assert period is not None and found is not None
    verdict = (
        "ok"
        if taken < MOST_V_SECONDS and (period.period, found.makespan) == (3, least)
        else "MISSED"
    )
    units = f"period {period.period:g}, {found.makespan:g} units of {least}"
    print(f"V on 8, {parts} parts: {units}, in {taken:.3f} s: {verdict}")


def print_m(seconds: float) -> None:
    """How much shorter the M is than by hand."""
    found = find_schedule(m_shape(), M_MEMORY, M_PARTS, seconds)
    assert found is not None
    check(m_shape(), M_MEMORY, found.starts)
    ratio = M_BY_HAND / found.makespan
    verdict = "ok" if ratio >= LEAST_M_RATIO else "MISSED"
    print(
        f"M on 4, {M_PARTS} parts, memory {M_MEMORY}: {found.makespan:g} units, {ratio:.2f} x 1F1B+ by hand: {verdict}"
    )


def print_nodes(name: str, blocks: list[Block], memory: float, seconds: float) -> Proven:
    """What is proven of a placement with one micro-batch a period, and in how many nodes."""
    table, unit = table_of(blocks, memory)
    most = int(table.span.sum())
    begun = time.process_time()
    least = search_period(table, 1, most, seconds, 0)
    taken = time.process_time() - begun
    assert least is not None
    check(blocks, memory, least.starts * unit, least.period * unit)
    what = "proven" if least.is_optimal else "not proven"
    says = f"period {least.period * unit:g}, {what} in {least.nodes} nodes, {taken:.3f} s"
    print(f"{name}, memory {memory:g}: {says}", flush=True)
    return Proven(least.is_optimal, least.nodes, taken)


def print_proofs(proofs: list[Proven], seconds: float) -> None:
    """How many periods are proven, in how many nodes and CPU seconds."""
    nodes = sorted(proof.nodes for proof in proofs)
    slowest = sum(nodes[-max(1, len(nodes) // 10) :])
    proven = sum(proof.is_proven for proof in proofs)
    most = max(proof.seconds for proof in proofs)
    verdict = "ok" if proven == len(proofs) and most <= seconds / 2 else "MISSED"
    says = f"{proven} of {len(proofs)} proven, at most {most:.3f} s of {seconds / 2:g}: {verdict}"
    print(f"{says}; nodes: median {np.median(nodes):g}, of the slowest tenth {slowest}")


def main() -> None:
    """Print the known ones, the placements where both differ, and the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--placements", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="without CP-SAT")
    options = parser.parse_args()
    find_schedule(v_shape(2), 2, 2, 0.1)  # compiles
    print_v(8, 45)
    print_v(16, 69)
    print_m(options.seconds)
    proofs = [
        print_nodes(name, shape(), limit, options.seconds)
        for name, (shape, limits) in SHAPES.items()
        for limit in limits
    ]
    rng = np.random.default_rng(options.seed)
    counts = dict.fromkeys(("worse", "equal", "better", "optimal", "theirs"), 0)
    for number in range(options.placements):
        blocks, memory = placement(rng)
        if options.alone:
            name = f"placement {number}"
            proofs.append(print_nodes(name, blocks, memory, options.seconds))
            continue
        found = find_period(blocks, memory, options.seconds)
        table, unit = table_of(blocks, memory)
        theirs, is_proven = solve(table, options.seconds)
        assert found is not None
        check(blocks, memory, found.starts, found.period)
        against = np.inf if theirs is None else theirs * unit
        verdict = (
            "worse" if found.period > against else "better" if found.period < against else "equal"
        )
        counts[verdict] += 1
        is_optimal = found.is_optimal or (is_proven and found.period <= against)
        counts["optimal"] += is_optimal
        counts["theirs"] += is_proven and theirs is not None
        if verdict != "equal":
            ours = f"{found.period:g} ({found.starts.shape[1]} a period)"
            print(
                f"placement {number}: {len(blocks)} blocks, ours {ours}, CP-SAT {against:g}",
                flush=True,
            )
    print_proofs(proofs, options.seconds)
    if options.alone or not options.placements:
        return
    share = counts["optimal"] / options.placements
    verdict = "ok" if counts["worse"] == 0 and share >= WORST_SHARE else "MISSED"
    print(
        f"{options.placements} placements, {options.seconds:g} s each: {counts}; {share:.0%} optimal: {verdict}"
    )


if __name__ == "__main__":
    main()
