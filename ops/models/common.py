"""What the models share: inputs with named axes, and the end of a graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ops
from taskflow import Graph, LogicalRegion


def tokens(graph: Graph, name: str, *extents: int) -> LogicalRegion:
    """An input of word numbers (batch, length) or (length,), whose axes are called b and s."""
    return replace(graph.input(name, extents, "int32"), axes=("b", "s")[-len(extents) :])


def finish(
    graph: Graph,
    loss: LogicalRegion,
    training: bool,
    optimizer: Callable[..., object] = ops.sgd,
    **options: Any,
) -> Graph:
    """Fetch the loss and, in training, append backward and update operators."""
    graph.output("loss", loss)
    if training:
        optimizer(loss, **options)
    return graph


def classify(
    graph: Graph,
    y: LogicalRegion,
    t: LogicalRegion,
    training: bool,
    metrics: bool = True,
    **options: Any,
) -> Graph:
    """The end of a classifier: cross entropy, accuracy (without `metrics` not), optimizer."""
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    if metrics:
        graph.output("accuracy", ops.accuracy(y, t, name="accuracy"))
    return finish(graph, loss, training, **options)


def predict_words(
    graph: Graph,
    y: LogicalRegion,
    t: LogicalRegion,
    training: bool,
    words: int | None = None,
    **options: Any,
) -> Graph:
    """The end of a language model: cross entropy over the first `words` columns of `y`, perplexity, optimizer."""
    loss = ops.softmax_cross_entropy(y, t, name="loss", classes=words)
    graph.output("perplexity", ops.perplexity(loss))
    return finish(graph, loss, training, **options)
