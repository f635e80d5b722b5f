"""Precision of a graph: which regions become half, where casts go, and what kernels see of it."""

import numpy as np
import pytest

import taskflow
from taskflow import (
    Executor,
    Graph,
    Kernel,
    MachineModel,
    Strategy,
    differentiate,
    lower,
    single_device,
)
from taskflow.graph.dtypes import Precision
from tests import tiny


@pytest.fixture(params=["float16", "bfloat16"])
def half(request):
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return request.param


def net(dtype=None, **options):
    """A product, an elementwise operator, a product, and a loss."""
    graph = Graph()
    h = tiny.tanh(tiny.linear(graph.input("x", (8, 6)), 5, name="first"))
    loss = tiny.mean_square(tiny.linear(h, 3, name="second"))
    if dtype:
        graph = taskflow.precision(graph, dtype, **options)
    return graph, graph.regions[loss.name]


def dtypes(graph):
    short = {"float32": "32", "float16": "16", "bfloat16": "16"}
    return {op.name: " ".join(short[r.dtype] for r in op.args) for op in graph.operators}


def test_products_read_casts_and_losses_stay(half):
    graph, loss = net(half)
    assert dtypes(graph) == {
        f"x.{half}": "32 16",
        f"first.weight.{half}": "32 16",
        "first": "16 16 16",
        "tanh": "16 16",
        f"second.weight.{half}": "32 16",
        "second": "16 16 16",
        "loss": "16 32",
    }
    assert (
        graph.regions[loss.name] is loss
        and graph.operator(f"first.weight.{half}").follows == "first"
    )


def test_gradients_have_the_dtype_of_their_regions(half):
    graph, loss = net(half)
    gradients = differentiate(loss, graph.parameters)
    assert {g.dtype for g in gradients.values()} == {"float32"}
    backward = dtypes(graph)
    assert backward["second.gradient"] == "32 16" and backward["second.dx"] == "16 16 16"
    assert backward["first.weight.gradient"] == "16 32"


def test_a_gradient_that_is_float32_is_not_rounded_on_its_way_to_a_parameter():
    graph = Graph()
    h = tiny.linear(graph.input("x", (4, 3)), 2, bias=True)
    loss = tiny.mean_square(h)
    graph = taskflow.precision(graph, "float16")
    differentiate(graph.regions[loss.name], graph.parameters)
    found = dtypes(graph)
    assert found["fc.bias.float16"] == "32 16" and found["fc.dbias"] == "16 32"
    assert "fc.bias.gradient" not in found and "fc.bias.float16.gradient" not in found


def test_sums_over_one_input_are_float32_and_outputs_can_be_named(half):
    graph = Graph()
    x = graph.input("x", (4, 3), half)
    launch = graph.launch
    assert launch("sum", "b c -> b", [x], kernel=tiny._copy).dtype == "float32"
    assert (
        launch("narrow sum", "b c -> b", [x], kernel=Kernel(tiny._copy, float32_outputs=())).dtype
        == half
    )
    assert launch("copy", "b c -> b c", [x], kernel=tiny._copy).dtype == half
    assert (
        launch(
            "wide copy", "b c -> b c", [x], kernel=Kernel(tiny._copy, float32_outputs=(0,))
        ).dtype
        == "float32"
    )
    assert launch("product", "b c, b c -> b", [x, x], kernel=tiny._copy).dtype == half
    assert launch("norm", "b c, b c -> .", [x, x], kernel=tiny._copy).dtype == "float32"


def test_a_kernel_computes_in_float32_and_rounds_once(half):
    graph, _ = net(half)
    for name in ("tanh", "first"):
        graph.output(f"{name} as it is", graph.regions[name])
    feeds = {"x": np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)}
    machine = MachineModel.uniform(1)
    with Executor(lower(graph, single_device(graph, machine), machine), watch=True) as step:
        found, weight = step(feeds), step.read("first.weight")
    wide = feeds["x"].astype(half).astype(np.float32) @ weight.astype(half).astype(np.float32).T
    y = found["first as it is"]
    assert y.dtype == half
    np.testing.assert_array_equal(y.astype(np.float32), wide.astype(half).astype(np.float32))
    np.testing.assert_array_equal(
        found["tanh as it is"].astype(np.float32),
        np.tanh(y.astype(np.float32)).astype(half).astype(np.float32),
    )


def test_what_is_fetched_is_float32(half):
    graph = Graph()
    y = graph.output("y", tiny.tanh(graph.input("x", (4, 3))))
    graph.output("z", tiny.linear(y, 2))
    narrow = taskflow.precision(graph, half)
    assert {r.dtype for r in narrow.outputs.values()} == {"float32"}
    assert (
        narrow.regions["tanh"].dtype == half and graph.regions["tanh"].dtype == "float32"
    )  # left alone


def test_a_step_has_a_gradient_in_half_of_the_bytes(half):
    moved, peaks, loss_bytes = [], [], 2 * 4
    for dtype in ("float32", half):
        graph, loss = net(dtype, loss_scale=None)
        tiny.sgd(loss)
        machine = MachineModel.uniform(2)
        task_graph = lower(graph, Strategy(taskflow.data_parallel(graph, machine)), machine)
        moved.append(int(task_graph.bytes[task_graph.is_communication].sum()))
        peaks.append(
            int(
                taskflow.simulate(task_graph, taskflow.CostModel.analytic(machine)).peak_bytes.max()
            )
        )
    assert moved[1] - loss_bytes == (moved[0] - loss_bytes) / 2
    assert peaks[1] < peaks[0]


def test_float32_and_tf32_change_no_region():
    for dtype in ("float32", "tf32"):
        graph, _ = net(dtype)
        assert set(dtypes(graph).values()) == {"32 32", "32 32 32"}
        assert graph.precision == Precision(dtype)
        machine = MachineModel.uniform(1)
        assert lower(graph, single_device(graph, machine), machine).uses_tf32 == (dtype == "tf32")


def test_other_dtypes_stay():
    graph = Graph()
    tiny.tanh(graph.input("x", (4, 3), "float64"))
    graph = taskflow.precision(graph, "float16")
    assert graph.regions["tanh"].dtype == "float64"


def test_gradients_of_casts_come_last(half):
    """They wait for sums over devices, and no other operator of the backward pass waits for them."""
    graph, loss = net(half)
    first = len(graph.operators)
    differentiate(loss, graph.parameters)
    made = [op.name for op in graph.operators[first:]]
    assert made[-2:] == ["second.weight.gradient", "first.weight.gradient"]
