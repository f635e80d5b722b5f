"""What the operators refuse, with the exact message."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import ops
from taskflow import Graph


def regions() -> dict[str, Any]:
    graph = Graph()
    return {
        "x": graph.input("x", (5, 3)),
        "image": graph.input("image", (2, 3, 5, 5)),
        "t": graph.input("t", (5,), "int32"),
        "scalar": graph.input("scalar", ()),
        "one": graph.input("one", (1, 3)),
        "other": Graph().input("other", (5, 3)),
    }


REFUSED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda r: ops.linear(3, 4), "linear 'linear': x is a int, not a region"),
    (
        lambda r: ops.linear(r["t"], 4),
        "linear 'linear': 't' is int32, a floating point dtype is needed",
    ),
    (
        lambda r: ops.linear(r["scalar"], 4),
        "linear 'linear': 'scalar' has shape (), at least one dimension is needed",
    ),
    (
        lambda r: ops.linear(r["x"], 0, name="fc1"),
        "linear 'fc1': out_features is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.linear(r["x"], 4, activation="gelu"),
        "linear 'linear': activation is 'gelu', it is 'relu' or 'gelu_tanh'",
    ),
    (
        lambda r: ops.conv2d(r["x"], 4, 3),
        "conv2d 'conv2d': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 7, name="c"),
        "conv2d 'c': a window of 7 points does not fit into the 5 points of 'image' and a padding of 0",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 3, stride=0),
        "conv2d 'conv2d': stride is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, (3,)),
        "conv2d 'conv2d': kernel_size is (3,), an integer or two are needed",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 3, padding=-1),
        "conv2d 'conv2d': padding is -1, it cannot be negative",
    ),
    (
        lambda r: ops.conv2d(r["image"], 4, 3, groups=3),
        "conv2d 'conv2d': out_channels is 4, which does not divide into 3 groups",
    ),
    (
        lambda r: ops.max_pool2d(r["image"], 2, padding=2),
        "max_pool2d 'max_pool2d': padding is 2, more than half the kernel size 2",
    ),
    (
        lambda r: ops.gelu(r["x"], "erf"),
        "gelu 'gelu': approximate is 'erf', it is 'none' or 'tanh'",
    ),
    (
        lambda r: ops.add(r["x"], r["image"]),
        "add 'add': 'x' is (5, 3) and 'image' is (2, 3, 5, 5); aligned at the right, 3 and 5 do not agree",
    ),
    (
        lambda r: ops.sum_to(r["x"], (4,)),
        "sum_to 'sum_to': the shape (4,) does not broadcast to that of 'x', (5, 3)",
    ),
    (
        lambda r: ops.reshape(r["x"], (4, -1)),
        "reshape 'reshape': 'x' has shape (5, 3), which does not fill the shape (4, -1)",
    ),
    (lambda r: ops.flatten(r["x"], 1, 0), "flatten 'flatten': start_dim 1 stands behind end_dim 0"),
    (
        lambda r: ops.permute(r["x"], (0, 0)),
        "permute 'permute': dims (0, 0) is not a permutation of the 2 dimensions of 'x'",
    ),
    (lambda r: ops.concat([]), "concat 'concat': at least one region is needed"),
    (
        lambda r: ops.concat([r["x"], r["one"]], 1),
        "concat 'concat': 'x' is (5, 3) and 'one' is (1, 3); only dim 1 may differ",
    ),
    (lambda r: ops.softmax(r["x"], 2), "softmax 'softmax': dim is 2, the region has 2 dimensions"),
    (
        lambda r: ops.softmax_cross_entropy(r["x"], r["x"]),
        "softmax_cross_entropy 'softmax_cross_entropy': t 'x' is float32, an integer dtype is needed",
    ),
    (
        lambda r: ops.softmax_cross_entropy(r["x"], r["t"], classes=4),
        "softmax_cross_entropy 'softmax_cross_entropy': classes is 4, 'x' has 3 columns",
    ),
    (
        lambda r: ops.accuracy(r["one"], r["t"]),
        "accuracy 'accuracy': 'one' is (1, 3) and 't' is (5,), not (1,)",
    ),
    (
        lambda r: ops.mse_loss(r["x"], r["one"]),
        "mse_loss 'mse_loss': 'x' is (5, 3) and 'one' is (1, 3)",
    ),
    (
        lambda r: ops.batch_norm(r["one"]),
        "batch_norm 'batch_norm': 'one' is (1, 3): training needs more than one value per channel",
    ),
    (
        lambda r: ops.batch_norm(r["x"], parts=5),
        "batch_norm 'batch_norm': 'x' is (5, 3): training needs more than one value per channel in each of 5 parts",
    ),
    (
        lambda r: ops.batch_norm(r["image"], parts=3, name="bn1"),
        "batch_norm 'bn1': the 2 samples of 'image' do not divide into 3 parts",
    ),
    (
        lambda r: ops.batch_norm(r["x"], parts=0),
        "batch_norm 'batch_norm': parts is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.layer_norm(r["x"], (3,)),
        "layer_norm 'layer_norm': eps is (3,), a positive finite number is needed",
    ),
    (
        lambda r: ops.rms_norm(r["x"], 0),
        "rms_norm 'rms_norm': eps is 0, a positive finite number is needed",
    ),
    (
        lambda r: ops.group_norm(r["image"], 3, float("nan")),
        "group_norm 'group_norm': eps is nan, a positive finite number is needed",
    ),
    (
        lambda r: ops.batch_norm(r["x"], eps=True),
        "batch_norm 'batch_norm': eps is True, a positive finite number is needed",
    ),
    (
        lambda r: ops.dropout(r["x"], 1.5),
        "dropout 'dropout': p is 1.5, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.embedding(r["x"], 3, 2),
        "embedding 'embedding': indices 'x' is float32, an integer dtype is needed",
    ),
    (lambda r: ops.sgd(r["scalar"], -1), "sgd: lr is -1, it cannot be negative"),
    (lambda r: ops.sgd(r["scalar"], 1, nesterov=True), "sgd: nesterov needs a momentum"),
    (
        lambda r: ops.adam(r["scalar"], betas=(0.9, 1)),
        "adam: betas are (0.9, 1), two numbers in [0, 1) are needed",
    ),
    (
        lambda r: ops.glorot_normal((3,)),
        "initializer: the fans of a weight need two dimensions, its shape is (3,)",
    ),
    (
        lambda r: ops.add(r["x"], r["other"]),
        "'add': input 1: region 'other' belongs to another graph",
    ),
    (
        lambda r: ops.add(1, 2.0),
        "add 'add': all operands are numbers, at least one region is needed",
    ),
    (lambda r: ops.divide(r["x"], "y"), "divide 'divide': y is a str, not a region"),
    (lambda r: ops.exp(r["t"]), "exp 'exp': 't' is int32, a floating point dtype is needed"),
    (lambda r: ops.clip(r["x"], 1, 0), "clip 'clip': min is 1 and max is 0"),
    (
        lambda r: ops.softplus(r["x"], 0),
        "softplus 'softplus': beta is 0, a positive finite number is needed",
    ),
    (
        lambda r: ops.where(r["x"], r["x"], 0),
        "where 'where': condition 'x' is float32, bool is needed",
    ),
    (
        lambda r: ops.where(ops.less(r["x"], 0), 1, 0),
        "where 'where': x and y are 1 and 0, at least one region is needed",
    ),
    (lambda r: ops.max(r["x"], (0, 0)), "max 'max': dim (0, 0) names a dimension of 'x' twice"),
    (lambda r: ops.argmax(r["x"], 2), "argmax 'argmax': dim is 2, the region has 2 dimensions"),
    (lambda r: ops.topk(r["x"], 4), "topk 'topk': k is 4, dim 1 of 'x' has 3 points"),
    (
        lambda r: ops.rms_norm(r["scalar"]),
        "rms_norm 'rms_norm': 'scalar' has shape (), at least one dimension is needed",
    ),
    (
        lambda r: ops.group_norm(r["image"], 2),
        "group_norm 'group_norm': 3 channels do not divide into 2 groups",
    ),
    (
        lambda r: ops.log_softmax(r["x"], -3),
        "log_softmax 'log_softmax': dim is -3, the region has 2 dimensions",
    ),
    (
        lambda r: ops.cross_entropy(r["x"], r["t"], reduction="max"),
        "cross_entropy 'cross_entropy': reduction is 'max', it is 'mean', 'sum' or 'none'",
    ),
    (
        lambda r: ops.cross_entropy(r["x"], r["t"], label_smoothing=2),
        "cross_entropy 'cross_entropy': label_smoothing is 2, a number in [0, 1] is needed",
    ),
    (
        lambda r: ops.huber_loss(r["x"], r["x"], 0),
        "huber_loss 'huber_loss': delta is 0, a positive number is needed",
    ),
    (
        lambda r: ops.top_k_accuracy(r["x"], r["t"], 0),
        "top_k_accuracy 'top_k_accuracy': k is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.conv1d(r["x"], 4, 3),
        "conv1d 'conv1d': 'x' has shape (5, 3), 3 dimensions are needed",
    ),
    (
        lambda r: ops.conv1d(ops.unsqueeze(r["x"], 0), 4, 4, name="c"),
        "conv1d 'c': a window of 4 points does not fit into the 3 points of 'unsqueeze' and a padding of 0",
    ),
    (
        lambda r: ops.adaptive_avg_pool2d(r["image"], 0),
        "adaptive_avg_pool2d 'adaptive_avg_pool2d': output_size is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.pad(r["x"], (1, -1)),
        "pad 'pad': pad is (1, -1): pairs of numbers from 0, at most 2 of them, are needed",
    ),
    (
        lambda r: ops.flip(r["x"], (0, -2)),
        "flip 'flip': dims (0, -2) names a dimension of 'x' twice",
    ),
    (
        lambda r: ops.gather(r["x"], 0, r["t"]),
        "gather 'gather': 'x' is (5, 3) and 't' is (5,); only dim 0 may differ",
    ),
    (
        lambda r: ops.expand(r["x"], (5, 4)),
        "expand 'expand': 'x' has shape (5, 3), which does not broadcast to (5, 4)",
    ),
    (
        lambda r: ops.unsqueeze(r["x"], 3),
        "unsqueeze 'unsqueeze': dim is 3, the region has 3 dimensions",
    ),
    (
        lambda r: ops.gru_cell(r["x"], r["one"]),
        "gru_cell 'gru_cell': 'x' is (5, 3) and 'one' is (1, 3)",
    ),
    (
        lambda r: ops.gru_cell(r["x"], r["x"], ops.recurrent_weights(r["x"].graph, "w", 4, 3, 3)),
        "gru_cell 'w': the weights are for 4 gates, 3 are needed",
    ),
    (
        lambda r: ops.rnn_cell(r["x"], r["x"], nonlinearity="elu"),
        "rnn_cell 'rnn_cell': nonlinearity is 'elu', it is 'tanh' or 'relu'",
    ),
    (
        lambda r: ops.memory_linear_attention(r["image"], r["image"], r["x"]),
        "memory_linear_attention 'attention': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        lambda r: ops.multihead_attention(
            ops.unsqueeze(r["x"], 0), 1, dropout_p=0.5, memory_linear=True
        ),
        "multihead_attention 'attention': memory-linear attention has no dropout, dropout_p is 0.5",
    ),
    (
        lambda r: ops.feed_forward(r["x"], 4, activation="silu"),
        "feed_forward 'feed_forward': activation is 'silu', it is 'gelu_tanh' or 'relu'",
    ),
    (
        lambda r: ops.feed_forward(r["x"], 0),
        "feed_forward 'feed_forward': hidden_features is 0, a positive integer is needed",
    ),
    (
        lambda r: ops.multihead_attention(ops.unsqueeze(r["x"], 0), 1, dropout_p=0.5, fused=True),
        "multihead_attention 'attention': fused attention has no dropout, dropout_p is 0.5",
    ),
    (
        lambda r: ops.multihead_attention(
            ops.unsqueeze(r["x"], 0), 1, memory_linear=True, fused=True
        ),
        "multihead_attention 'attention': it is either memory_linear or fused, not both",
    ),
    (
        lambda r: ops.fused_attention(r["image"], r["image"], r["x"]),
        "fused_attention 'attention': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(build: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}$"):
        build(regions())
