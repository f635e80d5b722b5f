"""What the table of cases cannot say: masks, running statistics, tiles that read nothing, several axes at once."""

import math
import re

import numpy as np
import pytest

import ops
from ops.dense import winograd
from taskflow import Constant, Graph, Normal, ParallelConfig, Uniform, differentiate

from .cases import CASES, Case
from .interpreter import first_values, run


def dropout(p: float) -> Graph:
    graph = Graph()
    x = graph.input("x", (31, 17), "float64")
    y = ops.dropout(x, p)
    loss = ops.sum_to(ops.multiply(y, y), (), name="loss")
    graph.output("dx", differentiate(loss, [x])[x])
    return graph


def test_dropout_scales_what_it_keeps() -> None:
    graph = dropout(0.4)
    values = first_values(graph)
    results = run(graph, values)
    kept = results["dropout"] != 0
    assert abs(kept.mean() - 0.6) < 0.06
    np.testing.assert_allclose(results["dropout"][kept], values["x"][kept] / 0.6, rtol=1e-14)
    gradient = results[graph.outputs["dx"].name]
    np.testing.assert_allclose(gradient, 2 * results["dropout"] * kept / 0.6, rtol=1e-14)
    assert (run(graph, values, step=1)["dropout"] != results["dropout"]).any()


@pytest.mark.parametrize("degrees", [{"b": 3}, {"c": 2}, {"b": 2, "c": 3}], ids=str)
def test_dropout_mask_knows_no_partition(degrees: dict[str, int]) -> None:
    graph = dropout(0.5)
    values = first_values(graph)
    whole, split = run(graph, values), run(graph, values, {"dropout": ParallelConfig(degrees)})
    assert all((whole[name] == split[name]).all() for name in ("dropout", graph.outputs["dx"].name))


def test_dropout_at_the_ends() -> None:
    graph = Graph()
    x = graph.input("x", (5, 3), "float64")
    assert ops.dropout(x, 0.0) is x
    assert ops.dropout(x, 0.5, training=False) is x
    assert not run(graph, first_values(graph))["x"].any() or ops.dropout(x, 1.0) is not x
    assert (run(graph, first_values(graph))["dropout"] == 0).all()


@pytest.mark.parametrize("degrees", [{}, {"n": 3}, {"h": 2}, {"c": 2, "w": 2}], ids=str)
def test_running_statistics(degrees: dict[str, int]) -> None:
    graph = Graph()
    x = graph.input("x", (5, 3, 2, 3), "float64")
    ops.batch_norm(x, momentum=0.3, name="bn")
    values = first_values(graph)
    results = run(graph, values, {"bn": ParallelConfig(degrees)})
    mean, var = values["x"].mean((0, 2, 3)), values["x"].var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(results["bn.running_mean"], 0.3 * mean, rtol=1e-12)
    np.testing.assert_allclose(results["bn.running_var"], 0.7 + 0.3 * var, rtol=1e-12)


@pytest.mark.parametrize("degrees", [{}, {"m": 2}, {"m": 3}, {"m": 3, "n": 2}, {"c": 3}], ids=str)
def test_running_statistics_of_parts(degrees: dict[str, int]) -> None:
    """Moved once, by the means over the parts; evaluation reads them."""
    graph = Graph()
    x = graph.input("x", (6, 3, 2, 3), "float64")
    ops.batch_norm(x, momentum=0.3, name="bn", parts=3)
    values = first_values(graph)
    results = run(graph, values, {"bn": ParallelConfig(degrees)})
    parts = np.split(values["x"], 3)
    mean = np.mean([part.mean((0, 2, 3)) for part in parts], 0)
    var = np.mean([part.var((0, 2, 3), ddof=1) for part in parts], 0)
    np.testing.assert_allclose(results["bn.running_mean"], 0.3 * mean, rtol=1e-12)
    np.testing.assert_allclose(results["bn.running_var"], 0.7 + 0.3 * var, rtol=1e-12)


def test_a_batch_that_does_not_divide_has_one_part_in_evaluation() -> None:
    x = Graph().input("x", (5, 3))
    assert (
        ops.batch_norm(x, training=False, parts=2, name="bn").graph.operators[0].pattern
        == "b c, c, c, c, c -> b c"
    )


def test_max_pool_takes_the_first_of_equal_values() -> None:
    graph = Graph()
    x = graph.input("x", (1, 1, 2, 4), "float64")
    loss = ops.sum_to(ops.max_pool2d(x, 2), ())
    gradient = differentiate(loss, [x])[x]
    results = run(graph, {"x": np.array([[[[1.0, 1, 0, 2], [1, 1, 2, 2]]]])})
    assert results[gradient.name].tolist() == [[[[1, 0, 0, 1], [0, 0, 0, 0]]]]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("position", [0, 1, 3])
