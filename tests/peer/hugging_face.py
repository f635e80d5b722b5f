"""Causal models and encoders of Hugging Face from their configurations, one layer deep and with heads of any width."""

import torch
import transformers as hf

WORDS, STEPS = 19, 6
WIDTHS = (8, 32, 80, 128)


def gpt2(width):
    config = hf.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=2 * width, n_layer=1, n_head=2, use_cache=False
    )
    return hf.GPT2LMHeadModel(config)


def with_rotary(kind):
    def make(width):
        config = getattr(hf, f"{kind}Config")(
            vocab_size=WORDS,
            hidden_size=2 * width,
            intermediate_size=3 * width,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=16,
            head_dim=width,
            use_cache=False,
        )
        return getattr(hf, f"{kind}ForCausalLM")(config)

    return make


def bert(width):
    config = hf.BertConfig(
        vocab_size=WORDS,
        hidden_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=3 * width,
        max_position_embeddings=16,
    )
    return hf.BertModel(config, add_pooling_layer=False)


MODELS = {
    "GPT2": gpt2,
    "Llama": with_rotary("Llama"),
    "Mistral": with_rotary("Mistral"),
    "Qwen2": with_rotary("Qwen2"),
}
MODELS |= {"BERT": bert}


def made(name, width):
    """The module, without dropout, and its inputs: words, and for an encoder a mask, too."""
    torch.manual_seed(5)
    module, words = MODELS[name](width).eval(), torch.randint(0, WORDS, (2, STEPS))
    mask = torch.tensor([[1] * STEPS, [1] * (STEPS - 2) + [0] * 2])
    return module, {"input_ids": words, "attention_mask": mask} if name == "BERT" else {
        "input_ids": words
    }
