"""BERT-large and its pre-training: Devlin, Chang, Lee and Toutanova, NAACL 2019 (arXiv 1810.04805): 24 layers of 1024,
16 heads, masked words (76 of 512, as the authors' code picks at most) and next sentence. 336,226,108 parameters (the
released model's with both heads). All sequences are whole: there is no padding mask.
"""

import ops
from ops.models.common import finish, tokens
from taskflow import Graph, LogicalRegion


def build(
    batch: int = 8,
    sequence: int = 512,
    masked: int = 76,
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    vocabulary: int = 30522,
    dropout: float = 0.1,
    lr: float = 1e-4,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `x` and their sentences `segments` (0 or 1), (batch, sequence); where words are masked, `positions`, and
    which they are, `t`, (batch, masked); whether the second sentence follows the first, `t_next` (batch,).
    """
    graph = Graph()
    x, segments = (tokens(graph, name, batch, sequence) for name in ("x", "segments"))
    positions, t = (tokens(graph, name, batch, masked) for name in ("positions", "t"))
    t_next = graph.input("t_next", (batch,), "int32")
    h = _embed(x, segments, vocabulary, hidden, dtype)
    h = ops.dropout(h, dropout, training, name="drop")
    for k in range(layers):
        h = _layer(h, heads, dropout, training, f"layer{k}")
    words = ops.cross_entropy(_predict_words(h, positions, vocabulary), t, name="loss_words")
    first = ops.flatten(ops.slice(h, 1, 0, 1, name="first"), name="first.flat")
    pooled = ops.tanh(ops.linear(first, hidden, name="pooler"), name="pooler.tanh")
    follows = ops.softmax_cross_entropy(
        ops.linear(pooled, 2, name="next"), t_next, name="loss_next"
    )
    loss = ops.add(words, follows, name="loss")
    return finish(graph, loss, training, ops.adamw, lr=lr, eps=1e-6, weight_decay=0.01)


def _embed(
    x: LogicalRegion, segments: LogicalRegion, vocabulary: int, hidden: int, dtype: str
) -> LogicalRegion:
    small = ops.normal(0.0, 0.02)
    h = ops.embedding(x, vocabulary, hidden, name="embed", dtype=dtype, weight_init=small)
    h = ops.position_embedding(h, name="position")
    h = ops.add(
        h,
        ops.embedding(segments, 2, hidden, name="segment", dtype=dtype, weight_init=small),
        name="embedded",
    )
    return ops.layer_norm(h, eps=1e-12, name="embed.norm")


def _layer(
    x: LogicalRegion, heads: int, dropout: float, training: bool, name: str
) -> LogicalRegion:
    """Layer norm comes after each part and its shortcut, as in the paper."""
    h = ops.multihead_attention(
        x, heads, dropout_p=dropout, training=training, name=f"{name}.attention"
    )
    h = ops.add(x, ops.dropout(h, dropout, training, name=f"{name}.drop1"), name=f"{name}.add1")
    x = ops.layer_norm(h, eps=1e-12, name=f"{name}.norm1")
    h = ops.gelu(ops.linear(x, 4 * x.shape[-1], name=f"{name}.fc1"), name=f"{name}.gelu")
    h = ops.dropout(
        ops.linear(h, x.shape[-1], name=f"{name}.fc2"), dropout, training, name=f"{name}.drop2"
    )
    return ops.layer_norm(ops.add(x, h, name=f"{name}.add2"), eps=1e-12, name=f"{name}.norm2")


def _predict_words(h: LogicalRegion, positions: LogicalRegion, vocabulary: int) -> LogicalRegion:
    """Scores of all words at the masked positions; the table is that of the embedding, with a bias of its own."""
    graph = h.graph
    h = ops.gather_rows(h, positions, name="masked")
    h = ops.layer_norm(
        ops.gelu(ops.linear(h, h.shape[-1], name="transform"), name="transform.gelu"),
        1e-12,
        "transform.norm",
    )
    y = ops.einsum("bpe,ve->bpv", h, graph.regions["embed.weight"], name="words")
    return ops.add(
        y, graph.parameter("words.bias", (vocabulary,), 0.0, y.dtype), name="words.biased"
    )
