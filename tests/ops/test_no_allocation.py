"""No allocation in a step: a kernel that has run before asks for no memory in the size of its tiles.

NumPy reports the memory of its arrays to `tracemalloc`. Its functions take buffers of 8192 elements for some casts and
repetitions; tiles here take 1 MiB and more, so the limit tells one from the other.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion, Operator, ParallelConfig, differentiate
from taskflow.backend import Context
from taskflow.strategy.partition import partition

from .interpreter import read_only

LIMIT_BYTES = 256 * 1024
Array = np.ndarray[Any, np.dtype[Any]]
Region = LogicalRegion
Build = Callable[..., Region | tuple[Region, ...]]

WIDE, IMAGES, TOKENS, HEADS = (512, 512), (16, 16, 32, 32), (32, 128, 64), (8, 128, 4, 64)
ALONE = [
    "abs",
    "argmax",
    "cos",
    "dropout",
    "elu",
    "exp",
    "flatten",
    "gelu",
    "layer_norm",
    "leaky_relu",
    "log",
]
ALONE += [
    "log_softmax",
    "max",
    "mean",
    "min",
    "relu",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
]
ALONE += [
    "detach",
    "erf",
    "expm1",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "log1p",
    "logsigmoid",
    "logical_not",
]
ALONE += ["mish", "prelu", "selu", "softsign"]
ALONE += ["ceil", "celu", "floor", "round", "sign", "trunc"]
ALONE += ["softplus", "sqrt", "squeeze", "sum", "tanh"]
PAIRS = [
    "add",
    "bmm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "divide",
    "equal",
    "greater",
]
PAIRS += [
    "greater",
    "greater_equal",
    "huber_loss",
    "less",
    "less_equal",
    "matmul",
    "maximum",
    "l1_loss",
]
PAIRS += ["logical_and", "logical_or", "kl_div", "smooth_l1_loss"]
PAIRS += [
    "mse_loss",
    "minimum",
    "multiply",
    "not_equal",
    "pow",
    "root_mean_squared_error",
    "subtract",
]
OPTIMIZERS = ["adagrad", "adam", "adama", "adamw", "lamb", "rmsprop", "sgd"]
# these are parts of others, or no operators
PARTS = [
    "combine",
    "count_dropped",
    "dispatch",
    "expert_linear",
    "expert_load",
    "expert_slots",
    "load_balance_loss",
]
PARTS += [
    "gather_rows",
    "gru_cell",
    "gru_steps",
    "lstm_cell",
    "lstm_steps",
    "rnn_cell",
    "rnn_steps",
    "sum_to",
]
PARTS += [
    "memory_linear_attention",
    "fused_attention",
    "scaled_dot_product_attention",
    "perplexity",
    "adaptive_max_pool2d",
    "einsum",
]
PARTS += ["repeat_heads", "linear_cross_entropy", "ctc_loss", "claimed", "fake_quantize"]
PARTS += ["expert_rows", "dense_to_sparse_gate", "gumbel"]
PARTS += ["conv3d", "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "instance_norm", "relu6"]
PARTS += [
    "argmin",
    "avg_pool1d",
    "max_pool1d",
    "dropout1d",
    "dropout3d",
    "argsort",
    "index_add",
    "one_hot",
    "scatter_add",
    "sort",
]
OTHERS = ["DTensorPlan", "ParameterGroup", "gradients", "to_dtensor", "to_torch"]
OTHERS += [
    "Imported",
    "RecurrentWeights",
    "constant",
    "fan_in_uniform",
    "from_torch",
    "from_torch_state",
    "normal",
]
OTHERS += [
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "recurrent_weights",
    "uniform",
]
OTHERS += ["RotaryScaling", "alibi_slopes", "Edges", "edges", "graph_order", "zeros", "ctc_decode"]


def ring(x: Region) -> ops.Edges:
    """Each vertex reads the two before it."""
    sources = [(k - d) % 512 for k in range(512) for d in (1, 2)]
    return ops.edges(x.graph, np.arange(0, 1025, 2), sources)


ONE: dict[str, tuple[tuple[int, ...], Build]] = {
    **{name: (WIDE, getattr(ops, name)) for name in ALONE},
    "cast": (WIDE, lambda x: ops.cast(x, "float64")),
    "expand": ((512,), lambda x: ops.expand(x, (512, 512))),
    "slice": (WIDE, lambda x: ops.slice(x, 1, 3, 400)),
    "unsqueeze": (WIDE, lambda x: ops.unsqueeze(x, 1)),
    "softmax, composed": (WIDE, lambda x: ops.softmax(x, composed=True)),
    "layer_norm, composed": (WIDE, lambda x: ops.layer_norm(x, composed=True)),
    "gelu, tanh": (WIDE, lambda x: ops.gelu(x, "tanh")),
    "sum over rows": (WIDE, lambda x: ops.sum(x, 0)),
    "argmax over rows": (WIDE, lambda x: ops.argmax(x, 0)),
    "topk": (WIDE, lambda x: ops.topk(x, 256)),
    "aggregate": (WIDE, lambda x: ops.aggregate(x, ring(x))),
    "to_edges": (WIDE, lambda x: ops.to_edges(x, ring(x))),
    "sum_edges": ((1024, 256), lambda x: ops.sum_edges(x, ring(x))),
    "edge_softmax": ((1024, 256), lambda x: ops.edge_softmax(x, ring(x))),
    "packed_attention": ((512, 8, 64), lambda x: ops.packed_attention(x, x, x, (200, 312))),
    "topk over rows": (WIDE, lambda x: ops.topk(x, 256, dim=0, largest=False)),
    "top_k_gate": ((65536, 8), lambda x: ops.top_k_gate(ops.softmax(x), 2)),
    "clip": (WIDE, lambda x: ops.clip(x, -1.0, 1.0)),
    "linear": (WIDE, lambda x: ops.linear(x, 512)),
    "permute": (WIDE, lambda x: ops.permute(x, (1, 0))),
    "reshape": (WIDE, lambda x: ops.reshape(x, (256, 1024))),
    "split": (WIDE, lambda x: ops.split(x, 256, 1)),
    "pad": (WIDE, lambda x: ops.pad(x, (1, 2))),
    "flip": (WIDE, lambda x: ops.flip(x, 0)),
    "concat": (WIDE, lambda x: ops.concat([x, x], 1)),
    "batch_norm of rows": (WIDE, ops.batch_norm),
    "batch_norm": (IMAGES, ops.batch_norm),
    "batch_norm of parts": (IMAGES, lambda x: ops.batch_norm(x, parts=4)),
    "group_norm": (IMAGES, lambda x: ops.group_norm(x, 4)),
    "conv2d": (IMAGES, lambda x: ops.conv2d(x, 32, 3, padding=1)),
    "conv2d, stride": (IMAGES, lambda x: ops.conv2d(x, 32, 3, stride=2)),
    "conv2d, groups": (IMAGES, lambda x: ops.conv2d(x, 32, 3, groups=4)),
    "conv_transpose2d": (IMAGES, lambda x: ops.conv_transpose2d(x, 16, 4, 2, 1)),
    "conv_transpose1d": ((32, 64, 128), lambda x: ops.conv_transpose1d(x, 32, 3)),
    "interpolate": (IMAGES, lambda x: ops.interpolate(x, 64, "bilinear")),
    "slice, steps": (WIDE, lambda x: ops.slice(x, 1, 0, 512, step=2)),
    "conv1d": ((32, 64, 128), lambda x: ops.conv1d(x, 32, 3)),
    "max_pool2d": (IMAGES, lambda x: ops.max_pool2d(x, 2)),
    "dropout2d": (IMAGES, ops.dropout2d),
    "unfold": (IMAGES, lambda x: ops.unfold(x, 2)),
    "fold": (TOKENS, lambda x: ops.fold(x, (17, 5), 2)),
    "avg_pool2d": (IMAGES, lambda x: ops.avg_pool2d(x, 2)),
    "global_avg_pool2d": (IMAGES, ops.global_avg_pool2d),
    "global_max_pool2d": (IMAGES, ops.global_max_pool2d),
    "adaptive_avg_pool2d": (IMAGES, lambda x: ops.adaptive_avg_pool2d(x, 5)),
    "multihead_attention": (TOKENS, lambda x: ops.multihead_attention(x, 4, is_causal=True)),
    "memory-linear attention": (
        TOKENS,
        lambda x: ops.multihead_attention(x, 4, is_causal=True, memory_linear=True),
    ),
    "feed_forward": (TOKENS, lambda x: ops.feed_forward(x, 512)),
    "fused attention": (
        TOKENS,
        lambda x: ops.multihead_attention(x, 4, is_causal=True, fused=True),
    ),
    "rotary_embedding": (HEADS, ops.rotary_embedding),
    "lstm": (TOKENS, lambda x: ops.lstm(x, 64)[0]),
    "lstm, fused": (TOKENS, lambda x: ops.lstm(x, 64, fused=True)[0]),
    "gru": (TOKENS, lambda x: ops.gru(x, 64)[0]),
    "rnn": (TOKENS, lambda x: ops.rnn(x, 64)[0]),
    "mixture_of_experts": (TOKENS, lambda x: ops.mixture_of_experts(x, 4, 128)),
    "position_embedding": (TOKENS, ops.position_embedding),
}
TWO: dict[str, Build] = {
    **{name: getattr(ops, name) for name in PAIRS if name != "bmm"},
    "bmm": lambda x, y: ops.bmm(ops.reshape(x, (4, 128, 512)), ops.reshape(y, (4, 512, 128))),
    "dot_interaction": lambda x, y: ops.dot_interaction([x, y]),
    "where": lambda x, y: ops.where(ops.less(x, y), x, y),
    "add of a row": lambda x, y: ops.add(x, ops.sum(y, 0)),
}
CLASSES: dict[str, Build] = {
    "softmax_cross_entropy": ops.softmax_cross_entropy,
    "cross_entropy": ops.cross_entropy,
    "cross_entropy, smoothed": lambda x, t: ops.cross_entropy(x, t, 0, 0.1),
    "nll_loss": ops.nll_loss,
    "accuracy": ops.accuracy,
    "top_k_accuracy": lambda x, t: ops.top_k_accuracy(x, t, 3),
    "gather": lambda x, t: ops.gather(x, 1, ops.unsqueeze(t, 1)),
}
INDICES: dict[str, Build] = {
    "embedding": lambda i: ops.embedding(i, 500, 64),
    "embedding_bag": lambda i: ops.embedding_bag(i, 500, 64),
    "embedding_bag, mean": lambda i: ops.embedding_bag(i, 500, 64, mode="mean"),
}


def trained(build: Build, *inputs: Region) -> Graph:
    """The operators of `build` and of all gradients that there are."""
    graph = inputs[0].graph
    made = build(*inputs)
    outputs = [
        r for r in (made if isinstance(made, tuple | list) else (made,)) if r.dtype == "float32"
    ]
    wanted = [*graph.parameters, *(r for r in inputs if r.dtype == "float32")]
    for output in outputs:
        loss = output if output.shape == () else ops.sum(ops.multiply(output, output))
        try:
            differentiate(loss, wanted)
        except ValueError:  # no gradient
            graph.output("loss", loss)
    return graph


def wasteful(graph: Graph) -> dict[str, int]:
    """Operators whose kernels allocate at their third call and at the next two, and how many bytes."""
    random = np.random.default_rng(0)
    values = {name: _values(random, region) for name, region in graph.regions.items()}
    found = {op.name: allocated(op, values) for op in graph.operators}
    return {name: size for name, size in found.items() if size > LIMIT_BYTES}


def _values(random: np.random.Generator, region: LogicalRegion) -> Array:
    """Numbers from 0.1 to 1, and indices below 10."""
    if region.dtype.startswith("float"):
        return np.asarray(random.uniform(0.1, 1, region.shape), region.dtype)
    return np.asarray(
        random.integers(0, 2 if region.dtype == "bool" else 10, region.shape), region.dtype
    )


def _peak(call: Callable[[], object]) -> int:
    """Bytes that a call allocates, and what threads of the process allocate meanwhile."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allocated(op: Operator, values: dict[str, Array]) -> int:
    points = partition(op, ParallelConfig({}, (0,)))
    rects = [argument.rects[0] for argument in points.args]
    context = Context(rects, dict(zip(op.extents, points.spans[0].tolist(), strict=True)))
    tiles = [values[r.name][rect.slices()].copy() for r, rect in zip(op.args, rects, strict=True)]
    for k in set(range(len(op.inputs))) - {*op.writes}:
        tiles[k] = read_only(tiles[k])
    with np.errstate(all="ignore"):
        op.kernel(context, *tiles)
        op.kernel(context, *tiles)
        found = _peak(lambda: op.kernel(context, *tiles))
        for _ in range(2):
            if found > LIMIT_BYTES:
                found = min(found, _peak(lambda: op.kernel(context, *tiles)))
    values.update(
        {r.name: tile for r, tile in zip(op.outputs, tiles[len(op.inputs) :], strict=True)}
    )
    return found


