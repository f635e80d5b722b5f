"""LeNet-5 of LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition" (1998), as it
is built today: rectifiers, max pooling and plain dense layers on top, 61,706 parameters. FlexFlow's paper proves a
strategy for it optimal; so does `benchmarks/quality.py`.
"""

import ops
from ops.models.common import classify
from taskflow import Graph


def build(
    batch: int = 64,
    image: int = 28,
    classes: int = 10,
    lr: float = 0.1,
    training: bool = True,
    dtype: str = "float32",
    metrics: bool = True,
) -> Graph:
    """Grey images `x` (batch, 1, image, image), classes `t` (batch,); without `metrics` no accuracy is computed."""
    graph = Graph()
    x = graph.input("x", (batch, 1, image, image), dtype)
    t = graph.input("t", (batch,), "int32")
    for k, (channels, padding) in enumerate(((6, 2), (16, 0)), 1):
        x = ops.relu(ops.conv2d(x, channels, 5, padding=padding, name=f"conv{k}"), name=f"relu{k}")
        x = ops.max_pool2d(x, 2, name=f"pool{k}")
    x = ops.flatten(x, name="flat")
    for k, width in enumerate((120, 84), 1):
        x = ops.relu(ops.linear(x, width, name=f"fc{k}"), name=f"fc{k}.relu")
    y = ops.linear(x, classes, name="fc3")
    return classify(graph, y, t, training, metrics, lr=lr)
