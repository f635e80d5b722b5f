"""T5: an encoder and a decoder; the bias of the scores in self-attention is learned for the distance of two words."""

from __future__ import annotations

import ops
from ops.models.common import tokens
from ops.models.huggingface.config import T5
from ops.models.huggingface.layers import (
    Attention,
    gated,
    plain,
    relative_buckets,
    scores_of_words,
)
from ops.models.huggingface.sizes import StepSizes
from taskflow import Graph, LogicalRegion


def t5_scores(graph: Graph, config: T5, sizes: StepSizes) -> LogicalRegion:
    """Scores (batch, sequence, words) of the words that follow `x_decoder`, given the words `x`."""
    length = sizes.sequence
    width = config.d_model
    x, given = (tokens(graph, n, sizes.batch, length) for n in ("x", "x_decoder"))
    h = sizes.embed(ops.concat([x, given], 1, "words"), config.vocab_size, width, "shared")
    first, second = ops.split(h, length, 1, "embedded")
    memory = _stack(first, config, sizes, "encoder", config.num_layers)
    count = config.num_decoder_layers or config.num_layers
    h = _stack(second, config, sizes, "decoder", count, memory)
    if config.tie_word_embeddings:
        h = ops.multiply(h, width**-0.5, "decoder.scaled")
    return scores_of_words(h, config.vocab_size, "shared", config.tie_word_embeddings)


def _stack(
    h: LogicalRegion,
    config: T5,
    sizes: StepSizes,
    name: str,
    count: int,
    memory: LogicalRegion | None = None,
) -> LogicalRegion:
    """The layers of the encoder, or, with a `memory`, of the decoder."""
    heads, rate, is_causal = config.num_heads, config.dropout_rate, memory is not None
    attend = Attention(
        heads,
        heads,
        config.d_kv,
        ("q", "k", "v", "o"),
        bias=False,
        out_bias=False,
        dropout=rate * sizes.training,
        scale=1.0,
        fused=sizes.fused,
    )
    h, bias = sizes.dropout(h, rate), _bias(h, config, sizes, name, both_ways=not is_causal)

    def normed(part: str) -> LogicalRegion:
        return ops.rms_norm(h, config.layer_norm_epsilon, f"{part}.layer_norm")

    def added(y: LogicalRegion, part: str) -> LogicalRegion:
        return ops.add(h, sizes.dropout(y, rate), f"{part}.add")

    for k in range(count):
        first, cross, last = (f"{name}.block.{k}.layer.{n}" for n in (0, 1, 1 + is_causal))
        y = attend(normed(first), f"{first}.SelfAttention", is_causal=is_causal, mask=bias)
        h = added(y, first)
        if memory is not None:
            h = added(attend(normed(cross), f"{cross}.EncDecAttention", memory), cross)
        h = added(_between(normed(last), config, f"{last}.DenseReluDense"), last)
    h = ops.rms_norm(h, config.layer_norm_epsilon, f"{name}.final_layer_norm")
    return sizes.dropout(h, rate)


def _between(x: LogicalRegion, config: T5, name: str) -> LogicalRegion:
    if config.feed_forward_proj == "relu":
        return plain(x, config.d_ff, "relu", name, "wi wo", bias=False)
    return gated(x, config.d_ff, "gelu_new", name, "wi_0 wi_1 wo")


def _bias(
    h: LogicalRegion, config: T5, sizes: StepSizes, name: str, both_ways: bool
) -> LogicalRegion:
    """(heads, queries, keys), of the first layer and for all of them."""
    """(heads, queries, keys), of the first layer and for all of them."""
    count = config.relative_attention_num_buckets
    buckets = relative_buckets(
        h.graph,
        f"{name}.buckets",
        h.shape[1],
        h.shape[1],
        count,
        config.relative_attention_max_distance,
        both_ways,
    )
    place = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias"
    table = sizes.embed(buckets, count, config.num_heads, place)
    return ops.permute(table, (2, 0, 1), f"{name}.bias")
