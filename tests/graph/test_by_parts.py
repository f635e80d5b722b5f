"""Gradients by parts: each part is the gradient of its own samples, whatever is split; sums that others read stay."""

from types import SimpleNamespace

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    Kernel,
    MachineModel,
    ParallelConfig,
    by_parts,
    check_plan,
    differentiate,
    lower,
)
from taskflow.core.geometry import Rect
from taskflow.graph.phases import Phase, phases_of
from tests.strategies import feeds_of, whole

BATCH, PARTS = 6, 3


def model(grow, shape=(BATCH, 4)):
    """The mean over samples of what `grow` makes, summed over the rest."""
    graph = Graph()
    y = grow(graph.input("x", shape, "float64"))
    return graph, ops.mean(ops.sum(ops.flatten(y, 1), 1), 0) if y.ndim > 2 else ops.mean(
        ops.sum(y, 1), 0
    )


def run(graph, strategy=None, devices=1, feeds=None):
    rows = lower(graph, strategy or whole(graph), MachineModel.uniform(devices))
    check_plan(graph, rows)
    with Executor(rows, seed=2, watch=True) as step:
        return step(feeds or feeds_of(graph))


MODELS = {
    "linear": (lambda x: ops.tanh(ops.linear(x, 5)), (BATCH, 4)),
    "tokens": (lambda x: ops.tanh(ops.linear(x, 5)), (BATCH, 3, 4)),
    "rows that are merged": (
        lambda x: ops.tanh(ops.linear(ops.reshape(x, (-1, 4)), 5)),
        (BATCH, 3, 4),
    ),
    "convolution": (lambda x: ops.tanh(ops.conv2d(x, 3, 3, padding=1)), (BATCH, 2, 5, 4)),
    "norm": (lambda x: ops.tanh(ops.layer_norm(x)), (BATCH, 4)),
    "norm of the batch": (
        lambda x: ops.tanh(ops.batch_norm(ops.linear(x, 3), training=False)),
        (BATCH, 4),
    ),
    "attention": (lambda x: ops.multihead_attention(x, 2), (BATCH, 3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_part_is_the_gradient_of_its_samples(name):
    """Of models whose loss is a mean over samples, so that a part is a third of the gradient of its own samples."""
    grow, shape = MODELS[name]
    graph, loss = model(grow, shape)
    whole_ones = differentiate(loss, graph.parameters)
    for parameter, gradient in whole_ones.items():
        graph.output(f"whole {parameter.name}", gradient)
    feeds = feeds_of(graph)
    expected = run(graph)
    graph, loss = model(grow, shape)
    gradients = differentiate(loss, graph.parameters)
    for parameter, gradient in zip(gradients, by_parts(gradients.values(), PARTS), strict=True):
        assert gradient.shape == (PARTS, *parameter.shape)
        graph.output(f"parts {parameter.name}", gradient)
    found = run(graph, feeds=feeds)
    for parameter in graph.parameters:
        parts, sums = found[f"parts {parameter.name}"], expected[f"whole {parameter.name}"]
        np.testing.assert_allclose(parts.sum(axis=0), sums, rtol=1e-12, atol=1e-14)
    small, loss = model(grow, (BATCH // PARTS, *shape[1:]))
    for parameter, gradient in differentiate(loss, small.parameters).items():
        small.output(parameter.name, gradient)
    for k in range(PARTS):
        own = run(small, feeds={"x": feeds["x"][k * BATCH // PARTS : (k + 1) * BATCH // PARTS]})
        for parameter in small.parameters:
            part = found[f"parts {parameter.name}"][k]
            np.testing.assert_allclose(part, own[parameter.name] / PARTS, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "config",
    [({"b": 3}, (0, 0, 0)), ({"b": 3}, (0, 1, 0)), ({"b": 6}, (0, 1) * 3), ({"b": 2}, None)],
)
def test_under_any_split_of_samples(config):
    graph, loss = model(MODELS["linear"][0])
    gradients = differentiate(loss, graph.parameters)
    for parameter, gradient in zip(gradients, by_parts(gradients.values(), PARTS), strict=True):
        graph.output(parameter.name, gradient)
    strategy = whole(graph)
    strategy["linear"] = ParallelConfig(*config)
    one, several = run(graph), run(graph, strategy, 2)
    for name, value in one.items():
        np.testing.assert_allclose(several[name], value, rtol=1e-12, atol=1e-14)


def test_a_sum_that_others_read_stays():
    """Batch norm's input gradient reads the sums of both its parameters."""
    graph, loss = model(lambda x: ops.batch_norm(ops.linear(x, 3, name="fc"), name="norm"))
    gradients = differentiate(loss, graph.parameters)
    found = dict(zip(gradients, by_parts(gradients.values(), PARTS), strict=True))
    names = [op.name for op in graph.operators]
    assert "norm.sums" in names and "norm.sums.parts" in names and "fc.dweight.parts" not in names
    for parameter, parts in found.items():
        graph.output(f"parts {parameter.name}", parts)
    graph.output("whole", graph.regions["norm.sums.1"])
    values = run(graph)
    np.testing.assert_allclose(
        values["parts norm.weight"].sum(axis=0), values["whole"], rtol=1e-12, atol=1e-14
    )


def test_a_weight_that_two_operators_read():
    """Parts of both gradients are added part by part."""
    graph = Graph()
    x = graph.input("x", (BATCH, 4), "float64")
    weight = graph.parameter("w", (4, 4), ops.uniform(-0.5, 0.5), "float64")
    y = ops.matmul(ops.tanh(ops.matmul(x, weight)), weight)
    gradients = differentiate(ops.mean(ops.sum(y, 1), 0), graph.parameters)
    (parts,) = by_parts(gradients.values(), PARTS)
    assert parts.shape == (PARTS, 4, 4) and parts.name == "w.sum"
    graph.output("parts", parts)
    run(graph)


def test_what_adds_parts_is_a_weight_gradient():
    """AdamA's additions are a part of every micro-batch's backward pass, and its updates are updates."""
    graph, loss = model(MODELS["linear"][0])
    ops.adama(loss, parts=PARTS)
    phases = {
        op.name: phase
        for op, phase in zip(graph.operators, phases_of(graph.operators), strict=True)
    }
    assert phases["linear.weight.moments"] == phases["linear.dweight"] == Phase.WEIGHT
    assert phases["linear.weight.adama"] == Phase.UPDATE
    order = [op.name for op in graph.operators]
    assert order.index("linear.bias.moments") < order.index("linear.weight.adama")
    assert {op.name for op in graph.operators if op.adds} == {
        "linear.weight.moments",
        "linear.bias.moments",
    }


@pytest.mark.parametrize("is_on_cuda", [False, True])
def test_a_gpu_calls_the_variant_of_a_kernel(is_on_cuda):
    called = []
    variant = Kernel(lambda ctx, gy, x, dw: called.append("cuda"), accumulates=True)
    kernel = Kernel(lambda ctx, gy, x, dw: called.append("cpu"), accumulates=True, cuda=variant)
    graph = Graph()
    weight = graph.parameter("w", (5, 4))
    x = graph.input("x", (BATCH, 4))

    def backward(op, gy):
        return None, graph.launch("dw", "b o, b i -> o i", [gy, x], kernel=kernel)

    y = graph.launch("fc", "b i, o i -> b o", [x, weight], kernel=kernel, backward=backward)
    by_parts(differentiate(ops.mean(ops.sum(y, 1), 0), [weight]).values(), PARTS)
    made = graph.operator("dw").kernel
    run = made.on_cuda if is_on_cuda else made
    rect = Rect((0, 0), (2, 2))
    context = SimpleNamespace(
        interval=lambda axis: (0, PARTS),
        rect=lambda k: Rect((0, 0, 0), (PARTS, 5, 4)) if k == 2 else rect,
        boxes=lambda: ((), {}),
        part=lambda rects, intervals: None,
    )
    arrays = np.zeros((BATCH, 5)), np.zeros((BATCH, 4)), np.zeros((PARTS, 5, 4))
    run.function(context, *arrays, **run.options)
    assert called == ["cuda" if is_on_cuda else "cpu"] * PARTS
