"""NMT: translation by two LSTM layers of 1024 units as encoder, two as decoder, and attention over the encoder on top,
as in FlexFlow's evaluation (Jia, Zaharia and Aiken, MLSys 2019, arXiv 1807.05358: batch 64, 40 steps), after Wu et al.,
arXiv 1609.08144 (2016). The attention is Luong, Pham and Manning's, EMNLP 2015: "general" scores, and a layer of tanh
over context and state. The vocabulary of 20 * 1024 words is that of FlexFlow's public nmt.cc.
"""

import ops
from ops.models.common import predict_words, tokens
from taskflow import Graph, LogicalRegion


def build(
    batch: int = 64,
    steps: int = 40,
    hidden: int = 1024,
    layers: int = 2,
    embed: int = 1024,
    vocabulary: int = 20480,
    group: int = 10,
    lr: float = 1.0,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `source` and `target`, and the words `t` that follow the latter, (batch, steps) each.

    `group` steps of a layer share a configuration.
    """
    graph = Graph()
    source, target, t = (tokens(graph, name, batch, steps) for name in ("source", "target", "t"))
    words = ops.embedding(source, vocabulary, embed, name="source_embed", dtype=dtype)
    encoded, states = ops.lstm(words, hidden, layers, group=group, name="encoder")
    words = ops.embedding(target, vocabulary, embed, name="target_embed", dtype=dtype)
    decoded, _ = ops.lstm(words, hidden, layers, states, group=group, name="decoder")
    y = ops.linear(_attend(decoded, encoded, hidden), vocabulary, name="fc")
    return predict_words(graph, y, t, training, lr=lr)


def _attend(decoded: LogicalRegion, encoded: LogicalRegion, hidden: int) -> LogicalRegion:
    query = ops.linear(decoded, hidden, bias=False, name="attention.query")
    scores = ops.einsum("bqh,bsh->bqs", query, encoded, name="attention.scores")
    weights = ops.softmax(scores, name="attention.softmax")
    context = ops.einsum("bqs,bsh->bqh", weights, encoded, name="attention.context")
    both = ops.concat([context, decoded], 2, name="attention.concat")
    return ops.tanh(
        ops.linear(both, hidden, bias=False, name="attention.out"), name="attention.tanh"
    )
