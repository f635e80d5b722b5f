"""A number is a number, whatever its type: the bits are those of the float, on NumPy and in CUDA kernels."""

from operator import itemgetter

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Graph, MachineModel, lower
from tests import laws, shim
from tests.sampling import IS_THOROUGH, sampled
from tests.strategies import Model, feeds_of

TYPES = [int, np.int64, np.int32, np.float32, np.float64, np.float16]


def optimized(optimizer, name, **others):
    """A training graph whose optimizer has a number by that name."""

    def build(x, number):
        return lambda loss: optimizer(loss, **{"lr": 0.5, **others, name: number})

    return build


def activation(function):
    return lambda x, number: function(x, number)


OPTIMIZERS = {
    "sgd": (ops.sgd, ["lr", "momentum", "weight_decay", "clip_norm"]),
    "adam": (ops.adam, ["lr", "eps", "weight_decay", "clip_norm"]),
    "adamw": (ops.adamw, ["lr", "eps", "weight_decay", "clip_norm"]),
    "rmsprop": (ops.rmsprop, ["lr", "eps", "weight_decay", "clip_norm"]),
    "adagrad": (
        ops.adagrad,
        ["lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "clip_norm"],
    ),
    "lamb": (ops.lamb, ["lr", "eps", "weight_decay", "clip_norm"]),
}
LAYERS = {
    "layer_norm eps": lambda x, n: ops.layer_norm(x, n),
    "rms_norm eps": lambda x, n: ops.rms_norm(x, n),
    "batch_norm eps": lambda x, n: ops.batch_norm(x, eps=n),
    "batch_norm momentum": lambda x, n: ops.batch_norm(x, momentum=n),
    "group_norm eps": lambda x, n: ops.reshape(
        ops.group_norm(ops.reshape(x, (6, 4, 2, 1)), 2, n), (6, 8)
    ),
    "instance_norm eps": lambda x, n: ops.reshape(
        ops.instance_norm(ops.reshape(x, (6, 2, 2, 2)), n), (6, 8)
    ),
    "leaky_relu": lambda x, n: ops.leaky_relu(x, n),
    "elu": lambda x, n: ops.elu(x, n),
    "softplus": lambda x, n: ops.softplus(x, n),
    "hardtanh": lambda x, n: ops.hardtanh(x, -1, n),
    "clip": lambda x, n: ops.clip(x, max=n),
    "pad": lambda x, n: ops.pad(x, (1, 1), n),
    "dropout": lambda x, n: ops.add(x, ops.dropout(x, n)),
    "pow": lambda x, n: ops.pow(ops.abs(x), n),
    "multiply": lambda x, n: ops.multiply(x, n),
    "add": lambda x, n: ops.add(n, x),
    "divide": lambda x, n: ops.divide(x, n),
    "rotary_embedding": lambda x, n: ops.rotary_embedding(ops.reshape(x, (2, 3, 1, 8)), n * 4 + n),
    "huber_loss": lambda x, n: ops.unsqueeze(
        ops.unsqueeze(ops.huber_loss(x, ops.multiply(x, 0.0), n), 0), 0
    ),
    "mixture_of_experts": lambda x, n: ops.mixture_of_experts(x, 3, 5, 1, n)[0],
    "greater": lambda x, n: ops.where(ops.greater(x, n), x, ops.exp(x)),
}
CASES = [
    *((kind, name) for kind, (_, names) in OPTIMIZERS.items() for name in names),
    *((k, "") for k in LAYERS),
]


def model_of(kind, name, number, dtype="float32"):
    graph = Graph()
    x = graph.input("x", (6, 8), dtype)
    h = ops.linear(x, 8, name="fc1")
    if kind in LAYERS:
        h = LAYERS[kind](h, number)
    y = ops.linear(ops.flatten(h, 1), 3, name="fc2")
    loss = ops.mean_squared_error(y, graph.input("y", y.shape, dtype))
    optimizer = OPTIMIZERS[kind][0] if kind in OPTIMIZERS else ops.sgd
    optimizer(loss, **{"lr": 0.5, **({name: number} if name else {})})
    return Model(graph, feeds_of(graph))


def run(model, **backend):
    machine = MachineModel.uniform(1)
    strategy = taskflow.single_device(model.graph, machine)
    rows = lower(model.graph, strategy, machine.with_rates(**backend.pop("rates", {})))
    return laws.run(rows, model.feeds, 2, **backend)


@pytest.mark.parametrize("kind, name", CASES)
def test_numbers_of_any_type_give_the_same_bits_on_numpy(kind, name):
    expected = run(model_of(kind, name, 1.0))
    for type_ in TYPES if IS_THOROUGH else (int, np.float16):
        laws.assert_equal(run(model_of(kind, name, type_(1))), expected)


@pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind, name", sampled(CASES, itemgetter(0)))
def test_numbers_of_any_type_give_the_same_bits_on_a_gpu(kind, name):
    on_gpu = {"rates": {"kind": "cuda"}, "record": False}
    expected = run(model_of(kind, name, 1.0), backend=shim.ShimStreams(), **on_gpu)
    laws.assert_close(expected, run(model_of(kind, name, 1.0)), 1e-3)
    types = (int, np.float32, np.int64)
    for type_ in types if IS_THOROUGH else types[len(kind) % 3 :][:1]:
        laws.assert_equal(
            run(model_of(kind, name, type_(1)), backend=shim.ShimStreams(), **on_gpu), expected
        )
