"""Graphs of Hugging Face's configurations: the published sizes, transformers' numbers, and what is refused."""

import json
import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
from ops.models.huggingface import build
from taskflow import Executor, Graph, MachineModel, lower
from taskflow.cli import main
from taskflow.strategy.rules import random_strategy

PUBLISHED = Path(__file__).parent / "configs"
PARAMETERS = {  # `params` of keras-team/keras-hub, keras_hub/src/models/*/*_presets.py, unless another source is named
    # bert_base_en_uncased has 109_482_240 with a pooler of 590_592, BertForMaskedLM a head of 622_650 instead.
    "bert-base-uncased": 109_514_298,
    "gpt2": 124_439_808,  # gpt2_base_en
    "llama-3-8b": 8_030_261_248,  # llama3_8b_en
    "mistral-7b": 7_241_732_096,  # mistral_7b_en
    "mixtral-8x7b": 46_702_792_704,  # mixtral_8_7b_en
    "qwen2-7b": 7_615_616_512,  # qwen2.5_math_7b_en, of the same configuration
    "t5-small": 60_506_624,  # t5_small
    "vit-base-patch16-224": 86_567_656,  # ViT_B_16_Weights in torchvision/models/vision_transformer.py
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_configurations_have_the_published_parameters(name: str) -> None:
    graph = build(PUBLISHED / f"{name}.json", batch=1, sequence=8, training=False)
    assert sum(prod(r.shape) for r in graph.parameters) == PARAMETERS[name]


SMALL = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2}
ROTARY = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 3.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0},
}
TINY: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 11,
        "n_positions": 9,
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    },
    "llama": {"model_type": "llama", **ROTARY, "attention_bias": True, "mlp_bias": True},
    **{
        f"llama {kind}": {
            "model_type": "llama",
            **ROTARY,
            "max_position_embeddings": 4,
            "rope_scaling": {"rope_type": kind, **keys},
        }
        for kind, keys in ROPES.items()
    },
    "mistral": {"model_type": "mistral", **ROTARY, "sliding_window": 3, "pad_token_id": 4},
    "qwen2": {
        "model_type": "qwen2",
        **ROTARY,
        "use_sliding_window": True,
        "sliding_window": 2,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", **ROTARY, "head_dim": 6},
    "mixtral": {"model_type": "mixtral", **ROTARY, "num_local_experts": 4},
    "bert": {
        "model_type": "bert",
        **SMALL,
        "num_attention_heads": 4,
        "max_position_embeddings": 9,
        **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
        "architectures": ["BertForPreTraining"],
    },
    **{
        f"t5 {kind}": {
            "model_type": "t5",
            "vocab_size": 11,
            "d_model": 8,
            "d_kv": 3,
            "d_ff": 6,
            "num_layers": 2,
            "num_heads": 2,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 5,
            "dropout_rate": 0.0,
            "feed_forward_proj": kind,
        }
        for kind in ("relu", "gated-gelu")
    },
    "vit": {
        "model_type": "vit",
        **SMALL,
        "num_attention_heads": 4,
        "image_size": 8,
        "patch_size": 4,
        "num_labels": 3,
    },
}
del TINY["vit"]["vocab_size"]


