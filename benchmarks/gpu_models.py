"""The models of `gpu`: those of `cpu_step` and GPT-2's smallest, by name, with the precisions in which they are timed.

Each has its counterpart in `gpu_torch.MODULES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cpu_step_models import MODELS as SMALL_MODELS
from cpu_step_models import Array, Model

import ops
import taskflow
from taskflow import Graph, LogicalRegion

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from models import gpt as gpt2  # noqa: E402

GPT2 = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50257, "sequence": 1024}
ADAMW = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}


@dataclass(frozen=True)
class Case:
    """A model to be timed.

    Attributes:
        model: its graph and feeds; sizes of integers below `classes`.
        batch: samples of a step.
        precisions: of `taskflow.precision`, the first one first.
        target: the ratio to PyTorch eager that is asked for.
    """

    model: Model
    batch: int
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    target: float = 1.0
    classes: Mapping[str, int] = field(default_factory=dict)

    def graph(self, precision: str = "float32", dtype: str = "float32") -> Graph:
        """The training graph; `dtype` float64 is for references on NumPy."""
        loss = self.model.build(self.batch)
        graph = taskflow.precision(loss.graph, precision)
        getattr(ops, self.model.optimizer)(graph.outputs.get("loss", loss), **self.model.rates)
        return graph

    def feeds(self, graph: Graph) -> dict[str, Array]:
        """Random inputs."""
        feeds = self.model.feeds(graph)
        random = np.random.default_rng(1)
        for name, count in self.classes.items():
            feeds[name] = random.integers(0, count, feeds[name].shape).astype(np.int32)
        return feeds


def tiny_mlp(batch: int) -> LogicalRegion:
    """Launches and little else."""
    graph = Graph()
    h, t = graph.input("x", (batch, 64)), graph.input("t", (batch,), "int32")
    for k in (1, 2, 3):
        h = ops.relu(ops.linear(h, 128, name=f"fc{k}"), name=f"relu{k}")
    return ops.softmax_cross_entropy(ops.linear(h, 10, name="fc"), t, name="loss")


def gpt(sizes: Mapping[str, Any]) -> Callable[[int], LogicalRegion]:
    """A GPT-2 of these sizes without dropout."""
    return lambda batch: gpt2.build(batch, dropout=0.0, training=False, **sizes).outputs["loss"]


def _gpt_case(batch: int, sizes: Mapping[str, Any], precisions: tuple[str, ...]) -> Case:
    about = f"GPT-2, {sizes['layers']} layers of {sizes['hidden']}, sequence {sizes['sequence']}, AdamW"
    words = {"x": sizes["vocabulary"], "t": sizes["vocabulary"]}
    return Case(Model(gpt(sizes), batch, about, "adamw", ADAMW), batch, precisions, 1.0, words)


CASES = {
    "mlp": Case(SMALL_MODELS["mlp"], 256),
    "cnn": Case(SMALL_MODELS["vgg"], 128),
    "gpt": _gpt_case(8, GPT2, ("bfloat16",)),
    "dlrm": Case(SMALL_MODELS["dlrm"], 2048, ("float32",)),
    "tiny mlp": Case(Model(tiny_mlp, 32, "64-128-128-128-10"), 32, ("float32",), 1 / 3),
    "tiny gpt": Case(SMALL_MODELS["gpt"], 2, ("float32",), 1 / 3),
}
SMALL_GPT2 = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 96, "sequence": 32}
SMALL_CASES = {  # for references in float64 on NumPy, and for the fake device
    "mlp": replace(CASES["mlp"], batch=16),
    "cnn": replace(CASES["cnn"], batch=4),
    "lstm": Case(SMALL_MODELS["lstm"], 2),
    "gpt": _gpt_case(2, SMALL_GPT2, ("float32", "bfloat16")),
    "dlrm": replace(CASES["dlrm"], batch=64),
    "tiny mlp": CASES["tiny mlp"],
}


def tiny_cases() -> dict[str, Case]:
    """What a fake device runs in seconds, under the names of CASES."""
    tiny = CASES["tiny mlp"]
    return {name: replace(tiny, precisions=case.precisions, target=case.target) for name, case in CASES.items()}
