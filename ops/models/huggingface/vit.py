"""The Vision Transformer as a classifier: patches of an image as words, and one more word that stands for the class."""

from __future__ import annotations

import ops
from ops.models.huggingface.config import ViT
from ops.models.huggingface.layers import Attention, plain
from ops.models.huggingface.sizes import StepSizes
from taskflow import Graph, LogicalRegion


def vit_scores(graph: Graph, config: ViT, sizes: StepSizes) -> LogicalRegion:
    """Scores (batch, classes) of the images `x` (batch, channels, height, width)."""
    shape = (sizes.batch, config.num_channels, config.image_size, config.image_size)
    x = graph.input("x", shape, sizes.dtype)
    h = sizes.dropout(_words(x, config), config.hidden_dropout_prob)
    attend = Attention(
        config.num_attention_heads,
        config.num_attention_heads,
        config.hidden_size // config.num_attention_heads,
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        config.qkv_bias,
        dropout=config.attention_probs_dropout_prob * sizes.training,
        fused=sizes.fused,
    )
    for k in range(config.num_hidden_layers):
        h = _layer(h, attend, config, sizes, f"vit.layers.{k}")
    h = ops.layer_norm(h, config.layer_norm_eps, "vit.layernorm")
    first = ops.flatten(ops.slice(h, 1, 0, 1, name="vit.first"), name="vit.first.flat")
    return ops.linear(first, config.num_labels or len(config.id2label or "01"), name="classifier")


def _layer(
    h: LogicalRegion, attend: Attention, config: ViT, sizes: StepSizes, name: str
) -> LogicalRegion:
    y = ops.layer_norm(h, config.layer_norm_eps, f"{name}.layernorm_before")
    y = sizes.dropout(attend(y, f"{name}.attention"), config.hidden_dropout_prob)
    h = ops.add(h, y, f"{name}.attended")
    y = ops.layer_norm(h, config.layer_norm_eps, f"{name}.layernorm_after")
    y = plain(y, config.intermediate_size, config.hidden_act, f"{name}.mlp", "fc1 fc2")
    return ops.add(h, sizes.dropout(y, config.hidden_dropout_prob), f"{name}.out")


def _words(x: LogicalRegion, config: ViT) -> LogicalRegion:
    """(batch, 1 + patches, hidden): the class, then the patches, and their positions."""
    name = "vit.embeddings"
    init = ops.normal(0.0, 0.02)
    h = ops.conv2d(
        x,
        config.hidden_size,
        config.patch_size,
        stride=config.patch_size,
        name=f"{name}.patch_embeddings.projection",
    )
    h = ops.permute(ops.flatten(h, 2, name=f"{name}.flat"), (0, 2, 1), f"{name}.patches")
    token = x.graph.parameter(f"{name}.cls_token", (1, 1, h.shape[2]), init, x.dtype)
    tokens = ops.expand(token, (x.shape[0], 1, h.shape[2]), f"{name}.classes")
    h = ops.concat([tokens, h], 1, f"{name}.words")
    places = (1, *h.shape[1:])
    table = x.graph.parameter(f"{name}.position_embeddings", places, init, x.dtype)
    return ops.add(h, table, f"{name}.placed")
