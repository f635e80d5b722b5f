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
    first, second = _embedded(graph, config, sizes)
    memory = _stack(first, config, sizes, "encoder", config.num_layers)
    layers = config.num_decoder_layers or config.num_layers
    h = _stack(second, config, sizes, "decoder", layers, memory)
    if config.tie_word_embeddings:
        h = ops.multiply(h, config.d_model**-0.5, "decoder.scaled")
    return scores_of_words(h, config.vocab_size, "shared", config.tie_word_embeddings)


def _embedded(graph: Graph, config: T5, sizes: StepSizes) -> tuple[LogicalRegion, ...]:
    """The words of the encoder and those of the decoder, by one table."""
    words = [tokens(graph, name, sizes.batch, sizes.sequence) for name in ("x", "x_decoder")]
    h = ops.concat(words, 1, "words")
    h = sizes.embed(h, config.vocab_size, config.d_model, "shared")
    return ops.split(h, sizes.sequence, 1, "embedded")


def _stack(
    h: LogicalRegion,
    config: T5,
    sizes: StepSizes,
    name: str,
    count: int,
    memory: LogicalRegion | None = None,
) -> LogicalRegion:
    """The layers of the encoder, or, with a `memory`, of the decoder."""
    attend = Attention(
        config.num_heads,
        config.num_heads,
        config.d_kv,
        ("q", "k", "v", "o"),
        bias=False,
        out_bias=False,
        dropout=config.dropout_rate * sizes.training,
        scale=1.0,
        fused=sizes.fused,
    )
    h = sizes.dropout(h, config.dropout_rate)
    bias = _bias(h, config, sizes, name, both_ways=memory is None)
    for k in range(count):
        h = _block(h, config, sizes, f"{name}.block.{k}", attend, bias, memory)
    h = ops.rms_norm(h, config.layer_norm_epsilon, f"{name}.final_layer_norm")
    return sizes.dropout(h, config.dropout_rate)


def _block(
    h: LogicalRegion,
    config: T5,
    sizes: StepSizes,
    name: str,
    attend: Attention,
    bias: LogicalRegion,
    memory: LogicalRegion | None,
) -> LogicalRegion:
    """Each of its layers is added to what it reads."""
    part = f"{name}.layer.0"
    y = _normed(h, config, f"{part}.layer_norm")
    y = attend(y, f"{part}.SelfAttention", is_causal=memory is not None, mask=bias)
    h = ops.add(h, sizes.dropout(y, config.dropout_rate), f"{part}.add")
    part = f"{name}.layer.1"
    if memory is not None:
        y = attend(_normed(h, config, f"{part}.layer_norm"), f"{part}.EncDecAttention", memory)
        h = ops.add(h, sizes.dropout(y, config.dropout_rate), f"{part}.add")
        part = f"{name}.layer.2"
    y = _between(_normed(h, config, f"{part}.layer_norm"), config, f"{part}.DenseReluDense")
    return ops.add(h, sizes.dropout(y, config.dropout_rate), f"{part}.add")


def _normed(h: LogicalRegion, config: T5, name: str) -> LogicalRegion:
    return ops.rms_norm(h, config.layer_norm_epsilon, name)


def _between(x: LogicalRegion, config: T5, name: str) -> LogicalRegion:
    if config.feed_forward_proj == "relu":
        return plain(x, config.d_ff, "relu", name, "wi wo", bias=False)
    return gated(x, config.d_ff, "gelu_new", name, "wi_0 wi_1 wo")


def _bias(
    h: LogicalRegion, config: T5, sizes: StepSizes, name: str, both_ways: bool
) -> LogicalRegion:
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
