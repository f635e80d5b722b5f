"""Modules of one trap each: buffers that change, weights of several names, what shadows what, a mask of one dimension.

`MODULES` maps a name to the inputs and what makes the module; all of them come through with torch's numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Of(nn.Module):
    """A function of the module and its inputs, and the module's parts."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given: Any) -> Any:
        return self.run(self, *given)


class Changing(nn.Module):
    """Two buffers and a counter, which a function of the module and a linear layer's result changes."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run, self.fc = run, nn.Linear(3, 3)
        self.register_buffer("p", torch.ones(4, 3) + torch.arange(3))
        self.register_buffer("q", torch.zeros(4, 3))
        self.register_buffer("k", torch.tensor(3))

    def forward(self, x: Any) -> Any:
        return self.run(self, self.fc(x))


def counted(m: Any, x: Any) -> Any:
    m.k.add_(1)
    return x * m.k


def exchanged(m: Any, x: Any) -> Any:
    before = m.p.clone()
    m.p.copy_(m.q)
    m.q.copy_(before)
    return x * m.p + m.q


def handed_on(m: Any, x: Any) -> Any:
    y = x + m.p
    m.q.copy_(m.p)
    m.p.copy_(x.detach())
    return y + m.q


def given_before(m: Any, x: Any) -> Any:
    before = m.p.clone()
    m.p.copy_(x.detach())
    return before, x * 2


def read_before_and_after(m: Any, x: Any) -> Any:
    y = x * m.p
    m.p = m.p * 0.5
    return y * m.p


def aliased(m: Any, x: Any) -> Any:
    y = m.p.view(-1)
    m.p.add_(1)
    return x * y.view(4, 3)


def a_queue(m: Any, x: Any) -> Any:
    m.p = torch.cat((m.p[1:], x.detach()[:1]))
    return x * m.p


def a_column(m: Any, x: Any) -> Any:
    m.p[:, 1] = x.detach()[:, 0]
    return x * m.p


def lerped(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.p.lerp_(x, 0.1)
    return x / m.p


class Shadowed(nn.Module):
    """A parameter and a buffer with the names of forward's arguments, and parameters with those of constants."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.randn(3))
        self.register_buffer("mask", torch.tensor([0.5, 2.0, 3.0]))
        self.constant = nn.ParameterDict(
            {"mul": nn.Parameter(torch.randn(3)), "add": nn.Parameter(torch.randn(3))}
        )

    def forward(self, x: Any, mask: Any) -> Any:
        y = x * torch.tensor([1.0, 2.0, 3.0]) * self.constant["mul"]
        return y + torch.tensor([3.0, 2.0, 1.0]) + self.constant["add"] + self.x * mask * self.mask


class Shared(nn.Module):
    """A layer under three names, and a bias of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b, self.c = self.a, nn.ModuleList([self.a, nn.Linear(3, 3)])
        self.c[1].bias = self.a.bias

    def forward(self, x: Any) -> Any:
        return self.c[1](self.b(self.a(x)).tanh())


class Frozen(nn.Module):
    """Batch norm that stays in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(3).eval(), nn.Linear(3, 3)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Any) -> Any:
        return self.norm(self.fc(x))


def half_with_gradient(m: Any, x: Any) -> Any:
    with torch.no_grad():
        a = m.a(x)
        with torch.enable_grad():
            b = m.b(x)
    return a * b


def by_shape(m: Any, x: Any) -> Any:
    x = F.pad(x, (0, 1)) if x.shape[1] % 2 else x
    h = x.view(len(x), -1, 2)
    return h.mean(-1) / h.size(1) ** 0.5 if len(h) > 3 else h


def views(m: Any, x: Any) -> Any:
    return x @ m.w.split(2)[0].T, x @ m.w[2:5].T, x @ m.w[0], F.linear(x, m.w[1:3], m.w[0, :2])


def _linear(**more: Any) -> dict[str, Any]:
    return {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), **more}


def attending(run: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    return lambda: Of(run, a=nn.MultiheadAttention(8, 2, batch_first=True, **options))


MODULES: dict[str, tuple[str, Callable[[], Any]]] = {
    **{
        run.__name__: ("4 3", lambda run=run: Changing(run))
        for run in (
            counted,
            exchanged,
            handed_on,
            given_before,
            read_before_and_after,
            aliased,
            a_queue,
            a_column,
        )
    },
    "lerped": ("4 3", lambda: Changing(lerped)),
    "shadowed": ("4 3; 4 3", Shadowed),
    "shared": ("4 3", Shared),
    "frozen": ("4 3", Frozen),
    "half with gradient": ("4 3", lambda: Of(half_with_gradient, **_linear())),
    "by shape": ("4 3", lambda: Of(by_shape)),
    "views of a weight": ("4 3", lambda: Of(views, w=nn.Parameter(torch.randn(6, 3)))),
    "a checkpoint": (
        "4 3",
        lambda: Of(
            lambda m, x: checkpoint(lambda a: m.a(a).tanh(), x, use_reentrant=False), **_linear()
        ),
    ),
    "straight through": (
        "4 3",
        lambda: Of(lambda m, x: m.a(x + (x.round() - x).detach()), **_linear()),
    ),
    "spectral norm": (
        "4 3",
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).eval(),
    ),
    "a mask of one dimension": (
        "4 3; b 4",
        lambda: Of(lambda m, x, b: m.a(x) * b[:, None], **_linear()),
    ),
    "a mask without dimensions": (
        "4 3; b .",
        lambda: Of(lambda m, x, b: torch.where(b, m.a(x), x), **_linear()),
    ),
    "classes 0 and 1": (
        "4 3; i2 4",
        lambda: Of(lambda m, x, t: F.cross_entropy(m.a(x), t), **_linear()),
    ),
    "a class of one sample": (
        "3; i2 .",
        lambda: Of(lambda m, x, t: F.cross_entropy(m.a(x), t), **_linear()),
    ),
    "padded keys": (
        "2 4 8; b 2 4",
        attending(lambda m, x, b: m.a(x, x, x, key_padding_mask=b)),
    ),
    "padded keys, causal": (
        "2 4 8; b 2 4",
        attending(
            lambda m, x, b: m.a(
                x, x, x, key_padding_mask=b, attn_mask=torch.ones(4, 4).triu(1).bool()
            )[0],
        ),
    ),
    "weights of each head": (
        "2 4 8",
        attending(lambda m, x: m.a(x, x, x, average_attn_weights=False)),
    ),
    "other keys and values": (
        "2 4 8; 2 5 6; 2 5 7",
        attending(lambda m, x, y, z: m.a(x, y, z), kdim=6, vdim=7),
    ),
    "attention without a batch": ("4 8", attending(lambda m, x: m.a(x, x, x)[0])),
    "first states": (
        "5 2 3; 2 2 4; 2 2 4",
        lambda: Of(lambda m, x, h, c: m.r(x, (h, c)), r=nn.LSTM(3, 4, 2)),
    ),
    "last states of both ways": (
        "5 2 3; 4 2 4",
        lambda: Of(lambda m, x, h: m.r(x, h)[1], r=nn.GRU(3, 4, 2, bidirectional=True, bias=False)),
    ),
}
