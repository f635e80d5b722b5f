"""Searched periods against CP-SAT (OR-tools, a peer that nothing needs): `pip install ortools`, then

    python benchmarks/schedules.py [--placements 80] [--seconds 5]

Random placements: chains there and back over random devices, one or two of them, perhaps joined on all devices;
backward passes whole or split; spans of 1 to 4 units; memory from what one micro-batch needs up to what all need.
Both get the same seconds and one core. A period is of one micro-batch; ours may be of several, which is shorter.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.schedule import Block, find_period
from taskflow.schedule.blocks import Table, table_of
from taskflow.schedule.found import least_memory
from taskflow.schedule.period import least_period

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.schedule.placements import check

WORST_SHARE = 0.9  # of all are proven optimal, at least


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


def main() -> None:
    """Print the placements where both differ, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, counts = (
        np.random.default_rng(options.seed),
        dict.fromkeys(("worse", "equal", "better", "optimal", "theirs"), 0),
    )
    for number in range(options.placements):
        blocks, memory = placement(rng)
        found = find_period(blocks, memory, options.seconds)
        table, unit = table_of(blocks, memory)
        theirs, is_proven = solve(table, options.seconds)
        assert found is not None
        check(blocks, memory, found.starts, found.period)
        against = np.inf if theirs is None else theirs * unit
        verdict = "worse" if found.period > against else "better" if found.period < against else "equal"
        counts[verdict] += 1
        is_optimal = found.is_optimal or (is_proven and found.period <= against)
        counts["optimal"] += is_optimal
        counts["theirs"] += is_proven and theirs is not None
        if verdict != "equal":
            ours = f"{found.period:g} ({found.starts.shape[1]} a period)"
            print(f"placement {number}: {len(blocks)} blocks, ours {ours}, CP-SAT {against:g}", flush=True)
    share = counts["optimal"] / options.placements
    verdict = "ok" if counts["worse"] == 0 and share >= WORST_SHARE else "MISSED"
    print(f"{options.placements} placements, {options.seconds:g} s each: {counts}; {share:.0%} optimal: {verdict}")


if __name__ == "__main__":
    main()
