"""Versions: a gradient is made of what the forward operators read, or it is refused."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import Graph, MachineModel, differentiate, replace_regions
from taskflow.graph.rebuild import rebuild
from tests import laws, tiny
from tests.refusals import assert_refused
from tests.strategies import Model, feeds_of
from tests.tiny import term


def scaled(x, w, name="product"):
    """`y[b, c] = x[b, c] w[b, c]`, whose gradient reads both."""

    def backward(op, gy):
        return tuple(
            scaled(gy, other, f"{op.name}.d{k}") for k, other in enumerate(reversed(op.inputs))
        )

    kernel = lambda ctx, x, w, y: np.multiply(x, w, out=y)
    return x.graph.launch(
        name, f"{term(x)}, {term(x)} -> {term(x)}", [x, w], kernel=kernel, backward=backward
    )


@pytest.fixture
def graph():
    graph = Graph()
    graph.input("x", (2, 3), "float64")
    tiny.parameter(graph, "w", (2, 3))
    return graph


def test_a_weight_that_is_updated_between_forward_and_backward(graph):
    x, w = graph.regions["x"], graph.regions["w"]
    loss = tiny.mean_square(scaled(x, w))
    tiny.double(w)
    message = "differentiate: the backward of 'product' reads 'w', which 'double' updates in place after it"
    assert_refused(message, lambda: differentiate(loss, [x]))


def test_a_result_that_is_updated_before_it_is_read_on(graph):
    x, w = graph.regions["x"], graph.regions["w"]
    y = scaled(x, w)
    tiny.double(y)
    stale = "does not read the version that gets the gradient"
    message = f"differentiate: 'double' updates 'product' in place, and 'loss' {stale}"
    loss = tiny.mean_square(y)
    assert_refused(message, lambda: differentiate(loss, [w]))


def test_what_an_update_adds_to_a_value_gets_no_gradient_and_is_refused(graph):
    x, w = graph.regions["x"], graph.regions["w"]
    y = tiny.copy(x)
    tiny.decay(y, w)
    loss = tiny.add(tiny.mean_square(y, "a"), tiny.mean_square(w, "b"))
    message = "differentiate: 'decay' updates 'copy' in place, and 'a' does not read the version that gets the gradient"
    assert_refused(message, lambda: differentiate(loss, [w]))


def test_a_loss_that_is_updated(graph):
    loss = tiny.mean_square(graph.regions["x"])
    tiny.double(loss)
    message = "differentiate: 'double' updates the loss 'loss' in place"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]))


def test_a_weight_that_is_read_before_and_after_its_update(graph):
    x, w = graph.regions["x"], graph.regions["w"]
    first = tiny.mean_square(tiny.add(x, w), "first")
    tiny.double(w)
    loss = tiny.add(first, tiny.mean_square(tiny.add(x, w), "second"))
    message = "differentiate: 'double' updates 'w' in place, and 'add' does not read the version that gets the gradient"
    assert_refused(message, lambda: differentiate(loss, [w]))


@pytest.mark.parametrize("reads", [tiny.tanh, tiny.copy])
def test_an_update_that_the_gradient_does_not_meet_is_no_obstacle(graph, reads):
    """Before the forward operator, after it where the backward one does not read, and of what is not on the way."""
    x, w = graph.regions["x"], graph.regions["w"]
    tiny.double(w)
    loss = tiny.mean_square(tiny.add(reads(x), scaled(x, w)))
    other = tiny.copy(x, "other")
    tiny.double(other)
    before = len(graph.operators)
    graph.output("gradient", differentiate(loss, [w])[w])
    assert len(graph.operators) > before
    feeds = feeds_of(graph)
    found = laws.one_device(Model(graph, feeds), MachineModel.uniform(1))
    y = (np.tanh(feeds["x"]) if reads is tiny.tanh else feeds["x"]) + feeds["x"] * found["w"]
    np.testing.assert_allclose(found["gradient in step 0"], y * feeds["x"] / 6, rtol=1e-12)


def test_what_a_backward_function_leaves_to_others_is_forgotten():
    graph = Graph()
    graph.pending["chain"] = [1]
    loss = tiny.mean_square(graph.input("x", (2, 2), "float64"))
    differentiate(loss, graph.inputs)
    assert not graph.pending


# -- other regions in the place of some --------------------------------------------------------------------------------


def test_tied_weights_are_one_region_with_one_gradient(graph):
    x = graph.regions["x"]
    tiny.parameter(graph, "v", (2, 3))
    loss = tiny.mean_square(scaled(scaled(x, graph.regions["w"]), graph.regions["v"], "again"))
    tied = replace_regions(graph, {"v": replace(graph.regions["v"], name="w")})
    assert [r.name for r in tied.parameters] == ["w"] and [r.name for r in graph.parameters] == [
        "w",
        "v",
    ]
    gradient = differentiate(tied.regions[loss.name], tied.parameters)[tied.regions["w"]]
    tied.output("gradient", gradient)
    feeds = feeds_of(tied)
    found = laws.one_device(Model(tied, feeds), MachineModel.uniform(1))
    x, w = feeds["x"], found["w"]
    np.testing.assert_allclose(found["gradient in step 0"], 2 * x**2 * w**3 / 6, rtol=1e-12)


def test_a_dtype_and_a_role_are_replaced(graph):
    y = scaled(graph.regions["x"], graph.regions["w"])
    changed = {r.name: replace(r, dtype="float32") for r in graph.regions.values()}
    changed["w"] = replace(changed["w"], role="state")
    other = replace_regions(graph, changed)
    assert other.regions[y.name].dtype == "float32" and other.operators[0].inputs[1].role == "state"
    assert not other.parameters and all(r.graph is other for r in other.operators[0].args)


def test_regions_that_cannot_be_replaced(graph):
    x, w = graph.regions["x"], graph.regions["w"]
    y = scaled(x, w)
    refused = {
        "replace_regions: the graph has no region 'z'": {"z": w},
        "replace_regions: 'w' is (2, 3), 'w' is (3,)": {"w": replace(w, shape=(3,))},
        "replace_regions: 'w' cannot be 'x': a parameter of float64 (2, 3), a input of float64 (2, 3)": {
            "w": replace(w, name="x")
        },
        "replace_regions: 'product' cannot be 'w': a value of float64 (2, 3), a parameter of float64 (2, 3)": {
            y.name: replace(y, name="w")
        },
    }
    for message, changed in refused.items():
        assert_refused(message, lambda changed=changed: replace_regions(graph, changed))
    assert rebuild(graph, graph.operators).operators == graph.operators
