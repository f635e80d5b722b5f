"""Small modules of torch, each with one thing that a door may get wrong: what is made of it is right, or refused.

`RIGHT` and `REFUSED` map a name to a function that makes (module, inputs); what is refused comes with a part of the
message. The modules compute in float64.
"""

import math
import random
from types import FunctionType

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import ops
from taskflow import Executor, MachineModel, data_parallel, lower
from tests.peer.batches import import_together

LR = 0.05


class Made(nn.Module):
    """A module of parts, whose forward is a function of it and its inputs."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


def made(run, shape=(4, 3), buffers=None, **parts):
    """The module and its input; `buffers` are persistent ones."""
    torch.manual_seed(2)
    module = Made(
        run,
        **{
            name: part() if isinstance(part, FunctionType) else part for name, part in parts.items()
        },
    )
    for name, value in (buffers or {}).items():
        module.register_buffer(name, value)
    return module.double(), values(shape)


def values(shape):
    if isinstance(shape, int):
        return torch.randint(0, shape, (2, 5))
    return torch.rand(shape, dtype=torch.float64) + 0.1


def frozen(part):
    return part.requires_grad_(False)


class Positions(nn.Module):
    """Sines and cosines as Vaswani et al.'s, in a buffer that is not saved."""

    def __init__(self, width=8, longest=16):
        super().__init__()
        at, rates = (
            torch.arange(longest).unsqueeze(1),
            torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width)),
        )
        table = torch.zeros(1, longest, width)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(at * rates), torch.cos(at * rates)
        self.register_buffer("table", table, persistent=False)
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(x + self.table[:, : x.size(1)])


