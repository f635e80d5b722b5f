"""The ten models: published extents, and tiny versions that train alike under every strategy."""

from collections.abc import Mapping
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import pytest

from taskflow import Executor, Graph, MachineModel, Strategy, data_parallel, lower
from taskflow.rules import random_strategy, single_device

# Batch norm over one point per image amplifies rounding a million times in five steps; over four points, 1e4 at most.
TINY: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 63, "channels": (4, 3, 2, 3, 4), "hidden": 6, "classes": 3},
    "inception_v3": {"image": 107, "width": 1 / 32, "modules": (1, 1, 1), "classes": 3, "lr": 0.005},
    "resnet101": {"image": 64, "blocks": (1, 2, 1, 1), "width": 4, "classes": 3, "lr": 0.01},
    "rnntc": {"steps": 3, "hidden": 4, "layers": 2, "embed": 3, "vocabulary": 7, "group": 2},
    "rnnlm": {"steps": 3, "hidden": 4, "embed": 3, "vocabulary": 7, "dropout": 0.3, "group": 1},
    "nmt": {"steps": 3, "hidden": 4, "layers": 1, "embed": 3, "vocabulary": 7, "group": 2},
    "gpt": {"sequence": 5, "layers": 2, "hidden": 6, "heads": 3, "vocabulary": 7},
    "bert": {"sequence": 5, "masked": 2, "layers": 1, "hidden": 6, "heads": 3, "vocabulary": 7},
    "dlrm": {"tables": 3, "rows": 7, "bag": 2, "bottom": (3, 5, 4), "top": (5, 1)},
    "dlrm_dot": {"tables": 3, "rows": 7, "bottom": (3, 5, 4), "top": (5, 1), "interaction": "dot"},
    "mlp": {"inputs": 5, "hidden": (7, 6, 3)},
}
BOUNDS = {
    "segments": 2,
    "t_next": 2,
    "positions": 5,
}  # of integer inputs; the others' are those of the words or classes
SLOW = {"inception_v3", "resnet101"}
MACHINE = MachineModel.uniform(4)
STEPS = 5


def build(name: str, **sizes: Any) -> Graph:
    return import_module(f"examples.models.{name.removesuffix('_dot')}").build(**sizes)


def tiny(name: str) -> Graph:
    return build(name, batch=5, dtype="float64", **TINY[name])


def feeds(graph: Graph, name: str) -> list[dict[str, np.ndarray]]:
    """The batches of the five steps."""
    sizes, random = TINY[name], np.random.default_rng(7)
    high = sizes.get("rows") or (2 if name == "rnntc" else sizes.get("vocabulary") or sizes.get("classes") or 3)

    def draw(region: Any) -> np.ndarray:
        if region.dtype == "int32":
            return random.integers(0, BOUNDS.get(region.name, high), region.shape, dtype="int32")
        return random.random(region.shape)

    return [{r.name: draw(r) for r in graph.inputs} for _ in range(STEPS)]


def train(graph: Graph, strategy: Strategy, batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The loss of every step, and all persistent regions after the last."""
    with Executor(lower(graph, strategy, MACHINE), seed=3) as step:
        losses = [step(batch)["loss"] for batch in batches]
        return {"loss": np.array(losses), **{name: step.read(name) for name in step.persistent}}


def assert_close(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in TINY])
def test_every_strategy_trains_as_one_device_does(name: str) -> None:
    graph = tiny(name)
    batches = feeds(graph, name)
    alone = train(graph, single_device(graph, MACHINE), batches)
    assert np.isfinite(alone["loss"]).all() and len(set(alone["loss"].tolist())) == STEPS
    for strategy in (data_parallel(graph, MACHINE), *(random_strategy(graph, MACHINE, seed) for seed in (0, 1))):
        assert_close(train(graph, strategy, batches), alone)


@pytest.mark.parametrize("name", TINY)
def test_evaluation_shares_the_parameters(name: str) -> None:
    graph, other = tiny(name), build(name, batch=2, dtype="float64", training=False, **TINY[name])
    assert {r.name: r.shape for r in graph.parameters} == {r.name: r.shape for r in other.parameters}
    assert not any(op.writes for op in other.operators)
    assert "loss" in other.outputs


def lstm(inputs: int, hidden: int, layers: int) -> int:
    """Two weights and two biases for four gates."""
    return sum(4 * hidden * ((hidden if k else inputs) + hidden + 2) for k in range(layers))


PARAMETERS = {
    "alexnet": 61_100_840,  # published; the CNNs' as torchvision counts them
    "inception_v3": 23_834_568,
    "resnet101": 44_549_160,
    "rnntc": 18765 * 1024 + lstm(1024, 1024, 4) + 2 * 1025,
    "rnnlm": 10000 * 2048 + lstm(2048, 2048, 2) + 10000 * 2049,
    "nmt": 2 * 20480 * 1024 + 2 * lstm(1024, 1024, 2) + 3 * 1024**2 + 20480 * 1025,
    "gpt": 124_439_808,  # published
    "bert": 336_226_108,  # published
    "dlrm": 8_000_000 * 64 + 65 * 512 + 513 * 512 + 513 * 64 + 577 * 1024 + 2 * 1025 * 1024 + 1025,
    "mlp": 2 * (1024 * 8192 + 7 * 8192**2),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_full_models_have_the_published_parameters(name: str) -> None:
    assert sum(prod(r.shape) for r in build(name).parameters) == PARAMETERS[name]