@pytest.mark.parametrize("name", ONE)
def test_operators_of_one_region(name: str) -> None:
    shape, build = ONE[name]
    assert not wasteful(trained(build, Graph().input("x", shape)))


@pytest.mark.parametrize("name", TWO)
def test_operators_of_two_regions(name: str) -> None:
    graph = Graph()
    assert not wasteful(trained(TWO[name], graph.input("x", WIDE), graph.input("y", WIDE)))


@pytest.mark.parametrize("name", CLASSES)
def test_losses_of_classes(name: str) -> None:
    graph = Graph()
    assert not wasteful(
        trained(CLASSES[name], graph.input("x", (4096, 64)), graph.input("t", (4096,), "int32"))
    )


@pytest.mark.parametrize("name", INDICES)
def test_tables(name: str) -> None:
    assert not wasteful(trained(INDICES[name], Graph().input("i", (8192, 8), "int32")))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    graph = Graph()
    y = ops.linear(graph.input("x", WIDE), 512)
    options = {"parts": 4} if name == "adama" else {}
    getattr(ops, name)(ops.sum(ops.multiply(y, y)), lr=0.01, **options)
    assert not wasteful(graph)


def test_every_operator_is_here() -> None:
    here = {
        *(name.split(",")[0].split(" ")[0] for name in (*ONE, *TWO, *CLASSES, *INDICES)),
        *OPTIMIZERS,
    }
    assert not {*ops.__all__} - here - {*PARTS, *OTHERS}
