"""Optimizers against torch's formulas, written out for whole arrays, over several steps and under every split."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion, ParallelConfig

from .interpreter import Array, Values, first_values, run

STEPS = 4

Step = Callable[[Array, Array, dict[str, Any], int], Array]


def sgd(momentum: float = 0, nesterov: bool = False, weight_decay: float = 0) -> Step:
    def step(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
        g = g + weight_decay * p
        if momentum:
            kept["v"] = g if t == 1 else momentum * kept["v"] + g
            g = g + momentum * kept["v"] if nesterov else kept["v"]
        return p - 0.1 * g

    return step


def adam(weight_decay: float = 0, decoupled: float = 0) -> Step:
    def step(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
        p = p - 0.1 * decoupled * p
        g = g + weight_decay * p
        m = kept["m"] = 0.8 * kept.get("m", 0) + (1 - 0.8) * g
        v = kept["v"] = 0.99 * kept.get("v", 0) + (1 - 0.99) * g * g
        return p - 0.1 / (1 - 0.8**t) * m / (np.sqrt(v) / np.sqrt(1 - 0.99**t) + 1e-6)

    return step


OPTIMIZERS = {
    "sgd": (lambda loss: ops.sgd(loss, 0.1), sgd()),
    "sgd decay": (lambda loss: ops.sgd(loss, 0.1, weight_decay=0.3), sgd(weight_decay=0.3)),
    "momentum": (lambda loss: ops.sgd(loss, 0.1, momentum=0.9), sgd(0.9)),
    "nesterov": (
        lambda loss: ops.sgd(loss, 0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
        sgd(0.9, nesterov=True, weight_decay=0.2),
    ),
    "adam": (lambda loss: ops.adam(loss, 0.1, betas=(0.8, 0.99), eps=1e-6), adam()),
    "adam decay": (
        lambda loss: ops.adam(loss, 0.1, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.2),
        adam(weight_decay=0.2),
    ),
    "adamw": (lambda loss: ops.adamw(loss, 0.1, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.2), adam(decoupled=0.2)),
}


def model(optimizer: Callable[[LogicalRegion], Any]) -> tuple[Graph, dict[LogicalRegion, LogicalRegion]]:
    graph = Graph()
    x, t = graph.input("x", (7, 5), "float64"), graph.input("t", (7,), "int32")
    h = ops.tanh(ops.linear(x, 5, name="fc1"))
    return graph, optimizer(ops.softmax_cross_entropy(ops.linear(h, 3, name="fc2"), t))


def train(graph: Graph, strategy: dict[str, ParallelConfig]) -> list[Values]:
    values = first_values(graph)
    history = []
    for step in range(STEPS):
        values = run(graph, values, strategy, step)
        history.append(values)
    return history


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_formula(name: str) -> None:
    optimizer, formula = OPTIMIZERS[name]
    graph, gradients = model(optimizer)
    expected = first_values(graph)
    kept: dict[str, dict[str, Any]] = {p.name: {} for p in graph.parameters}
    for t, values in enumerate(train(graph, {}), start=1):
        for parameter, gradient in gradients.items():
            known = expected[parameter.name], values[gradient.name], kept[parameter.name], t
            expected[parameter.name] = formula(*known)
            np.testing.assert_allclose(values[parameter.name], expected[parameter.name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("degrees", [{"b": 3}, {"o": 2}, {"i": 3}, {"b": 2, "o": 2}], ids=str)
def test_splits(name: str, degrees: dict[str, int]) -> None:
    graph, _ = model(OPTIMIZERS[name][0])
    config = ParallelConfig(degrees)
    whole, split = train(graph, {})[-1], train(graph, {"fc1": config, "fc2": config})[-1]
    for region in whole:
        np.testing.assert_allclose(split[region], whole[region], rtol=1e-11, atol=1e-12, err_msg=region)


def test_loss_is_an_output_and_the_rate_a_state() -> None:
    graph, gradients = model(lambda loss: ops.sgd(loss, lr=0.25, momentum=0.5))
    assert [r.name for r in gradients] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert graph.outputs["loss"].shape == ()
    values = first_values(graph)
    assert values["learning_rate"] == 0.25
    assert {r.name for r in graph.regions.values() if r.role == "state"} == {
        "learning_rate",
        *(f"{p.name}.momentum" for p in gradients),
    }
    still = run(graph, {**values, "learning_rate": np.array(0.0)})
    assert all((still[p.name] == values[p.name]).all() for p in gradients)


def test_float32_stays_float32() -> None:
    graph = Graph()
    x, t = graph.input("x", (4, 3)), graph.input("t", (4,), "int32")
    ops.adamw(ops.softmax_cross_entropy(ops.linear(x, 2), t))
    assert {r.dtype for r in graph.regions.values()} == {"float32", "int32"}
    run(graph, first_values(graph, high=2))


def test_unneeded_gradients_are_not_built() -> None:
    graph, _ = model(lambda loss: ops.sgd(loss, 0.1))
    assert "fc1.dx" not in {op.name for op in graph.operators}
