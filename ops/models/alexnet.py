"""AlexNet: the one-column variant of Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv 1404.5997 (2014), which FlexFlow and torchvision build too; that of 2012 has two columns and response
normalization. 61,100,840 parameters (torchvision's count). FlexFlow's evaluation: batch 256.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ops
from ops.models.common import classify
from taskflow import Graph


def build(
    batch: int = 256,
    image: int = 224,
    channels: Sequence[int] = (64, 192, 384, 256, 256),
    hidden: int = 4096,
    classes: int = 1000,
    dropout: float = 0.5,
    weight_init: Callable[[tuple[int, ...]], Any] | None = None,
    lr: float = 0.01,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Images `x` (batch, 3, image, image), classes `t` (batch,)."""
    graph = Graph()
    x = graph.input("x", (batch, 3, image, image), dtype)
    t = graph.input("t", (batch,), "int32")
    kernels = ((11, 4, 2), (5, 1, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1))  # size, stride, padding
    for k, (out, (size, stride, padding)) in enumerate(zip(channels, kernels, strict=True), 1):
        x = ops.relu(
            ops.conv2d(x, out, size, stride, padding, name=f"conv{k}", weight_init=weight_init),
            name=f"relu{k}",
        )
        if k in (1, 2, 5):
            x = ops.max_pool2d(x, 3, 2, name=f"pool{k}")
    x = ops.flatten(x, name="flat")
    for k in (6, 7):
        x = ops.dropout(x, dropout, training, name=f"drop{k}")
        x = ops.relu(ops.linear(x, hidden, name=f"fc{k}", weight_init=weight_init), name=f"relu{k}")
    y = ops.linear(x, classes, name="fc8")
    return classify(graph, y, t, training, lr=lr, momentum=0.9, weight_decay=5e-4)
