"""GPT over packed documents is GPT over a batch where these are equally long, however the tokens are split."""

import numpy as np
import pytest

import taskflow
from ops.models import gpt
from taskflow import MachineModel

SMALL = {"layers": 1, "hidden": 8, "heads": 2, "vocabulary": 11, "dropout": 0.0, "dtype": "float64"}
MACHINE = MachineModel.local(devices=3)


def losses(graph, strategy, shape):
    words = np.random.default_rng(0).integers(0, 11, (2, 12), np.int32)
    feeds = {name: values.reshape(shape) for name, values in zip("xt", words, strict=True)}
    rows = taskflow.lower(graph, strategy, MACHINE)
    taskflow.check_plan(graph, rows)
    with taskflow.Executor(rows, seed=3) as step:
        return [float(step(feeds)["loss"]) for _ in range(3)]


@pytest.mark.parametrize("seed", range(3))
def test_packed_documents_train_as_a_batch(seed):
    batch = gpt.build(3, 4, **SMALL)
    graph = gpt.packed((4, 4, 4), 4, **SMALL)
    alone = losses(batch, taskflow.single_device(batch, MACHINE), (3, 4))
    for strategy in (
        taskflow.even_work(graph, MACHINE),
        taskflow.random_strategy(graph, MACHINE, seed),
    ):
        np.testing.assert_allclose(losses(graph, strategy, 12), alone, rtol=0, atol=1e-10)
