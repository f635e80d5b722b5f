"""Parameter groups, frozen parts, several optimizers in one graph: beside the formulas, under splits, and refusals."""

import runpy
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    LogicalRegion,
    MachineModel,
    data_parallel,
    lower,
    model_parallel,
)

Array = np.ndarray[Any, np.dtype[Any]]
Found = tuple[list[dict[str, Array]], dict[str, Array]]
LR, DECAY = 0.1, 0.5


def two_layers() -> tuple[Graph, LogicalRegion]:
    graph = Graph()
    x = graph.input("x", (4, 3), "float64")
    y = ops.linear(ops.tanh(ops.linear(x, 5, name="body")), 2, name="head")
    return graph, ops.mean(ops.multiply(y, y), name="y")


def steps_of(graph: Graph, rule: Any = data_parallel, count: int = 3) -> Found:
    """Fetched values of every step, and the persistent regions in the end."""
    machine, x = MachineModel.uniform(2), np.random.default_rng(0).random((4, 3))
    with Executor(lower(graph, rule(graph, machine), machine), seed=3) as step:
        found = [dict(step({"x": x})) for _ in range(count)]
        return found, {name: step.read(name).copy() for name in step.persistent}


def by_hand(rates: dict[str, float], decays: dict[str, float], count: int = 3) -> dict[str, Array]:
    """Plain descent of `two_layers`."""
    graph, loss = two_layers()
    gradients = ops.gradients(loss, graph.parameters)
    for p, g in gradients.items():
        graph.output(f"d {p.name}", g)
    machine, x = MachineModel.uniform(1), np.random.default_rng(0).random((4, 3))
    with Executor(lower(graph, data_parallel(graph, machine), machine), seed=3) as step:
        for _ in range(count):
            values = step({"x": x})
            for p in graph.parameters:
                now = step.read(p.name)
                step.write(
                    p.name, now - rates[p.name] * (values[f"d {p.name}"] + decays[p.name] * now)
                )
        return {p.name: step.read(p.name).copy() for p in graph.parameters}


NAMES = ("body.weight", "body.bias", "head.weight", "head.bias")


@pytest.mark.parametrize("rule", [data_parallel, model_parallel])
def test_groups_have_rates_and_decays_of_their_own(rule: Any) -> None:
    graph, loss = two_layers()
    groups = [
        ops.ParameterGroup("*.bias", weight_decay=0.0),
        ops.ParameterGroup("head.*", lr=lambda done: 0.02, name="head"),
    ]
    ops.sgd(loss, LR, weight_decay=DECAY, groups=groups)
    _, found = steps_of(graph, rule)
    assert {"learning_rate", "learning_rate.head", "steps.head"} <= set(found)
    rates = dict.fromkeys(NAMES, LR) | {"head.weight": 0.02}
    expected = by_hand(rates, {n: 0.0 if n.endswith("bias") else DECAY for n in NAMES})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-14)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lamb", "adagrad", "rmsprop"])
def test_every_optimizer_has_groups_and_frozen_parts(optimizer: str) -> None:
    """A group with the numbers of the optimizer changes nothing; what is not named stays as it is."""
    make = getattr(ops, optimizer)
    graph, loss = two_layers()
    first = {p.name: p for p in graph.parameters}
    make(loss, lr=LR, weight_decay=DECAY)
    _, expected = steps_of(graph)
    graph, loss = two_layers()
    make(
        loss,
        lr=0.7,
        weight_decay=0.3,
        groups=[ops.ParameterGroup(("body.*", "head.*"), lr=LR, weight_decay=DECAY)],
    )
    _, found = steps_of(graph)
    assert all(np.array_equal(found[name], expected[name]) for name in first)
    graph, loss = two_layers()
    make(loss, lr=LR, parameters=[graph.regions["head.weight"], "head.bias"])
    _, moved = steps_of(graph)
    _, still = steps_of(two_layers()[0], count=1)
    assert all(np.array_equal(moved[n], still[n]) == n.startswith("body") for n in first)


def test_losses_of_one_pass_have_an_optimizer_each() -> None:
    """Gradients are by the values of which the losses were made, so the order of the optimizers makes no difference."""

    def descended(order: str) -> Found:
        graph, loss = two_layers()
        other = ops.multiply(loss, 2.0, name="other")
        for each in order:
            if each == "b":
                ops.sgd(loss, LR, parameters="body.*", name="body", clip_norm=100.0)
            else:
                ops.sgd(other, LR / 2, parameters="head.*", name="head")
        return steps_of(graph)

    (values, found), (again, other) = descended("bh"), descended("hb")
    expected = by_hand(dict.fromkeys(NAMES, LR), dict.fromkeys(NAMES, 0.0))
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-14)
        np.testing.assert_allclose(other[name], expected[name], rtol=0, atol=1e-14)
    assert set(values[0]) == {"body.loss", "body.gradient_norm", "head.loss"}
    assert all(2 * v["body.loss"] == v["head.loss"] for v in (*values, *again))


def test_the_gradient_of_any_output() -> None:
    graph = Graph()
    x, seed = graph.input("x", (4, 3), "float64"), graph.input("seed", (4, 3), "float64")
    y = ops.multiply(x, ops.tanh(x))
    graph.output("plain", ops.gradients(y, [x])[x])
    graph.output("seeded", ops.gradients(y, [x], seed)[x])
    machine, random = MachineModel.uniform(2), np.random.default_rng(0)
    v, s = random.standard_normal((4, 3)), random.standard_normal((4, 3))
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        found = step({"x": v, "seed": s})
    expected = np.tanh(v) + v * (1 - np.tanh(v) ** 2)
    np.testing.assert_allclose(found["plain"], expected, rtol=1e-14)
    np.testing.assert_allclose(found["seeded"], expected * s, rtol=1e-14)


def test_a_gan_learns_the_ring() -> None:
    gan = runpy.run_path("examples/11_gan.py")
    graph, machine = gan["build"](), MachineModel.uniform(2)
    with Executor(lower(graph, data_parallel(graph, machine), machine), seed=1) as step:
        radii = [np.linalg.norm(step(gan["feeds"](k))["made"], axis=1) for k in range(600)]
    assert radii[0].mean() < 0.6
    late = np.mean([r.mean() for r in radii[-100:]])
    assert 0.7 < late < 1.3


def test_refused() -> None:
    graph, loss = two_layers()
    with pytest.raises(
        ValueError, match=r"^sgd: no parameter is called 'tail\.\*'; there are body\.weight, "
    ):
        ops.sgd(loss, LR, parameters="tail.*")
    with pytest.raises(
        ValueError, match=r"^group of '\*': weight_decay is -1, it cannot be negative$"
    ):
        ops.sgd(loss, LR, groups=[ops.ParameterGroup("*", weight_decay=-1)])
    ops.sgd(loss, LR, parameters="body.*")
    with pytest.raises(
        ValueError, match=r"^adam: the graph has an optimizer called '': name= is another one's$"
    ):
        ops.adam(loss, parameters="head.*")
    with pytest.raises(
        ValueError,
        match=r"^adam: 'body\.weight' is updated already: parameters= says which ones are ",
    ):
        ops.adam(loss, name="second")
    with pytest.raises(ValueError, match=r"^gradients: seed 'x' is \(4, 3\), 'y' is \(\)$"):
        ops.gradients(loss, graph.parameters, graph.regions["x"])
