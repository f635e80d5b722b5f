"""The models of `gpu`: those of `cpu_step` and GPT-2's smallest, by name, with the precisions in which they are timed.

They are written as one does for speed on a GPU: a layer and its ReLU are one operator, and `taskflow.fuse` ends it.
Each has its counterpart in `gpu_torch.MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from cpu_step_models import MODELS as SMALL_MODELS
from cpu_step_models import Array, Model, dlrm, mlp, vgg

import ops
import taskflow
from ops.models import digits as digit_models
from ops.models import gpt as gpt2
from taskflow import Graph, LogicalRegion

GPT2 = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50257, "sequence": 1024}
ADAMW = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}


@dataclass(frozen=True)
class Case:
    """A model to be timed.

    Attributes:
        model: its graph and feeds; sizes of integers below `classes`.
        batch: samples of a step.
        precisions: of `taskflow.precision`, the first one first; "tf32" is TensorFloat-32 on both sides, which
            "float32" does without.
        target: the ratio to the fastest of PyTorch's variants that is asked for; `target_of`: in a precision.
    """

    model: Model
    batch: int
    precisions: tuple[str, ...] = ("float32", "tf32", "bfloat16")
    target: float = 1.0
    classes: Mapping[str, int] = field(default_factory=dict)
    target_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def targets(self) -> dict[str, float]:
        """Precision -> the ratio to the fastest of PyTorch's variants that is asked for."""
        return {
            precision: self.target_of.get(precision, self.target) for precision in self.precisions
        }

    def graph(self, precision: str = "float32", is_fused: bool = True) -> Graph:
        """The training graph."""
        loss = self.model.build(self.batch)
        graph = taskflow.precision(loss.graph, precision)
        getattr(ops, self.model.optimizer)(graph.regions[loss.name], **self.model.rates)
        return taskflow.fuse(graph) if is_fused else graph

    def feeds(self, graph: Graph) -> dict[str, Array]:
        """Random inputs."""
        feeds = self.model.feeds(graph)
        random = np.random.default_rng(1)
        for name, count in self.classes.items():
            feeds[name] = random.integers(0, count, feeds[name].shape).astype(np.int32)
        return feeds


def dense(h: LogicalRegion, width: int, name: str, relu: str) -> LogicalRegion:
    """A layer with a ReLU, as one operator named `name`."""
    return ops.linear(h, width, activation="relu", name=name)


def small(name: str, build: Callable[..., LogicalRegion]) -> Model:
    """A model of `cpu_step` of such layers."""
    return replace(SMALL_MODELS[name], build=partial(build, dense=dense))


def tiny_mlp(batch: int) -> LogicalRegion:
    """Launches and little else."""
    graph = Graph()
    h, t = graph.input("x", (batch, 64)), graph.input("t", (batch,), "int32")
    for k in (1, 2, 3):
        h = dense(h, 128, f"fc{k}", f"relu{k}")
    return ops.softmax_cross_entropy(ops.linear(h, 10, name="fc"), t, name="loss")


def gpt(sizes: Mapping[str, Any]) -> Callable[[int], LogicalRegion]:
    """A GPT-2 of these sizes without dropout, of fused operators, with a vocabulary that is padded."""
    options = {"dropout": 0.0, "training": False, "fused": "all", "vocabulary_multiple": 64}
    return lambda batch: gpt2.build(batch, **options, **sizes).outputs["loss"]


def _gpt_case(batch: int, sizes: Mapping[str, Any], precisions: tuple[str, ...]) -> Case:
    about = (
        f"GPT-2, {sizes['layers']} layers of {sizes['hidden']}, sequence {sizes['sequence']}, AdamW"
    )
    words = {"x": sizes["vocabulary"], "t": sizes["vocabulary"]}
    return Case(Model(gpt(sizes), batch, about, "adamw", ADAMW), batch, precisions, 0.95, words)


CASES = {
    "mlp": Case(small("mlp", mlp), 256, target=0.9),
    "cnn": Case(small("vgg", vgg), 128, target=0.95, target_of={"bfloat16": 0.9}),
    "gpt": _gpt_case(8, GPT2, ("bfloat16",)),
    "dlrm": Case(small("dlrm", dlrm), 2048, ("float32", "tf32"), 0.8),
    "tiny mlp": Case(Model(tiny_mlp, 32, "64-128-128-128-10"), 32, ("float32", "tf32"), 0.7),
    "tiny gpt": Case(SMALL_MODELS["gpt"], 2, ("float32", "tf32"), 0.7),
}


