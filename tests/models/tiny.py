"""Tiny versions of the models, and two steps or more of training them."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from taskflow import Device, Executor, Graph, MachineModel, Strategy, lower

Feeds = Mapping[str, np.ndarray]

# Batch norm over one point per image amplifies rounding a million times in five steps; over four points, 1e4 at most.
TINY: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 63, "channels": (4, 3, 2, 3, 4), "hidden": 6, "classes": 3},
    "inception_v3": {
        "image": 107,
        "width": 1 / 32,
        "modules": (1, 1, 1),
        "classes": 3,
        "lr": 0.005,
    },
    "resnet101": {"image": 64, "blocks": (1, 2, 1, 1), "width": 4, "classes": 3, "lr": 0.01},
    "rnntc": {"steps": 3, "hidden": 4, "layers": 2, "embed": 3, "vocabulary": 7, "group": 2},
    "rnnlm": {"steps": 3, "hidden": 4, "embed": 3, "vocabulary": 7, "dropout": 0.3, "group": 1},
    "nmt": {"steps": 3, "hidden": 4, "layers": 1, "embed": 3, "vocabulary": 7, "group": 2},
    "gpt": {"sequence": 5, "layers": 2, "hidden": 6, "heads": 3, "vocabulary": 7},
    "bert": {"sequence": 5, "masked": 2, "layers": 1, "hidden": 6, "heads": 3, "vocabulary": 7},
    "dlrm": {"tables": 3, "rows": 7, "bag": 2, "bottom": (3, 5, 4), "top": (5, 1)},
    "dlrm_dot": {"tables": 3, "rows": 7, "bottom": (3, 5, 4), "top": (5, 1), "interaction": "dot"},
    "moe": {"sequence": 4, "layers": 2, "hidden": 4, "heads": 2, "experts": 3, "vocabulary": 7},
    "lenet": {"image": 16, "classes": 3},
    "mlp": {"inputs": 5, "hidden": (7, 6, 3)},
}
BOUNDS = {
    "segments": 2,
    "t_next": 2,
    "positions": 5,
}  # of integer inputs; the others' are those of the words or classes
# So slow that even the tiny models are worth splitting, and a search finds more than one device.
SLOW_DEVICE = Device(flops_per_second=1e6, memory_bandwidth=1e7, overhead_seconds=0.0)


def slow_machine(devices: int) -> MachineModel:
    return MachineModel.uniform(devices, SLOW_DEVICE, latency_seconds=1e-7)


def build(name: str, **sizes: Any) -> Graph:
    return import_module(f"ops.models.{name.removesuffix('_dot')}").build(**sizes)


def tiny(name: str) -> Graph:
    return build(name, batch=5, dtype="float64", **TINY[name])


def feeds(graph: Graph, name: str, steps: int) -> list[Feeds]:
    """The batches of the first steps."""
    sizes, random = TINY[name], np.random.default_rng(7)
    high = sizes.get("rows") or (
        2 if name == "rnntc" else sizes.get("vocabulary") or sizes.get("classes") or 3
    )

    def draw(region: Any) -> np.ndarray:
        if region.dtype == "int32":
            return random.integers(0, BOUNDS.get(region.name, high), region.shape, dtype="int32")
        return random.random(region.shape)

    return [{r.name: draw(r) for r in graph.inputs} for _ in range(steps)]


def train(
    graph: Graph, strategy: Strategy, machine: MachineModel, batches: Sequence[Feeds]
) -> dict[str, np.ndarray]:
    """The loss of every step, and all persistent regions after the last."""
    with Executor(lower(graph, strategy, machine), seed=3) as step:
        losses = [step(batch)["loss"] for batch in batches]
        return {"loss": np.array(losses), **{name: step.read(name) for name in step.persistent}}


def assert_close(found: Feeds, expected: Feeds) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10, err_msg=name)
