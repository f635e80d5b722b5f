"""Ring: attention in rounds gives the numbers of one operator, passes keys on, and hides what it moves."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, Graph, Kind, MachineModel, ParallelConfig, Plan, Strategy, lower
from taskflow.report.describe import describe_plan
from taskflow.schedule.put_off import computed_again
from taskflow.searching.grids import Grids
from taskflow.strategy.sharded import shard_state
from tests import laws
from tests.strategies import Model, feeds_of, random_strategy

MACHINE = MachineModel.uniform(4)
COUNT = 4


def attention(queries=16, keys=16, is_causal=True, heads=2, batch=2):
    """Attention, all of whose inputs learn."""
    graph = Graph()
    x, t = (graph.input(name, (batch, queries, 6), "float64") for name in "xt")
    m = x if queries == keys else graph.input("m", (batch, keys, 6), "float64")
    y = ops.multihead_attention(
        x, heads, None if m is x else m, is_causal, name="attention", fused=True
    )
    ops.sgd(ops.mse_loss(y, t, name="loss"), lr=0.5)
    return Model(graph, feeds_of(graph))


def along(graph, devices):
    """Positions of all that has them, a block for each of these devices."""
    strategy = taskflow.single_device(graph, MACHINE)
    for name in strategy:
        if "s" in graph.operator(name).split_axes:
            strategy[name] = ParallelConfig({"s": len(devices)}, devices)
    return strategy


def run(graph, strategy, feeds):
    rows = lower(graph, strategy, MACHINE)
    taskflow.check_plan(graph, rows)
    return laws.run(rows, feeds, 2, watch=True)


@pytest.mark.parametrize(
    "seed, count, queries, keys, is_causal",
    [(0, 2, 8, 8, True), (1, 3, 18, 18, True), (2, 4, 4, 8, False), (3, 5, 10, 10, False)],
)
def test_rounds_give_the_numbers_of_one_device(seed, count, queries, keys, is_causal):
    model = attention(queries, keys, is_causal)
    whole = run(model.graph, taskflow.single_device(model.graph, MACHINE), model.feeds)
    graph = taskflow.ring(model.graph, count)
    is_random = seed % 2
    strategy = random_strategy(graph, MACHINE, seed) if is_random else along(graph, (0, 1, 2, 0))
    laws.assert_close(run(graph, strategy, model.feeds), whole, 1e-10)


def test_a_plan_goes_around_with_what_is_computed_again_and_homes(tmp_path):
    model = attention()
    names = ["attention.q", "attention.scores"]
    plan = Plan(Strategy({}), recomputed=names, homes=["attention.k.weight"], ring=COUNT)
    graph = plan.transform(model.graph)
    assert sum(".scores.again.round" in op.name for op in graph.operators) == 2 * COUNT - 1
    whole = run(model.graph, taskflow.single_device(model.graph, MACHINE), model.feeds)
    laws.assert_close(run(graph, along(graph, (0, 1, 2, 3) * 2), model.feeds), whole, 1e-10)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert "attention in 4 parts around a ring" in describe_plan(plan)


def moved(rows, region):
    """From and to, of the copies of a region between devices."""
    copies = np.flatnonzero((rows.kind == Kind.COPY) & (rows.source != rows.device)).tolist()
    return [(int(rows.source[k]), int(rows.device[k])) for k in copies if rows.name(k) == region]


def test_keys_go_from_each_device_to_the_next():
    graph = taskflow.ring(attention(is_causal=False).graph, COUNT)
    rows = lower(graph, along(graph, tuple(range(COUNT))), MACHINE)
    around = [((d - 1) % COUNT, d) for d in range(COUNT)]
    assert sorted(moved(rows, "attention.scores.keys.0")) == sorted(around * (COUNT - 1))


def test_what_a_mask_hides_moves_nothing_and_all_parts_have_equal_work():
    graph = taskflow.ring(attention().graph, COUNT)
    strategy = Grids(graph).strategy(range(COUNT), 1, "replicas", COUNT)
    zig_zag = (0, 1, 2, 3, 3, 2, 1, 0)
    assert strategy["attention.q"] == ParallelConfig({"s": 8}, zig_zag)
    assert strategy["attention.scores"] == ParallelConfig({"s": 8}, zig_zag)
    rows = lower(graph, strategy, MACHINE)
    keys = moved(rows, "attention.scores.keys.0")
    assert len(keys) == COUNT * (COUNT - 1) * 3 // 2  # of two blocks each
    rounds = [k for k in range(len(rows)) if ".round" in rows.name(k)]
    work = np.bincount(rows.device[rounds], rows.flops[rounds])
    assert (work == work[0]).all() and work[0] > 0


@pytest.mark.parametrize("count, heads", [(2, 2), (1, 2), (1, 1)])
def test_some_devices_have_parts_of_the_heads_in_attention_and_all_equal_work(count, heads):
    """Around a ring, and where keys are gathered, by those that have a block and the one as far from behind."""
    model = attention()
    graph = taskflow.ring(model.graph, count)
    context = 2 * heads
    strategy = Grids(graph).strategy(
        range(context), 1, context=context, heads=heads, is_folded=True
    )
    assert dict(strategy["attention.scores"].degrees).get("k", 1) == heads
    rows = lower(graph, strategy, MACHINE)
    points = [k for k in range(len(rows)) if "attention.scores" in rows.name(k) and rows.flops[k]]
    work = np.bincount(rows.device[points], rows.flops[points])
    assert (work == work[0]).all() and len(work) == context
    whole = run(model.graph, taskflow.single_device(model.graph, MACHINE), model.feeds)
    laws.assert_close(run(graph, strategy, model.feeds), whole, 1e-10)


def test_state_is_sharded_where_a_device_has_several_parts_of_even_work():
    model = attention()
    grid = Grids(model.graph).strategy(range(2), 1, context=2, is_folded=True)
    uneven = taskflow.even_work(model.graph, MACHINE, grid)
    assert not isinstance(dict(uneven["attention.q"].degrees)["s"], int)
    whole = run(model.graph, taskflow.single_device(model.graph, MACHINE), model.feeds)
    strategy = shard_state(model.graph, uneven)
    assert strategy != uneven
    laws.assert_close(run(model.graph, strategy, model.feeds), whole, 1e-10)


def test_rounds_keep_their_order_in_lists_and_what_is_brought_for_them_is_not_computed_again():
    model = attention()
    graph = taskflow.ring(model.graph, COUNT)
    rows = lower(graph, Grids(graph).strategy(range(COUNT), 1, context=COUNT), MACHINE)
    assert not computed_again(rows).any()
    ordered = taskflow.reorder(rows, CostModel.analytic(MACHINE), "forward_first")
    for device in range(COUNT):
        in_turn = [
            [r.name(k) for k in np.flatnonzero((r.kind == Kind.POINT) & (r.device == device))]
            for r in (rows, ordered)
        ]
        program, listed = ([name for name in names if ".round" in name] for names in in_turn)
        assert program == listed
    feeds = laws.run(ordered, model.feeds, 2, watch=True)
    laws.assert_close(feeds, laws.run(rows, model.feeds, 2), 0)


def test_copies_half_as_long_as_products_are_hidden():
    """Of a step that has little else, on 8 devices."""
    count, size = 8, (1, 128, 4, 32)
    plain = Graph()
    q, k, v = (ops.relu(plain.parameter(n, size, 1.0), name=f"{n}2") for n in "qkv")
    y = ops.fused_attention(q, k, v, False, "attention")
    ops.sgd(ops.mean(ops.multiply(y, plain.input("t", size)), name="loss"), lr=0.1)
    graph = taskflow.ring(plain, count)
    product = (
        4 * (size[1] / count) ** 2 * size[2] * size[3]
    )  # flops of a round of a device, in a second
    device = taskflow.Device(
        "emulated", flops_per_second=product, memory_bandwidth=1e15, overhead_seconds=0.0
    )
    moved_bytes = 2 * 4 * size[1] // count * size[2] * size[3]
    seconds = []
    for bandwidth in (2.0 * moved_bytes, 1e15):
        machine = MachineModel.uniform(count, device, bandwidth, 0.0)
        strategy = taskflow.single_device(graph, machine)
        for name in strategy:
            op = graph.operator(name)
            if op.inputs[0].ndim == 4:
                axis = op.bound.axis_of(op.bound.terms[0].dims[1][0])
                strategy[name] = ParallelConfig({axis: count})
        rows = lower(graph, strategy, machine)
        seconds.append(taskflow.simulate(rows, CostModel.analytic(machine)).seconds)
    copies = (count - 1) * 3 * 0.5  # keys and values twice, and their gradients
    assert 0 <= seconds[0] - seconds[1] <= 0.15 * copies


def test_it_is_refused_where_nothing_can_be_cut():
    graph = attention().graph
    with pytest.raises(ValueError, match="ring: no operator can be cut into 3 parts of a sequence"):
        taskflow.ring(graph, 3)
    with pytest.raises(ValueError, match="plan: ring is 0, a whole number from 1 is needed"):
        Plan(Strategy({}), ring=0)
    assert taskflow.ring(graph, 1) is graph
