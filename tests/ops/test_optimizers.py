"""Optimizers against torch's formulas, written out for whole arrays, over several steps and under every split."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    LogicalRegion,
    MachineModel,
    ParallelConfig,
    checkpoint,
    data_parallel,
    lower,
    model_parallel,
    rates,
    single_device,
)

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


def adagrad(lr_decay: float = 0, first: float = 0, weight_decay: float = 0) -> Step:
    def step(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
        g = g + weight_decay * p
        kept["s"] = kept.get("s", first) + g * g
        return p - 0.1 / (1 + (t - 1) * lr_decay) * g / (np.sqrt(kept["s"]) + 1e-6)

    return step


def rmsprop(momentum: float = 0, centered: bool = False, weight_decay: float = 0) -> Step:
    def step(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
        g = g + weight_decay * p
        kept["s"] = 0.9 * kept.get("s", 0) + 0.1 * g * g
        kept["a"] = 0.9 * kept.get("a", 0) + 0.1 * g * centered
        kept["v"] = momentum * kept.get("v", 0) + g / (np.sqrt(kept["s"] - kept["a"] ** 2) + 1e-3)
        return p - 0.1 * kept["v"]

    return step


def lamb(weight_decay: float = 0) -> Step:
    def step(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
        m = kept["m"] = 0.8 * kept.get("m", 0) + (1 - 0.8) * g
        v = kept["v"] = 0.99 * kept.get("v", 0) + (1 - 0.99) * g * g
        way = m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + weight_decay * p
        return p - 0.1 * np.linalg.norm(p) / np.linalg.norm(way) * way

    return step


def halved(p: Array, g: Array, kept: dict[str, Any], t: int) -> Array:
    return p - 0.1 * 0.5 ** ((t - 1) // 2) * g


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
    "adagrad": (lambda loss: ops.adagrad(loss, 0.1, eps=1e-6), adagrad()),
    "adagrad decay": (
        lambda loss: ops.adagrad(loss, 0.1, 0.2, 0.3, initial_accumulator_value=0.5, eps=1e-6),
        adagrad(0.2, 0.5, 0.3),
    ),
    "rmsprop": (lambda loss: ops.rmsprop(loss, 0.1, 0.9, 1e-3), rmsprop()),
    "rmsprop centred": (
        lambda loss: ops.rmsprop(
            loss, 0.1, 0.9, 1e-3, momentum=0.7, centered=True, weight_decay=0.2
        ),
        rmsprop(0.7, True, 0.2),
    ),
    "rmsprop momentum": (
        lambda loss: ops.rmsprop(loss, 0.1, 0.9, 1e-3, momentum=0.7),
        rmsprop(0.7),
    ),
    "lamb": (lambda loss: ops.lamb(loss, 0.1, betas=(0.8, 0.99), weight_decay=0.2), lamb(0.2)),
    "clipped": (lambda loss: ops.sgd(loss, 0.1, clip_norm=0.3), sgd()),
    "scheduled": (lambda loss: ops.sgd(loss, rates.step(0.1, every=2, factor=0.5)), halved),
    "adamw": (
        lambda loss: ops.adamw(loss, 0.1, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.2),
        adam(decoupled=0.2),
    ),
}


def model(
    optimizer: Callable[[LogicalRegion], Any],
) -> tuple[Graph, dict[LogicalRegion, LogicalRegion]]:
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
            np.testing.assert_allclose(
                values[parameter.name], expected[parameter.name], rtol=1e-12, atol=1e-14
            )


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("degrees", [{"b": 3}, {"o": 2}, {"i": 3}, {"b": 2, "o": 2}], ids=str)
def test_splits(name: str, degrees: dict[str, int]) -> None:
    graph, _ = model(OPTIMIZERS[name][0])
    config = ParallelConfig(degrees)
    whole, split = train(graph, {})[-1], train(graph, {"fc1": config, "fc2": config})[-1]
    for region in whole:
        np.testing.assert_allclose(
            split[region], whole[region], rtol=1e-11, atol=1e-12, err_msg=region
        )


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


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("degrees", [{}, {"b": 3}, {"o": 3}, {"i": 2}], ids=str)
def test_gradients_are_clipped_by_the_norm_of_all_of_them(
    factor: float, degrees: dict[str, int]
) -> None:
    graph, _ = model(lambda loss: ops.sgd(loss, 0.1))
    values = first_values(graph)
    raw = {p.name: run(graph, values)[g] for p, g in names_of_gradients(graph).items()}
    norm = np.sqrt(sum((g**2).sum() for g in raw.values()))
    clipped, gradients = model(lambda loss: ops.sgd(loss, 0.1, clip_norm=factor * norm))
    results = run(clipped, values, dict.fromkeys(("fc1", "fc2"), ParallelConfig(degrees)))
    assert abs(results[clipped.outputs["gradient_norm"].name] - norm) < 1e-12
    for parameter, gradient in gradients.items():
        expected = raw[parameter.name] * min(1.0, factor * norm / (norm + 1e-6))
        np.testing.assert_allclose(results[gradient.name], expected, rtol=1e-12, atol=1e-15)


def test_a_graph_without_parameters_is_clipped_as_any() -> None:
    graph = Graph()
    loss = ops.mean(graph.input("x", (4,)))
    assert ops.sgd(loss, 0.1, clip_norm=1.0) == {} and graph.outputs == {"loss": loss}


def names_of_gradients(graph: Graph) -> dict[LogicalRegion, str]:
    updates = {op.inputs[0].name: op.inputs[1].name for op in graph.operators if op.writes}
    return {p: updates[p.name] for p in graph.parameters}


def test_a_schedule_goes_on_after_a_checkpoint_under_another_strategy(tmp_path: Any) -> None:
    machine = MachineModel.uniform(3)
    schedule = rates.linear(0.1, steps=4, warmup=2)
    graph, _ = model(lambda loss: ops.adagrad(loss, schedule, clip_norm=0.5))
    feeds = {name: first_values(graph)[name] for name in ("x", "t")}
    whole, split, other = (
        Executor(lower(graph, rule(graph, machine), machine), seed=1)
        for rule in (single_device, data_parallel, model_parallel)
    )
    for step in range(4):
        whole(feeds)
        assert whole.read("learning_rate") == schedule(step)
    split(feeds)
    split(feeds)
    checkpoint.load(other, checkpoint.save(split, tmp_path))
    other(feeds)
    other(feeds)
    assert other.read("steps") == 4
    for parameter in graph.parameters:
        np.testing.assert_allclose(
            other.read(parameter.name), whole.read(parameter.name), rtol=1e-12, atol=1e-13
        )


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda loss: ops.rmsprop(loss, alpha=1.0), r"^rmsprop: alpha is 1.0, it is in \[0, 1\)$"),
        (
            lambda loss: ops.lamb(loss, betas=(0.5, 1)),
            r"^lamb: betas are \(0.5, 1\), two numbers in \[0, 1\) are needed$",
        ),
        (lambda loss: ops.adagrad(loss, eps=-1), r"^adagrad: eps is -1, it cannot be negative$"),
        (lambda loss: ops.sgd(loss, 0.1, clip_norm=0), r"^sgd: clip_norm is 0, it is positive$"),
    ],
)
def test_refused(optimizer: Callable[[LogicalRegion], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(optimizer)
