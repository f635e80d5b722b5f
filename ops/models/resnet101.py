"""ResNet-101: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016 (arXiv 1512.03385),
table 1, with projections where the shape changes. 44,549,160 parameters (torchvision's count). FlexFlow's evaluation:
batch 64. `blocks=(3, 4, 6, 3)` is ResNet-50.
"""

from collections.abc import Sequence

import ops
from ops.models.common import classify
from taskflow import Graph, LogicalRegion


def build(
    batch: int = 64,
    image: int = 224,
    blocks: Sequence[int] = (3, 4, 23, 3),
    width: int = 64,
    classes: int = 1000,
    lr: float = 0.1,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Images `x` (batch, 3, image, image), classes `t` (batch,)."""
    graph = Graph()
    x = graph.input("x", (batch, 3, image, image), dtype)
    t = graph.input("t", (batch,), "int32")
    x = ops.relu(_convolve(x, width, 7, 2, training, "conv1"), name="conv1.relu")
    x = ops.max_pool2d(x, 3, 2, 1, name="pool1")
    for stage, count in enumerate(blocks):
        for k in range(count):
            stride = 2 if stage > 0 and k == 0 else 1
            x = _bottleneck(x, width << stage, stride, training, f"conv{stage + 2}_{k + 1}")
    y = ops.linear(ops.global_avg_pool2d(x, name="pool5"), classes, name="fc")
    return classify(graph, y, t, training, lr=lr, momentum=0.9, weight_decay=1e-4)


def _convolve(
    x: LogicalRegion,
    out: int,
    size: int,
    stride: int,
    training: bool,
    name: str,
) -> LogicalRegion:
    x = ops.conv2d(x, out, size, stride, size // 2, bias=False, name=name)
    return ops.batch_norm(x, training, name=f"{name}.norm")


def _bottleneck(
    x: LogicalRegion, width: int, stride: int, training: bool, name: str
) -> LogicalRegion:
    """1x1 (with the stride), 3x3, 1x1 to four times the width, beside the shortcut."""
    y = ops.relu(_convolve(x, width, 1, stride, training, f"{name}.a"), name=f"{name}.a.relu")
    y = ops.relu(_convolve(y, width, 3, 1, training, f"{name}.b"), name=f"{name}.b.relu")
    y = _convolve(y, 4 * width, 1, 1, training, f"{name}.c")
    if x.shape != y.shape:
        x = _convolve(x, 4 * width, 1, stride, training, f"{name}.shortcut")
    return ops.relu(ops.add(y, x, name=f"{name}.add"), name=f"{name}.relu")
