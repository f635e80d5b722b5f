"""The ten models: published extents, and tiny versions that train alike under every strategy."""

from math import prod

import numpy as np
import pytest

from taskflow import CostModel, Graph, Strategy, data_parallel, search
from taskflow.strategy.rules import random_strategy, single_device
from tests.models.tiny import TINY, assert_close, build, feeds, slow_machine, tiny, train

SLOW = {"inception_v3", "resnet101"}  # of operators that smaller ones have; a search takes long
MACHINE = slow_machine(4)
STEPS = 3


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in TINY]
)
def test_every_strategy_trains_as_one_device_does(name: str) -> None:
    graph = tiny(name)
    batches = feeds(graph, name, STEPS)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    assert np.isfinite(alone["loss"]).all() and len(set(alone["loss"].tolist())) == STEPS
    found = [] if name in SLOW else [searched(graph)]
    for strategy in (data_parallel(graph, MACHINE), *found, random_strategy(graph, MACHINE, 0)):
        assert_close(train(graph, strategy, MACHINE, batches), alone)


def searched(graph: Graph) -> Strategy:
    """What a search finds, which is on all devices and no data parallelism."""
    strategy = search(graph, MACHINE, CostModel.analytic(MACHINE), proposals=400, seed=1).strategy
    assert {device for config in strategy.values() for device in config.devices} == {0, 1, 2, 3}
    rule = data_parallel(graph, MACHINE)
    assert 5 * sum(strategy[name] != rule[name] for name in rule) >= len(rule)
    return strategy


@pytest.mark.parametrize("parts", [True, "all"])
def test_a_gpt_of_fused_operators_trains_alike(parts: bool | str) -> None:
    """Fewer operators, the same parameters and numbers, under any strategy."""
    sizes = {"batch": 4, "dtype": "float64", "dropout": 0.0, **TINY["gpt"]}
    graph, fused = build("gpt", **sizes), build("gpt", fused=parts, **sizes)
    batches = feeds(graph, "gpt", STEPS)
    expected = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    assert len(fused.operators) < len(graph.operators)
    for strategy in (
        single_device(fused, MACHINE),
        *(random_strategy(fused, MACHINE, seed) for seed in (0, 1, 2)),
    ):
        assert_close(train(fused, strategy, MACHINE, batches), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gpt_of_linear_biases_trains_alike(fused: bool) -> None:
    """It has no embedding of positions, and knows them."""
    sizes = {"batch": 4, "dtype": "float64", "dropout": 0.0, "fused": fused, **TINY["gpt"]}
    graph = build("gpt", alibi=True, **sizes)
    assert not any("position" in name for name in graph.regions)
    batches = feeds(graph, "gpt", 2)
    expected = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    strategy = random_strategy(graph, MACHINE, 1)
    assert_close(train(graph, strategy, MACHINE, batches), expected)


def test_a_mixed_gpt_has_float32_parameters_and_dropout() -> None:
    """Precision comes before the optimizer, inside of the model."""
    graph = build("gpt", batch=2, dtype="mixed_float16", dropout=0.1, **TINY["gpt"])
    assert graph.precision.dtype == "float16" and graph.outputs["loss"].dtype == "float32"
    assert {region.dtype for region in graph.parameters} == {"float32"}
    assert any(".drop1" in op.name for op in graph.operators)
    assert any(op.writes for op in graph.operators)


def test_an_eager_loss_gives_the_same_numbers() -> None:
    """Attention alone is fused, and the softmax of the scores is kept."""
    sizes = {"batch": 4, "dtype": "float64", "dropout": 0.0, **TINY["gpt"]}
    graph, eager = build("gpt", **sizes), build("gpt", fused="attention", **sizes)
    assert "eager_loss.levels" in eager.regions
    batches = feeds(graph, "gpt", STEPS)
    expected = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    assert_close(train(eager, random_strategy(eager, MACHINE, 0), MACHINE, batches), expected)


def test_a_padded_vocabulary_changes_no_number() -> None:
    """Rows behind the words have no gradient: of them there is nothing but the weight decay. Under any strategy."""
    sizes = {"batch": 4, "dtype": "float64", "dropout": 0.0, "fused": "all", **TINY["gpt"]}
    graph, padded = build("gpt", **sizes), build("gpt", vocabulary_multiple=4, **sizes)
    assert padded.regions["embed.weight"].shape == (8, 6) and padded.regions["fc"].shape[-1] == 8
    batches = feeds(graph, "gpt", STEPS)
    expected = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    for strategy in (
        single_device(padded, MACHINE),
        *(random_strategy(padded, MACHINE, seed) for seed in (0, 1)),
    ):
        found = train(padded, strategy, MACHINE, batches)
        states = {name for name, value in found.items() if value.shape == (8, 6)}
        assert states == {"embed.weight", "embed.weight.adam_m", "embed.weight.adam_v"}
        assert all(not found[name][7:].any() for name in states - {"embed.weight"})
        assert_close({name: v[:7] if name in states else v for name, v in found.items()}, expected)


@pytest.mark.parametrize("name", TINY)
def test_evaluation_shares_the_parameters(name: str) -> None:
    graph, other = tiny(name), build(name, batch=2, dtype="float64", training=False, **TINY[name])
    assert {r.name: r.shape for r in graph.parameters} == {
        r.name: r.shape for r in other.parameters
    }
    assert not any(op.writes for op in other.operators)
    assert "loss" in other.outputs


def lstm(inputs: int, hidden: int, layers: int) -> int:
    """Two weights and two biases for four gates."""
    return sum(4 * hidden * ((hidden if k else inputs) + hidden + 2) for k in range(layers))


PARAMETERS = {
    "alexnet": 61_100_840,  # published; the CNNs' as torchvision counts them
    "inception_v3": 23_834_568,
    "lenet": 6 * 26 + 16 * 151 + 401 * 120 + 121 * 84 + 85 * 10,
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