def test_max_pool_keeps_nan(size: int, position: int) -> None:
    graph = Graph()
    y = ops.max_pool2d(graph.input("x", (1, 1, size, size), "float64"), size)
    value = np.arange(size * size, dtype=float)
    value[position] = np.nan
    assert np.isnan(run(graph, {"x": value.reshape(1, 1, size, size)})[y.name]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_is_as_exact_as_its_dtype(dtype: str) -> None:
    graph = Graph()
    x = graph.input("x", (4001,), dtype)
    gradient = differentiate(ops.sum_to(y := ops.gelu(x), ()), [x])[x]
    points = np.linspace(-9, 9, 4001).astype(dtype)
    results = run(graph, {"x": points})
    cdf = np.array([0.5 * math.erfc(-p / math.sqrt(2)) for p in points.tolist()])
    density = np.exp(-(points.astype(float) ** 2) / 2) / math.sqrt(2 * math.pi)
    tolerance = 2e-6 if dtype == "float32" else 1e-15
    np.testing.assert_allclose(results[y.name], points * cdf, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        results[gradient.name], cdf + points * density, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if re.split("[ ,]", c.name)[0] in ("conv2d", "max_pool2d", "linear")],
    ids=str,
)
def test_two_axes_and_fractions(case: Case) -> None:
    graph, output = case.build()
    leader = graph.producer(output)
    assert leader is not None
    if case.is_differentiable:
        loss = ops.sum_to(ops.multiply(output, output), ())
        differentiate(loss, [*graph.inputs, *graph.parameters])
    values = first_values(graph)
    whole = run(graph, values)
    axes = [a for a in leader.split_axes if leader.extents[a] > 1 and a != "g"]
    for first in axes:
        for second in axes:
            if first == second or (case.name == "conv2d in groups" and {first, second} & set("co")):
                continue
            config = ParallelConfig({first: (0.7, 0.3), second: 2})
            split = run(graph, values, {leader.name: config})
            for region in whole:
                np.testing.assert_allclose(
                    split[region],
                    whole[region],
                    rtol=1e-11,
                    atol=1e-12,
                    err_msg=f"{region}, {config}",
                )


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_winograd_is_the_plain_sum_under_any_split(
    padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph()
    x = graph.input("x", (3, 32, 11, 10), "float64")
    y = ops.conv2d(x, 33, 3, padding=padding, name="conv")
    differentiate(ops.sum_to(ops.multiply(y, y), ()), [x, *graph.parameters])
    values = first_values(graph)
    configs = [ParallelConfig({axis: (0.45, 0.55)}) for axis in "ncohw"] + [
        ParallelConfig({"h": 2, "c": 2, "w": 2})
    ]
    results = [run(graph, values, {"conv": config}) for config in configs]
    monkeypatch.setattr(winograd, "_BLOCK_BYTES", 1)  # a few lines at a time
    monkeypatch.setattr(winograd, "_REUSE", 0)
    results.append(run(graph, values))
    monkeypatch.setattr(winograd, "fits", lambda *args: False)
    plain = run(graph, values)
    for result in results:
        for region in plain:
            np.testing.assert_allclose(
                result[region], plain[region], rtol=1e-10, atol=1e-10, err_msg=region
            )


def test_embedding_and_loss_refuse_what_is_no_index() -> None:
    graph = Graph()
    t = graph.input("t", (3,), "int32")
    ops.softmax_cross_entropy(graph.input("y", (3, 4)), t)
    ops.embedding(t, 4, 2)
    values = {**first_values(graph), "t": np.array([0, 4, 1], "int32")}
    with pytest.raises(ValueError, match=r"^softmax_cross_entropy: the target 4 is not in 0\.\.3$"):
        run(graph, values)


def test_a_gradient_comes_back_in_the_dtype_that_was_cast() -> None:
    graph = Graph()
    x = graph.input("x", (5,))
    y = ops.cast(x, "float64")
    gradient = differentiate(ops.sum(ops.multiply(y, y)), [x])[x]
    values = first_values(graph)
    assert (y.dtype, gradient.dtype) == ("float64", "float32")
    np.testing.assert_array_equal(run(graph, values)[gradient.name], 2 * values["x"])


def test_initializers() -> None:
    shape = (6, 4, 3, 3)  # fan_in 36, fan_out 54
    assert ops.glorot_uniform(shape) == Uniform(-((6 / 90) ** 0.5), (6 / 90) ** 0.5)
    assert ops.glorot_normal(shape) == Normal(0.0, (2 / 90) ** 0.5)
    assert ops.he_uniform(shape) == Uniform(-((6 / 36) ** 0.5), (6 / 36) ** 0.5)
    assert ops.he_normal(shape) == Normal(0.0, (2 / 36) ** 0.5)
    assert ops.fan_in_uniform(shape) == Uniform(-1 / 6, 1 / 6)
    assert (ops.uniform(-1, 2), ops.normal(1, 2)) == (Uniform(-1, 2), Normal(1, 2))
    assert (ops.constant(3), ops.zeros()) == (Constant(3), Constant(0.0))
    graph = Graph()
    ops.linear(graph.input("x", (2, 4)), 3, weight_init=ops.he_normal, bias_init=0.5)
    assert graph.regions["linear.weight"].init == Normal(0.0, 0.5**0.5)
    assert graph.regions["linear.bias"].init == Constant(0.5)
