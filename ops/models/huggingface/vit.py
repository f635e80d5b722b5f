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
    eps = config.layer_norm_eps
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
        name = f"vit.layers.{k}"
        y = attend(ops.layer_norm(h, eps, f"{name}.layernorm_before"), f"{name}.attention")
        y = sizes.dropout(y, config.hidden_dropout_prob)
        h = ops.add(h, y, f"{name}.attended")
        y = ops.layer_norm(h, eps, f"{name}.layernorm_after")
        y = plain(y, config.intermediate_size, config.hidden_act, f"{name}.mlp", "fc1 fc2")
        h = ops.add(h, sizes.dropout(y, config.hidden_dropout_prob), f"{name}.out")
    h = ops.layer_norm(h, eps, "vit.layernorm")
    first = ops.flatten(ops.slice(h, 1, 0, 1, name="vit.first"), name="vit.first.flat")
    classes = config.num_labels or len(config.id2label or "01")
    return ops.linear(first, classes, name="classifier")


def _words(x: LogicalRegion, config: ViT) -> LogicalRegion:
    """(batch, 1 + patches, hidden): the class, then the patches, and their positions."""
    graph = x.graph
    name = "vit.embeddings"
    size = config.patch_size
    batch = x.shape[0]
    hidden = config.hidden_size
    h = ops.conv2d(x, hidden, size, stride=size, name=f"{name}.patch_embeddings.projection")
    h = ops.permute(ops.flatten(h, 2, name=f"{name}.flat"), (0, 2, 1), f"{name}.patches")
    token = graph.parameter(f"{name}.cls_token", (1, 1, hidden), ops.normal(0.0, 0.02), x.dtype)
    tokens = ops.expand(token, (batch, 1, hidden), f"{name}.classes")
    h = ops.concat([tokens, h], 1, f"{name}.words")
    shape, init = (1, *h.shape[1:]), ops.normal(0.0, 0.02)
    places = graph.parameter(f"{name}.position_embeddings", shape, init, x.dtype)
    return ops.add(h, places, f"{name}.placed")
