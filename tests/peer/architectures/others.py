"""Architectures of tables, graphs and fields, and those of `transformers` from configurations, with random weights."""

import torch
from torch import nn
from torch.nn import functional as F


class DLRM(nn.Module):
    """Bags of embeddings, products of all pairs, two perceptrons."""

    def __init__(self, tables=3, width=4):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(7, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(5, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, x, indices):
        rows = [self.bottom(x), *[bag(indices[:, k]) for k, bag in enumerate(self.bags)]]
        t = torch.stack(rows, dim=1)
        z = torch.bmm(t, t.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, offset=-1)
        return self.top(torch.cat([rows[0], z[:, i, j]], dim=1))


class GraphAttention(nn.Module):
    """GAT on a dense graph that is a buffer."""

    def __init__(self, nodes=5, width=4):
        super().__init__()
        self.fc, self.left, self.right = (
            nn.Linear(3, width),
            nn.Linear(width, 1),
            nn.Linear(width, 1),
        )
        torch.manual_seed(4)
        self.register_buffer(
            "edges", (torch.rand(nodes, nodes) > 0.5) | torch.eye(nodes, dtype=torch.bool)
        )

    def forward(self, x):
        h = self.fc(x)
        scores = F.leaky_relu(self.left(h) + self.right(h).mT, 0.2)
        return F.elu(torch.softmax(scores.masked_fill(~self.edges, float("-inf")), -1) @ h)


class Field(nn.Module):
    """NeRF's: waves of the coordinates, a skip, softplus for density; and SIREN's layer."""

    def __init__(self, width=8):
        super().__init__()
        self.a, self.b = nn.Linear(15, width), nn.Linear(width + 15, width)
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)
        self.register_buffer("rates", 2.0 ** torch.arange(2))

    def forward(self, x):
        at = (x[..., None] * self.rates).flatten(-2)
        waves = torch.cat([x, at.sin(), at.cos()], -1)
        h = torch.sin(3 * self.a(waves))
        h = F.selu(self.b(torch.cat([h, waves], -1)))
        return F.softplus(self.density(h)).squeeze(-1), torch.sigmoid(self.colour(h))


class EarlyExit(nn.Module):
    """As many layers as it takes."""

    def __init__(self, enough=0.1):
        super().__init__()
        self.layers, self.enough = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), enough

    def forward(self, x):
        h = x
        for layer in self.layers:
            h = torch.tanh(layer(h))
            if h.abs().max() < self.enough:
                break
        return h


class AdaptiveSteps(nn.Module):
    """A fixed point, as deep equilibrium models look for it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h, error = x, 1.0
        while error > 1e-3:
            new = 0.1 * torch.tanh(self.fc(h)) + x
            h, error = new, (new - h).abs().max()
        return h


class BilinearForm(nn.Module):
    """A layer that there is no operator for."""

    def __init__(self):
        super().__init__()
        self.form = nn.Bilinear(4, 4, 2)

    def forward(self, x):
        return self.form(x, x)


class OfTransformers(nn.Module):
    """A model of `transformers` that takes tensors and gives tensors."""

    def __init__(self, model, *names, **options):
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)), **self.options, return_dict=False)
        return tuple(o for o in out if isinstance(o, torch.Tensor))


SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}


def bert():
    from transformers import BertConfig, BertForMaskedLM

    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=13, max_position_embeddings=8, **SMALL, **no_dropout)
    return OfTransformers(BertForMaskedLM(config), "input_ids", "attention_mask")


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=8, patch_size=4, num_labels=3, **SMALL)
    return OfTransformers(ViTForImageClassification(config), "pixel_values")


def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 6], depths=[1, 2], layer_type="basic", num_labels=3
    )
    return OfTransformers(ResNetForImageClassification(config), "pixel_values")


def efficientnet():
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=16,
        width_coefficient=0.05,
        depth_coefficient=0.5,
        hidden_dim=64,
        dropout_rate=0.0,
        drop_connect_rate=0.0,
        kernel_sizes=[3, 5],
        in_channels=[16, 8],
        out_channels=[8, 12],
        depthwise_padding=[],
        strides=[1, 2],
        num_block_repeats=[1, 2],
        expand_ratios=[1, 2],
        initializer_range=0.3,
        num_labels=3,
    )
    return OfTransformers(EfficientNetForImageClassification(config), "pixel_values")


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 12,
        "num_layers": 2,
        "num_heads": 2,
        "relative_attention_num_buckets": 6,
    }
    config = T5Config(vocab_size=13, dropout_rate=0.0, feed_forward_proj="gated-gelu", **sizes)
    return OfTransformers(
        T5ForConditionalGeneration(config), "input_ids", "decoder_input_ids", use_cache=False
    )


def swin():
    from transformers import SwinConfig, SwinForImageClassification

    sizes = {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 4,
        "depths": [2, 2],
        "num_heads": [1, 2],
        "window_size": 2,
    }
    config = SwinConfig(drop_path_rate=0.0, num_labels=3, **sizes)
    return OfTransformers(SwinForImageClassification(config), "pixel_values")


def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=13, hidden_size=8, state_size=4, num_hidden_layers=1, use_mambapy=False
    )
    return OfTransformers(MambaForCausalLM(config), "input_ids", use_cache=False)
