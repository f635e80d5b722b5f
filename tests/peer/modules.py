"""Modules of torch for `test_from_torch`, a function of which not every node has an operator, and what is refused."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Network(nn.Module):
    """Forward is a function of the module and its inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.scale, self.head = nn.Parameter(torch.rand(4, 1, 1)), nn.Linear(36, 5)

    def forward(self, x):
        h = self.body(x) * self.scale + 1
        return self.head(h.view(h.size(0), -1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        h = self.embed(x)
        h = h + self.attention(h, h, h, need_weights=False)[0]
        return F.linear(h + self.mlp(self.norm(h)), self.embed.weight)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (
            part.reshape(b, s, 2, d // 2).transpose(1, 2) for part in self._parts(self.qkv(x), d)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.permute(0, 2, 1, 3).reshape(b, s, d))

    def _parts(self, x, d):
        return x[:, :, :d], x[:, :, d : 2 * d], x[:, :, 2 * d :]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(3, 4, num_layers=2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        y, _ = self.lstm(x)
        return torch.softmax(self.fc(torch.tanh(y)).mean(1), dim=-1)


class Arithmetic(nn.Module):
    def forward(self, x, y):
        a = torch.cat([x, 2 - y, x / y], dim=1).unsqueeze(1).squeeze(1)
        return (
            (a**2).sum(-1, keepdim=True) - torch.exp(-a).mean() + 1 / torch.sqrt(torch.abs(a) + 0.5)
        )


MODULES = {
    "convolutions": (ConvNet, [(3, 1, 6, 6)]),
    "transformer": (Transformer, [11]),
    "attention": (Attention, [(2, 5, 8)]),
    "recurrent": (Recurrent, [(2, 5, 3)]),
    "arithmetic": (Arithmetic, [(3, 2), (3, 2)]),
}


def unknown(self, x):
    x = torch.relu(x)
    x = torch.cummax(x, 0)[0]  # first
    return self.part(x, x).erfinv()  # next


REFUSED = [
    (
        lambda: Network(lambda self, x: x.pow(2).cumprod(0)),
        "there is no operator for call_function 'cumprod.default'",
    ),
    (
        lambda: Network(lambda self, x: self.fc(x), fc=nn.Linear(4, 2)),
        "torch.export cannot follow the module: ",
    ),
    (
        lambda: Network(lambda self, x: x[:, 3:]),
        "forward returns a tensor without elements, (2, 0)",
    ),
    (lambda: Network(lambda self, x: x + torch.rand(3)), "forward draws random numbers"),
    (
        lambda: Network(
            lambda self, x: self.lstm(x.unsqueeze(0))[0], lstm=nn.LSTM(3, 4, proj_size=2)
        ),
        "a recurrent layer with projections is not supported",
    ),
]
