"""The PyTorch side of `gpu`: the same models on a GPU, eager and compiled, with autocast for half precision.

Batches lie on the GPU before a step begins, and steps follow each other without waiting, which is in PyTorch's favour:
on our side every step copies its batch in and its loss out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import cpu_step_torch
import torch
from cpu_step_models import Array
from gpu_models import GPT2, Case
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        b, s, c = x.shape
        q, k, v = (
            a.view(b, s, self.heads, -1).transpose(1, 2)
            for a in self.qkv(self.norm1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with its output tied to the embedding."""

    def __init__(
        self, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int
    ) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.layers = nn.Sequential(*(Layer(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        h = self.norm(self.layers(self.embed(batch["x"]) + self.position.weight))
        return F.cross_entropy((h @ self.embed.weight.T).flatten(0, 1), batch["t"].flatten())


def tiny_mlp() -> nn.Module:
    widths = (64, 128, 128, 128)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return cpu_step_torch.Classifier(nn.Sequential(*layers, nn.Linear(128, 10)))


MODULES: dict[str, Callable[..., nn.Module]] = {
    "mlp": cpu_step_torch.mlp,
    "cnn": cpu_step_torch.vgg,
    "gpt": lambda: GPT(**GPT2),
    "dlrm": cpu_step_torch.Recommender,
    "tiny mlp": tiny_mlp,
    "tiny gpt": cpu_step_torch.gpt,
}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


COMPILED = (
    "default",
    "reduce-overhead",
    "max-autotune",
)  # the last one, which takes longest, of TUNED alone
TUNED = ("gpt", "cnn")


def variants(name: str) -> dict[str, dict[str, Any]]:
    """Name -> options of `make_step`; the first is plain eager PyTorch."""
    found: dict[str, dict[str, Any]] = {
        "torch eager": {},
        "torch eager, fused optimizer": {"fused": True},
    }
    if name == "cnn":
        found["torch eager, channels-last"] = {"fused": True, "memory_format": torch.channels_last}
    if name == "dlrm":
        found["torch eager, sparse gradients"] = {"sparse": True}
    layout = {"memory_format": torch.channels_last} if name == "cnn" else {}
    for mode in COMPILED if name in TUNED else COMPILED[:-1]:
        found[f"torch.compile, {mode}"] = {"fused": True, "compiled": mode, **layout}
    return found


def make_step(
    name: str,
    case: Case,
    feeds: Mapping[str, Array],
    precision: str,
    fused: bool = False,
    compiled: str = "",
    memory_format: torch.memory_format = torch.contiguous_format,
    **options: Any,
) -> Callable[[], Tensor]:
    """One training step that gives the loss, on the GPU."""
    use_tf32(precision == "tf32")
    torch.manual_seed(0)
    net = MODULES[name](**options).cuda().to(memory_format=memory_format)
    optimizer = OPTIMIZERS[case.model.optimizer](
        net.parameters(), **case.model.rates, **({"fused": True} if fused else {})
    )
    batch = {key: _tensor(value, memory_format) for key, value in feeds.items()}
    forward = torch.compile(net, mode=compiled) if compiled else net
    is_half = precision in ("float16", "bfloat16")
    half = (
        torch.autocast("cuda", getattr(torch, precision)) if is_half else contextlib.nullcontext()
    )

    def run() -> Tensor:
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        with half:
            loss: Tensor = forward(batch)
        loss.backward()
        optimizer.step()
        return loss

    return run


def use_tf32(is_allowed: bool) -> None:
    """Whether float32 products round their operands."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_allowed


def _tensor(value: Array, memory_format: torch.memory_format) -> Tensor:
    tensor = torch.from_numpy(value).cuda()
    tensor = tensor.long() if not tensor.is_floating_point() else tensor
    return tensor.to(memory_format=memory_format) if tensor.ndim == 4 else tensor


def seconds_of(step: Callable[[], Tensor], steps: int, rounds: int) -> list[float]:
    """Seconds of a step in every round, over steps that follow each other."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) / steps)
    return found


def product_rate(n: int, dtype: str, rounds: int = 5, count: int = 20) -> float:
    """flop/s of n x n products."""
    use_tf32(dtype == "tf32")
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    a, b = (torch.rand(n, n, device="cuda").to(kind) for _ in range(2))
    out = torch.empty_like(a)

    def step() -> Tensor:
        return torch.matmul(a, b, out=out)

    return 2.0 * n**3 / min(seconds_of(step, count, rounds))
