"""RNNTC: text classification by four LSTM layers of 1024 units, as in FlexFlow's evaluation (Jia, Zaharia and Aiken,
MLSys 2019, arXiv 1807.05358: batch 64, 40 steps, movie reviews). The vocabulary is that of Kim, EMNLP 2014, for these
reviews (18,765 words, 2 classes); the extent of the embedding is not published and taken to be that of the layers.
"""

import ops
from ops.models.common import classify, tokens
from taskflow import Graph


def build(
    batch: int = 64,
    steps: int = 40,
    hidden: int = 1024,
    layers: int = 4,
    embed: int = 1024,
    vocabulary: int = 18765,
    classes: int = 2,
    group: int = 10,
    lr: float = 0.1,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `x` (batch, steps), classes `t` (batch,); `group` steps of a layer share a configuration."""
    graph = Graph()
    x = tokens(graph, "x", batch, steps)
    t = graph.input("t", (batch,), "int32")
    words = ops.embedding(x, vocabulary, embed, name="embed", dtype=dtype)
    xs = ops.split(words, 1, 1, name="words")
    hs, _ = ops.lstm_steps(xs, hidden, layers, group=group, name="lstm")
    y = ops.linear(ops.flatten(hs[-1], name="last"), classes, name="fc")
    return classify(graph, y, t, training, lr=lr)