class SmallGPT(nn.Module):
    """After nanoGPT: positions by arange, a head that is the embedding, scores of the past alone."""

    def __init__(self, words=11, width=8, longest=6):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        b, s = tokens.size(0), tokens.size(1)
        h = self.words(tokens) + self.places(torch.arange(s, device=tokens.device))
        qkv = self.qkv(self.norm(h))
        q, k, v = (
            qkv[:, :, 8 * n : 8 * n + 8].reshape(b, s, 2, 4).transpose(1, 2) for n in range(3)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(h + self.out(y.transpose(1, 2).reshape(b, s, 8)))


class Masked(nn.Module):
    """Attention by hand, with a mask that is added."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        self.register_buffer("mask", torch.triu(torch.full((5, 5), -1e9), diagonal=1))

    def forward(self, x):
        scores = torch.matmul(self.q(x), self.k(x).transpose(-2, -1)) / math.sqrt(6)
        return torch.matmul(
            F.softmax(scores + self.mask[: x.shape[1], : x.shape[1]], dim=-1), self.v(x)
        )


class Residual(nn.Module):
    """A block of a ResNet whose first convolution is frozen."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(3, 3, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2, self.fc = nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.Linear(3, 2)
        self.conv1.requires_grad_(False)

    def forward(self, x):
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return self.fc(F.adaptive_avg_pool2d(F.relu(h + x), 1).flatten(1))


def without_gradient(m, x):
    with torch.no_grad():
        h = torch.tanh(m.body(x))
    return m.head(h)


def half_without_gradient(m, x):
    with torch.no_grad():
        h = m.fc(x)
    return m.fc(x) * h


def tied(a, b, run, shape=(4, 3)):
    b.weight = a.weight
    return made(run, shape, a=a, b=b)


def frozen_lstm():
    module, x = made(
        lambda m, x: m.fc(m.lstm(x)[0]),
        (2, 5, 3),
        lstm=nn.LSTM(3, 4, 2, batch_first=True),
        fc=nn.Linear(4, 2),
    )
    module.lstm.weight_hh_l0.requires_grad_(False)
    return module, x


def only_biases():
    module, x = made(lambda m, x: m.b(torch.tanh(m.a(x))), a=nn.Linear(3, 5), b=nn.Linear(5, 2))
    for name, p in module.named_parameters():
        p.requires_grad_(name.endswith("bias"))
    return module, x


def in_float32(run):
    module, x = made(run, fc=nn.Linear(3, 2))
    return module.float(), x.float()


def in_evaluation():
    module, x = made(lambda m, x: m.fc(m.norm(x)), norm=nn.BatchNorm1d(3), fc=nn.Linear(3, 2))
    return module.eval(), x


def a_part_of_another():
    a, b = nn.Linear(3, 3).double(), nn.Linear(3, 2)
    b.weight = nn.Parameter(a.weight.detach()[:2])
    return made(lambda m, x: m.b(torch.tanh(m.a(x))), a=a, b=b)


def heads(m, x):
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    return m.attention(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


def strided():
    module, _ = made(lambda m, x: m.fc(x.transpose(0, 1)), fc=nn.Linear(4, 2))
    return module, values((8, 3))[::2]


def partly_trained(m, x):
    h = m.fc(m.drop(x))
    if m.training:
        with torch.no_grad():
            h = torch.tanh(h)
    return m.head(m.fc(x) + h)


def hooked():
    module, x = made(lambda m, x: m.fc(x), fc=nn.Linear(3, 2))
    module.fc.register_forward_hook(lambda m, args, y: y + 1)
    return module, x


def overwritten(m, x):
    h = m.fc(x)
    F.relu(h, inplace=True)
    return h + 1


def a_column_overwritten(m, x):
    h = torch.zeros(4, 3, dtype=torch.float64)
    h[:, 1] = m.fc(x)[:, 0]
    h[0] += 1
    h[1:3, :2] *= x[:2, 1:]
    return h


def last_states(m, x):
    y, (h, c) = m.lstm(x.unsqueeze(1))
    return y.sum() + h[-1] * c[0]


def zeros_after_both():
    module, x = made(
        lambda m, x: m.head(half_without_gradient(m, x)), fc=nn.Linear(3, 2), head=nn.Linear(2, 2)
    )
    nn.init.zeros_(module.head.weight)
    return module, x


RIGHT = {
    "a tensor made in forward": lambda: made(
        lambda m, x: x * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    ),
    "a number made in forward": lambda: made(
        lambda m, x: m.fc(x) * torch.tensor(0.5), fc=nn.Linear(3, 2)
    ),
    "integers made in forward": lambda: made(
        lambda m, x: m.fc(x * torch.arange(3)), fc=nn.Linear(3, 2)
    ),
    "a wider constant": lambda: in_float32(
        lambda m, x: m.fc(x) + torch.ones(2, dtype=torch.float64)
    ),
    "positions by arange": lambda: made(
        lambda m, x: m.words(x) + m.places(torch.arange(5)),
        7,
        words=nn.Embedding(7, 4),
        places=nn.Embedding(5, 4),
    ),
    "positions by the input's size": lambda: made(
        lambda m, x: m.words(x) + m.places(torch.arange(0, x.shape[1], device=x.device)),
        7,
        words=nn.Embedding(7, 4),
        places=nn.Embedding(9, 4),
    ),
    "a buffer that is not saved": lambda: made(lambda m, x: m.part(x), (2, 5, 8), part=Positions()),
    "a buffer that is saved": lambda: made(
        lambda m, x: m.fc(x - m.mean),
        buffers={"mean": torch.tensor([0.1, 0.2, 0.3])},
        fc=nn.Linear(3, 2),
    ),
    "a plain tensor": lambda: made(
        lambda m, x: m.fc(x * m.scale),
        scale=torch.tensor([1.0, -2.0, 3.0]).double(),
        fc=nn.Linear(3, 2),
    ),
    "a part of a buffer, turned": lambda: made(
        lambda m, x: x + m.table[1:5].T[:3].T, buffers={"table": torch.rand(7, 6)}
    ),
    "a frozen body": lambda: made(
        lambda m, x: m.head(torch.tanh(m.body(x))),
        body=frozen(nn.Linear(3, 5)),
        head=nn.Linear(5, 2),
    ),
    "a body without gradient": lambda: made(
        without_gradient, body=nn.Linear(3, 5), head=nn.Linear(5, 2)
    ),
    "trained biases": only_biases,
    "a frozen matrix of an LSTM": frozen_lstm,
    "a block of a ResNet": lambda: (Residual().double(), values((4, 3, 5, 5))),
    "a head that is the embedding": lambda: tied(
        nn.Embedding(7, 4), nn.Linear(4, 7, bias=False), lambda m, x: m.b(m.a(x)), 7
    ),
    "two layers of one weight": lambda: tied(
        nn.Linear(3, 3), nn.Linear(3, 3), lambda m, x: m.b(torch.tanh(m.a(x)))
    ),
    "the second of them first": lambda: tied(
        nn.Linear(3, 3), nn.Linear(3, 3), lambda m, x: m.a(torch.tanh(m.b(x)))
    ),
    "a layer that is called twice": lambda: made(
        lambda m, x: m.fc(torch.tanh(m.fc(x))), fc=nn.Linear(3, 3)
    ),
    "a weight read before its layer": lambda: made(
        lambda m, x: m.fc(F.linear(x, m.fc.weight)), fc=nn.Linear(3, 3)
    ),
    "a number that is trained": lambda: made(
        lambda m, x: m.fc(x) * m.gain,
        gain=lambda: nn.Parameter(torch.tensor(2.0)),
        fc=nn.Linear(3, 2),
    ),
    "a weight that nobody reads": lambda: made(
        lambda m, x: m.fc(x), fc=nn.Linear(3, 2), other=nn.Linear(3, 2)
    ),
    "a mask that is added": lambda: (Masked().double(), values((2, 5, 6))),
    "attention with a mask": lambda: made(
        heads, (2, 5, 8), attention=nn.MultiheadAttention(8, 2, batch_first=True)
    ),
    "a small GPT": lambda: (SmallGPT().double(), values(11)),
    "batch norm in evaluation": in_evaluation,
    "a result that is overwritten and not read again": lambda: made(
        lambda m, x: m.b(F.relu(m.a(x), inplace=True)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)
    ),
    "batch norm in training, dropout beside it": lambda: made(
        lambda m, x: m.fc(m.thin(m.norm(x))),
        norm=nn.BatchNorm1d(3),
        thin=nn.Dropout(1e-12),
        fc=nn.Linear(3, 2),
    ),
    "an example with gaps in memory": strided,
    "dropout in evaluation": lambda: made(lambda m, x: m.fc(F.dropout(x, 0.5)), fc=nn.Linear(3, 2)),
    "attention with dropout": lambda: made(
        lambda m, x: m.a(x, x, x, need_weights=False)[0],
        (2, 5, 8),
        a=nn.MultiheadAttention(8, 2, 0.1, batch_first=True),
    ),
    "dropout in training": lambda: made(
        lambda m, x: m.fc(m.drop(x)), drop=nn.Dropout(0.5), fc=nn.Linear(3, 2)
    ),
    "a normalised weight": lambda: made(
        lambda m, x: m.fc(x), fc=lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    ),
    "a hook": hooked,
    "a result that is detached": lambda: made(
        lambda m, x: m.fc(x).detach() + m.fc(x), fc=nn.Linear(3, 3)
    ),
    "a layer with and without gradient": lambda: made(half_without_gradient, fc=nn.Linear(3, 2)),
    "a layer with and without gradient below zeros": zeros_after_both,
    "a result that is overwritten": lambda: made(overwritten, fc=nn.Linear(3, 2)),
    "parts that are overwritten": lambda: made(a_column_overwritten, fc=nn.Linear(3, 2)),
    "no gradient in training alone, beside dropout": lambda: made(
        partly_trained, drop=nn.Dropout(0.1), fc=nn.Linear(3, 3), head=nn.Linear(3, 2)
    ),
    "a dictionary": lambda: made(lambda m, x: {"y": m.fc(x)}, fc=nn.Linear(3, 2)),
    "a sum so far": lambda: made(lambda m, x: m.fc(x).cumsum(0), fc=nn.Linear(3, 2)),
    "last states, steps first": lambda: made(last_states, lstm=nn.LSTM(3, 4, 2)),
    "norms of a whole image": lambda: made(
        lambda m, x: m.norm(x).var((1, 2)), (3, 4, 5), norm=lambda: nn.LayerNorm((4, 5))
    ),
    "rows of a result by numbers": lambda: made(
        lambda m, x: m.fc(x)[[3, 0, -1]][:, 1:], fc=nn.Linear(3, 2)
    ),
    "layers with names of functions": lambda: made(
        lambda m, x: m.add(torch.relu(m.relu(x)) + 1), relu=nn.Linear(3, 4), add=nn.Linear(4, 2)
    ),
}


def a_buffer_of_a_weight():
    module, x = made(lambda m, x: F.linear(torch.tanh(m.a(x)), m.w), a=nn.Linear(3, 3))
    module.register_buffer("w", module.a.weight.data)
    return module, x


def overwritten_view(m, x):
    F.relu(x.view(-1), inplace=True)
    return m.fc(x)


def counted_calls(m, x):
    m.calls += 1
    return m.fc(x) if m.calls < 1000 else x


def with_state(m, x):
    m.state = m.fc(x if m.state is None else x + m.state)
    return m.state


def hooked_gradient():
    module, x = made(lambda m, x: m.fc(x), fc=nn.Linear(3, 2))
    module.fc.weight.register_post_accumulate_grad_hook(lambda p: p.grad.zero_())
    return module, x


REFUSED = {
    "noise": (
        lambda: made(lambda m, x: x + torch.randn(3, dtype=torch.float64)),
        "forward draws random numbers",
    ),
    "a layer that is left out at random": (
        lambda: made(lambda m, x: x + m.fc(x) if random.random() < 0.9 else x, fc=nn.Linear(3, 3)),
        "forward draws random numbers",
    ),
    "calls that are counted": (
        lambda: made(counted_calls, calls=0, fc=nn.Linear(3, 2)),
        "forward changes 'calls', which is not supported",
    ),
    "a state that is no buffer": (
        lambda: made(with_state, state=None, fc=nn.Linear(3, 3)),
        "forward changes 'state', which is not supported",
    ),
    "a view that is overwritten, the example is positive": (
        lambda: made(overwritten_view, fc=nn.Linear(3, 2)),
        "forward changes its input 'x' in place",
    ),
    "a hook on a gradient": (hooked_gradient, "the gradient of 'fc.weight' has a hook"),
    "gradients by frequency": (
        lambda: made(lambda m, x: m.e(x), 9, e=nn.Embedding(9, 4, scale_grad_by_freq=True)),
        "scale_grad_by_freq is not supported",
    ),
    "a choice by value": (
        lambda: made(lambda m, x: x if x.sum() > 0 else -x),
        "what forward does depends on the value of a tensor (",
    ),
    "a number of a value": (
        lambda: made(lambda m, x: x * x.mean().item()),
        "depends on the value of a tensor",
    ),
    "an index that is a mask": (
        lambda: made(lambda m, x: x[x > 0.3].sum()),
        "an index that is a mask is not supported",
    ),
    "a part of another weight": (a_part_of_another, "share a part of their memory"),
    "a buffer in the memory of a weight": (
        a_buffer_of_a_weight,
        "'a.weight' and 'w' share a part of their memory",
    ),
    "a function without an operator": (
        lambda: made(lambda m, x: torch.erfinv(x)),
        "there is no operator for",
    ),
}

# -- what changes buffers, keeps what is equal, or x-------------------------


def counted(m, x):
    m.steps.add_(1)
    return m.fc(x) / m.steps


def averaged(m, x):
    h = m.fc(x)
    m.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
    return h - m.mean


def replaced(m, x):
    h = m.fc(x)
    m.last = h.detach().sum(0)
    return h * 2


def with_plan(m, x):
    m.plan = {"layers": (["a", "b"], [1.0, float("nan")]), "sizes": torch.tensor([3, 2])}
    return m.fc(x)


def with_arrays(m, x):
    m.table, m.names = np.arange(3.0), {"x", "y"}
    return m.fc(x * torch.as_tensor(m.table))


def planned(run, **kept):
    module, x = made(run, fc=nn.Linear(3, 2))
    for name, value in kept.items():
        setattr(module, name, value)
    return module, x


class Settings:
    def __init__(self, scale):
        self.scale, self.seen = scale, []

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None


def with_settings(m, x):
    m.settings = Settings(2.0)
    return m.fc(x) * m.settings.scale


def blind(m, x):
    """The second row sees nothing."""
    seen = torch.tensor([[True, True, True], [False, False, False], [True, False, True]])
    q = m.fc(x)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=seen)


def attended(**options):
    return lambda m, x: F.scaled_dot_product_attention(m.fc(x), m.fc(x), x, **options)


def a_cell(kind, run, **options):
    return lambda: made(run, cell=getattr(nn, kind)(3, 4, **options), fc=nn.Linear(4, 2))


def stepped(m, x):
    h = c = x.new_zeros(len(x), 4)
    for _ in range(3):
        h, c = m.cell(x, (h, c))
    return m.fc(h)


def loss_of(name, *more, **options):
    return lambda: made(
        lambda m, x: getattr(F, name)(m.fc(x), *(each(x) for each in more), **options),
        fc=nn.Linear(3, 3),
    )


def classes_of(x):
    return torch.arange(len(x)) % 3


def scattered(m, x):
    h = m.fc(x)
    return torch.zeros(2, 2, dtype=x.dtype).index_add(0, torch.tensor([0, 1, 0, 1]), h) + h.sum(0)


def kinked(m, x):
    h = m.fc(x)
    return (
        F.hardtanh(h)
        + F.relu6(h)
        + F.celu(h)
        + torch.sign(h)
        + torch.floor(h)
        + torch.round(h)
        + torch.trunc(h)
    )


RIGHT |= {
    "a counter": lambda: made(counted, buffers={"steps": torch.ones(2)}, fc=nn.Linear(3, 2)),
    "a mean that moves": lambda: made(
        averaged, buffers={"mean": torch.zeros(2)}, fc=nn.Linear(3, 2)
    ),
    "a buffer that is another one then": lambda: made(
        replaced, buffers={"last": torch.zeros(2)}, fc=nn.Linear(3, 2)
    ),
    "a plan that is made anew": lambda: planned(
        with_plan, plan={"layers": (["a", "b"], [1.0, float("nan")]), "sizes": torch.tensor([3, 2])}
    ),
    "an array and a set made anew": lambda: planned(
        with_arrays, table=np.arange(3.0), names={"y", "x"}
    ),
    "settings made anew": lambda: planned(with_settings, settings=Settings(2.0)),
    "a query that sees nothing": lambda: made(blind, (2, 3, 4), fc=nn.Linear(4, 4)),
    "causal attention with a scale": lambda: made(
        attended(is_causal=True, scale=0.3), (2, 5, 4), fc=nn.Linear(4, 4)
    ),
    "causal attention, scale by power": lambda: made(
        attended(is_causal=True, scale=8**-0.5), (2, 2, 5, 8), fc=nn.Linear(8, 8)
    ),
    "attention with a scale by power": lambda: made(
        attended(scale=32**-0.5), (2, 1, 3, 32), fc=nn.Linear(32, 32)
    ),
    "softplus with a threshold": lambda: made(
        lambda m, x: F.softplus(m.fc(x), 2.0, 0.5), fc=nn.Linear(3, 2)
    ),
    "an LSTMCell": a_cell("LSTMCell", lambda m, x: m.fc(m.cell(x)[0])),
    "three steps of an LSTMCell": a_cell("LSTMCell", stepped),
    "a GRUCell": a_cell("GRUCell", lambda m, x: m.fc(m.cell(x, m.cell(x)))),
    "an RNNCell": a_cell("RNNCell", lambda m, x: m.fc(m.cell(x)), nonlinearity="relu"),
    "mse_loss": loss_of("mse_loss", lambda x: x),
    "l1_loss of sums": loss_of("l1_loss", lambda x: x, reduction="sum"),
    "smooth_l1_loss": loss_of("smooth_l1_loss", lambda x: x, beta=0.2),
    "huber_loss of each": loss_of("huber_loss", lambda x: x, reduction="none", delta=0.3),
    "kl_div": loss_of("kl_div", lambda x: x.softmax(1), reduction="batchmean"),
    "cross_entropy with weights": loss_of(
        "cross_entropy", classes_of, weight=torch.tensor([1.0, 0.5, 2.0]).double()
    ),
    "cross_entropy of chances": loss_of(
        "cross_entropy", lambda x: x.softmax(1), label_smoothing=0.1
    ),
    "logits with pos_weight": loss_of(
        "binary_cross_entropy_with_logits",
        lambda x: x * 0.7,
        pos_weight=torch.tensor([1.0, 2.0, 0.5]).double(),
    ),
    "an einsum of three": lambda: made(
        lambda m, x: torch.einsum("bi,oi,ok->bk", x, m.fc.weight, m.other.weight),
        fc=nn.Linear(3, 2),
        other=nn.Linear(5, 2),
    ),
    "addmm with factors": lambda: made(
        lambda m, x: torch.addmm(m.fc.bias, x, m.fc.weight.T, beta=0.5, alpha=2.0),
        fc=nn.Linear(3, 2),
    ),
    "rows that are added": lambda: made(scattered, fc=nn.Linear(3, 2)),
    "one_hot": lambda: made(lambda m, x: m.fc(F.one_hot(x, 7).double()), 7, fc=nn.Linear(7, 2)),
    "sorted": lambda: made(lambda m, x: m.fc(x).sort(1)[0] * torch.arange(5), fc=nn.Linear(3, 5)),
    "windows as columns": lambda: made(
        lambda m, x: F.unfold(m.conv(x), 2, stride=2), (2, 3, 5, 5), conv=nn.Conv2d(3, 2, 2)
    ),
    "kinks and steps": lambda: made(kinked, fc=nn.Linear(3, 2)),
    "channels that are dropped": lambda: made(
        lambda m, x: m.conv(m.drop(x)),
        (2, 3, 5, 5),
        conv=nn.Conv2d(3, 2, 2),
        drop=nn.Dropout2d(0.2),
    ),
}


def remembered(m, x):
    m.cache["seen"]["shapes"].append(tuple(x.shape))
    return m.fc(x)


def marked(m, x):
    m.table[0] += 1
    return m.fc(x)


def set_aside(m, x):
    m.settings.seen.append(1)
    return m.fc(x)


def weighed(m, x):
    return F.l1_loss(m.fc(x), x[:, :2], weight=x[:, 1:])


REFUSED |= {
    "a list in a dictionary that grows": (
        lambda: planned(remembered, cache={"seen": {"shapes": []}}),
        "forward changes 'cache', which is not supported",
    ),
    "an array that changes": (
        lambda: planned(marked, table=np.zeros(2)),
        "forward changes 'table'",
    ),
    "settings that change": (
        lambda: planned(set_aside, settings=Settings(1.0)),
        "forward changes 'settings'",
    ),
    "a weight that torch.export forgets": (
        lambda: made(weighed, fc=nn.Linear(3, 2)),
        "differs from torch's",
    ),
    "an input that is overwritten": (
        lambda: made(lambda m, x: F.silu(x, inplace=True)),
        "changes its input 'x' in place",
    ),
}


# A rule refuses the call and torch writes it by others: see `tests.peer.batches`.
TAKEN_APART = {"an einsum of three", "addmm with factors"}


def imported_together(cases):
    """By name the module, its input, and what it becomes, of all that may be one import; of none where that fails."""
    made = {name: make() for name, make in cases.items() if name not in TAKEN_APART}
    before = [state_of(module) for module, _ in made.values()]
    try:
        models = import_together([(module, (x,)) for module, x in made.values()])
    except Exception:  # each alone says what it is
        return {}
    for (module, _), state in zip(made.values(), before, strict=True):
        assert_unchanged(module, state)
    return {name: (*made[name], model) for name, model in zip(made, models, strict=True)}


def state_of(module):
    return {key: value.clone() for key, value in module.state_dict().items()}


def assert_unchanged(module, state):
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items()), (
        "the module was changed"
    )


