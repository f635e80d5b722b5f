"""The models of `ops.models` as a user of torch writes them; submodules have the names of our operators.

Each `forward` takes the feeds of a step as tensors and gives the loss.
"""

from math import ceil

import torch
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.count = len(hidden)
        for k, (before, width) in enumerate(zip((inputs, *hidden), hidden)):
            for side in (0, 1):
                self.add_module(f"fc{k}_{side}", nn.Linear(before, width, bias=False))

    def forward(self, feeds):
        towers = []
        for side in (0, 1):
            x = feeds[f"x{side}"]
            for k in range(self.count):
                x = self.get_submodule(f"fc{k}_{side}")(x if k == 0 else F.relu(x))
            towers.append(x)
        return F.cross_entropy(towers[0] + towers[1], feeds["t"])


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (
            nn.Conv2d(1, 16, 3, padding=1),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
        )
        self.norm2, self.fc1, self.fc2 = nn.BatchNorm2d(32), nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, feeds):
        h = F.max_pool2d(F.relu(self.conv1(feeds["x"])), 2)
        h = F.max_pool2d(F.relu(self.norm2(self.conv2(h))), 2)
        return F.cross_entropy(self.fc2(F.relu(self.fc1(h.flatten(1)))), feeds["t"])


class LSTM(nn.Module):
    def __init__(self, hidden, layers, embed, vocabulary):
        super().__init__()
        self.embed, self.fc = nn.Embedding(vocabulary, embed), nn.Linear(hidden, vocabulary)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)

    def forward(self, feeds):
        return words_loss(self.fc(self.lstm(self.embed(feeds["x"]))[0]), feeds["t"])


def words_loss(y, t):
    return F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))


class GPTLayer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        h, mask = (
            self.norm1(x),
            nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype),
        )
        x = x + self.attention(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, sequence, layers, hidden, heads, vocabulary):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.layers, self.norm = layers, nn.LayerNorm(hidden)
        for k in range(layers):
            self.add_module(f"layer{k}", GPTLayer(hidden, heads))

    def forward(self, feeds):
        h = self.embed(feeds["x"]) + self.position.weight
        for k in range(self.layers):
            h = self.get_submodule(f"layer{k}")(h)
        return words_loss(self.norm(h) @ self.embed.weight.T, feeds["t"])


class DLRM(nn.Module):
    def __init__(self, tables, rows, bottom, top):
        super().__init__()
        self.tables, self.bottoms, self.tops = tables, len(bottom) - 1, len(top)
        for k in range(tables):
            self.add_module(f"table{k}", nn.EmbeddingBag(rows, bottom[-1], mode="sum"))
        for k in range(self.bottoms):
            self.add_module(f"bottom{k}", nn.Linear(bottom[k], bottom[k + 1]))
        widths = ((tables + 1) * bottom[-1], *top)
        for k in range(self.tops):
            self.add_module(f"top{k}", nn.Linear(widths[k], widths[k + 1]))

    def forward(self, feeds):
        x = feeds["dense"]
        for k in range(self.bottoms):
            x = F.relu(self.get_submodule(f"bottom{k}")(x))
        x = torch.cat(
            [
                x,
                *(self.get_submodule(f"table{k}")(feeds[f"sparse{k}"]) for k in range(self.tables)),
            ],
            1,
        )
        for k in range(self.tops):
            x = self.get_submodule(f"top{k}")(x if k == 0 else F.relu(x))
        return F.binary_cross_entropy_with_logits(x, feeds["t"])


# -- mixture of experts ------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """Token by token, as the papers say it; gives the result and the load-balance loss."""

    def __init__(self, hidden, experts, expert_hidden, choices, factor, groups):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.up, self.down = (
            stack(experts, hidden, expert_hidden),
            stack(experts, expert_hidden, hidden),
        )
        self.experts, self.choices, self.factor, self.groups = experts, choices, factor, groups

    def forward(self, x):
        p = F.softmax(self.gate(x), -1)
        weights, chosen = p.topk(self.choices)
        weights = weights / weights.sum(-1, keepdim=True)
        parts = zip(*(a.chunk(self.groups) for a in (x, weights, chosen)), strict=True)
        y = torch.cat([self.group(*(a.flatten(0, -2) for a in part)) for part in parts]).reshape(
            x.shape
        )
        load = F.one_hot(chosen, self.experts).flatten(0, -2).to(x.dtype).mean(0)
        return y, self.experts * (load * p.flatten(0, -2).mean(0)).sum()

    def group(self, x, weights, chosen):
        capacity = ceil(self.factor * self.choices * len(x) / self.experts)
        y, used = torch.zeros_like(x), [0] * self.experts
        for j in range(self.choices):
            for token in range(len(x)):
                e = int(chosen[token, j])
                used[e] += 1
                if used[e] <= capacity:
                    h = F.gelu(self.up.weight[e] @ x[token] + self.up.bias[e])
                    made = weights[token, j] * (self.down.weight[e] @ h + self.down.bias[e])
                    y = y.index_add(0, torch.tensor([token]), made[None])
        return y


def stack(experts, inputs, outputs):
    """The weights of a linear layer for every expert."""
    layers = [nn.Linear(inputs, outputs) for _ in range(experts)]
    both = nn.Module()
    both.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
    both.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))
    return both


class RotaryAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            m(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def turned(x):
    half = x.shape[-1] // 2
    angle = torch.outer(
        torch.arange(x.shape[-2], dtype=x.dtype),
        10000.0 ** (-torch.arange(half, dtype=x.dtype) / half),
    )
    first, second = x.split(half, -1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


class MoE(nn.Module):
    def __init__(
        self, layers, hidden, heads, vocabulary, experts, choices=2, capacity_factor=1.25, groups=1
    ):
        super().__init__()
        self.embed, self.norm, self.layers = (
            nn.Embedding(vocabulary, hidden),
            nn.LayerNorm(hidden),
            layers,
        )
        for k in range(layers):
            self.add_module(f"norm{k}a", nn.LayerNorm(hidden))
            self.add_module(f"attention{k}", RotaryAttention(hidden, heads))
            self.add_module(f"norm{k}b", nn.LayerNorm(hidden))
            self.add_module(
                f"experts{k}",
                Experts(hidden, experts, 2 * hidden, choices, capacity_factor, groups),
            )

    def forward(self, feeds):
        h, balances = self.embed(feeds["x"]), []
        for k in range(self.layers):
            part = self.get_submodule
            h = h + part(f"attention{k}")(part(f"norm{k}a")(h))
            y, balance = part(f"experts{k}")(part(f"norm{k}b")(h))
            h, balances = h + y, [*balances, balance]
        return words_loss(self.norm(h) @ self.embed.weight.T, feeds["t"]) + 0.01 * sum(balances)
