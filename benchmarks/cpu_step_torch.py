"""The PyTorch side of `cpu_step`: the same models, weights, batch and update, one thread a process or as many as asked.

Modules are written as PyTorch's users write them: one projection for queries, keys and values, `nn.LSTM`, fused
attention. Their parameters stand in the order of `MODELS`' graphs; where one is several of those, `joined` says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from cpu_step_models import EXPERTS, MODELS, ROWS, TABLES, VOCABULARY, WIDTH, Array
from mpi4py import MPI
from torch import Tensor, nn
from torch.nn import functional as F

Batch = dict[str, Tensor]


# -- models ------------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """A network of images or features with a cross entropy behind it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.net(batch["x"]), batch["t"])


def mlp() -> nn.Module:
    linear, relu = nn.Linear, nn.ReLU
    return Classifier(
        nn.Sequential(linear(784, 4096), relu(), linear(4096, 4096), relu(), linear(4096, 10))
    )


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return Classifier(
        nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10)
        )
    )


class Basic(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.a, self.norm_a = (
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.b, self.norm_b = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_a(self.a(x)), inplace=True)
        return F.relu(self.norm_b(self.b(y)) + self.shortcut(x), inplace=True)


def resnet() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    channels = 64
    for stage in range(4):
        for k in range(2):
            layers.append(Basic(channels, 64 << stage, 2 if stage and not k else 1))
            channels = 64 << stage
    return Classifier(
        nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    )


class Words(nn.Module):
    """A language model's loss; `net` makes scores of word numbers, and may keep a part of the loss as `balance`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: Batch) -> Tensor:
        loss = F.cross_entropy(
            self.net(batch["words"]).view(-1, VOCABULARY), batch["next"].view(-1)
        )
        return loss + getattr(self.net, "balance", 0)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(VOCABULARY, 256), nn.LSTM(256, 256, batch_first=True)
        self.fc = nn.Linear(256, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(self.lstm(self.embed(x))[0])
        return y


def lstm() -> nn.Module:
    return Words(Recurrent())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (
            a.view(b, s, 4, 64).transpose(1, 2) for a in self.qkv(self.norm(x)).split(256, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, s, 256))


class Dense(nn.Module):
    """The second half of a layer; its part of the loss is none."""

    balance = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(256),
            nn.Linear(256, 1024),
            nn.Linear(1024, 256),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return y


class Each(nn.Module):
    """A linear layer for every expert."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(EXPERTS, outputs, inputs).uniform_(-(inputs**-0.5), inputs**-0.5)
        )
        self.bias = nn.Parameter(torch.zeros(EXPERTS, outputs))

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return F.linear(x, self.weight[expert], self.bias[expert])


class Experts(nn.Module):
    """The tokens of one expert after the other; first choices come first, those over capacity are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(256), nn.Linear(256, EXPERTS, bias=False)
        self.up, self.down = Each(256, 512), Each(512, 256)

    def forward(self, h: Tensor) -> Tensor:
        x = self.norm(h).view(-1, 256)
        p = F.softmax(self.gate(x), -1)
        weights, chosen = p.topk(2)
        load = F.one_hot(chosen, EXPERTS).view(-1, EXPERTS).float().mean(0)
        self.balance = EXPERTS * (load * p.mean(0)).sum()
        weights, chosen = (
            (weights / weights.sum(-1, keepdim=True)).T.reshape(-1),
            chosen.T.reshape(-1),
        )
        y = torch.zeros_like(x)
        for expert in range(EXPERTS):
            at = (chosen == expert).nonzero()[: ceil(1.25 * 2 * len(x) / EXPERTS), 0]
            token = at % len(x)
            made = self.down(F.gelu(self.up(x[token], expert)), expert)
            y = y.index_add(0, token, made * weights[at, None])
        return h + y.view_as(h)


class Transformer(nn.Module):
    def __init__(self, second_half: type[Dense | Experts]) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, 256), nn.Embedding(128, 256)
        self.layers = nn.Sequential(
            *(part for _ in range(4) for part in (Attention(), second_half()))
        )
        self.norm, self.fc = nn.LayerNorm(256), nn.Linear(256, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(self.norm(self.layers(self.embed(x) + self.position.weight)))
        self.balance = 0.01 * sum(part.balance for part in self.layers[1::2])
        return y


def gpt() -> nn.Module:
    return Words(Transformer(Dense))


def moe() -> nn.Module:
    return Words(Transformer(Experts))


class Recommender(nn.Module):
    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        bags = [nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse) for _ in range(TABLES)]
        self.tables = nn.ModuleList(bags)
        self.bottom = self._layers(13, 512, 256, WIDTH)
        self.top = nn.Sequential(
            *self._layers(WIDTH + TABLES * (TABLES + 1) // 2, 512, 256), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, -1))

    @staticmethod
    def _layers(*widths: int) -> nn.Sequential:
        return nn.Sequential(
            *(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))
        )

    def forward(self, batch: Batch) -> Tensor:
        h = self.bottom(batch["dense"])
        every = torch.stack(
            [h, *(table(batch[f"rows{k}"]) for k, table in enumerate(self.tables))], 1
        )
        products = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        y = self.top(torch.cat([h, products], 1))
        return F.binary_cross_entropy_with_logits(y, batch["clicked"])


MODULES: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "vgg": vgg,
    "resnet": resnet,
    "lstm": lstm,
    "gpt": gpt,
    "moe": moe,
    "dlrm": Recommender,
}


# -- steps -------------------------------------------------------------------------------------------------------------


def variants(name: str, compiled: bool = False) -> dict[str, dict[str, Any]]:
    """Name -> options of `step`; the first is plain eager PyTorch."""
    found: dict[str, dict[str, Any]] = {"torch": {}, "torch fused optimizer": {"fused": True}}
    if name in ("vgg", "resnet"):
        found["torch channels-last"] = {"memory_format": torch.channels_last}
    if name == "dlrm":
        found["torch sparse gradients"] = {"sparse": True}
    return found | ({"torch.compile": {"compiled": True}} if compiled else {})


def steps(
    name: str,
    weights: Mapping[str, Array],
    feeds: Mapping[str, Array],
    comm: MPI.Comm,
    threads: int = 1,
    compiled: bool = False,
) -> dict[str, Callable[[], float]]:
    """Name of a variant -> one training step that gives the loss; several processes share the batch of `feeds`."""
    torch.set_num_threads(threads)
    if comm.size > 1 and not dist.is_initialized():
        _join(comm)
    chosen = variants(name, compiled)
    if comm.size > 1:
        chosen.pop(
            "torch sparse gradients", None
        )  # gloo's sparse all-reduce ends in a segmentation fault (2.13)
    return {key: step(name, weights, feeds, comm, **options) for key, options in chosen.items()}


def library() -> str:
    """What multiplies matrices, and the instructions for which PyTorch's own kernels are compiled."""
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    name, instructions = (
        blas[1] if blas else "an unknown BLAS",
        torch.backends.cpu.get_cpu_capability(),
    )
    return f"{name} and oneDNN for {instructions}, version {torch.__version__}"


