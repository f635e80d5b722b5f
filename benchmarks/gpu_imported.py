"""Modules of torch that part `imported` of `gpu` trains on both sides, from the same weights on the same batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_setting import Setting

import ops
import taskflow

CLASSES, RATES = 10, {"lr": 0.01, "momentum": 0.9}
WARM_STEPS = 5


def modules(is_fake: bool) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Name -> what makes a module and its example inputs; ImportError where a package lacks."""
    if is_fake:
        return {"two layers": _two_layers}
    return {
        "resnet18": lambda: _of_torchvision("resnet18"),
        "vit_b_16": lambda: _of_torchvision("vit_b_16"),
    }


def _two_layers() -> tuple[Any, Any]:
    import torch
    from torch import nn

    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 36, CLASSES),
    )
    return nn.Sequential(*layers), torch.rand(4, 3, 8, 8)


def _of_torchvision(name: str) -> tuple[Any, Any]:
    import torch
    from torchvision import models

    options = {"image_size": 32, "dropout": 0.0} if name.startswith("vit") else {}
    return getattr(models, name)(num_classes=CLASSES, **options), torch.rand(32, 3, 32, 32)


def train(
    setting: Setting, module: Any, inputs: Any, steps: int
) -> tuple[list[float], list[float], dict[str, float]]:
    """Losses of both sides, and the seconds of a step of each."""
    import torch

    torch.manual_seed(0)
    labels = torch.randint(CLASSES, inputs.shape[:1])
    found = ops.from_torch(module.train(), inputs, compare=False)
    graph = found.graph
    target = graph.input("target", tuple(labels.shape), "int32")
    ops.sgd(ops.softmax_cross_entropy(found.output, target, name="loss"), **RATES)
    feeds = {graph.inputs[0].name: inputs.numpy(), "target": labels.numpy().astype(np.int32)}
    with setting.executor(taskflow.fuse(graph)) as step:
        for name, value in found.weights.items():
            step.write(name, value)
        ours = [float(step(feeds)["loss"]) for _ in range(steps)]
        own = _seconds(lambda: step(feeds), lambda: None, setting.count(20))
    theirs, eager = _beside(module, inputs, labels, steps, setting)
    return ours, theirs, {"step": own, "torch eager": eager}


def _beside(
    module: Any, inputs: Any, labels: Any, steps: int, setting: Setting
) -> tuple[list[float], float]:
    import torch

    device = "cpu" if setting.is_fake else "cuda"
    module, inputs, labels = module.to(device), inputs.to(device), labels.to(device)
    optimizer = torch.optim.SGD(module.parameters(), **RATES)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(module(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    losses = [float(step().detach()) for _ in range(steps)]
    end = (lambda: None) if setting.is_fake else torch.cuda.synchronize
    return losses, _seconds(step, end, setting.count(20))


def _seconds(step: Callable[[], object], end: Callable[[], object], count: int) -> float:
    """Of a step, over `count` that follow each other."""
    for _ in range(WARM_STEPS):
        step()
    end()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    end()
    return (time.perf_counter() - begin) / count