@pytest.mark.parametrize("name", TINY)
def test_outputs_and_gradients_are_those_of_transformers(name: str) -> None:
    """Of random weights, under a random strategy."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = peer(transformers, torch, TINY[name])
    graph = build(TINY[name], 2, 7, training=False, dtype="float64", capacity_factor=None)
    feeds = some_feeds(graph)
    loss, logits = peer_loss(torch, model, feeds)
    loss.backward()
    weights = {n: p.detach().numpy() for n, p in model.named_parameters()}
    slopes = {n: p.grad.numpy() for n, p in model.named_parameters()}
    renamed, expected = parts_of(weights), parts_of(slopes)
    region = graph.regions[SCORES.get(name.split()[0], "lm_head")]
    wanted = [graph.regions[n] for n in renamed]
    graph.output("logits", region)
    for r, slope in ops.gradients(graph.outputs["loss"], wanted).items():
        graph.output(f"slope of {r.name}", slope)
    machine = MachineModel.uniform(3)
    assert {r.name for r in graph.parameters} == renamed.keys()
    with Executor(lower(graph, random_strategy(graph, machine, 0), machine)) as step:
        for n, value in renamed.items():
            step.write(n, value)
        values = step(feeds)
    close(values["logits"], logits.detach().numpy())
    for n, slope in expected.items():
        close(values[f"slope of {n}"], slope)


SCORES = {"bert": "cls.predictions", "vit": "classifier"}


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(actual - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1.0)


def peer(transformers: Any, torch: Any, keys: dict[str, Any]) -> Any:
    """The model of transformers with random weights, in float64."""
    kept = {k: v for k, v in keys.items() if k not in ("model_type", "architectures")}
    config = transformers.AutoConfig.for_model(keys["model_type"], **kept)
    config._attn_implementation = config._experts_implementation = "eager"
    if keys["model_type"] == "bert":
        made = transformers.BertForPreTraining(config)
    elif keys["model_type"] == "vit":
        made = transformers.ViTForImageClassification(config)
    elif keys["model_type"] == "t5":
        made = transformers.T5ForConditionalGeneration(config)
    else:
        made = transformers.AutoModelForCausalLM.from_config(config)
    made, random = made.double().train(), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.from_numpy(0.5 * random.normal(size=parameter.shape)))
    return made


def some_feeds(graph: Graph) -> dict[str, np.ndarray]:
    random, high = np.random.default_rng(1), {"segments": 2, "t_next": 2}
    return {
        r.name: random.normal(size=r.shape)
        if r.dtype == "float64"
        else random.integers(0, high.get(r.name, 11 if r.ndim == 2 else 3), r.shape, r.dtype)
        for r in graph.inputs
    }


def peer_loss(torch: Any, model: Any, feeds: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Our loss of their scores: targets are not shifted."""
    given = {
        n: torch.from_numpy(v).long() if v.dtype == "int32" else torch.from_numpy(v)
        for n, v in feeds.items()
    }
    score = torch.nn.functional.cross_entropy
    if given["x"].ndim == 4:
        y = model(pixel_values=given["x"]).logits
        return score(y, given["t"]), y
    if "segments" in given:
        made = model(given["x"], token_type_ids=given["segments"])
        y = made.prediction_logits
        follows = score(made.seq_relationship_logits, given["t_next"])
        return score(y.flatten(0, 1), given["t"].flatten()) + follows, y
    more = {"decoder_input_ids": given["x_decoder"]} if "x_decoder" in given else {}
    y = model(given["x"], use_cache=False, **more).logits
    return score(y.flatten(0, 1), given["t"].flatten()), y


def parts_of(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of transformers' parameters under our names: what stands in the docstring of `huggingface`."""
    made = {}
    for name, value in arrays.items():
        place, _, kind = name.rpartition(".")
        if (
            name.startswith("transformer.")
            and kind == "weight"
            and value.ndim == 2
            and ".h." in name
        ):
            value = value.T
        if place.endswith("c_attn"):
            for part, piece in zip("qkv", np.split(value, 3), strict=True):
                made[f"{place.removesuffix('c_attn')}{part}.{kind}"] = piece
        elif kind == "gate_up_proj":
            up, factor = np.split(value, 2, axis=1)
            place = place.removesuffix(".experts")
            made |= {f"{place}.up.weight": up, f"{place}.factor.weight": factor}
        elif kind == "down_proj":
            made[f"{place.removesuffix('.experts')}.down.weight"] = value
        else:
            made[name] = value
    return made


BAD = {
    "Object contains unknown field `experts`": {"model_type": "llama", "experts": 8},
    "Invalid value 'gpt_neo' - at `$.model_type`": {"model_type": "gpt_neo"},
    "Invalid enum value 'swish2' - at `$.hidden_act`": {
        "model_type": "llama",
        "hidden_act": "swish2",
    },
    "is_decoder is True, a graph is made for False alone": {
        "model_type": "bert",
        "is_decoder": True,
    },
    "the architecture is GPT2Model, a graph is made of GPT2LMHeadModel": {
        "model_type": "gpt2",
        "architectures": ["GPT2Model"],
    },
    "Object missing required field `model_type`": {"n_embd": 4},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_unknown_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'config: {message}')}$"):
        build(BAD[message])


def test_longer_sequences_than_learned_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="sequences of 10 are longer than the 9 positions"):
        build(TINY["gpt2"], sequence=10)


def test_a_file_is_a_model_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch, and a plan for it is searched."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY["mixtral"]), encoding="utf-8")
    sizes = ["--arg", "batch=2", "--arg", "sequence=6", "--devices", "2"]
    assert main(["simulate", str(path), *sizes, "--arg", "dtype=mixed_bfloat16"]) == 0
    assert "exposed communication" in capsys.readouterr().out
    assert main(["search", str(path), *sizes, "--proposals", "5"]) == 0
    assert "data parallel" in capsys.readouterr().out
