"""Memory orders: who decides them, and that instances, movement and kernels agree on them."""

import numpy as np
import pytest

import ops
from taskflow import Executor, Graph, MachineModel, ParallelConfig, lower, single_device
from taskflow.graph.pattern import Pattern, parse_orders
from taskflow.lowering.orders import memory_orders

LAST = (0, 2, 3, 1)


def convolutions() -> Graph:
    graph = Graph()
    x, t = graph.input("x", (4, 3, 6, 6)), graph.input("t", (4,), "int32")
    h = ops.max_pool2d(
        ops.relu(ops.conv2d(x, 16, 3, padding=1, name="conv1"), name="relu"), 2, name="pool"
    )
    h = ops.flatten(ops.conv2d(h, 5, 3, padding=1, name="conv2"), name="flat")
    ops.sgd(
        ops.softmax_cross_entropy(ops.linear(h, 7, name="fc"), t, name="loss"), lr=0.1, momentum=0.9
    )
    return graph


def test_orders_are_read_from_the_pattern_written_again():
    pattern = Pattern.parse("n (g c) y x, (g o) c ^kh ^kw, (g o) -> n (g o) h w")
    asked = "n y x (g c), (g o) kh kw c, (g o) -> n h w (g o)"
    assert parse_orders("'conv'", asked, pattern) == (LAST, LAST, (0,), LAST)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            "b c -> c b, b",
            "'scale': layout 'b c -> c b, b' has other terms than the pattern 'b c -> b c'",
        ),
        ("b a -> c b", "'scale': the memory order 'b a' is no order of the term 'b c'"),
    ],
)
def test_a_wrong_order_is_refused(layout, message):
    graph = Graph()
    with pytest.raises(ValueError) as refusal:
        graph.launch("scale", "b c -> b c", [graph.input("x", (2, 3))], kernel=print, layout=layout)
    assert str(refusal.value) == message


def test_what_lies_between_convolutions_is_channels_last_and_so_are_weights_and_their_momenta():
    orders = memory_orders(convolutions().operators)
    expected = {
        "x",
        "conv1",
        "relu",
        "pool.0",
        "pool.1",
        "conv2",
        "relu.dx",
        "pool.dx",
        "flat.dx",
        "conv2.dx",
    }
    for name in ("conv1.weight", "conv2.weight"):
        expected |= {name, f"{name}.momentum", name.replace(".weight", ".dweight")}
    assert orders == dict.fromkeys(expected, LAST)


def test_the_first_that_asks_decides():
    graph = Graph()
    x = graph.input("x", (2, 3))
    for layout in ("b c -> c b", "c b -> c b"):
        graph.launch("copy", "b c -> b c", [x], kernel=print, layout=layout)
    assert memory_orders(graph.operators) == {"copy": (1, 0), "copy_2": (1, 0)}


def test_instances_have_the_public_shape_and_the_asked_strides():
    graph = convolutions()
    machine = MachineModel.local(1)
    task_graph = lower(graph, single_device(graph, machine), machine)
    with Executor(task_graph) as step:
        rect = graph.regions["conv1.weight"].rect
        home = step.memory.view(task_graph.homes["conv1.weight"][0][0], rect)
        assert home.shape == (16, 3, 3, 3) and home.strides == (108, 4, 36, 12)
        value = np.arange(home.size, dtype=np.float32).reshape(home.shape)
        step.write("conv1.weight", value)
        np.testing.assert_array_equal(step.read("conv1.weight"), value)


@pytest.mark.parametrize("axis", ["n", "o", "c", "h", "w"])
def test_any_split_of_a_convolution_trains_alike(axis):
    graph, rng = convolutions(), np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((4, 3, 6, 6), np.float32),
        "t": rng.integers(0, 7, 4).astype(np.int32),
    }
    weights = []
    machine = MachineModel.local(2)
    for config in (ParallelConfig({}, (0,)), ParallelConfig({axis: 2}, (1, 0))):
        strategy = single_device(graph, machine)
        strategy["conv2"] = config
        with Executor(lower(graph, strategy, machine), watch=True) as step:
            step(feeds)
            step(feeds)
            weights.append(step.read("conv1.weight"))
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-4, atol=1e-6)
