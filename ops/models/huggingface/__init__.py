"""Graphs of a `config.json` of Hugging Face, without weights and without torch.

GPT-2, Llama, Mistral, Mixtral, Qwen 2 and 3, BERT, T5 and ViT, with the numbers of transformers 5. Parameters have the
names and shapes of its modules, so that its weights go to `Executor.write` as they are; but GPT-2's `c_attn` is three
(`q`, `k`, `v`) and its weights are (out, in), and of Mixtral's experts `gate_up_proj` is `up` and `factor`. First
values are those of ops' layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ops
from ops.models.common import finish, of_parameters, predict_words, tokens
from ops.models.huggingface.bert import bert_features, masked_words, next_sentence
from ops.models.huggingface.causal import gpt2_scores, rotary_scores
from ops.models.huggingface.config import T5, Bert, Gpt2, ViT, read_config
from ops.models.huggingface.sizes import StepSizes
from ops.models.huggingface.t5 import t5_scores
from ops.models.huggingface.vit import vit_scores
from taskflow import Graph

IGNORED = -100  # the target of words that are not predicted, as in transformers


def build(
    config: str | Path | Mapping[str, Any],
    batch: int = 8,
    sequence: int = 1024,
    lr: float = 6e-4,
    training: bool = True,
    dtype: str = "float32",
    fused: bool = True,
    capacity_factor: float | None = 1.25,
    groups: int | None = None,
) -> Graph:
    """The graph of a training step with AdamW, or of the loss.

    Inputs are words `x` and the words `t` that are predicted, (batch, sequence) each; of BERT also `segments`, and `t`
    is -100 where no word is masked, and `t_next` (batch,) where the architecture is BertForPreTraining; of T5 also
    `x_decoder`; of ViT images `x` (batch, channels, height, width) and classes `t` (batch,).

    Args:
        config: the file, or its keys.
        batch, sequence: extents of the inputs; images have no sequence.
        lr: of AdamW.
        training: whether backward and update are part of it, and dropout takes place.
        dtype: of the parameters, or "mixed_bfloat16": float32 parameters, and a precision (`taskflow.precision`).
        fused: whether attention is one operator where it has neither mask nor dropout.
        capacity_factor: of Mixtral's experts; None: room for all, as in transformers, which drops nothing.
        groups: of sequences, each with a capacity of its own at every expert, so that sequences may lie on several
            devices and expert parallelism is an all-to-all; None: one for each sequence.

    Raises:
        ValueError: `read_config`'s; or sequences are longer than the learned positions.
    """
    record, name = read_config(config)
    graph = Graph()
    whole = of_parameters(dtype)
    sizes = StepSizes(batch, sequence, training, whole, fused, capacity_factor, groups or batch)
    options: dict[str, Any] = {"optimizer": ops.adamw, "lr": lr, "betas": (0.9, 0.95)}
    options |= {"weight_decay": 0.1, "dtype": dtype}
    if isinstance(record, ViT):
        y = vit_scores(graph, record, sizes)
        t = graph.input("t", (batch,), "int32")
        return finish(graph, ops.softmax_cross_entropy(y, t, name="loss"), training, **options)
    if isinstance(record, Bert):
        return _pretrain(graph, record, sizes, name == "BertForPreTraining", options)
    if isinstance(record, T5):
        y = t5_scores(graph, record, sizes)
    elif isinstance(record, Gpt2):
        y = gpt2_scores(graph, record, sizes)
    else:
        y = rotary_scores(graph, record, sizes)
    return predict_words(graph, y, tokens(graph, "t", batch, sequence), training, **options)


def _pretrain(
    graph: Graph, config: Bert, sizes: StepSizes, both: bool, options: Mapping[str, Any]
) -> Graph:
    """Masked words, and whether sentences follow each other."""
    h = bert_features(graph, config, sizes)
    t = tokens(graph, "t", sizes.batch, sizes.sequence)
    loss = ops.cross_entropy(
        masked_words(h, config),
        t,
        IGNORED,
        name="loss_words" if both else "loss",
    )
    if both:
        t = graph.input("t_next", (sizes.batch,), "int32")
        follows = ops.softmax_cross_entropy(next_sentence(h, config), t, name="loss_next")
        loss = ops.add(loss, follows, "loss")
    return finish(graph, loss, sizes.training, **options)
