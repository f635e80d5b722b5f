"""RNNLM: a language model of two LSTM layers of 2048 units, as in FlexFlow's evaluation (Jia, Zaharia and Aiken, MLSys
2019, arXiv 1807.05358: batch 64, 40 steps, Penn Treebank with 10,000 words), after Zaremba, Sutskever and Vinyals,
arXiv 1409.2329 (2014), whose dropout of 0.65 between layers is an argument.
"""

import ops
from ops.models.common import predict_words, tokens
from taskflow import Graph


def build(
    batch: int = 64,
    steps: int = 40,
    hidden: int = 2048,
    layers: int = 2,
    embed: int = 2048,
    vocabulary: int = 10000,
    dropout: float = 0.0,
    group: int = 10,
    lr: float = 1.0,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `x` and the words that follow them `t` (batch, steps); `group` steps of a layer share a configuration."""
    graph = Graph()
    x = tokens(graph, "x", batch, steps)
    t = tokens(graph, "t", batch, steps)
    words = ops.embedding(x, vocabulary, embed, name="embed", dtype=dtype)
    h, _ = ops.lstm(
        words,
        hidden,
        layers,
        dropout=dropout,
        training=training,
        group=group,
        name="lstm",
    )
    y = ops.linear(h, vocabulary, name="fc")
    return predict_words(graph, y, t, training, lr=lr)
