"""GPT-2, and the decoders with rotary positions: Llama, Mistral, Mixtral, Qwen 2 and 3."""

from __future__ import annotations

import ops
from ops.models.common import tokens
from ops.models.huggingface.config import Gpt2, Llama, Mixtral, Qwen3, Rotary
from ops.models.huggingface.layers import (
    ACTIVATIONS,
    Attention,
    Turn,
    add_positions,
    gated,
    plain,
    scores_of_words,
    within_window,
)
from ops.models.huggingface.rope import rotary_of
from ops.models.huggingface.sizes import StepSizes
from taskflow import Graph, LogicalRegion


def gpt2_scores(graph: Graph, config: Gpt2, sizes: StepSizes) -> LogicalRegion:
    """Scores (batch, sequence, words) of the words `x`."""
    x = tokens(graph, "x", sizes.batch, sizes.sequence)
    table = "transformer.wte"
    h = sizes.embed(x, config.vocab_size, config.n_embd, table)
    h = add_positions(h, "transformer.wpe", config.n_positions)
    h = sizes.dropout(h, config.embd_pdrop)
    attend = Attention(
        config.n_head,
        config.n_head,
        config.n_embd // config.n_head,
        ("q", "k", "v", "c_proj"),
        dropout=config.attn_pdrop * sizes.training,
        fused=sizes.fused,
    )
    for k in range(config.n_layer):
        h = _gpt2_layer(h, attend, config, sizes, f"transformer.h.{k}")
    h = ops.layer_norm(h, config.layer_norm_epsilon, "transformer.ln_f")
    return scores_of_words(h, config.vocab_size, table, config.tie_word_embeddings)


def _gpt2_layer(
    h: LogicalRegion, attend: Attention, config: Gpt2, sizes: StepSizes, name: str
) -> LogicalRegion:
    y = ops.layer_norm(h, config.layer_norm_epsilon, f"{name}.ln_1")
    y = attend(y, f"{name}.attn", is_causal=True)
    h = ops.add(h, sizes.dropout(y, config.resid_pdrop), f"{name}.add_1")
    y = ops.layer_norm(h, config.layer_norm_epsilon, f"{name}.ln_2")
    inner = config.n_inner or 4 * config.n_embd
    y = plain(y, inner, config.activation_function, f"{name}.mlp", "c_fc c_proj")
    return ops.add(h, sizes.dropout(y, config.resid_pdrop), f"{name}.add_2")


def rotary_scores(graph: Graph, config: Rotary, sizes: StepSizes) -> LogicalRegion:
    """Scores (batch, sequence, words) of the words `x`."""
    h = tokens(graph, "x", sizes.batch, sizes.sequence)
    table = "model.embed_tokens"
    h = sizes.embed(h, config.vocab_size, config.hidden_size, table, config.pad_token_id)
    attend = _attention(config, sizes)
    masks = dict[int, LogicalRegion]()
    for k in range(config.num_hidden_layers):
        window = config.window(k) or sizes.sequence
        if window < sizes.sequence and window not in masks:
            masks[window] = within_window(graph, sizes.sequence, window)
        h = _rotary_layer(h, attend, masks.get(window), config, sizes, f"model.layers.{k}")
    h = ops.rms_norm(h, config.rms_norm_eps, "model.norm")
    return scores_of_words(h, config.vocab_size, table, config.tie_word_embeddings)


def _rotary_layer(
    h: LogicalRegion,
    attend: Attention,
    mask: LogicalRegion | None,
    config: Rotary,
    sizes: StepSizes,
    name: str,
) -> LogicalRegion:
    y = ops.rms_norm(h, config.rms_norm_eps, f"{name}.input_layernorm")
    y = attend(y, f"{name}.self_attn", is_causal=True, mask=mask)
    h = ops.add(h, y, f"{name}.attended")
    y = ops.rms_norm(h, config.rms_norm_eps, f"{name}.post_attention_layernorm")
    return ops.add(h, _between(y, config, sizes, f"{name}.mlp"), f"{name}.out")


def _attention(config: Rotary, sizes: StepSizes) -> Attention:
    heads = config.num_attention_heads
    features = config.head_dim or config.hidden_size // heads
    return Attention(
        heads,
        config.num_key_value_heads or heads,
        features,
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        config.has_qkv_bias,
        isinstance(config, Llama | Qwen3) and config.attention_bias,
        config.attention_dropout * sizes.training,
        fused=sizes.fused,
        turn=_turn(config, features, sizes.sequence),
    )


def _turn(config: Rotary, features: int, sequence: int) -> Turn:
    base, scaling = rotary_of(config, features, sequence)

    def turn(heads: LogicalRegion, name: str) -> LogicalRegion:
        if isinstance(config, Qwen3):
            heads = ops.rms_norm(heads, config.rms_norm_eps, f"{name}_norm")
        return ops.rotary_embedding(heads, base, name=f"{name}.turned", scaling=scaling)

    return turn


def _between(x: LogicalRegion, config: Rotary, sizes: StepSizes, name: str) -> LogicalRegion:
    if not isinstance(config, Mixtral):
        bias = isinstance(config, Llama) and config.mlp_bias
        names = "gate_proj up_proj down_proj"
        return gated(x, config.intermediate_size, config.hidden_act, name, names, bias)
    y, balance = ops.mixture_of_experts(
        x,
        config.num_local_experts,
        config.intermediate_size,
        config.num_experts_per_tok,
        sizes.capacity_factor,
        sizes.groups,
        bias=False,
        activation=ACTIVATIONS[config.hidden_act],
        name=name,
        gated=True,
    )
    x.graph.output(f"{name}.balance", balance)
    return y
