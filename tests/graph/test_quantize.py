"""Quantised graphs: what is rounded to what, the numbers of one device however they are split, gradients."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Graph, MachineModel, ParallelConfig

MACHINE = MachineModel.uniform(4)


def network() -> Graph:
    """A convolution and a layer of eight samples."""
    graph = Graph()
    h = ops.relu(ops.conv1d(graph.input("x", (8, 2, 12), "float64"), 4, 3, padding=1, name="conv"))
    graph.output("y", ops.linear(ops.flatten(h), 3, name="fc"))
    return graph


def trained(graph: Graph, axis: int | None) -> Graph:
    graph = taskflow.quantize(graph, 4, axis=axis)
    loss = ops.mse_loss(graph.outputs["y"], graph.input("t", (8, 3), "float64"))
    ops.sgd(loss, lr=0.1)
    return graph


def run(graph: Graph, strategy: taskflow.Strategy, feeds, steps=3):
    rows = taskflow.lower(graph, strategy, MACHINE)
    taskflow.check_plan(graph, rows)
    with taskflow.Executor(rows, seed=1) as step:
        for _ in range(steps):
            values = step(feeds)
        return values | {r.name: step.read(r.name) for r in graph.parameters}


@pytest.mark.parametrize("axis", [0, None])
def test_any_strategy_gives_the_numbers_of_one_device(axis):
    graph, generator = trained(network(), axis), np.random.default_rng(0)
    feeds = {"x": generator.normal(size=(8, 2, 12)), "t": generator.normal(size=(8, 3))}
    alone = run(graph, taskflow.single_device(graph, MACHINE), feeds)
    strategies = [taskflow.data_parallel(graph, MACHINE)]
    strategies += [taskflow.random_strategy(graph, MACHINE, seed) for seed in range(3)]
    for strategy in strategies:
        for name, value in run(graph, strategy, feeds).items():
            np.testing.assert_allclose(value, alone[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("bits", [2, 8])
def test_numbers_are_rounded_to_equal_distances(bits, axis):
    graph = Graph()
    graph.output("y", ops.fake_quantize(graph.input("x", (6, 5), "float64"), bits, axis))
    x = np.random.default_rng(bits).normal(size=(6, 5))
    x[0] = 0
    y = run(graph, taskflow.random_strategy(graph, MACHINE, 1), {"x": x}, 1)["y"]
    others = tuple(d for d in range(2) if axis is None or d != axis % 2)
    unit = np.abs(x).max(others, keepdims=True) / (2 ** (bits - 1) - 1)
    assert np.all(np.abs(y - x) <= unit / 2 + 1e-15)
    steps = y / np.maximum(unit, 1e-30)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)


def test_gradients_go_straight_through_up_to_the_scale():
    graph = Graph()
    x = graph.parameter("x", (5,), dtype="float64")
    scale = graph.input("scale", (), "float64")
    g = graph.input("g", (5,), "float64")
    for name, options in (("free", {}), ("cut", {"scale": scale})):
        loss = ops.sum(ops.multiply(ops.fake_quantize(x, 4, name=name, **options), g))
        graph.output(f"d{name}", taskflow.differentiate(loss, [x])[x])
    given = np.array([-3.0, -1.0, 0.2, 1.0, 1.5])
    feeds = {"g": np.arange(5) + 1.0, "scale": np.array(1.0)}
    with taskflow.Executor(
        taskflow.lower(graph, taskflow.single_device(graph, MACHINE), MACHINE)
    ) as step:
        step.write("x", given)
        values = step(feeds)
    assert values["dfree"].tolist() == [1, 2, 3, 4, 5]
    assert values["dcut"].tolist() == [0, 2, 3, 4, 0]


def test_scales_of_values_widen_and_are_kept_when_they_are_used():
    feeds = [{"x": np.full((8, 2, 12), size)} for size in (1.0, 3.0, 2.0)]
    graph = taskflow.quantize(network(), which="fc.*", activations=8)
    assert [r.name for r in graph.regions.values() if r.name.endswith(".scale")] == [
        "flatten.scale"
    ]
    graph = taskflow.quantize(network())
    rows = taskflow.lower(graph, taskflow.single_device(graph, MACHINE), MACHINE)
    used = taskflow.quantize(network(), calibrate=False)
    with taskflow.Executor(rows, seed=0) as step:
        for one in feeds:
            step(one)
        assert step.read("x.scale") == 3.0
        rows = taskflow.lower(used, taskflow.single_device(used, MACHINE), MACHINE)
        with taskflow.Executor(rows, share=step) as other:
            other({"x": np.full((8, 2, 12), 9.0)})
            assert other.read("x.scale") == 3.0


def test_a_weight_is_rounded_where_it_is_read_and_a_search_sees_it():
    graph = taskflow.quantize(network())
    strategy = taskflow.single_device(graph, MACHINE)
    strategy["fc"] = ParallelConfig({"o": 3})
    rows = taskflow.lower(graph, strategy, MACHINE)
    of = [rows.launches[k].name if k >= 0 else "" for k in rows.launch]
    assert sorted(rows.device[np.array(of) == "fc.weight.rounded"].tolist()) == [0, 1, 2]


REFUSED = [
    ({"which": "none.*"}, "quantize: no parameter is called none.*"),
    ({"bits": 1}, "fake_quantize 'conv.weight': bits is 1"),
    ({"bits": 17}, "fake_quantize 'conv.weight': 17 bits along axis 0 of 'conv.weight', (4, 2, 3)"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused(options, message):
    with pytest.raises(ValueError) as error:
        taskflow.quantize(network(), **options)
    assert str(error.value).startswith(message)
