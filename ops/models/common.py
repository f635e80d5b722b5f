"""What the models share: inputs with named axes, and the end of a graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ops
import taskflow
from taskflow import Graph, LogicalRegion

MIXED = "mixed_"  # before a dtype, as Keras calls its policies: float32 parameters, that dtype in between
EAGER = "eager_loss"  # operators of a loss that is kept whole


def of_parameters(dtype: str) -> str:
    """The dtype of parameters in a model of `dtype`: that one, or float32 where it is mixed (`mixed_bfloat16`)."""
    return "float32" if dtype.startswith(MIXED) else dtype


def tokens(graph: Graph, name: str, *extents: int) -> LogicalRegion:
    """An input of word numbers (batch, length) or (length,), whose axes are called b and s."""
    return replace(graph.input(name, extents, "int32"), axes=("b", "s")[-len(extents) :])


def finish(
    graph: Graph,
    loss: LogicalRegion,
    training: bool,
    optimizer: Callable[..., object] = ops.sgd,
    dtype: str = "float32",
    **options: Any,
) -> Graph:
    """Fetch the loss and, in training, append backward and update operators.

    A mixed `dtype` is a precision; operators of the loss compute in float32, as those of PyTorch's autocast do.
    """
    graph.output("loss", loss)
    if dtype.startswith(MIXED):
        graph = taskflow.precision(graph, dtype.removeprefix(MIXED), wide=[f"{EAGER}*"])
        loss = graph.regions[loss.name]
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
    way: str = "split",
    **options: Any,
) -> Graph:
    """The end of a language model: cross entropy over the first `words` columns of `y`, perplexity, optimizer.

    The `way` of the loss: "split", so that the vocabulary may be; "in one" operator, which keeps the vocabulary whole;
    or "eager", by a softmax and a choice that are kept, as eager frameworks run it.
    """
    if way == "in one":
        loss = ops.softmax_cross_entropy(y, t, name="loss", classes=words)
    elif way == "eager":
        levels = ops.log_softmax(ops.slice(y, 2, 0, words or y.shape[2]), name=f"{EAGER}.levels")
        loss = ops.nll_loss(levels, t, name="loss")
    else:
        loss = ops.cross_entropy(y, t, name="loss", classes=words)
    graph.output("perplexity", ops.perplexity(loss))
    return finish(graph, loss, training, **options)
