"""The same weights in torch and here: twenty training steps in float64, losses to 1e-9."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import ops
from ops.models import digits, dlrm, gpt, mlp, moe, rnnlm
from taskflow import Executor, Graph, MachineModel, data_parallel, lower

STEPS = 20
WORDS = {"vocabulary": 17, "hidden": 8}
HEADS = WORDS | {"layers": 2, "heads": 2}
TABLES = {"tables": 3, "rows": 11, "bottom": (5, 7, 4), "top": (6, 1)}
LSTM = {"layers": 2, "embed": 5, **WORDS}
EXPERTS = HEADS | {"experts": 4, "groups": 2, "capacity_factor": 0.75}


@dataclass(frozen=True)
class Pair:
    """Our graph, torch's module, and its optimizer."""

    build: Callable[..., Graph]
    module: Callable[[], Any]
    optimizer: Callable[..., Any]
    high: int


def fused_lstm(
    batch: int, dtype: str, vocabulary: int, embed: int, hidden: int, layers: int
) -> Graph:
    """The model `rnnlm` with `ops.lstm(fused=True)`."""
    graph = Graph()
    x, t = (graph.input(name, (batch, 6), "int32") for name in "xt")
    words = ops.embedding(x, vocabulary, embed, name="embed", dtype=dtype)
    y = ops.linear(
        ops.lstm(words, hidden, layers, name="lstm", fused=True)[0], vocabulary, name="fc"
    )
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=1.0)
    return graph


def pairs() -> dict[str, Pair]:
    import torch

    from . import models

    adamw = partial(torch.optim.AdamW, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return {
        "mlp": Pair(
            partial(mlp.build, inputs=5, hidden=(16, 8, 4), lr=0.1),
            lambda: models.MLP(5, (16, 8, 4)),
            partial(torch.optim.SGD, lr=0.1),
            4,
        ),
        "cnn": Pair(digits.cnn, models.CNN, partial(torch.optim.SGD, lr=0.05, momentum=0.9), 10),
        "lstm": Pair(
            partial(rnnlm.build, steps=6, group=2, lr=1.0, **LSTM),
            lambda: models.LSTM(**LSTM),
            partial(torch.optim.SGD, lr=1.0),
            17,
        ),
        "lstm, fused": Pair(
            partial(fused_lstm, **LSTM),
            lambda: models.LSTM(**LSTM),
            partial(torch.optim.SGD, lr=1.0),
            17,
        ),
        "gpt": Pair(
            partial(gpt.build, sequence=6, dropout=0.0, **HEADS),
            lambda: models.GPT(sequence=6, **HEADS),
            adamw,
            17,
        ),
        "dlrm": Pair(
            partial(dlrm.build, bag=2, lr=0.1, **TABLES),
            lambda: models.DLRM(**TABLES),
            partial(torch.optim.SGD, lr=0.1),
            11,
        ),
        "moe": Pair(
            partial(moe.build, sequence=6, **EXPERTS), lambda: models.MoE(**EXPERTS), adamw, 17
        ),
    }


def feeds(graph: Graph, high: int, step: int) -> dict[str, Any]:
    random = np.random.default_rng([3, step])
    return {
        r.name: random.integers(0, high, r.shape).astype(r.dtype)
        if r.dtype == "int32"
        else random.random(r.shape)
        for r in graph.inputs
    }


def torch_losses(torch: Any, pair: Pair, module: Any, batches: list[dict[str, Any]]) -> list[float]:
    optimizer, losses = pair.optimizer(module.parameters()), []
    for batch in batches:
        optimizer.zero_grad()
        tensors = {
            k: torch.tensor(v, dtype=torch.int64 if v.dtype == "int32" else None)
            for k, v in batch.items()
        }
        loss = module(tensors)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "lstm, fused", "gpt", "dlrm", "moe"])
def test_losses_are_torchs(name: str, torch: Any) -> None:
    pair = pairs()[name]
    torch.manual_seed(5)
    module, graph = pair.module().double(), pair.build(batch=6, dtype="float64")
    batches = [feeds(graph, pair.high, step) for step in range(STEPS)]
    weights = ops.from_torch_state(module.state_dict())
    machine = MachineModel.uniform(2)
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        assert {r.name for r in graph.parameters} <= set(weights) <= set(step.persistent)
        for region, value in weights.items():
            step.write(region, value.copy())
        found = [float(step(batch)["loss"]) for batch in batches]
    np.testing.assert_allclose(found, torch_losses(torch, pair, module, batches), rtol=0, atol=1e-9)
    assert found[0] != found[-1]
