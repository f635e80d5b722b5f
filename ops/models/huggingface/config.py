"""What a `config.json` of Hugging Face says, as records: one a family, with the defaults of transformers 5.

Unknown keys are refused, since one of them may change the model. Keys that change nothing in a training step are left
out; of some keys one value alone is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"]

# Names, files, generation, heads of other tasks.
_NO_EFFECT = frozenset(
    re.findall(
        r"\w+",
        """
    _attn_implementation _name_or_path attn_implementation bos_token_id classifier_dropout
    decoder_start_token_id directionality dtype early_stopping encoder_stride eos_token_id finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing initializer_factor initializer_range
    label2id length_penalty max_length n_ctx no_repeat_ngram_size num_beams output_past
    pooler_act pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_output_size
    pooler_size_per_head pooler_type prefix problem_type router_aux_loss_coef summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
    tokenizer_class torch_dtype transformers_version use_cache
""",
    )
)
_ONLY: dict[str, tuple[object, ...]] = {
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "cross_attention_hidden_size": (None,),
    "is_decoder": (False,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "output_router_logits": (False,),
    "position_embedding_type": ("absolute",),
    "pretraining_tp": (1,),
    "pruned_heads": ({},),
    "reorder_and_upcast_attn": (False,),
    "router_jitter_noise": (0.0,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "tie_encoder_decoder": (False,),
    "use_bfloat16": (False,),
}


class Pretrained(msgspec.Struct, tag_field="model_type", forbid_unknown_fields=True, kw_only=True):
    """The key of all families; `CLASSES` are the architectures that are built, the first where none is named."""

    CLASSES: ClassVar[tuple[str, ...]] = ()
    architectures: list[str] | None = None
    pad_token_id: int | None = None  # of some families: a row of the embedding that is not trained


class Rope(msgspec.Struct, forbid_unknown_fields=True):
    """`rope_parameters`, or `rope_scaling` of transformers 4."""

    rope_type: Literal["default", "linear", "dynamic", "llama3", "yarn"] | None = None
    type: Literal["default", "linear", "dynamic", "llama3", "yarn"] | None = None
    rope_theta: float | None = None
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


class Gpt2(Pretrained, tag="gpt2"):
    """Radford et al. 2019."""

    CLASSES = ("GPT2LMHeadModel",)
    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: Activation = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True


class Rotary(Pretrained):
    """What decoders with rotary positions and gated layers share."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: Activation = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    rope_theta: float = 10000.0
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None

    @property
    def has_qkv_bias(self) -> bool:
        """Whether the projections to heads have one."""
        return False

    def window(self, layer: int) -> int | None:
        """So many keys up to its own a query of that layer sees; None: all."""
        return None


class Llama(Rotary, tag="llama"):
    """Touvron et al. 2023 (arXiv 2302.13971), and Llama 2 and 3."""

    CLASSES = ("LlamaForCausalLM",)
    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias


class Mistral(Rotary, tag="mistral"):
    """Jiang et al. 2023 (arXiv 2310.06825)."""

    CLASSES = ("MistralForCausalLM",)
    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    sliding_window: int | None = 4096

    def window(self, layer: int) -> int | None:
        return self.sliding_window


class Mixtral(Mistral, tag="mixtral"):
    """Jiang et al. 2024 (arXiv 2401.04088)."""

    CLASSES = ("MixtralForCausalLM",)
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    sliding_window: int | None = None
    num_local_experts: int = 8
    num_experts_per_tok: int = 2


class Qwen2(Rotary, tag="qwen2"):
    """Yang et al. 2024 (arXiv 2407.10671): the projections to heads have a bias."""

    CLASSES = ("Qwen2ForCausalLM",)
    vocab_size: int = 151936
    intermediate_size: int = 22016
    num_key_value_heads: int | None = 32
    max_position_embeddings: int = 32768
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None

    @property
    def has_qkv_bias(self) -> bool:
        return True

    def window(self, layer: int) -> int | None:
        if not self.use_sliding_window:
            return None
        types = self.layer_types
        is_full = types[layer] == "full_attention" if types else layer < self.max_window_layers
        return None if is_full else self.sliding_window


class Qwen3(Qwen2, tag="qwen3"):
    """Yang et al. 2025 (arXiv 2505.09388): queries and keys are normalized."""

    CLASSES = ("Qwen3ForCausalLM",)
    head_dim: int | None = 128
    attention_bias: bool = False

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias


class Bert(Pretrained, tag="bert"):
    """Devlin et al. 2019."""

    CLASSES = ("BertForMaskedLM", "BertForPreTraining")
    pad_token_id: int | None = 0
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    tie_word_embeddings: bool = True


class T5(Pretrained, tag="t5"):
    """Raffel et al., JMLR 21 (2020)."""

    CLASSES = ("T5ForConditionalGeneration",)
    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    n_positions: int = 512
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: Literal["relu", "gated-gelu"] = "relu"
    dense_act_fn: Literal["relu", "gelu_new"] | None = None
    is_gated_act: bool | None = None
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True


class ViT(Pretrained, tag="vit"):
    """Dosovitskiy et al., ICLR 2021."""

    CLASSES = ("ViTForImageClassification",)
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    qkv_bias: bool = True
    id2label: dict[str, str] | None = None
    num_labels: int | None = None


Config = Gpt2 | Llama | Mistral | Mixtral | Qwen2 | Qwen3 | Bert | T5 | ViT


def read_config(config: str | Path | Mapping[str, Any]) -> tuple[Config, str]:
    """The record of a file or of its keys, and the architecture that it names.

    Raises:
        ValueError: there is no such file, it is no JSON, its family or architecture is none of these, a key is
            unknown, or its value is none that is built.
    """
    where = "config" if isinstance(config, Mapping) else f"config '{config}'"
    try:
        keys = (
            config
            if isinstance(config, Mapping)
            else msgspec.json.decode(Path(config).read_bytes(), type=dict[str, Any])
        )
        for key, values in _ONLY.items():
            if key in keys and keys[key] not in values:
                raise ValueError(f"{key} is {keys[key]!r}, a graph is made for {values[0]!r} alone")
        kept = {key: keys[key] for key in keys if key not in _NO_EFFECT and key not in _ONLY}
        record = msgspec.convert(kept, Config, strict=True)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    name = (record.architectures or record.CLASSES)[0]
    if name not in record.CLASSES:
        raise ValueError(
            f"{where}: the architecture is {name}, a graph is made of {' or '.join(record.CLASSES)}"
        )
    return record, name
