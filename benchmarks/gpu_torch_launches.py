"""How many kernels PyTorch launches, eager, in a step of the models of `gpu`, counted without a GPU.

Every operator that reaches the dispatcher and is no view, on tensors without memory; an optimizer's updates of
all parameters (`foreach`) count once for each of its operations, though they are several launches where parameters are
many. `gpu_inductor` counts what torch.compile makes of it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import torch
from gpu_models import CASES
from gpu_torch import MODULES, OPTIMIZERS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")
NO_LAUNCH = (
    "alias",
    "detach",
    "device",
    "empty",
    "empty_like",
    "empty_strided",
    "lift_fresh",
    "new_empty",
)
NO_LAUNCH += (
    "_local_scalar_dense",
    "_record_function_enter_new",
    "_record_function_exit",
    "_unsafe_view",
)


class Counting(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function._schema.name.partition("::")[2]
        if not function.is_view and name not in NO_LAUNCH:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def eager(name: str, precision: str) -> tuple[int, int]:
    """Kernels and products of a step."""
    case, counting = CASES[name], Counting()
    feeds = case.feeds(case.graph("float32"))
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        net = MODULES[name]()
        optimizer = OPTIMIZERS[case.model.optimizer](
            net.parameters(), **case.model.rates, foreach=True
        )
        batch = {key: fake.from_tensor(torch.from_numpy(value)) for key, value in feeds.items()}
        batch = {key: v.long() if v.dtype == torch.int32 else v for key, v in batch.items()}
        for counts in (contextlib.nullcontext(), counting):
            with counts:
                optimizer.zero_grad(set_to_none=True)
                with _autocast(precision):
                    loss = net(batch)
                loss.backward()
                optimizer.step()
    products = sum(counting.found[each] for each in PRODUCTS)
    return sum(counting.found.values()) - products, products


def _autocast(precision: str) -> Any:
    is_half = precision in ("float16", "bfloat16")
    return torch.autocast("cpu", getattr(torch, precision)) if is_half else contextlib.nullcontext()