def tiny_cases() -> dict[str, Case]:
    """What a fake device runs in a second, under the names of CASES."""
    tiny = CASES["tiny mlp"]
    return {
        name: replace(tiny, precisions=case.precisions, target=case.target)
        for name, case in CASES.items()
    }


# -- references and curves ---------------------------------------------------------------------------------------------

REFERENCES: dict[
    str, dict[str, Any]
] = {  # of ops/models, in float32 on the GPU and in float64 on NumPy
    "mlp": {"batch": 32, "inputs": 256, "hidden": (512, 512, 10)},
    "alexnet": {
        "batch": 16,
        "image": 95,
        "channels": (32, 64, 96, 64, 64),
        "hidden": 512,
        "classes": 100,
    },
    "rnnlm": {
        "batch": 32,
        "steps": 10,
        "hidden": 256,
        "embed": 256,
        "vocabulary": 1000,
        "group": 5,
    },
    "gpt": {"batch": 4, "sequence": 64, "layers": 2, "hidden": 128, "heads": 4, "vocabulary": 1000},
    "dlrm": {"batch": 512, "tables": 4, "rows": 10_000, "top": (512, 512, 512, 1)},
}
TINY_REFERENCES: dict[str, dict[str, Any]] = {"mlp": {"batch": 4, "inputs": 5, "hidden": (7, 6, 3)}}


def reference(name: str, sizes: Mapping[str, Any], dtype: str) -> tuple[Graph, dict[str, Array]]:
    """A model of ops/models and what it is fed."""
    graph = import_module(f"ops.models.{name}").build(**sizes, dtype=dtype)
    words = (
        sizes.get("rows") or sizes.get("vocabulary") or sizes.get("classes") or sizes["hidden"][-1]
    )
    random, feeds = np.random.default_rng(0), {}
    for region in graph.inputs:
        is_number = region.dtype == "int32"
        values = (
            random.integers(0, words, region.shape) if is_number else random.random(region.shape)
        )
        feeds[region.name] = values.astype(region.dtype)
    return graph, feeds


def digits(precision: str, batch: int = 64) -> Graph:
    """The CNN of the demo."""
    graph = digit_models.cnn(batch, is_trained=False)
    graph = taskflow.precision(graph, precision)
    ops.sgd(graph.outputs["loss"], lr=0.05, momentum=0.9)
    return graph


def blurred_digits(step: int, batch: int = 64) -> dict[str, Array]:
    """Ten fixed patterns of 8x8 with as much noise: no data set need be there."""
    patterns = np.random.default_rng(5).random((10, 1, 8, 8))
    random = np.random.default_rng([6, step])
    t = random.integers(0, 10, batch)
    x = patterns[t] + random.normal(0, 0.5, (batch, 1, 8, 8))
    return {"x": x.astype(np.float32), "t": t.astype(np.int32)}


def small_gpt(precision: str, batch: int = 16) -> Graph:
    """A GPT of two layers over bytes."""
    sizes = {"layers": 2, "hidden": 128, "heads": 4, "vocabulary": 128, "sequence": 64}
    loss = gpt(sizes)(batch)
    graph = taskflow.precision(loss.graph, precision)
    ops.adamw(graph.regions[loss.name], **ADAMW)
    return graph


def text(step: int, batch: int = 16, length: int = 64) -> dict[str, Array]:
    """Pieces of Python's documentation, which comes with Python."""
    book = np.frombuffer("".join(topics.values()).encode("ascii", "replace"), np.uint8).astype(
        np.int32
    )
    starts = np.random.default_rng([8, step]).integers(0, len(book) - length - 1, batch)
    pieces = book[starts[:, None] + np.arange(length + 1)]
    return {"x": pieces[:, :-1].copy(), "t": pieces[:, 1:].copy()}


CURVES = {"CNN of the demo": (digits, blurred_digits), "GPT, 2 layers of 128": (small_gpt, text)}