def _join(comm: MPI.Comm) -> None:
    """Make a gloo group of the processes of `comm`, on this host."""
    store = (
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        if comm.rank == 0
        else None
    )
    port = comm.bcast(store.port if store else None)
    if store is None:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


def step(
    name: str,
    weights: Mapping[str, Array] | None,
    feeds: Mapping[str, Array],
    comm: MPI.Comm,
    fused: bool = False,
    compiled: bool = False,
    memory_format: torch.memory_format = torch.contiguous_format,
    **options: Any,
) -> Callable[[], float]:
    """One training step of a model that starts from `weights`, those of the graph by name (None: torch's own)."""
    net = MODULES[name](**options)
    if weights is not None:
        _load(net, weights)
    net = net.to(memory_format=memory_format)
    trained: nn.Module = nn.parallel.DistributedDataParallel(net) if comm.size > 1 else net
    kind = torch.optim.SGD if MODELS[name].optimizer == "sgd" else torch.optim.Adam
    optimizer = kind(
        trained.parameters(), **MODELS[name].rates, **({"fused": True} if fused else {})
    )
    batch = {key: _own_part(value, comm, memory_format) for key, value in feeds.items()}
    forward = torch.compile(trained) if compiled else trained

    def run() -> float:
        optimizer.zero_grad()
        loss = forward(batch)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return run


def _own_part(value: Array, comm: MPI.Comm, memory_format: torch.memory_format) -> Tensor:
    part = np.array_split(value, comm.size)[comm.rank]
    tensor = torch.from_numpy(part.astype(np.int64) if part.dtype == np.int32 else part.copy())
    return tensor.to(memory_format=memory_format) if tensor.ndim == 4 else tensor


def _load(net: nn.Module, weights: Mapping[str, Array]) -> None:
    """Copy the weights in order; a parameter of q, k and v takes three of them."""
    left = list(_in_order(weights))
    with torch.no_grad():
        for parameter in net.parameters():
            parts = [left.pop(0)]
            while sum(part.size for part in parts) < parameter.numel():
                parts.append(left.pop(0))
            parameter.copy_(
                torch.from_numpy(np.concatenate([part.reshape(-1) for part in parts])).view_as(
                    parameter
                )
            )
    if left:
        raise ValueError(f"{len(left)} weights are left over")


def _in_order(weights: Mapping[str, Array]) -> Sequence[Array]:
    """q, k, v as one: their weights, then their biases."""
    names = list(weights)
    for name in [n for n in names if n.endswith(".q.weight")]:
        stem, at = name.removesuffix("q.weight"), names.index(name)
        names[at : at + 6] = [
            f"{stem}{part}.{kind}" for kind in ("weight", "bias") for part in "qkv"
        ]
    return [weights[name] for name in names]
