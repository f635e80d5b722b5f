"""The models of `cpu_step` as training graphs, with what they are fed and how they are trained.

Each has its counterpart in `cpu_step_torch.MODULES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ops
from taskflow import Graph, LogicalRegion

Array = np.ndarray[Any, np.dtype[Any]]
Dense = Callable[[LogicalRegion, int, str, str], LogicalRegion]

VOCABULARY, EXPERTS = 96, 8
TABLES, ROWS, WIDTH = 8, 100_000, 64  # of the DLRM
SGD = {"lr": 0.01, "momentum": 0.9}


@dataclass(frozen=True)
class Model:
    """A model at one batch size.

    Attributes:
        build: batch -> the graph up to its loss.
        batch: samples of a step.
        optimizer: "sgd" or "adam".
        rates: the optimizer's arguments, of the same names in `ops` and in torch.
        about: a line for the table.
    """

    build: Callable[[int], LogicalRegion]
    batch: int
    about: str
    optimizer: str = "sgd"
    rates: Mapping[str, float] = field(default_factory=lambda: SGD)

    def graph(self, batch: int | None = None) -> Graph:
        """The training graph."""
        loss = self.build(batch or self.batch)
        getattr(ops, self.optimizer)(loss, **self.rates)
        return loss.graph

    def feeds(self, graph: Graph) -> dict[str, Array]:
        """Random values for the inputs: normal numbers, and integers below the classes, words or rows."""
        random = np.random.default_rng(0)
        return {region.name: _values(random, region) for region in graph.inputs}


def _values(random: np.random.Generator, region: LogicalRegion) -> Array:
    if region.dtype == "float32":
        values = random.standard_normal(region.shape, np.float32)
        return (values > 0).astype(np.float32) if region.name == "clicked" else values
    high = {"t": 10, "words": VOCABULARY, "next": VOCABULARY}.get(region.name, ROWS)
    return random.integers(0, high, region.shape).astype(np.int32)


def dense(h: LogicalRegion, width: int, name: str, relu: str) -> LogicalRegion:
    """A layer with a ReLU, as two operators of these names."""
    return ops.relu(ops.linear(h, width, name=name), name=relu)


def mlp(batch: int, dense: Dense = dense) -> LogicalRegion:
    graph = Graph()
    h, t = graph.input("x", (batch, 784)), graph.input("t", (batch,), "int32")
    for k in (1, 2):
        h = dense(h, 4096, f"fc{k}", f"relu{k}")
    return ops.softmax_cross_entropy(ops.linear(h, 10, name="fc"), t, name="loss")


def _images(batch: int) -> tuple[LogicalRegion, LogicalRegion]:
    graph = Graph()
    return graph.input("x", (batch, 3, 32, 32)), graph.input("t", (batch,), "int32")


def vgg(batch: int, dense: Dense = dense) -> LogicalRegion:
    h, t = _images(batch)
    for block, channels in enumerate((64, 128, 256), 1):
        for k in (1, 2):
            h = ops.relu(
                ops.conv2d(h, channels, 3, padding=1, name=f"conv{block}{k}"),
                name=f"relu{block}{k}",
            )
        h = ops.max_pool2d(h, 2, name=f"pool{block}")
    h = dense(ops.flatten(h, name="flat"), 256, "fc1", "relu1")
    return ops.softmax_cross_entropy(ops.linear(h, 10, name="fc"), t, name="loss")


def resnet(batch: int) -> LogicalRegion:
    """ResNet-18 for images of 32 by 32: a stem of 3x3, no pooling before the last."""
    h, t = _images(batch)
    h = ops.relu(_normed(h, 64, 3, 1, "stem"), name="stem.relu")
    for stage in range(4):
        for k in range(2):
            h = _basic(h, 64 << stage, 2 if stage and not k else 1, f"s{stage}{k}")
    return ops.softmax_cross_entropy(
        ops.linear(ops.global_avg_pool2d(h, name="pool"), 10, name="fc"), t, name="loss"
    )


def _normed(x: LogicalRegion, channels: int, size: int, stride: int, name: str) -> LogicalRegion:
    x = ops.conv2d(x, channels, size, stride, size // 2, bias=False, name=name)
    return ops.batch_norm(x, name=f"{name}.norm")


def _basic(x: LogicalRegion, channels: int, stride: int, name: str) -> LogicalRegion:
    y = ops.relu(_normed(x, channels, 3, stride, f"{name}.a"), name=f"{name}.a.relu")
    y = _normed(y, channels, 3, 1, f"{name}.b")
    if x.shape != y.shape:
        x = _normed(x, channels, 1, stride, f"{name}.shortcut")
    return ops.relu(ops.add(y, x, name=f"{name}.add"), name=f"{name}.relu")


def _words(batch: int, length: int) -> tuple[LogicalRegion, LogicalRegion]:
    graph = Graph()
    return graph.input("words", (batch, length), "int32"), graph.input(
        "next", (batch, length), "int32"
    )


def lstm(batch: int) -> LogicalRegion:
    x, t = _words(batch, 64)
    h, _ = ops.lstm(ops.embedding(x, VOCABULARY, 256, name="embed"), 256, name="lstm", fused=True)
    return ops.softmax_cross_entropy(ops.linear(h, VOCABULARY, name="fc"), t, name="loss")


def gpt(batch: int) -> LogicalRegion:
    x, t = _words(batch, 128)
    h = _embedded(x)
    for k in range(4):
        h = _attended(h, k)
        a = ops.linear(ops.layer_norm(h, name=f"norm{k}b"), 1024, name=f"fc{k}a")
        h = ops.add(
            h, ops.linear(ops.gelu(a, name=f"gelu{k}"), 256, name=f"fc{k}b"), name=f"add{k}b"
        )
    return _word_loss(h, t)


def moe(batch: int) -> LogicalRegion:
    """The GPT with two of `EXPERTS` experts of 512 hidden units for a token, and their load-balance loss."""
    x, t = _words(batch, 128)
    h, balances = _embedded(x), []
    for k in range(4):
        h = _attended(h, k)
        a = ops.layer_norm(h, name=f"norm{k}b")
        y, balance = ops.mixture_of_experts(a, EXPERTS, 512, name=f"experts{k}")
        h = ops.add(h, y, name=f"add{k}b")
        balances.append(balance)
    loss = _word_loss(h, t)
    for k, balance in enumerate(balances):
        loss = ops.add(loss, ops.multiply(balance, 0.01, name=f"balance{k}"), name=f"loss{k}")
    return loss


def _embedded(x: LogicalRegion) -> LogicalRegion:
    return ops.position_embedding(ops.embedding(x, VOCABULARY, 256, name="embed"), name="position")


def _attended(h: LogicalRegion, k: int) -> LogicalRegion:
    a = ops.layer_norm(h, name=f"norm{k}a")
    return ops.add(
        h, ops.multihead_attention(a, 4, is_causal=True, name=f"attention{k}"), name=f"add{k}a"
    )


def _word_loss(h: LogicalRegion, t: LogicalRegion) -> LogicalRegion:
    y = ops.linear(ops.layer_norm(h, name="norm"), VOCABULARY, name="fc")
    return ops.softmax_cross_entropy(y, t, name="loss")


def dlrm(batch: int, dense: Dense = dense) -> LogicalRegion:
    graph = Graph()
    x, t = graph.input("dense", (batch, 13)), graph.input("clicked", (batch, 1))
    rows = [graph.input(f"rows{k}", (batch, 1), "int32") for k in range(TABLES)]
    small = ops.uniform(-(ROWS**-0.5), ROWS**-0.5)
    bags = [
        ops.embedding_bag(r, ROWS, WIDTH, name=f"table{k}", weight_init=small)
        for k, r in enumerate(rows)
    ]
    h = x
    for k, width in enumerate((512, 256, WIDTH)):
        h = dense(h, width, f"bottom{k}", f"bottom{k}.relu")
    h = ops.concat([h, ops.dot_interaction([h, *bags], name="interaction")], 1, name="joined")
    for k, width in enumerate((512, 256)):
        h = dense(h, width, f"top{k}", f"top{k}.relu")
    return ops.binary_cross_entropy_with_logits(ops.linear(h, 1, name="click"), t, name="loss")


MODELS = {
    "mlp": Model(mlp, 256, "784-4096-4096-10"),
    "vgg": Model(vgg, 32, "six 3x3 convolutions, 32x32 images"),
    "resnet": Model(resnet, 16, "ResNet-18 for 32x32 images"),
    "lstm": Model(lstm, 32, "LSTM language model, hidden 256, 64 steps"),
    "gpt": Model(gpt, 8, "GPT, 4 layers of 256, sequence 128, Adam", "adam", {"lr": 1e-3}),
    "moe": Model(moe, 8, "GPT with 2 of 8 experts of 512 for a token, Adam", "adam", {"lr": 1e-3}),
    "dlrm": Model(
        dlrm, 2048, "8 tables of 100,000 rows of 64, dot interaction, plain SGD", rates={"lr": 0.01}
    ),
}
