"""BERT with one or both heads of its pre-training. All sequences are whole: there is no padding mask."""

from __future__ import annotations

import ops
from ops.models.common import tokens
from ops.models.huggingface.config import Bert
from ops.models.huggingface.layers import (
    ACTIVATIONS,
    Attention,
    add_positions,
    plain,
    scores_of_words,
)
from ops.models.huggingface.sizes import StepSizes
from taskflow import Graph, LogicalRegion

_TABLE = "bert.embeddings.word_embeddings"


def bert_features(graph: Graph, config: Bert, sizes: StepSizes) -> LogicalRegion:
    """Features (batch, sequence, hidden) of the words `x`, of sentences `segments`."""
    hidden = config.hidden_size
    eps = config.layer_norm_eps
    dropout = sizes.dropout
    x, segments = (tokens(graph, n, sizes.batch, sizes.sequence) for n in ("x", "segments"))
    place = "bert.embeddings"
    h = sizes.embed(x, config.vocab_size, hidden, _TABLE, config.pad_token_id)
    h = add_positions(h, f"{place}.position_embeddings", config.max_position_embeddings)
    name = f"{place}.token_type_embeddings"
    kinds = config.type_vocab_size
    kind = sizes.embed(segments, kinds, hidden, name)
    h = ops.layer_norm(ops.add(h, kind, f"{place}.sum"), eps, f"{place}.LayerNorm")
    h = dropout(h, config.hidden_dropout_prob)
    attend = Attention(
        config.num_attention_heads,
        config.num_attention_heads,
        hidden // config.num_attention_heads,
        ("self.query", "self.key", "self.value", "output.dense"),
        dropout=config.attention_probs_dropout_prob * sizes.training,
        fused=sizes.fused,
    )
    for k in range(config.num_hidden_layers):
        name = f"bert.encoder.layer.{k}"
        y = dropout(attend(h, f"{name}.attention"), config.hidden_dropout_prob)
        y = ops.add(h, y, f"{name}.attended")
        h = ops.layer_norm(y, eps, f"{name}.attention.output.LayerNorm")
        inner = config.intermediate_size
        names = "intermediate.dense output.dense"
        y = dropout(plain(h, inner, config.hidden_act, name, names), config.hidden_dropout_prob)
        h = ops.layer_norm(ops.add(h, y, f"{name}.out"), eps, f"{name}.output.LayerNorm")
    return h


def masked_words(h: LogicalRegion, config: Bert) -> LogicalRegion:
    """Scores of all words at every position."""
    place = "cls.predictions.transform"
    h = ops.linear(h, config.hidden_size, name=f"{place}.dense")
    h = ACTIVATIONS[config.hidden_act](h, name=f"{place}.act")
    h = ops.layer_norm(h, config.layer_norm_eps, f"{place}.LayerNorm")
    name = "cls.predictions.decoder"
    words = config.vocab_size
    y = scores_of_words(h, words, _TABLE, config.tie_word_embeddings, name=name)
    bias = h.graph.parameter("cls.predictions.bias", (words,), 0.0, y.dtype)
    return ops.add(y, bias, "cls.predictions")


def next_sentence(h: LogicalRegion, config: Bert) -> LogicalRegion:
    """Scores (batch, 2) of whether the second sentence follows the first."""
    first = ops.flatten(ops.slice(h, 1, 0, 1, name="bert.first"), name="bert.first.flat")
    pooled = ops.linear(first, config.hidden_size, name="bert.pooler.dense")
    return ops.linear(ops.tanh(pooled, name="bert.pooler.tanh"), 2, name="cls.seq_relationship")
