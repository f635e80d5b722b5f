"""Numbers of NumPy are numbers: operators that are made with them are those that are made with Python's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion

Number = Callable[[Any], Any]
Build = Callable[
    [Graph, Number, Number, Number], Any
]  # gets an integer's, a fraction's and a truth value's type


def given(graph: Graph, *shape: int, dt: str = "float32") -> LogicalRegion:
    return graph.input(f"x{len(graph.inputs)}", shape, dt)


CASES: dict[str, Build] = {
    "linear": lambda g, I, F, B: ops.linear(given(g, 4, 3), I(5)),
    "conv1d": lambda g, I, F, B: ops.conv1d(given(g, 2, 4, 7), I(4), I(3), I(2), I(1), I(1), I(2)),
    "conv2d": lambda g, I, F, B: ops.conv2d(
        given(g, 2, 4, 7, 7), I(4), I(3), I(2), I(1), I(1), I(2)
    ),
    "conv2dt": lambda g, I, F, B: ops.conv2d(given(g, 2, 4, 7, 7), I(4), (I(3), I(2))),
    "conv3d": lambda g, I, F, B: ops.conv3d(
        given(g, 2, 4, 5, 5, 5), I(4), I(3), I(2), I(1), I(1), I(2)
    ),
    "convt1": lambda g, I, F, B: ops.conv_transpose1d(
        given(g, 2, 4, 7), I(4), I(3), I(2), I(1), I(1)
    ),
    "convt2": lambda g, I, F, B: ops.conv_transpose2d(
        given(g, 2, 4, 7, 7), I(4), I(3), I(2), I(1), I(1)
    ),
    "mp2": lambda g, I, F, B: ops.max_pool2d(given(g, 2, 4, 7, 7), I(3), I(2), I(1)),
    "ap2": lambda g, I, F, B: ops.avg_pool2d(given(g, 2, 4, 7, 7), I(3), I(2), I(1)),
    "mp1": lambda g, I, F, B: ops.max_pool1d(given(g, 2, 4, 7), I(3), I(2), I(1)),
    "mp3": lambda g, I, F, B: ops.max_pool3d(given(g, 2, 4, 5, 5, 5), I(3), I(2)),
    "aa2": lambda g, I, F, B: ops.adaptive_avg_pool2d(given(g, 2, 4, 7, 7), I(3)),
    "aa3": lambda g, I, F, B: ops.adaptive_avg_pool3d(given(g, 2, 4, 5, 5, 5), I(3)),
    "interp": lambda g, I, F, B: ops.interpolate(
        given(g, 2, 4, 7, 7), I(3), scales=(F(0.5), F(0.5))
    ),
    "unfold": lambda g, I, F, B: ops.unfold(given(g, 2, 4, 7, 7), I(3), I(1), I(1), I(2)),
    "fold": lambda g, I, F, B: ops.fold(given(g, 2, 36, 25), I(7), I(3)),
    "add": lambda g, I, F, B: ops.add(given(g, 4, 3), F(0.5)),
    "addi": lambda g, I, F, B: ops.add(I(2), given(g, 4, 3)),
    "addb": lambda g, I, F, B: ops.multiply(given(g, 4, 3), B(True)),
    "add64": lambda g, I, F, B: ops.divide(given(g, 4, 3), F(2)),
    "addh": lambda g, I, F, B: ops.add(given(g, 4, 3), F(2)),
    "where": lambda g, I, F, B: ops.where(ops.greater(x := given(g, 4, 3), F(0)), x, I(0)),
    "clip": lambda g, I, F, B: ops.clip(given(g, 4, 3), F(-1), I(1)),
    "leaky": lambda g, I, F, B: ops.leaky_relu(given(g, 4, 3), F(0.25)),
    "elu": lambda g, I, F, B: ops.elu(given(g, 4, 3), I(1)),
    "celu": lambda g, I, F, B: ops.celu(given(g, 4, 3), F(1)),
    "softplus": lambda g, I, F, B: ops.softplus(given(g, 4, 3), F(1)),
    "hardtanh": lambda g, I, F, B: ops.hardtanh(given(g, 4, 3), I(-1), F(1)),
    "pow": lambda g, I, F, B: ops.pow(given(g, 4, 3), I(2)),
    "dropout": lambda g, I, F, B: ops.dropout(given(g, 4, 3), F(0.5), B(True)),
    "dropout2d": lambda g, I, F, B: ops.dropout2d(given(g, 2, 4, 3, 3), F(0.5)),
    "bn": lambda g, I, F, B: ops.batch_norm(given(g, 4, 3), B(True), F(0.25), F(0.125), parts=I(2)),
    "ln": lambda g, I, F, B: ops.layer_norm(given(g, 4, 3), F(0.125)),
    "rms": lambda g, I, F, B: ops.rms_norm(given(g, 4, 3), F(0.125)),
    "gn": lambda g, I, F, B: ops.group_norm(given(g, 4, 6), I(2), F(0.125)),
    "in": lambda g, I, F, B: ops.instance_norm(given(g, 4, 3, 5), F(0.125)),
    "emb": lambda g, I, F, B: ops.embedding(given(g, 4, dt="int32"), I(5), I(3)),
    "bag": lambda g, I, F, B: ops.embedding_bag(
        given(g, 4, 2, dt="int32"), I(5), I(3), mode="mean"
    ),
    "softmax": lambda g, I, F, B: ops.softmax(given(g, 4, 3), I(1)),
    "logsm": lambda g, I, F, B: ops.log_softmax(given(g, 4, 3), I(-1)),
    "ce": lambda g, I, F, B: ops.cross_entropy(
        given(g, 4, 3), given(g, 4, dt="int32"), I(-100), F(0.25), classes=I(2)
    ),
    "sce": lambda g, I, F, B: ops.softmax_cross_entropy(
        given(g, 4, 3), given(g, 4, dt="int32"), classes=I(2)
    ),
    "acc": lambda g, I, F, B: ops.accuracy(
        given(g, 4, 3), given(g, 4, dt="int32"), classes=I(2), ignore_index=I(-100)
    ),
    "topka": lambda g, I, F, B: ops.top_k_accuracy(given(g, 4, 3), given(g, 4, dt="int32"), I(2)),
    "nll": lambda g, I, F, B: ops.nll_loss(given(g, 4, 3), given(g, 4, dt="int32"), I(-100)),
    "huber": lambda g, I, F, B: ops.huber_loss(given(g, 4, 3), given(g, 4, 3), F(0.5)),
    "smooth": lambda g, I, F, B: ops.smooth_l1_loss(given(g, 4, 3), given(g, 4, 3), F(0.5)),
    "sum": lambda g, I, F, B: ops.sum(given(g, 4, 3), I(1), B(True)),
    "mean": lambda g, I, F, B: ops.mean(given(g, 4, 3), (I(0), I(1))),
    "max": lambda g, I, F, B: ops.max(given(g, 4, 3), I(1)),
    "argmax": lambda g, I, F, B: ops.argmax(given(g, 4, 3), I(1)),
    "topk": lambda g, I, F, B: ops.topk(given(g, 4, 3), I(2), I(1))[0],
    "sort": lambda g, I, F, B: ops.sort(given(g, 4, 3), I(1))[0],
    "reshape": lambda g, I, F, B: ops.reshape(given(g, 4, 3), (I(2), I(-1))),
    "permute": lambda g, I, F, B: ops.permute(given(g, 4, 3), (I(1), I(0))),
    "concat": lambda g, I, F, B: ops.concat([given(g, 4, 3), given(g, 4, 3)], I(1)),
    "flatten": lambda g, I, F, B: ops.flatten(given(g, 4, 3, 2), I(1), I(2)),
    "slice": lambda g, I, F, B: ops.slice(given(g, 4, 3), I(0), I(1), I(3)),
    "slices": lambda g, I, F, B: ops.slice(given(g, 4, 3), I(0), I(0), I(4), step=I(2)),
    "split": lambda g, I, F, B: ops.split(given(g, 4, 3), I(2), I(0))[0],
    "splits": lambda g, I, F, B: ops.split(given(g, 4, 3), (I(1), I(3)), I(0))[0],
    "pad": lambda g, I, F, B: ops.pad(given(g, 4, 3), (I(1), I(1)), F(0.5)),
    "flip": lambda g, I, F, B: ops.flip(given(g, 4, 3), I(1)),
    "expand": lambda g, I, F, B: ops.expand(given(g, 4, 1), (I(4), I(3))),
    "squeeze": lambda g, I, F, B: ops.squeeze(given(g, 4, 1), I(1)),
    "unsqueeze": lambda g, I, F, B: ops.unsqueeze(given(g, 4, 1), I(1)),
    "sum_to": lambda g, I, F, B: ops.sum_to(given(g, 4, 3), (I(3),)),
    "gather": lambda g, I, F, B: ops.gather(given(g, 4, 3), I(1), given(g, 4, 2, dt="int32")),
    "one_hot": lambda g, I, F, B: ops.cast(ops.one_hot(given(g, 4, dt="int32"), I(3)), "float32"),
    "index_add": lambda g, I, F, B: ops.index_add(
        given(g, 4, 3), I(0), given(g, 2, dt="int32"), given(g, 2, 3), F(0.5)
    ),
    "lstm": lambda g, I, F, B: ops.lstm(given(g, 2, 3, 4), I(5), I(2), dropout=F(0.25), group=I(2))[
        0
    ],
    "gru": lambda g, I, F, B: ops.gru(given(g, 2, 3, 4), I(5), I(2), dropout=F(0.25))[0],
    "rnn": lambda g, I, F, B: ops.rnn(given(g, 2, 3, 4), I(5))[0],
    "lstmf": lambda g, I, F, B: ops.lstm(given(g, 2, 3, 4), I(5), fused=True)[0],
    "mha": lambda g, I, F, B: ops.multihead_attention(given(g, 2, 3, 4), I(2), dropout_p=F(0.25)),
    "sdpa": lambda g, I, F, B: ops.scaled_dot_product_attention(
        given(g, 2, 3, 2, 4), given(g, 2, 3, 2, 4), given(g, 2, 3, 2, 4), scale=F(0.5)
    ),
    "rot": lambda g, I, F, B: ops.rotary_embedding(given(g, 2, 3, 4), F(100), offset=I(2)),
    "moe": lambda g, I, F, B: ops.mixture_of_experts(
        given(g, 4, 3), I(2), I(5), I(1), F(1.25), I(2), parts=I(2)
    )[0],
    "ff": lambda g, I, F, B: ops.feed_forward(given(g, 4, 3), I(5), I(2)),
    "el": lambda g, I, F, B: ops.expert_linear(given(g, 2, 4, 3), I(5)),
}


def told(build: Build, *types: Number) -> list[tuple[Any, ...]]:
    graph = Graph()
    build(graph, *types)
    shapes = [(r.name, r.shape, r.dtype) for r in graph.regions.values()]
    return [
        *shapes,
        *((op.name, op.pattern, op.extents, dict(op.kernel.options)) for op in graph.operators),
    ]


def is_of_numpy(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(is_of_numpy, value.values()))
    return (
        any(map(is_of_numpy, value))
        if isinstance(value, tuple | list)
        else isinstance(value, np.generic)
    )


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_numpy_are_numbers(name: str) -> None:
    expected = told(CASES[name], int, float, bool)
    for types in (
        (np.int64, np.float32, np.bool_),
        (np.int32, np.float64, bool),
        (np.uint8, np.float16, np.bool_),
    ):
        if name in SIGNED and types[0] is np.uint8:
            continue
        found = told(CASES[name], *types)
        assert repr(found) == repr(expected)
        assert not is_of_numpy(found)


SIGNED = {"ce", "acc", "nll", "logsm", "hardtanh", "reshape"}  # of a negative number
