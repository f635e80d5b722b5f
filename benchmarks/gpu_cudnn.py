"""The pieces that part `cudnn` of `gpu` times: convolutions of the CNN and attention of GPT, forward and backward.

Where cuDNN is not installed, or refuses, both columns are the same kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_models import GPT2

import ops
import taskflow
from taskflow import CostModel, Graph, Kind, LogicalRegion, MachineModel
from taskflow.backend import StreamBackend


@dataclass(frozen=True)
class Piece:
    """A graph in a precision, of which the operators whose names begin with `prefix` are timed."""

    about: str
    graph: Graph
    prefix: str
    precision: str


def pieces(is_fake: bool) -> Iterator[Piece]:
    """All of them; tiny ones for a fake device."""
    batch, size, channels = (1, 4, (2,)) if is_fake else (128, 32, (64, 128, 256))
    for precision in ("tf32", "float32", "bfloat16"):
        about = f"convolutions of the CNN, batch {batch}, {precision}"
        yield Piece(
            about, _trained(convolutions(batch, size, channels), precision), "conv", precision
        )
    sizes = (
        (2, 16, 2, 8)
        if is_fake
        else (8, GPT2["sequence"], GPT2["heads"], GPT2["hidden"] // GPT2["heads"])
    )
    for precision in ("bfloat16", "float32"):
        for is_fused in (True, False):
            about = f"{'fused ' if is_fused else ''}attention of GPT, {sizes}, {precision}"
            yield Piece(
                about, _trained(attention(sizes, is_fused), precision), "attention", precision
            )


def convolutions(batch: int, size: int, channels: Sequence[int]) -> LogicalRegion:
    """Those of `vgg` of `cpu_step_models`, for images (batch, 3, size, size): two for each number of channels."""
    h = Graph().input("x", (batch, 3, size, size))
    for block, count in enumerate(channels, 1):
        for k in (1, 2):
            h = ops.relu(ops.conv2d(h, count, 3, padding=1, name=f"conv{block}{k}"))
        h = ops.max_pool2d(h, 2)
    return ops.mean(h, name="loss")


def attention(sizes: tuple[int, ...], is_fused: bool) -> LogicalRegion:
    """Causal, of parameters (batch, points, heads, features): one operator, or scores, softmax and weighted sum."""
    graph = Graph()
    q, k, v = (graph.parameter(name, sizes, ops.normal(0.0, 1.0), "float32") for name in "qkv")
    function = ops.fused_attention if is_fused else ops.scaled_dot_product_attention
    return ops.mean(function(q, k, v, is_causal=True, name="attention"), name="loss")


def _trained(loss: LogicalRegion, precision: str) -> Graph:
    graph = taskflow.precision(loss.graph, precision)
    ops.sgd(graph.regions[loss.name], lr=0.01)
    return graph


def seconds_of(piece: Piece, machine: MachineModel, backend: StreamBackend) -> dict[str, float]:
    """Seconds of each of its operators on one device, without updates and casts."""
    task_graph = taskflow.lower(piece.graph, taskflow.single_device(piece.graph, machine), machine)
    backend.uses_tf32 = task_graph.uses_tf32
    others = "sgd", "gradient", piece.precision
    seconds, found = CostModel.measured(machine, backend=backend).seconds(task_graph), {}
    for row in range(len(task_graph)):
        task = task_graph[row]
        if (
            task.kind == Kind.POINT
            and task.name.startswith(piece.prefix)
            and not task.name.endswith(others)
        ):
            found[task.name] = float(seconds[row])
    return found
