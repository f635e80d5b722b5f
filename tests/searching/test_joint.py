"""Joint search: atoms, prices, cuts, estimates, and plans whose seconds, bytes and numbers are those of their rows."""

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    check_plan,
    data_parallel,
    lower,
    simulate,
)
from taskflow.searching.budget import Budget
from taskflow.searching.joint import search_stages
from taskflow.searching.joint.atoms import MOST_ATOMS, find_atoms
from taskflow.searching.joint.cells import Cells, CellTables, StageWay
from taskflow.searching.joint.costs import Pricing
from taskflow.searching.joint.cutting import best_cuts
from taskflow.searching.joint.estimates import Estimates, play, schedule_of, steps_of
from taskflow.searching.joint.planned import PlannedPipeline, PlannedStage, loops, moves, plan_of

DEVICE = Device(
    "emulated",
    flops_per_second=1e10,
    memory_bandwidth=1e10,
    overhead_seconds=2e-6,
    memory_bytes=1 << 30,
)
FOUR = MachineModel.uniform(4, DEVICE, bandwidth=2e9)
LAYERS = 4


def blocks(layers=LAYERS, batch=32, width=64):
    """Residual blocks, as in a transformer: one value crosses between two of them."""
    graph = Graph()
    h = ops.linear(graph.input("x", (batch, width)), width, name="stem")
    for k in range(layers):
        inner = ops.relu(ops.linear(h, 2 * width, name=f"block{k}.up"), name=f"block{k}.relu")
        h = ops.add(h, ops.linear(inner, width, name=f"block{k}.down"), name=f"block{k}.add")
    ops.adam(ops.mean_squared_error(h, graph.input("t", (batch, width)), name="loss"))
    return graph


def tables_of(graph, machine=FOUR, within=None):
    return CellTables(
        Pricing(graph, find_atoms(graph), machine, CostModel.analytic(machine)), within
    )


def piped(bounds, sizes, parts, again=()):
    """A pipeline cut at these atoms, some stages of which are computed again."""
    planned, first = [], 0
    for k, ((begin, end), size) in enumerate(zip(pairwise(bounds), sizes, strict=True)):
        some = frozenset(range(begin, end) if k in again else ())
        planned.append(PlannedStage(begin, end, first, size, "data", some))
        first += size
    return PlannedPipeline(tuple(planned), parts)


def rows_of(graph, tables, pipeline, order, machine=FOUR):
    return plan_of(graph, machine, tables, pipeline, order).apply(
        graph, machine, tables.pricing.costs
    )


# -- atoms -------------------------------------------------------------------------------------------------------------


def test_atoms_are_cut_where_one_value_crosses():
    atoms = find_atoms(blocks())
    assert [atom.name for atom in atoms] == [
        "stem",
        *(f"block{k}.up" for k in range(LAYERS)),
        "loss",
    ]
    assert atoms[2].inner == (
        "block1.up",
        "block1.relu",
        "block1.down",
    )  # the sum is read by the next block
    assert [atom.crossing_bytes for atom in atoms] == [0, *[32 * 64 * 4] * (LAYERS + 1)]


def test_equal_layers_are_one_kind():
    kinds = [[atom.kind for atom in find_atoms(blocks(layers))] for layers in (3, 9)]
    assert [len(set(each)) for each in kinds] == [4, 4]  # a stem, a block, the last one, a loss
    assert set(kinds[0]) == set(kinds[1])


def test_many_atoms_are_merged():
    graph = Graph()
    h = graph.input("x", (4, 8))
    for k in range(MOST_ATOMS + 6):
        h = ops.relu(h, name=f"relu{k}")
    ops.mean_squared_error(h, graph.input("t", (4, 8)), name="loss")
    atoms = find_atoms(graph)
    assert len(atoms) == MOST_ATOMS
    assert [f.leader.name for atom in atoms for f in atom.families][:-1] == [
        f"relu{k}" for k in range(MOST_ATOMS + 6)
    ]


# -- prices and estimates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("again", [(), (0,)])
def test_prices_add_up_to_a_step_of_one_device(parts, again):
    graph, machine = blocks(), MachineModel.uniform(1, DEVICE)
    tables = tables_of(graph, machine)
    pipeline = piped((0, 6), (1,), parts, again)
    _, rows = rows_of(graph, tables, pipeline, None, machine)
    expected = Estimates(tables).estimate(pipeline)
    assert expected.seconds == pytest.approx(simulate(rows, tables.pricing.costs).seconds, rel=0.01)


PIPELINES = {
    "four stages": piped((0, 1, 3, 4, 6), (1, 1, 1, 1), 8),
    "two of two": piped((0, 3, 6), (2, 2), 4),
    "unequal": piped((0, 1, 6), (1, 3), 4),
    "recomputed": piped((0, 3, 6), (2, 2), 4, again=(0, 1)),
    "around": next(iter(loops(piped((0, 1, 3, 4, 6), (2, 2, 2, 2), 4), 2))),
    "there and back": list(loops(piped((0, 1, 3, 4, 6), (2, 2, 2, 2), 4), 2))[1],
}


