"""Inception-v3: Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception Architecture for Computer
Vision", CVPR 2016 (arXiv 1512.00567), with the channels of the authors' released model, which torchvision has too.
Without the auxiliary classifier: 23,834,568 parameters (27,161,264 with it). FlexFlow's evaluation: batch 64.
"""

from collections.abc import Callable, Sequence
from functools import partial

import ops
from ops.models.common import classify
from taskflow import Graph, LogicalRegion

Size = int | tuple[int, int]
Convolve = Callable[..., LogicalRegion]


def build(
    batch: int = 64,
    image: int = 299,
    width: float = 1.0,
    modules: Sequence[int] = (3, 4, 2),
    classes: int = 1000,
    dropout: float = 0.5,
    lr: float = 0.045,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Images `x` (batch, 3, image, image), classes `t` (batch,); `modules` on the grids of 35, 17 and 8 points."""
    graph = Graph()
    x = graph.input("x", (batch, 3, image, image), dtype)
    t = graph.input("t", (batch,), "int32")
    conv = partial(_convolve, width=width, training=training)
    x = conv(conv(conv(x, 32, 3, "conv1", stride=2), 32, 3, "conv2"), 64, 3, "conv3", padding=1)
    x = ops.max_pool2d(x, 3, 2, name="pool1")
    x = ops.max_pool2d(conv(conv(x, 80, 1, "conv4"), 192, 3, "conv5"), 3, 2, name="pool2")
    for k, pooled in zip(range(modules[0]), (32, *[64] * modules[0])):
        x = _grid35(x, pooled, conv, f"a{k}")
    x = _to_grid17(x, conv, "b")
    for k, inner in zip(range(modules[1]), (128, 160, 160, *[192] * modules[1])):
        x = _grid17(x, inner, conv, f"c{k}")
    x = _to_grid8(x, conv, "d")
    for k in range(modules[2]):
        x = _grid8(x, conv, f"e{k}")
    x = ops.dropout(ops.global_avg_pool2d(x, name="pool3"), dropout, training, name="drop")
    return classify(graph, ops.linear(x, classes, name="fc"), t, training, lr=lr, momentum=0.9)


def _convolve(
    x: LogicalRegion,
    out: int,
    size: Size,
    name: str,
    *,
    stride: int = 1,
    padding: Size = 0,
    width: float,
    training: bool,
) -> LogicalRegion:
    x = ops.conv2d(x, max(int(out * width), 1), size, stride, padding, bias=False, name=name)
    return ops.relu(ops.batch_norm(x, training, eps=1e-3, name=f"{name}.norm"), name=f"{name}.relu")


def _chain(x: LogicalRegion, conv: Convolve, name: str, *layers: tuple[int, Size]) -> LogicalRegion:
    """Convolutions (channels, size) one after the other that keep the grid."""
    for k, (out, size) in enumerate(layers):
        padding = size // 2 if isinstance(size, int) else (size[0] // 2, size[1] // 2)
        x = conv(x, out, size, f"{name}_{k}", padding=padding)
    return x


def _pooled(x: LogicalRegion, out: int, conv: Convolve, name: str) -> LogicalRegion:
    return conv(ops.avg_pool2d(x, 3, 1, 1, name=f"{name}.pool"), out, 1, f"{name}.pooled")


def _grid35(x: LogicalRegion, pooled: int, conv: Convolve, name: str) -> LogicalRegion:
    branches = [
        _chain(x, conv, f"{name}.one", (64, 1)),
        _chain(x, conv, f"{name}.five", (48, 1), (64, 5)),
        _chain(x, conv, f"{name}.three", (64, 1), (96, 3), (96, 3)),
        _pooled(x, pooled, conv, name),
    ]
    return ops.concat(branches, 1, name=name)


def _to_grid17(x: LogicalRegion, conv: Convolve, name: str) -> LogicalRegion:
    branches = [
        conv(x, 384, 3, f"{name}.three", stride=2),
        conv(
            _chain(x, conv, f"{name}.double", (64, 1), (96, 3)), 96, 3, f"{name}.double_2", stride=2
        ),
        ops.max_pool2d(x, 3, 2, name=f"{name}.pool"),
    ]
    return ops.concat(branches, 1, name=name)


def _grid17(x: LogicalRegion, inner: int, conv: Convolve, name: str) -> LogicalRegion:
    row = (1, 7)
    column = (7, 1)
    branches = [
        _chain(x, conv, f"{name}.one", (192, 1)),
        _chain(x, conv, f"{name}.seven", (inner, 1), (inner, row), (192, column)),
        _chain(
            x,
            conv,
            f"{name}.twice",
            (inner, 1),
            (inner, column),
            (inner, row),
            (inner, column),
            (192, row),
        ),
        _pooled(x, 192, conv, name),
    ]
    return ops.concat(branches, 1, name=name)


def _to_grid8(x: LogicalRegion, conv: Convolve, name: str) -> LogicalRegion:
    seven = _chain(x, conv, f"{name}.seven", (192, 1), (192, (1, 7)), (192, (7, 1)))
    branches = [
        conv(_chain(x, conv, f"{name}.three", (192, 1)), 320, 3, f"{name}.three_1", stride=2),
        conv(seven, 192, 3, f"{name}.seven_3", stride=2),
        ops.max_pool2d(x, 3, 2, name=f"{name}.pool"),
    ]
    return ops.concat(branches, 1, name=name)


def _grid8(x: LogicalRegion, conv: Convolve, name: str) -> LogicalRegion:
    three = _chain(x, conv, f"{name}.three", (384, 1))
    double = _chain(x, conv, f"{name}.double", (448, 1), (384, 3))
    branches = [
        _chain(x, conv, f"{name}.one", (320, 1)),
        _chain(three, conv, f"{name}.three.row", (384, (1, 3))),
        _chain(three, conv, f"{name}.three.column", (384, (3, 1))),
        _chain(double, conv, f"{name}.double.row", (384, (1, 3))),
        _chain(double, conv, f"{name}.double.column", (384, (3, 1))),
        _pooled(x, 192, conv, name),
    ]
    return ops.concat(branches, 1, name=name)
