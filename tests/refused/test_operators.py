"""Values of options that operators refuse where they are made, and options of what is not there."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Graph
from tests.refusals import assert_refused

NAN = math.nan


def regions() -> dict[str, Any]:
    graph = Graph()
    return {
        "x": graph.input("x", (5, 3)),
        "image": graph.input("image", (2, 4, 5, 5)),
        "line": graph.input("line", (2, 4, 5)),
        "t": graph.input("t", (5,), "int32"),
        "w": graph.input("w", (3,)),
        "heads": graph.input("heads", (2, 5, 3, 4)),
        "mask": graph.input("mask", (2, 3, 4, 5), "bool"),
    }


Build = Callable[[dict[str, Any]], object]
NUMBERS: list[tuple[Build, str]] = [
    (
        lambda r: ops.dropout(r["x"], -0.1),
        "dropout 'dropout': p is -0.1, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.dropout(r["x"], "half"),
        "dropout 'dropout': p is 'half', a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.dropout2d(r["image"], NAN),
        "dropout2d 'dropout2d': p is nan, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.scaled_dot_product_attention(
            r["heads"], r["heads"], r["heads"], dropout_p=2, training=False
        ),
        "dropout 'attention.drop': p is 2, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.lstm(r["line"], 3, dropout=1.5),
        "lstm 'lstm': dropout is 1.5, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.gru(r["line"], 3, dropout=NAN),
        "gru 'gru': dropout is nan, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.batch_norm(r["x"], momentum=3),
        "batch_norm 'batch_norm': momentum is 3, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.layer_norm(r["x"], eps=NAN),
        "layer_norm 'layer_norm': eps is nan, a positive finite number is needed",
    ),
    (
        lambda r: ops.rms_norm(r["x"], eps=-1e-6),
        "rms_norm 'rms_norm': eps is -1e-06, a positive finite number is needed",
    ),
    (
        lambda r: ops.leaky_relu(r["x"], NAN),
        "leaky_relu 'leaky_relu': negative_slope is nan, a finite number is needed",
    ),
    (lambda r: ops.elu(r["x"], math.inf), "elu 'elu': alpha is inf, a finite number is needed"),
    (
        lambda r: ops.celu(r["x"], 0),
        "celu 'celu': alpha is 0, a finite number other than 0 is needed",
    ),
    (
        lambda r: ops.softplus(r["x"], math.inf),
        "softplus 'softplus': beta is inf, a positive finite number is needed",
    ),
    (lambda r: ops.clip(r["x"], NAN), "clip 'clip': min is nan, a number is needed"),
    (
        lambda r: ops.hardtanh(r["x"], -1, "1"),
        "hardtanh 'hardtanh': max_val is '1', a number is needed",
    ),
    (
        lambda r: ops.huber_loss(r["x"], r["x"], NAN),
        "huber_loss 'huber_loss': delta is nan, a positive number is needed",
    ),
    (
        lambda r: ops.smooth_l1_loss(r["x"], r["x"], -1),
        "smooth_l1_loss 'smooth_l1_loss': beta is -1, a finite number from 0 on is needed",
    ),
    (
        lambda r: ops.rotary_embedding(r["image"], math.inf),
        "rotary_embedding 'rotary_embedding': 'image' has shape (2, 4, 5, 5), at least three dimensions and an even "
        "extent of the last are needed",
    ),
    (
        lambda r: ops.rotary_embedding(r["heads"], math.inf),
        "rotary_embedding 'rotary_embedding': base is inf, a positive finite number is needed",
    ),
    (
        lambda r: ops.mixture_of_experts(r["x"], 2, 3, capacity_factor=math.inf),
        "mixture_of_experts 'experts': capacity_factor is inf, a positive finite number is needed",
    ),
    (
        lambda r: ops.index_add(r["x"], 0, r["t"], r["x"], NAN),
        "index_add 'index_add': alpha is nan, a finite number is needed",
    ),
    (
        lambda r: ops.fused_attention(r["heads"], r["heads"], r["heads"], scale=NAN),
        "fused_attention 'attention': scale is nan, a finite number is needed",
    ),
    (lambda r: ops.pad(r["x"], (1, 1), NAN), "pad 'pad': value is nan, a number is needed"),
]
INTEGERS: list[tuple[Build, str]] = [
    (
        lambda r: ops.max_pool2d(r["image"], 0),
        "max_pool2d 'max_pool2d': kernel_size is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.avg_pool1d(r["line"], 2, padding=-1),
        "avg_pool1d 'avg_pool1d': padding is -1, an integer from 0 on is needed",
    ),
    (
        lambda r: ops.conv1d(r["line"], 4, 3, padding=0.5),
        "conv1d 'conv1d': padding is 0.5, an integer from 0 on is needed",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 2.0),
        "conv2d 'conv2d': kernel_size is 2.0, an integer or two are needed",
    ),
    (
        lambda r: ops.conv_transpose1d(r["line"], 4, 3, padding=0.5),
        "conv_transpose1d 'conv_transpose1d': padding is 0.5 and output_padding 0, integers are needed",
    ),
    (lambda r: ops.softmax(r["x"], 1.0), "softmax 'softmax': dim is 1.0, an integer is needed"),
    (lambda r: ops.sum(r["x"], True), "sum 'sum': dim is True, an integer is needed"),
    (
        lambda r: ops.reshape(r["x"], (3.0, 5)),
        "reshape 'reshape': the shape is (3.0, 5), integers are needed",
    ),
    (
        lambda r: ops.slice(r["x"], 0, 0.0, 2),
        "slice 'slice': start is 0.0, an integer from 0 on is needed",
    ),
    (
        lambda r: ops.pad(r["x"], (0.5, 1)),
        "pad 'pad': pad is (0.5, 1): pairs of numbers from 0, at most 2 of them, are needed",
    ),
    (
        lambda r: ops.top_k_gate(r["x"], 1.5),
        "top_k_gate 'top_k_gate': k is 1.5, a positive integer is needed",
    ),
    (
        lambda r: ops.cross_entropy(r["x"], r["t"], 0.5),
        "cross_entropy 'cross_entropy': ignore_index is 0.5, an integer or None is needed",
    ),
    (
        lambda r: ops.accuracy(r["x"], r["t"], ignore_index="pad"),
        "accuracy 'accuracy': ignore_index is 'pad', an integer or None is needed",
    ),
    (
        lambda r: ops.fold(r["line"], 4, 2),
        "fold 'fold': 'line' is (2, 4, 5); 3 times 3 columns of a multiple of 4 points are needed",
    ),
]
OTHERS: list[tuple[Build, str]] = [
    (
        lambda r: ops.embedding(r["t"], 4, 3, dtype="int32"),
        "embedding 'embedding': dtype is 'int32', a floating point dtype is needed",
    ),
    (
        lambda r: ops.expand(r["x"], (5, 3.0)),
        "expand 'expand': the shape is (5, 3.0), integers are needed",
    ),
    (
        lambda r: ops.embedding(r["t"], 4, 3, padding_idx=4),
        "embedding 'embedding': padding_idx is 4, the table has 4 rows",
    ),
    (
        lambda r: ops.embedding_bag(r["t"], 4, 3, padding_idx=0.5),
        "embedding_bag 'embedding_bag': padding_idx is 0.5, the table has 4 rows",
    ),
    (
        lambda r: ops.linear(r["x"], 4, bias=False, bias_init=0.5, name="fc"),
        "'fc': bias_init is 0.5, but there is no bias",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 3, bias=False, bias_init=0.5),
        "'conv2d': bias_init is 0.5, but there is no bias",
    ),
    (
        lambda r: ops.group_norm(r["image"], 2, affine=False, weight_init=2.0),
        "group_norm 'group_norm': first values are given, but there are no parameters: affine is False",
    ),
    (
        lambda r: ops.multihead_attention(r["line"], 1, fused=True, mask=r["mask"]),
        "multihead_attention 'attention': fused attention has no mask, 'mask' was given",
    ),
    (
        lambda r: ops.scaled_dot_product_attention(
            r["heads"], r["heads"], r["heads"], mask=r["mask"]
        ),
        "scaled_dot_product_attention 'attention': mask 'mask' is (2, 3, 4, 5), the scores are (2, 3, 5, 5)",
    ),
    (
        lambda r: ops.cross_entropy(r["x"], r["x"], 3),
        "cross_entropy 'cross_entropy': ignore_index is 3, but 'x' has probabilities, no classes",
    ),
    (
        lambda r: ops.cross_entropy(r["x"], r["t"], weight=r["x"]),
        "cross_entropy 'cross_entropy': weight 'x' is (5, 3), there are 3 classes",
    ),
    (
        lambda r: ops.nll_loss(r["x"], r["t"], weight=r["t"]),
        "nll_loss 'nll_loss': 't' is int32, a floating point dtype is needed",
    ),
    (
        lambda r: ops.softmax_cross_entropy(r["x"], r["t"], classes=4, label_smoothing=0.1),
        "softmax_cross_entropy 'softmax_cross_entropy': classes is 4, 'x' has 3 columns",
    ),
    (
        lambda r: ops.top_k_accuracy(r["x"], r["t"], classes=4),
        "top_k_accuracy 'top_k_accuracy': classes is 4, 'x' has 3 columns",
    ),
    (
        lambda r: ops.kl_div(r["x"], r["x"], reduction="batch"),
        "kl_div 'kl_div': reduction is 'batch', it is 'mean', 'sum', 'none' or 'batchmean'",
    ),
    (
        lambda r: ops.binary_cross_entropy_with_logits(r["x"], r["x"], pos_weight=r["image"]),
        "binary_cross_entropy_with_logits 'binary_cross_entropy_with_logits': pos_weight 'image' is (2, 4, 5, 5), 'x' "
        "is (5, 3)",
    ),
    (
        lambda r: ops.scatter_add(r["x"], 0, r["t"], r["x"]),
        "scatter_add 'scatter_add': 'x' is (5, 3) and 't' is (5,); only dim 0 may differ",
    ),
    (
        lambda r: ops.index_add(r["x"], 1, r["t"], r["x"]),
        "index_add 'index_add': 'x' is (5, 3), 't' is (5,) and 'x' is (5, 3)",
    ),
]
EVERY = [*NUMBERS, *INTEGERS, *OTHERS]


@pytest.mark.parametrize(("build", "message"), EVERY, ids=[m for _, m in EVERY])
def test_options_are_checked_where_they_are_made(build: Build, message: str) -> None:
    assert_refused(message, lambda: build(regions()))


@pytest.mark.parametrize("value", [np.float32(2), np.int64(-1), np.bool_(True), np.float64("nan")])
def test_numbers_of_numpy_are_checked_alike(value: Any) -> None:
    x = regions()["x"]
    if value == 1:
        ops.dropout(x, value)
    else:
        message = f"dropout 'dropout': p is {value!r}, a number in [0, 1] is needed"
        assert_refused(message, lambda: ops.dropout(x, value))