@pytest.mark.parametrize("name", PIPELINES)
def test_estimates_are_near_to_rows(name):
    """Seconds within 12 %, bytes from 15 % below to 25 % above."""
    graph = blocks(batch=64)
    tables, pipeline = tables_of(graph), PIPELINES[name]
    estimates = Estimates(tables)
    expected = estimates.estimate(pipeline)
    changed, rows = rows_of(graph, tables, pipeline, estimates.order(pipeline, expected.policy))
    tight = replace(rows, machine=FOUR.with_rates(memory_bytes=1))
    assert expected.seconds == pytest.approx(simulate(rows, tables.pricing.costs).seconds, rel=0.12)
    assert (
        0.85
        < expected.share
        * DEVICE.memory_bytes
        / simulate(tight, tables.pricing.costs).peak_bytes.max()
        < 1.25
    )
    check_plan(changed, rows)


def test_whole_backward_passes_hold_less_of_what_is_computed_again():
    graph = blocks(8, batch=64)
    tables, pipeline = tables_of(graph), piped((0, 5, 10), (1, 1), 2, again=(0, 1))
    split, whole = (
        simulate(rows_of(graph, tables, pipeline, order)[1], tables.pricing.costs).peak_bytes[0]
        for order in (schedule_of("one_f_one_b", pipeline.groups, 2), "one_f_one_b")
    )
    assert whole < 0.95 * split


@pytest.mark.parametrize(("policy", "units"), [("gpipe", 18), ("one_f_one_b", 18), ("zb_h1", 15)])
def test_bubbles_of_four_stages(policy, units):
    """Units that are proven (docs/plans.md): forward, backward and weight gradients take one each."""
    steps = steps_of(policy, ((0,), (1,), (2,), (3,)), 4)
    ends, levels = play(steps, np.ones((4, 3)), np.zeros(4), np.array([[1.0, 0.0]] * 4), 4)
    assert ends.max() == units
    assert levels.tolist() == ([4, 3, 2, 1] if policy == "one_f_one_b" else [4, 4, 4, 4])


def test_devices_that_differ_are_priced_apart():
    slow = replace(DEVICE, flops_per_second=1e9)
    machine = replace(FOUR, devices=(DEVICE, DEVICE, slow, slow))
    tables = tables_of(blocks(), machine)
    fast, late = (tables.price(1, StageWay(1, "data", False, tables.like[d, 1]), 2) for d in (1, 3))
    assert late.spans.sum() > 3 * fast.spans.sum()
    assert tables.like[0, 1] == tables.like[1, 1] != tables.like[2, 1]


# -- cuts --------------------------------------------------------------------------------------------------------------


def random_cells(seed, atoms=5, devices=3):
    """Cells whose seconds and bytes grow with the atoms in them, and shrink with devices."""
    rng = np.random.default_rng(seed)
    ways = tuple(StageWay(size, "data", again, 0) for size in (1, 2, 3) for again in (False, True))
    at = np.array([[first + way.devices <= devices for way in ways] for first in range(devices)])
    shape, sums = (len(ways), atoms, atoms), []
    for _ in range(3):
        each = rng.random((len(ways), atoms)) / [[way.devices] for way in ways]
        upper = np.triu(np.ones((atoms, atoms)))
        sums.append(
            np.where(upper, np.einsum("wk,ik->wik", each, upper).cumsum(axis=2), np.inf).reshape(
                shape
            )
        )
    return Cells(ways, at, *sums, np.full(len(ways), 1.0 + 2 * rng.random()))


def every_cut(cells, parts):
    """(sum, slowest) of all cuts that fit."""
    devices, atoms = len(cells.at), cells.seconds.shape[1]
    for count in range(1, devices + 1):
        for cut in combinations(range(1, atoms), count - 1):
            bounds = list(pairwise((0, *cut, atoms)))
            for ways in product(range(len(cells.ways)), repeat=count):
                at = [(w, i, j - 1) for w, (i, j) in zip(ways, bounds, strict=True)]
                flying = [min(count - k, parts) for k in range(count)]
                need = [
                    cells.fixed_bytes[x] + f * cells.held_bytes[x]
                    for x, f in zip(at, flying, strict=True)
                ]
                fits = all(n <= cells.room_bytes[w] for n, w in zip(need, ways, strict=True))
                if fits and sum(cells.ways[w].devices for w in ways) <= devices:
                    seconds = [cells.seconds[x] for x in at]
                    yield count, sum(seconds), max(seconds)


