"""GPT: the smallest GPT-2 of Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): 12 layers of
768, 12 heads, layer norm before each part, output tied to the embedding. 124,439,808 parameters (the released model's).
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

import ops
from ops.models.common import of_parameters, predict_words, tokens
from taskflow import Graph, LogicalRegion

SMALL = ops.normal(0.0, 0.02)


class GptOptions(TypedDict, total=False):
    """What GPT-2 has not: rows of the embedding that are a multiple of a number, positions by linear biases."""

    vocabulary_multiple: int
    alibi: bool


def build(
    batch: int = 8,
    sequence: int = 1024,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    dropout: float = 0.1,
    lr: float = 6e-4,
    training: bool = True,
    dtype: str = "float32",
    fused: bool | Literal["attention", "all"] = False,
    **options: Unpack[GptOptions],
) -> Graph:
    """Words `x` and the words that follow them `t`, (batch, sequence) each; `fused`: fewer, larger operators; or
    of "attention" alone, beside what eager frameworks run otherwise: a loss that keeps its softmax; or of "all": the
    loss as well, which then reads the scores once and keeps the vocabulary whole, and one product for queries, keys
    and values.

    A `dtype` of "mixed_bfloat16" has float32 parameters and computes in bfloat16, as `taskflow.precision` does.
    The rows of the embedding are a multiple of `vocabulary_multiple`: with 64 (50,304 rows) products over them are
    faster on GPUs. No number changes: scores behind the vocabulary have no part in the loss, and no gradient.
    With `alibi` positions have no embedding but biases of the scores, as MPT's and BLOOM's: see
    `ops.multihead_attention`; three products make queries, keys and values then.
    """
    if unknown := sorted(options.keys() - GptOptions.__annotations__.keys()):
        raise TypeError(f"gpt: there is no argument '{unknown[0]}'")
    multiple = options.get("vocabulary_multiple", 1)
    alibi = options.get("alibi", False)
    graph = Graph()
    columns = -(-vocabulary // multiple) * multiple
    x = tokens(graph, "x", batch, sequence)
    t = tokens(graph, "t", batch, sequence)
    h = ops.embedding(
        x, columns, hidden, name="embed", dtype=of_parameters(dtype), weight_init=SMALL
    )
    if not alibi:
        h = ops.position_embedding(h, name="position")
    h = ops.dropout(h, dropout, training, name="drop")
    attention: dict[str, Any] = {
        "dropout_p": dropout,
        "fused": bool(fused),
        "joined": fused == "all" and not alibi,
        "alibi": alibi,
    }
    for k in range(layers):
        h = _layer(h, heads, dropout, training, f"layer{k}", attention, fused in (True, "all"))
    way = {"attention": "eager", "all": "in one"}.get(str(fused), "split")
    return _predict(h, "bse,ve->bsv", t, training, vocabulary, lr, dtype, way)


def packed(
    lengths: Sequence[int] = (1024,) * 8,
    sequence: int = 1024,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    dropout: float = 0.0,
    lr: float = 6e-4,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `x` and the words that follow them `t`, (tokens,) each, of documents that lie one behind the other.

    `lengths`: of the documents, each at most `sequence`.
    """
    graph = Graph()
    x = tokens(graph, "x", sum(lengths))
    t = tokens(graph, "t", sum(lengths))
    at = graph.constant("positions", [k for n in lengths for k in range(n)], "int32")
    options: dict[str, Any] = {"dtype": of_parameters(dtype), "weight_init": SMALL}
    h = ops.embedding(x, vocabulary, hidden, name="embed", **options)
    h = ops.add(h, ops.embedding(at, sequence, hidden, name="position", **options))
    for k in range(layers):
        h = _layer(h, heads, dropout, training, f"layer{k}", {"lengths": lengths})
    return _predict(h, "se,ve->sv", t, training, vocabulary, lr, dtype)


def _predict(
    h: LogicalRegion,
    product: str,
    t: LogicalRegion,
    training: bool,
    vocabulary: int,
    lr: float,
    dtype: str,
    way: str = "split",
) -> Graph:
    h = ops.layer_norm(h, name="norm")
    return predict_words(
        h.graph,
        ops.einsum(product, h, h.graph.regions["embed.weight"], name="fc"),
        t,
        training,
        vocabulary,
        way,
        optimizer=ops.adamw,
        lr=lr,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        dtype=dtype,
    )


def _layer(
    x: LogicalRegion,
    heads: int,
    dropout: float,
    training: bool,
    name: str,
    attention: dict[str, Any],
    is_joined: bool = False,
) -> LogicalRegion:
    h = ops.layer_norm(x, name=f"{name}.norm1")
    h = ops.multihead_attention(
        h,
        heads,
        None,
        True,
        training=training,
        name=f"{name}.attention",
        **attention,
    )
    x = ops.add(x, ops.dropout(h, dropout, training, name=f"{name}.drop1"), name=f"{name}.add1")
    h = ops.layer_norm(x, name=f"{name}.norm2")
    if is_joined:
        h = ops.feed_forward(h, 4 * x.shape[-1], name=name)
    else:
        h = ops.gelu(
            ops.linear(h, 4 * x.shape[-1], name=f"{name}.fc1"), "tanh", name=f"{name}.gelu"
        )
        h = ops.linear(h, x.shape[-1], name=f"{name}.fc2")
    return ops.add(x, ops.dropout(h, dropout, training, name=f"{name}.drop2"), name=f"{name}.add2")
