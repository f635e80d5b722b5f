"""Two small classifiers of 8x8 grey images, for scikit-learn's bundled `digits` (1797 images, 10 classes)."""

import ops
from taskflow import Graph, LogicalRegion


def cnn(
    batch: int = 64,
    training: bool = True,
    dtype: str = "float32",
    is_trained: bool | None = None,
    width: int = 16,
) -> Graph:
    """Two convolutions with batch norm and pooling, two dense layers; `is_trained`: with updates, as in training.

    `width`: channels of the first one; the second has twice as many, the dense layer eight times.
    """
    graph = Graph()
    x = graph.input("x", (batch, 1, 8, 8), dtype)
    t = graph.input("t", (batch,), "int32")
    h = ops.relu(ops.conv2d(x, width, 3, padding=1, name="conv1"), name="relu1")
    h = ops.max_pool2d(h, 2, name="pool1")
    h = ops.conv2d(h, 2 * width, 3, padding=1, bias=False, name="conv2")
    h = ops.relu(ops.batch_norm(h, training=training, name="norm2"), name="relu2")
    h = ops.flatten(ops.max_pool2d(h, 2, name="pool2"), name="flat")
    h = ops.relu(ops.linear(h, 8 * width, name="fc1"), name="relu3")
    return _finish(
        graph, ops.linear(h, 10, name="fc2"), t, training if is_trained is None else is_trained
    )


def mlp(batch: int = 64, training: bool = True, dtype: str = "float32", hidden: int = 128) -> Graph:
    """Two hidden layers with dropout."""
    graph = Graph()
    x = graph.input("x", (batch, 64), dtype)
    t = graph.input("t", (batch,), "int32")
    h = ops.relu(ops.linear(x, hidden, name="fc1"), name="relu1")
    h = ops.dropout(h, 0.1, training=training, name="drop1")
    h = ops.relu(ops.linear(h, hidden, name="fc2"), name="relu2")
    return _finish(graph, ops.linear(h, 10, name="fc3"), t, training)


def _finish(graph: Graph, y: LogicalRegion, t: LogicalRegion, training: bool) -> Graph:
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    graph.output("loss", loss)
    graph.output("accuracy", ops.accuracy(y, t, name="accuracy"))
    if training:
        ops.sgd(loss, lr=0.05, momentum=0.9)
    return graph