@pytest.mark.parametrize("seed", range(30))
def test_cuts_are_the_least_by_enumeration(seed):
    cells = random_cells(seed)
    every, found = list(every_cut(cells, 2)), list(best_cuts(cells, 2, 3))
    assert bool(every) == bool(found)
    for cut in found:
        assert [i for _, i, _ in cut] == [0, *(j + 1 for _, _, j in cut[:-1])] and cut[-1][2] == 4
    if every:
        sums = [([len(cut)], [cells.seconds[x] for x in cut]) for cut in found]
        assert min(max(s) for _, s in sums) == pytest.approx(min(slowest for *_, slowest in every))
        for count in {c for c, *_ in every}:
            own = [sum(s) for (many,), s in sums if many == count]
            assert min(own) == pytest.approx(min(total for c, total, _ in every if c == count))


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_plans_are_what_their_rows_are():
    """With memory for which data parallelism has no plan; sorted, right, and of one and several stages."""
    graph = blocks(batch=16, width=128)
    costs = CostModel.analytic(FOUR)
    needed = int(simulate(lower(graph, data_parallel(graph, FOUR), FOUR), costs).peak_bytes.max())
    machine = FOUR.with_rates(memory_bytes=int(0.7 * needed))
    budget = Budget(10, 60.0)
    found = search_stages(graph, machine, costs, budget)
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    for each in found[:6]:
        changed, rows = each.plan.apply(graph, machine, costs)
        timeline = simulate(rows, costs)
        assert (timeline.seconds, timeline.bytes_moved) == (each.seconds, each.bytes_moved)
        assert timeline.peak_bytes.max() == each.peak_bytes <= 0.7 * needed
        check_plan(changed, rows)
    assert budget.done >= 5
    assert len({each.plan.parts for each in found}) > 1 or len({each.name for each in found}) > 1


@pytest.mark.slow
def test_memory_asks_for_recomputation_and_micro_batches():
    """One device: a plan with neither does not fit, and the result has one of them."""
    graph, one = blocks(8, batch=2048, width=16), MachineModel.uniform(1, DEVICE)
    costs = CostModel.analytic(one)
    needed = int(simulate(lower(graph, data_parallel(graph, one), one), costs).peak_bytes.max())
    found = search_stages(
        graph, one.with_rates(memory_bytes=int(0.6 * needed)), costs, Budget(12, 60.0)
    )
    assert all(each.plan.parts > 1 or each.plan.recomputed for each in found)


def grids(count):
    """Tensor parallelism of the blocks, with updates that are split as the weights are not."""
    split = {}
    for k in range(LAYERS):
        split |= {
            f"block{k}.up": ParallelConfig({"o": count}),
            f"block{k}.relu": ParallelConfig({"o": count}),
        }
        split[f"block{k}.down"] = ParallelConfig({"i": count})
        split |= {
            f"block{k}.add": ParallelConfig({"b": count}),
            f"block{k}.down.weight.adam": ParallelConfig({}),
        }
    return {"tensor": split}


@pytest.mark.slow
def test_splits_within_a_stage_are_taken():
    graph = blocks(width=256, batch=8)
    operators = {op.name for op in graph.operators}
    named = {
        n: {"tensor": {k: c for k, c in grids(n)["tensor"].items() if k in operators}}
        for n in (2, 3, 4)
    }
    tables = tables_of(graph, within=lambda count: named[count])
    pipeline = PlannedPipeline((PlannedStage(0, 6, 0, 4, "tensor", frozenset()),), 2)
    assert Estimates(tables).estimate(pipeline) is not None
    changed, rows = rows_of(graph, tables, pipeline, "one_f_one_b")
    check_plan(changed, rows)
    strategy = plan_of(graph, FOUR, tables, pipeline, None).strategy
    split = [dict(strategy[f"block1.{name}"].degrees) for name in ("up", "down")]
    assert [{axis: d for axis, d in each.items() if d > 1} for each in split] == [
        {"o": 4},
        {"i": 4},
    ]
    other = next(p for p in moves(pipeline, tables) if len(p.stages) == 1 and p.parts == 2)
    assert other.stages[0].split == "data"
    found = search_stages(
        graph, FOUR, tables.pricing.costs, Budget(10, 60.0), within=lambda count: named[count]
    )
    assert any("tensor" in each.name for each in found)


def test_moves_keep_groups_apart_and_atoms_together():
    tables = tables_of(blocks())
    for pipeline in PIPELINES.values():
        for other in moves(pipeline, tables):
            assert [s.begin for s in other.stages] == [0, *(s.end for s in other.stages[:-1])]
            assert other.stages[-1].end == 6 and all(s.begin < s.end for s in other.stages)
            groups = set(other.groups)
            assert len({d for group in groups for d in group}) == sum(map(len, groups))
            assert all(s.again <= set(range(s.begin, s.end)) for s in other.stages)
    around = {tuple(s.end for s in other.stages) for other in moves(PIPELINES["around"], tables)}
    assert {(1, 2, 4, 6), (1, 3, 4, 6), (2, 3, 4, 6), (1, 3, 5, 6)} <= around
