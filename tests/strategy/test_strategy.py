"""Strategies: configurations, files, and the strategies by rule."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
import taskflow
from taskflow import Graph, MachineModel, ParallelConfig, Strategy, axis_kinds, lower
from taskflow.graph.samples import sample_axes
from taskflow.strategy.partition import partition
from taskflow.strategy.rules import leaders
from taskflow.strategy.strategy import check_strategy, completed, effective_config
from tests import tiny
from tests.strategies import examples, graphs, random_strategy

FOUR = MachineModel.uniform(4)


@pytest.fixture
def net():
    """conv, tanh, flat, fc, tanh_2, loss on (8, 3, 6, 6)."""
    graph = Graph()
    h = tiny.flatten(tiny.tanh(tiny.conv(graph.input("x", (8, 3, 6, 6)), 4)))
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(h, 10))))
    return graph


def degrees(strategy):
    return {name: dict(config.degrees) for name, config in strategy.items()}


# -- configurations ----------------------------------------------------------------------------------------------------


def test_a_configuration_is_a_value():
    config = ParallelConfig({"b": 2, "o": [0.25, 0.75]}, devices=[3, 2, 1, 0])
    assert config == ParallelConfig({"b": 2, "o": (0.25, 0.75)}, (3, 2, 1, 0))
    assert hash(config) == hash(ParallelConfig({"b": 2, "o": (0.25, 0.75)}, (3, 2, 1, 0)))
    assert config.points == 4
    assert config.bounds("o", 8) == [0, 2, 8]
    assert str(config) == "b:2 o:0.25/0.75 on 3,2,1,0"
    assert str(ParallelConfig()) == "whole on 0"


def test_devices_are_numbered_from_zero_by_default():
    assert ParallelConfig({"b": 2, "o": 3}).devices == (0, 1, 2, 3, 4, 5)


def test_followers_use_the_configuration_of_their_leader_unless_named(net):
    strategy = taskflow.single_device(net, FOUR)
    update = net.operator("fc.weight.update")
    assert effective_config(update, strategy) == (ParallelConfig({}, (0,)), False)
    strategy[update.name] = ParallelConfig({"o": 2})
    assert effective_config(update, strategy) == (ParallelConfig({"o": 2}), True)


def test_what_stands_beside_a_region_is_split_alike(net):
    """A home that is named decides for its clone and the update; what is named itself, or lacks an axis, stays."""
    graph = taskflow.homes(net)
    beside = {op.name for op in graph.operators if op.beside == "fc.weight"}
    assert beside == {"fc.weight.home", "fc.weight.home.again", "fc.weight.update"}
    strategy = taskflow.single_device(graph, FOUR)
    assert completed(graph, strategy) is strategy
    strategy["fc.weight.home"] = config = ParallelConfig({"o": 4})
    found = completed(graph, strategy)
    assert {name for name in found if name not in strategy} == beside - {"fc.weight.home"}
    assert all(found[name] == config for name in beside)
    assert "fc.weight.update" not in strategy
    strategy["fc.weight.update"] = own = ParallelConfig({"i": 2})
    assert completed(graph, strategy)["fc.weight.update"] == own
    assert completed(graph, strategy)["fc.weight.home.again"] == config
    del strategy["fc.weight.home"]
    assert (
        completed(graph, strategy)["fc.weight.home"] == own
    )  # the update decides for a home that is not named
    strategy["fc.weight.update"] = ParallelConfig({"h": 2})
    assert completed(graph, strategy).keys() == strategy.keys()


def test_a_strategy_is_a_mapping(net):
    strategy = taskflow.data_parallel(net, FOUR)
    twin = strategy.copy()
    del twin["fc"]
    assert "fc" in strategy
    assert set(strategy) - set(twin) == {"fc"}
    assert len(strategy) == len(leaders(net)) == 6


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_says_what_it_is_for(net, tmp_path):
    taskflow.data_parallel(net, FOUR).save(path := tmp_path / "s.json")
    table = json.loads(path.read_text())
    assert (table["format"], table["version"]) == ("taskflow-strategy", 1)
    assert table["operators"]["fc"] == {
        "degrees": {"b": 4},
        "devices": [0, 1, 2, 3],
        "pattern": "b i, o i -> b o",
        "extents": {"b": 8, "i": 144, "o": 10},
    }


@examples(100)
@given(graphs(), st.integers(0, 99))
def test_what_is_loaded_is_what_was_saved(tmp_path_factory, model, seed):
    strategy = random_strategy(model.graph, FOUR, seed)
    strategy.save(path := tmp_path_factory.mktemp("s") / "s.json")
    loaded = Strategy.load(path)
    assert dict(loaded) == dict(strategy)
    assert loaded.signatures == {name: strategy.signatures[name] for name in strategy}
    check_strategy(model.graph, loaded, 4)
    assert lower(model.graph, loaded, FOUR).digest() == lower(model.graph, strategy, FOUR).digest()


# -- by rule -----------------------------------------------------------------------------------------------------------


def test_the_batch_is_followed_through_the_graph(net):
    assert {name: axis for name, axis in sample_axes(net).items() if "." not in name} == {
        "conv": "n",
        "tanh": "n",
        "flat": "n",
        "fc": "b",
        "tanh_2": "b",
        "loss": "b",
    }


def test_soap_is_derived(net):
    kinds = axis_kinds(net)
    parameter, fixed = "parameter", "fixed"
    assert kinds["conv"] == {
        "n": "sample", "c": parameter, "h": "attribute", "w": "attribute", "o": parameter, "kh": fixed, "kw": fixed,
    }  # fmt: skip
    assert kinds["fc"] == {"b": "sample", "i": parameter, "o": parameter}
    assert kinds["loss"] == {"b": "sample", "o": "reduction"}


def test_a_batch_in_parts_is_two_axes():
    """`(m b)`: both are Sample; parts come first, each of several devices gets some samples of every part."""
    graph = Graph()
    ops.sgd(
        ops.mean_squared_error(
            ops.batch_norm(x := graph.input("x", (16, 3)), parts=4, name="norm"), x
        ),
        0.1,
    )
    assert axis_kinds(graph)["norm"] == {"m": "sample", "b": "sample", "c": "parameter"}
    assert sample_axes(graph)["norm"] == sample_axes(graph)["norm.mean"] == "b"
    eight = MachineModel.uniform(8)
    for machine, expected in (
        (MachineModel.uniform(2), {"m": 2}),
        (FOUR, {"m": 4}),
        (eight, {"m": 4, "b": 2}),
    ):
        assert degrees(taskflow.data_parallel(graph, machine))["norm"] == expected
    for parts, expected in ((2, {"m": 4}), (4, {"m": 4, "b": 2}), (8, {"m": 4, "b": 4})):
        plan = taskflow.stages(graph, FOUR, 2, parts)
        assert plan["norm"] == ParallelConfig(expected, (0, 1) * parts)
        lower(graph, plan, FOUR)


def test_no_stage_begins_within_what_is_computed_again():
    """Half of the work is within the third of five layers; what its first product makes is computed again."""
    graph = Graph()
    h = graph.input("x", (8, 4))
    for k in range(5):
        h = ops.linear(ops.linear(h, 8, name=f"up{k}"), 4, name=f"down{k}")
        h = ops.relu(h, name=f"out{k}")
    ops.sgd(ops.mean(h), lr=0.1)

    def begins(graph, count):
        devices = {op: config.devices for op, config in taskflow.stages(graph, FOUR, count).items()}
        return [a for b, a in pairwise(devices) if devices[a] != devices[b]]

    assert begins(graph, 2) == ["down2"]
    again = taskflow.recompute(graph, [f"up{k}" for k in range(5)])
    assert begins(again, 2) == ["out2"]
    assert len(begins(again, 4)) == 3 and not any("down" in name for name in begins(again, 4))


def test_data_parallel_splits_the_batch(net):
    found = degrees(taskflow.data_parallel(net, FOUR))
    assert found == {n: {"n": 4} for n in ("conv", "tanh", "flat")} | {
        n: {"b": 4} for n in ("fc", "tanh_2", "loss")
    }


def test_model_parallel_splits_parameters_and_what_follows_them(net):
    found = degrees(taskflow.model_parallel(net, FOUR))
    assert found["conv"] == {"o": 4}
    assert found["tanh"] == {"o": 4}
    assert found["fc"] == {"o": 4}
    assert found["tanh_2"] == found["loss"] == {"o": 4}


def test_one_weird_trick_splits_convolutions_by_the_batch_and_the_rest_by_parameters(net):
    found = degrees(taskflow.one_weird_trick(net, FOUR))
    assert found["conv"] == found["tanh"] == {"n": 4}
    assert found["fc"] == found["tanh_2"] == {"o": 4}


def test_one_weird_trick_leaves_norms_where_their_inputs_are():
    image = Graph().input("x", (8, 3, 6, 6))
    h = ops.global_avg_pool2d(
        ops.relu(ops.batch_norm(ops.conv2d(image, 4, 3, name="conv"), name="norm"))
    )
    graph = ops.batch_norm(ops.linear(h, 16, name="fc"), name="norm_of_fc").graph
    found = degrees(taskflow.one_weird_trick(graph, FOUR))
    assert found["conv"] == found["norm"] == {"n": 4}
    assert found["fc"] == found["norm_of_fc"] == {"o": 4}


def test_random_strategies_are_legal_and_repeat(net):
    found = [random_strategy(net, FOUR, seed) for seed in range(20)]
    assert [dict(random_strategy(net, FOUR, seed)) for seed in range(20)] == [
        dict(s) for s in found
    ]
    for strategy in found:
        lower(net, strategy, FOUR)
    assert len({str(s) for s in found}) == 20
    configs = [config for s in found for config in s.values()]
    assert any(isinstance(d, tuple) for c in configs for _, d in c.degrees)
    assert any(len(set(c.devices)) < c.points for c in configs)


def test_a_training_strategy_serves_the_evaluation_graph(net):
    other = Graph()
    h = tiny.flatten(tiny.tanh(tiny.conv(other.input("x", (2, 3, 6, 6)), 4)))
    other.output("y", tiny.tanh(tiny.linear(h, 10)))
    found = taskflow.data_parallel(net, FOUR).for_graph(other)
    assert set(found) == {"conv", "tanh", "flat", "fc", "tanh_2"}
    assert found["conv"] == ParallelConfig({}, (0,))  # a batch of 2 has no 4 parts
    lower(other, found, FOUR)
    wide = taskflow.model_parallel(net, FOUR).for_graph(other)
    assert wide["fc"] == ParallelConfig({"o": 4})


def test_replicas_are_said_saved_and_made(net, tmp_path):
    """Parts along an axis that no operator has: each device computes the same tile."""
    strategy = taskflow.data_parallel(net, FOUR)
    strategy["fc"] = ParallelConfig({"b": 2, "replicas": 2}, (0, 1, 2, 3))
    assert str(strategy["fc"]) == "b:2 replicas:2 on 0,1,2,3"
    strategy.save(path := tmp_path / "s.json")
    assert Strategy.load(path)["fc"] == strategy["fc"]
    points = partition(net.operator("fc"), strategy["fc"])
    assert points.devices == (0, 1, 2, 3) and len(set(points.args[-1].rects)) == 2


def test_older_spellings_of_replicas_are_taken(net, tmp_path):
    with pytest.warns(FutureWarning, match='use {"replicas": ...}'):
        assert ParallelConfig({"b": 2, None: 2}) == ParallelConfig({"b": 2, "replicas": 2})
    strategy = Strategy.of_graph(net, {"fc": ParallelConfig({"b": 2, "replicas": 2})})
    strategy.save(path := tmp_path / "s.json")
    path.write_text(path.read_text().replace('"replicas"', '""'))
    assert Strategy.load(path)["fc"] == strategy["fc"]
