"""The pieces that part `choices` of `gpu` times: convolutions of the CNN and attention of GPT, forward and backward.

`python benchmarks/gpu_choices.py` makes of what it records the table that is shipped for a kind of GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_models import GPT2

import ops
import taskflow
from taskflow import CostModel, Graph, LogicalRegion, MachineModel
from taskflow.backend import StreamBackend


@dataclass(frozen=True)
class Piece:
    """A graph in a precision."""

    about: str
    graph: Graph


def pieces(is_fake: bool) -> Iterator[Piece]:
    """All of them; tiny ones for a fake device."""
    batch, size, channels = (1, 4, (2,)) if is_fake else (128, 32, (64, 128, 256))
    for precision in ("tf32", "float32", "bfloat16"):
        about = f"convolutions of the CNN, batch {batch}, {precision}"
        yield Piece(about, _trained(convolutions(batch, size, channels), precision))
    features = GPT2["hidden"] // GPT2["heads"]
    sizes = (2, 16, 2, 8) if is_fake else (8, GPT2["sequence"], GPT2["heads"], features)
    yield Piece(f"attention of GPT, {sizes}, bfloat16", _trained(attention(sizes), "bfloat16"))


def convolutions(batch: int, size: int, channels: Sequence[int]) -> LogicalRegion:
    """Those of `vgg` of `cpu_step_models`, for images (batch, 3, size, size): two for each number of channels."""
    h = Graph().input("x", (batch, 3, size, size))
    for block, count in enumerate(channels, 1):
        for k in (1, 2):
            h = ops.relu(ops.conv2d(h, count, 3, padding=1, name=f"conv{block}{k}"))
        h = ops.max_pool2d(h, 2)
    return ops.mean(h, name="loss")


def attention(sizes: tuple[int, ...]) -> LogicalRegion:
    """Causal, of parameters (batch, points, heads, features)."""
    graph = Graph()
    q, k, v = (graph.parameter(name, sizes, ops.normal(0.0, 1.0), "float32") for name in "qkv")
    return ops.mean(ops.fused_attention(q, k, v, is_causal=True, name="attention"), name="loss")


def _trained(loss: LogicalRegion, precision: str) -> Graph:
    graph = taskflow.precision(loss.graph, precision)
    ops.sgd(graph.regions[loss.name], lr=0.01)
    return graph


def by_way(
    piece: Piece, machine: MachineModel, backend: StreamBackend
) -> Mapping[str, Mapping[str, float]]:
    """Key of a choice -> way -> seconds, of all that a library and an own kernel do on one device."""
    rows = taskflow.lower(piece.graph, taskflow.single_device(piece.graph, machine), machine)
    backend.uses_tf32 = rows.uses_tf32
    with TemporaryDirectory() as folder:
        costs = CostModel.measured(machine, Path(folder, "costs.json"), backend)
        costs.seconds(rows)
        choices = costs.choices(backend.name(0))
    return choices.seconds if choices else {}
