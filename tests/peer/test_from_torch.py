"""Modules of torch as graphs: the same outputs, weights by name, training as before, and what is refused."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Executor, MachineModel, data_parallel, lower

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


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
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
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
        q, k, v = (part.reshape(b, s, 2, d // 2).transpose(1, 2) for part in self._parts(self.qkv(x), d))
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
        return (a**2).sum(-1, keepdim=True) - torch.exp(-a).mean() + 1 / torch.sqrt(torch.abs(a) + 0.5)


MODULES = {
    "convolutions": (ConvNet, [(3, 1, 6, 6)]),
    "transformer": (Transformer, [11]),
    "attention": (Attention, [(2, 5, 8)]),
    "recurrent": (Recurrent, [(2, 5, 3)]),
    "arithmetic": (Arithmetic, [(3, 2), (3, 2)]),
}


def values_of(shapes: list[Any]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.integers(0, s, (2, 5)) if isinstance(s, int) else random.random(s) + 0.1 for s in shapes]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [True, False])
def test_the_outputs_are_torchs(name: str, training: bool) -> None:
    make, shapes = MODULES[name]
    torch.manual_seed(1)
    module, values = make().double().train(training), values_of(shapes)
    tensors = [torch.tensor(v) for v in values]
    model = ops.from_torch(module, tensors)
    model.graph.output("y", model.output)
    expected = module(*tensors).detach().numpy()
    machine = MachineModel.uniform(2)
    with Executor(lower(model.graph, data_parallel(model.graph, machine), machine)) as step:
        model.load(step)
        found = step(dict(zip(model.inputs, values, strict=True)))["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_an_imported_module_trains_as_torch_does() -> None:
    torch.manual_seed(1)
    module, random = ConvNet().double(), np.random.default_rng(0)
    x, t = random.random((4, 1, 6, 6)), random.integers(0, 5, 4).astype(np.int32)
    model = ops.from_torch(module, torch.tensor(x))
    graph = model.graph
    ops.sgd(ops.softmax_cross_entropy(model.output, graph.input("t", (4,), "int32"), name="loss"), lr=0.1)
    machine, expected = MachineModel.uniform(1), []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        found = [float(step({"x": x, "t": t})["loss"]) for _ in range(5)]
        assert {"body.0.weight", "body.1.running_mean", "scale", "head.bias"} <= set(step.persistent)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(torch.tensor(x)), torch.tensor(t, dtype=torch.int64))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def unknown(self, x):
    x = torch.relu(x)
    x = torch.cumsum(x, 0)  # first
    return self.part(x).erfinv()  # second


def test_all_unknown_nodes_are_named_with_their_lines() -> None:
    with pytest.raises(ValueError) as caught:
        ops.from_torch(Network(unknown, part=nn.Bilinear(2, 2, 2)), torch.zeros(3, 2))
    lines = str(caught.value).splitlines()
    first = unknown.__code__.co_firstlineno + 2
    assert lines[0] == "from_torch: there is no operator for"
    assert lines[1:] == [
        f"""  call_function 'cumsum' ("{__file__}", line {first}: x = torch.cumsum(x, 0)  # first)""",
        f"""  call_module 'part' ("{__file__}", line {first + 1}: return self.part(x).erfinv()  # second)""",
        f"""  call_method 'erfinv' ("{__file__}", line {first + 1}: return self.part(x).erfinv()  # second)""",
    ]


REFUSED = [
    (lambda: Network(lambda self, x: torch.softmax(x, 0, torch.float64)), "another dtype is not supported"),
    (lambda: Network(lambda self, x: x[0]), "the index 0 is not supported"),
    (
        lambda: Network(lambda self, x: self.fc(x), fc=nn.Linear(4, 2)),
        "'fc.weight' is (2, 4) in the module, its",
    ),
    (
        lambda: Network(lambda self, x: self.lstm(x.unsqueeze(0))[1][0] * 2, lstm=nn.LSTM(3, 2, batch_first=True)),
        "the last state of an LSTM is not computed",
    ),
    (
        lambda: Network(lambda self, x: self.lstm(x)[0], lstm=nn.LSTM(3, 2)),
        "an LSTM without batch_first, or two-way is",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=f"^from_torch: .*{re.escape(message)}"):
        ops.from_torch(make(), torch.zeros(2, 3))