def assert_torchs_numbers(module, x, model=None):
    """What is made of the module has torch's outputs, trains the same weights, and has its losses in three steps."""
    before = state_of(module)
    model = model or ops.from_torch(module, x)
    assert_unchanged(module, before)
    assert not [key for key in vars(module) if key.startswith("_tensor_constant")]
    graph, machine = model.graph, MachineModel.uniform(2)
    if any(op.name.endswith(("drop", "dropout")) for op in model.graph.operators):
        return  # what is drawn differs
    target = np.random.default_rng(1).random(model.output.shape).astype(model.output.dtype)
    if graph.parameters:
        loss = ops.mean_squared_error(
            model.output, graph.input("target", target.shape, target.dtype.name)
        )
        ops.sgd(loss, lr=LR)
    graph.output("y", model.output)
    feeds = {
        next(iter(model.inputs)): x.numpy(),
        **({"target": target} if graph.parameters else {}),
    }
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        steps = [step(feeds) for _ in range(3 if graph.parameters else 1)]
    expected, tolerance = result(module, x).detach().numpy(), tolerance_of(x)
    module.load_state_dict(before)
    np.testing.assert_allclose(steps[0]["y"], expected, rtol=tolerance, atol=tolerance)
    if graph.parameters:
        found = [float(each["loss"]) for each in steps]
        np.testing.assert_allclose(found, losses_of_torch(module, x, target), rtol=tolerance)
        with_gradient = {
            key for key, p in module.named_parameters() if p.grad is not None and p.requires_grad
        }
        flags = {
            key: np.full(p.shape, key in with_gradient) for key, p in module.named_parameters()
        }
        trained = {key for key, flag in ops.from_torch_state(flags).items() if flag.all()}
        assert {r.name for r in graph.parameters} == trained


def result(module, x):
    y = module(x)
    return y["y"] if isinstance(y, dict) else y


def tolerance_of(x):
    return 1e-4 if x.dtype == torch.float32 else 1e-9


def losses_of_torch(module, x, target):
    optimizer, losses = (
        torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=LR),
        [],
    )
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(result(module, x), torch.tensor(target))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
