"""Graphs: regions, names, launches, and gradients as graph."""

import numpy as np
import pytest

from taskflow import (
    Constant,
    Executor,
    Graph,
    MachineModel,
    Normal,
    differentiate,
    lower,
    single_device,
)
from tests import laws, tiny
from tests.strategies import feeds_of


def values(graph, regions, feeds=None):
    """The numbers of some regions on one device."""
    for region in regions:
        graph.output(region.name, region)
    machine = MachineModel.uniform(1)
    return laws.run(lower(graph, single_device(graph, machine), machine), feeds or feeds_of(graph))


def names(graph):
    return [op.name for op in graph.operators]


# -- regions and names -------------------------------------------------------------------------------------------------


def test_regions_have_roles_shapes_and_first_values():
    graph = Graph()
    x = graph.input("x", [4, np.int64(3)], dtype="int32")
    w = graph.parameter("w", (2, 3), init=lambda shape: Normal(0, 1 / shape[1]))
    s = graph.parameter("s", (), init=2, trainable=False)
    assert (x.shape, x.dtype, x.role, x.axes, x.size_bytes) == (
        (4, 3),
        "int32",
        "input",
        ("b", "c"),
        48,
    )
    assert (w.role, w.init, w.is_persistent) == ("parameter", Normal(0, 1 / 3), True)
    assert (s.role, s.init, s.ndim) == ("state", Constant(2.0), 0)
    assert (graph.inputs, graph.parameters) == ([x], [w])


def test_operators_of_one_name_are_numbered():
    graph = Graph()
    x = graph.input("x", (4, 3))
    found = [tiny.tanh(x), tiny.tanh(x), tiny.tanh(x, name="tanh_2")]
    assert [r.name for r in found] == ["tanh", "tanh_2", "tanh_2_2"]
    assert graph.unique_name("tanh") == "tanh_3"
    assert graph.operator("tanh_2").outputs == (found[1],)
    assert graph.producer(found[1]) is graph.operator("tanh_2")
    assert graph.producer(x) is None
    assert tiny.tanh(x, name="x").name == "x_2"  # as a region is


def test_several_outputs_are_numbered_from_their_operator():
    graph = Graph()
    s, q = tiny.moments(graph.input("x", (4, 3)))
    assert (s.name, q.name, s.axes) == ("moments.0", "moments.1", ("b",))


def test_outputs_take_the_first_floating_dtype():
    graph = Graph()
    index, x = graph.input("t", (4,), "int32"), graph.input("x", (4, 3), "float64")
    launch = lambda inputs, **options: graph.launch(
        "op", "b, b c -> b c", inputs, kernel=tiny._copy, **options
    )
    assert launch([index, x]).dtype == "float64"
    assert launch([index, graph.input("u", (4, 3), "int32")]).dtype == "int32"
    assert launch([index, x], dtype="float32").dtype == "float32"


def test_an_operator_that_makes_nothing_returns_nothing():
    graph = Graph()
    assert tiny.double(graph.parameter("w", (3,))) == ()


def test_a_reduction_costs_two_operations_a_point():
    graph = Graph()
    tiny.tanh(tiny.linear(graph.input("x", (4, 3)), 5))
    assert [op.flops for op in graph.operators] == [2, 1]


# -- gradients ---------------------------------------------------------------------------------------------------------


def check_gradients(graph, loss, x, move=1e-6):
    """Against central differences of the loss, element by element."""
    graph.output("value", loss)
    graph.output("gradient", differentiate(loss, [x])[x])
    machine, feeds = MachineModel.uniform(1), feeds_of(graph)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        exact = step(feeds)["gradient"]
        for at in np.ndindex(x.shape):
            around = []
            for side in (move, -move):
                there = feeds[x.name].copy()
                there[at] += side
                step._run.step = 0  # the same random numbers
                around.append(float(step({x.name: there})["value"]))
            assert (around[0] - around[1]) / (2 * move) == pytest.approx(float(exact[at]), abs=1e-7)


