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
    x, segments = (tokens(graph, name, sizes.batch, sizes.sequence) for name in ("x", "segments"))
    h = sizes.dropout(_embedded(x, segments, config, sizes), config.hidden_dropout_prob)
    attend = Attention(
        config.num_attention_heads,
        config.num_attention_heads,
        config.hidden_size // config.num_attention_heads,
        ("self.query", "self.key", "self.value", "output.dense"),
        dropout=config.attention_probs_dropout_prob * sizes.training,
        fused=sizes.fused,
    )
    for k in range(config.num_hidden_layers):
        h = _layer(h, attend, config, sizes, f"bert.encoder.layer.{k}")
    return h


def _embedded(
    x: LogicalRegion, segments: LogicalRegion, config: Bert, sizes: StepSizes
) -> LogicalRegion:
    """The sum of what is learned of words, of positions and of sentences."""
    place = "bert.embeddings"
    width = config.hidden_size
    h = sizes.embed(x, config.vocab_size, width, _TABLE, config.pad_token_id)
    h = add_positions(h, f"{place}.position_embeddings", config.max_position_embeddings)
    name = f"{place}.token_type_embeddings"
    kind = sizes.embed(segments, config.type_vocab_size, width, name)
    h = ops.add(h, kind, f"{place}.sum")
    return ops.layer_norm(h, config.layer_norm_eps, f"{place}.LayerNorm")


def _layer(
    h: LogicalRegion, attend: Attention, config: Bert, sizes: StepSizes, name: str
) -> LogicalRegion:
    y = sizes.dropout(attend(h, f"{name}.attention"), config.hidden_dropout_prob)
    y = ops.add(h, y, f"{name}.attended")
    h = ops.layer_norm(y, config.layer_norm_eps, f"{name}.attention.output.LayerNorm")
    names = "intermediate.dense output.dense"
    y = plain(h, config.intermediate_size, config.hidden_act, name, names)
    y = ops.add(h, sizes.dropout(y, config.hidden_dropout_prob), f"{name}.out")
    return ops.layer_norm(y, config.layer_norm_eps, f"{name}.output.LayerNorm")


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
