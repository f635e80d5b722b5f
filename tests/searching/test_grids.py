"""Grids of experts from patterns alone: what they split in models of all kinds, and that numbers stay the same."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, Device, Graph, MachineModel, ParallelConfig
from taskflow.searching.fold import block_interiors, find_repetitions, fold
from taskflow.searching.grids import RESTS, Grids
from taskflow.searching.moves.shape import plan_of
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import HOMES, SHARDED, WHOLE, PlanShape
from taskflow.strategy.sharded import ShardedState, shard_state, sharded_config, whole_config
from taskflow.strategy.strategy import REPLICAS
from taskflow.tasks.memory import plan_memory
from tests.laws import any_strategy_is_one_device, assert_close, one_device, run
from tests.strategies import Model, feeds_of

SLOW = Device(kind="emulated", flops_per_second=1e7, memory_bandwidth=1e9)


def transformer(layers=3, batch=4, dtype="float64"):
    """Two heads of two, four words, six places."""
    graph = Graph()
    x, t = graph.input("x", (batch, 6), "int32"), graph.input("t", (batch, 6), "int32")
    h = ops.embedding(x, 8, 4, name="words", dtype=dtype)
    for k in range(layers):
        h = ops.add(
            h,
            ops.multihead_attention(ops.layer_norm(h, name=f"a{k}"), 2, name=f"b{k}"),
            name=f"c{k}",
        )
        y = ops.gelu(ops.linear(ops.layer_norm(h, name=f"d{k}"), 8, name=f"e{k}"), name=f"f{k}")
        h = ops.add(h, ops.linear(y, 4, name=f"g{k}"), name=f"h{k}")
    ops.adam(ops.softmax_cross_entropy(ops.linear(h, 8, name="head"), t), lr=0.01)
    return Model(graph, feeds_of(graph, classes=8))


def degrees(strategy, name):
    return dict(strategy[name].degrees)


def test_heads_hidden_units_and_words_are_split_and_nothing_else():
    grid = Grids(transformer().graph).strategy(range(4), 2, "replicas")
    assert degrees(grid, "words") == {"b": 2, "v": 2}
    assert (
        degrees(grid, "b0.q")
        == {"b": 2, "k": 2}
        == degrees(grid, "b0.scores")
        == degrees(grid, "b0.out")
    )
    assert degrees(grid, "e0") == {"b": 2, "o": 2} == degrees(grid, "f0") and degrees(
        grid, "g0"
    ) == {"b": 2, "i": 2}
    assert degrees(grid, "a1") == {"b": 2, REPLICAS: 2} == degrees(grid, "c1")
    assert grid["e0"].devices == (0, 1, 2, 3)  # neighbours share samples


@pytest.mark.parametrize("rest, norm", [("samples", {"b": 4}), ("sequence", {"b": 2, "c": 2})])
def test_what_is_left_is_split_by_samples_or_along_the_sequence(rest, norm):
    grid = Grids(transformer().graph).strategy(range(4), 2, rest)
    assert degrees(grid, "a0") == norm == degrees(grid, "h2") and degrees(grid, "e0") == {
        "b": 2,
        "o": 2,
    }


def test_casts_of_a_precision_policy_are_weights():
    graph = Graph()
    x = graph.input("x", (4, 8))
    graph.output(
        "loss", ops.mean(ops.linear(ops.relu(ops.linear(x, 8, name="up")), 8, name="down"))
    )
    grid = Grids(taskflow.precision(graph, "bfloat16")).strategy(range(2), 2)
    assert degrees(grid, "up") == {"o": 2} and degrees(grid, "down") == {"i": 2}


def test_channels_of_successive_convolutions_alternate():
    graph = Graph()
    h = graph.input("x", (2, 4, 6, 6), "float64")
    for k in range(4):
        h = ops.relu(ops.conv2d(h, 4, 3, padding=1, name=f"conv{k}"))
    grid = Grids(graph).strategy(range(2), 2)
    split = [next(iter(degrees(grid, f"conv{k}"))) for k in range(4)]
    assert split[:2] in (["o", "c"], ["c", "o"]) and all(axis in "oc" for axis in split)


def test_there_is_no_grid_of_more_devices_than_samples():
    grids = Grids(transformer(batch=2).graph)
    assert grids.strategy(range(4), 1) is None and grids.strategy(range(4), 2) is not None


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_every_grid_gives_the_numbers_of_one_device(tensor):
    model, machine = transformer(layers=2), MachineModel.uniform(4)
    expected = one_device(model, machine, 2)
    graph, grids = model.graph, Grids(model.graph)
    for rest in RESTS if tensor > 1 else RESTS[:1]:
        grid = grids.strategy(range(4), tensor, rest)
        for strategy in (grid, shard_state(graph, grid)):
            assert_close(run(taskflow.lower(graph, strategy, machine), model.feeds, 2), expected)


def test_choices_are_legal_and_different():
    model, machine = transformer(), MachineModel.uniform(4)
    grids, costs = Grids(model.graph), CostModel.analytic(machine)
    judge = PackedJudge(model.graph, machine, costs)
    judge.start(taskflow.data_parallel(model.graph, machine))
    for name in grids.families:
        choices = grids.choices(name, range(4))
        assert len(set(choices.values())) == len(choices) > 1 or name == "softmax_cross_entropy"
        assert all(np.isfinite(judge.propose_all({name: config})) for config in choices.values())


# -- sharded state -----------------------------------------------------------------------------------------------------


def test_state_is_split_over_replicas_beside_what_is_split_already():
    model = transformer()
    grid = Grids(model.graph).strategy(range(4), 2, "replicas")
    sharded = shard_state(model.graph, grid)
    assert sharded["e0.weight.adam"] == ParallelConfig({"o": 4}, (0, 2, 1, 3))
    assert sharded["e0.bias.adam"] == ParallelConfig(
        {"o": 4}, (0, 2, 1, 3)
    )  # within the parts that are there
    assert sharded["g0.bias.adam"] == ParallelConfig({"o": 4}, (0, 1, 2, 3))


def test_it_takes_a_quarter_of_the_memory_on_four_devices():
    graph = Graph()
    ops.adam(ops.mean(ops.linear(graph.input("x", (4, 64)), 256, bias=False, name="fc")), lr=0.01)
    machine = MachineModel.uniform(4)
    whole = taskflow.data_parallel(graph, machine)
    held = [
        int(
            taskflow.tasks.memory.plan_memory(
                taskflow.lower(graph, s, machine)
            ).persistent_bytes.max()
        )
        for s in (whole, shard_state(graph, whole))
    ]
    weight = 64 * 256 * 4
    assert (
        3 * weight <= held[0] < 3.1 * weight and 1.5 * weight <= held[1] < 1.6 * weight
    )  # the weight, two moments


def test_state_follows_an_operator_that_is_changed():
    model = transformer()
    sharded, grids = ShardedState(model.graph), Grids(model.graph)
    strategy = sharded.of(grids.strategy(range(4), 2, "replicas"))
    whole = grids.choices("e0", range(4))[4, -1]
    changes = sharded.follow(strategy, {"e0": whole})
    assert changes.keys() == {"e0", "e0.weight.adam", "e0.bias.adam"}
    alone = sharded.follow(strategy, {"e0": ParallelConfig({}, (0,))})
    assert alone["e0.weight.adam"].devices == (0,)  # nothing to split any more


def test_unequal_parts_stay_as_they_are():
    model = transformer()
    update, uneven = (
        model.graph.operator("e0.weight.adam"),
        ParallelConfig({"b": 2, "o": (0.75, 0.25)}, range(4)),
    )
    assert sharded_config(update, uneven) is None
    assert whole_config(update, uneven) == ParallelConfig(
        {"o": (0.75, 0.25), "replicas": 2}, (0, 2, 1, 3)
    )


def test_state_is_shared_out_as_samples_are():
    """A device that is three times as fast has three quarters of the samples and of the state."""
    model = transformer()
    machine = MachineModel.uniform(2, Device("emulated"))
    fast = replace(machine.devices[0], flops_per_second=3 * machine.devices[1].flops_per_second)
    machine = replace(machine, devices=(fast, machine.devices[1]))
    strategy = shard_state(model.graph, taskflow.proportional(model.graph, machine))
    assert strategy["e0.weight.adam"] == ParallelConfig({"o": (0.75, 0.25)}, range(2))
    any_strategy_is_one_device(model, MachineModel.uniform(2), strategy)


def test_the_memory_that_one_grid_takes_is_enough():
    """Of the grids that moves lay out, that which takes least; what is found fits."""
    graph, machine = transformer(2).graph, MachineModel.preset("p100")
    problem, costs = (
        SearchProblem(graph, machine, CostModel.analytic(machine)),
        CostModel.analytic(machine),
    )
    states, rests = (WHOLE, SHARDED, HOMES), product((1, 2, 4), RESTS, (False, True))
    shapes = [PlanShape(t, rest, state, again) for t, rest, again in rests for state in states]
    plans = [plan for shape in shapes if (plan := plan_of(shape, problem))]
    least = min(problem.judge.judge(plan).peak_bytes for plan in plans)
    small = machine.with_rates(memory_bytes=least)
    result = taskflow.search(graph, small, CostModel.analytic(small), proposals=300)
    rows = result.plan.apply(graph, small, costs)[1]
    assert taskflow.simulate(rows, costs).peak_bytes.max() <= least


# -- folds -------------------------------------------------------------------------------------------------------------


def test_runs_are_found_inside_and_beside_each_other():
    found = [(run.first, run.period, run.count) for run in find_repetitions("xabcabcabcyddddz")]
    assert found == [(1, 3, 3), (11, 1, 4)]
    assert find_repetitions("abcd") == [] and [run.count for run in find_repetitions("aa")] == [2]


def test_layers_are_one_class_each_operator():
    classes, runs = fold(transformer(layers=5).graph)
    assert [run.count for run in runs] == [5]
    assert (
        ["e0", "e1", "e2", "e3", "e4"] in classes and ["words"] in classes and ["head"] in classes
    )


def test_interiors_are_what_one_layer_alone_reads():
    found = set(block_interiors(transformer(layers=2).graph))
    assert {"e0", "f1", "b0.scores", "a0"} <= found and not {"h0", "h1", "words", "head"} & found


@pytest.mark.parametrize(
    "degrees",
    [
        {},
        {"tensor": 2, "rest": "sequence"},
        {"sharded": "parameters"},
        {"tensor": 2, "sharded": "state"},
        {"tensor": 2, "stages": 2, "parts": 2, "recomputed": ("b0.scores", "f0")},
        {"tensor": 2, "rest": "sequence", "parts": 2, "schedule": "pieces"},
        {"stages": (4, 2), "parts": 4},
    ],
)
def test_a_grid_by_degrees_is_a_plan_that_changes_no_number(degrees):
    model, machine = transformer(), MachineModel.uniform(4)
    plan = taskflow.grid(model.graph, machine, **degrees)
    graph, rows = plan.apply(model.graph, machine, CostModel.analytic(machine))
    assert len(rows.devices_used) == 4
    taskflow.check_plan(graph, rows)
    assert_close(run(rows, model.feeds), one_device(model, machine))


def test_state_within_hosts_is_split_there_and_whole_on_each():
    """Half as many parts on two hosts, twice the state, and the same numbers."""
    graph = Graph()
    h = ops.relu(ops.linear(graph.input("x", (8, 16), "float64"), 16, name="e0"))
    ops.adam(ops.mean(ops.linear(h, 8, name="e1")), lr=0.01)
    model = Model(graph, feeds_of(graph))
    machine = MachineModel.preset("p100", 2).with_rates(kind="cpu")
    costs = CostModel.analytic(machine)
    kept, between = [], []
    for within_hosts in (False, True):
        plan = taskflow.grid(model.graph, machine, sharded="parameters", within_hosts=within_hosts)
        graph, rows = plan.apply(model.graph, machine, costs)
        taskflow.check_plan(graph, rows)
        assert_close(run(rows, model.feeds), one_device(model, machine))
        kept.append(int(plan_memory(rows).persistent_bytes.sum()))
        between.append(taskflow.simulate(rows, costs).class_bytes()["between hosts"])
    home = plan.strategy["e0.weight.home"]
    assert dict(home.degrees) == {REPLICAS: 2, "o": 4} and home.devices == tuple(range(8))
    assert kept[1] > 1.5 * kept[0] and between[1] < between[0]


def test_parts_of_devices_have_several_stages_in_turn():
    graph, machine = transformer().graph, MachineModel.uniform(4)
    plan = taskflow.grid(graph, machine, stages=(2, 2), parts=2)
    used = [plan.strategy[name].devices for name in ("words", "b1.q", "e1", "head")]
    assert plan.schedule == "interleaved"
    assert [min(devices) // 2 for devices in used] == [0, 1, 0, 1]


def test_heads_are_split_where_features_could_be_as_well():
    """With norms that sum over them a decoder's features can be split everywhere, for more partial results."""
    graph = Graph()
    h = graph.input("x", (4, 6, 8))
    y = ops.multihead_attention(ops.rms_norm(h, name="a"), 2, name="b")
    h = ops.add(h, y, name="c")
    y = ops.linear(ops.gelu(ops.linear(ops.rms_norm(h, name="d"), 32, name="e")), 8, name="f")
    ops.adam(ops.mean(ops.add(h, y)), lr=0.01)
    grid = Grids(graph).strategy(range(2), 2, "sequence")
    assert degrees(grid, "b.q") == {"k": 2} == degrees(grid, "b.out")
    assert degrees(grid, "e") == {"o": 2} and degrees(grid, "f") == {"i": 2}
    assert degrees(grid, "a") == {"s": 2} == degrees(grid, "c")


def test_a_grid_that_cannot_be_says_why():
    graph, machine = transformer().graph, MachineModel.uniform(4)
    with pytest.raises(ValueError, match="grid: tensor 3 x 1 stages on 4 devices: they do not"):
        taskflow.grid(graph, machine, tensor=3)
    with pytest.raises(ValueError, match="grid: rest is 'rows'"):
        taskflow.grid(graph, machine, rest="rows")
    with pytest.raises(ValueError, match="grid: sharded is 'all'"):
        taskflow.grid(graph, machine, sharded="all")