def test_a_region_that_many_read_gets_the_sum_of_their_gradients():
    graph = Graph()
    x = graph.input("x", (3, 4), "float64")
    h = tiny.tanh(x)
    loss = tiny.add(
        tiny.mean_square(tiny.add(h, tiny.stencil(h, 1))),
        tiny.mean_square(tiny.scale_rows(h, tiny.row_max(h))),
    )
    check_gradients(graph, loss, x)
    assert {"tanh.sum", "tanh.sum_2", "tanh.sum_3"} <= set(names(graph))
    assert graph.operator("tanh.sum").follows == "tanh"


LAYERS = {
    "concat": lambda x: tiny.concat([x, tiny.tanh(x), x]),
    "part": lambda x: tiny.part(tiny.centre(x), 1, 1, 3),
    "stencil": lambda x: tiny.stencil(x, 1, size=2, stride=2, padding=1, dilation=2),
    "heads": lambda x: tiny.split_heads(tiny.dropout(x), 2),
    "row": lambda x: tiny.add_row(x, tiny.column_sum(x)),
    "one of two": lambda x: tiny.scale_rows(x, tiny.moments(x)[1]),
    "both": lambda x: tiny.add(*[tiny.scale_rows(x, s) for s in tiny.moments(x)]),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_gradients_are_those_of_finite_differences(layer):
    graph = Graph()
    x = graph.input("x", (3, 4), "float64")
    check_gradients(graph, tiny.mean_square(LAYERS[layer](x)), x)


def test_gradients_of_a_convolution():
    graph = Graph()
    x = graph.input("x", (1, 2, 4, 3), "float64")
    check_gradients(
        graph, tiny.mean_square(tiny.conv(tiny.tanh(tiny.conv(x, 2, stride=2)), 1, size=2)), x
    )


def test_operators_that_lead_to_no_wanted_gradient_are_removed():
    graph = Graph()
    x = graph.input("x", (4, 3))
    tiny.linear(x, 9, name="aside")
    loss = tiny.mean_square(tiny.linear(tiny.tanh(x), 2))
    tiny.sgd(loss)
    assert names(graph) == [
        "aside",
        "tanh",
        "fc",
        "loss",
        "loss.one",
        "loss.dx",
        "fc.dweight",
        "fc.weight.update",
    ]
    assert "fc.dx" not in graph.regions
    assert {op.name: op.follows for op in graph.operators[4:]} == {
        "loss.one": "loss",
        "loss.dx": "loss",
        "fc.dweight": "fc",
        "fc.weight.update": "fc",
    }


def test_a_gradient_that_stops_is_none():
    graph = Graph()
    table = tiny.embedding(graph.input("t", (4,), "int32"), 5, 3)
    weight = graph.parameters[0]
    assert list(differentiate(tiny.mean_square(table), [weight])) == [weight]


def test_the_gradient_of_an_intermediate_region():
    graph = Graph()
    h = tiny.tanh(graph.input("x", (4, 3), "float64"))
    gradient = differentiate(tiny.mean_square(h), [h])[h]
    found = values(graph, [h, gradient])
    np.testing.assert_allclose(found["loss.dx in step 0"], found["tanh in step 0"] / 12)


def test_an_update_is_split_as_the_first_reader_splits_its_region():
    graph = Graph()
    x = graph.input("x", (4, 3, 6, 6))
    tiny.sgd(tiny.mean_square(tiny.conv(x, 2)))
    update = graph.operator("conv.weight.update")
    assert update.pattern == "o c kh kw, o c kh kw, o c kh kw ->"
    assert (update.follows, update.writes) == ("conv", (0, 2))


def test_an_update_of_a_region_that_is_read_with_a_halo_takes_it_whole():
    graph = Graph()
    row = tiny.parameter(graph, "row", (3,))
    tiny.sgd(
        tiny.mean_square(tiny.add_row(graph.input("x", (4, 3), "float64"), tiny.stencil(row))),
        momentum=0,
    )
    assert graph.operator("row.update").pattern == "^whole0, ^whole0 ->"
