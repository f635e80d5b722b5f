"""Operators on one CPU core beside PyTorch eager's, forward and backward, in the same run.

`python benchmarks/cpu_operators.py`. Each operator is a graph of its own whose output's gradient is fed; taken are the
rows of the operator and its gradients. Times are of the processor, medians of rounds in which both sides take turns.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ops
import taskflow
from taskflow import LogicalRegion, differentiate

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One operator on inputs of these shapes; `high` bounds the integers of those that are indices."""

    ours: Callable[..., LogicalRegion]
    theirs: Callable[[], Callable[..., Tensor]]
    shapes: Mapping[str, tuple[int, ...]]
    high: Mapping[str, int] = field(default_factory=dict)


def of(function: Callable[..., Tensor], **options: Any) -> Callable[[], Callable[..., Tensor]]:
    """A function of torch, which has no parameters to make."""
    return lambda: lambda *inputs: function(*inputs, **options)


def lstm() -> Callable[..., Tensor]:
    layer = nn.LSTM(256, 256, batch_first=True)
    return lambda x: layer(x)[0]


TOKENS, IMAGES, HEADS = {"x": (1024, 256)}, {"x": (16, 64, 32, 32)}, (8, 128, 4, 64)
CASES = {
    "linear 1024x256 to 1024": Case(
        lambda x: ops.linear(x, 1024), lambda: nn.Linear(256, 1024), TOKENS
    ),
    "relu 1024x1024": Case(ops.relu, of(F.relu), {"x": (1024, 1024)}),
    "gelu 1024x1024": Case(ops.gelu, of(F.gelu), {"x": (1024, 1024)}),
    "tanh 1024x1024": Case(ops.tanh, of(torch.tanh), {"x": (1024, 1024)}),
    "add 1024x1024": Case(ops.add, of(torch.add), {"x": (1024, 1024), "y": (1024, 1024)}),
    "softmax 4096x128": Case(ops.softmax, of(F.softmax, dim=-1), {"x": (4096, 128)}),
    "layer_norm 1024x256": Case(ops.layer_norm, lambda: nn.LayerNorm(256), TOKENS),
    "batch_norm 16x64x32x32": Case(ops.batch_norm, lambda: nn.BatchNorm2d(64), IMAGES),
    "cross entropy 1024x96": Case(
        ops.softmax_cross_entropy, of(F.cross_entropy), {"x": (1024, 96), "t": (1024,)}, {"t": 96}
    ),
    "conv2d 3x3 16x64x32x32": Case(
        lambda x: ops.conv2d(x, 64, 3, padding=1), lambda: nn.Conv2d(64, 64, 3, padding=1), IMAGES
    ),
    "conv2d 1x1 stride 2": Case(
        lambda x: ops.conv2d(x, 128, 1, 2), lambda: nn.Conv2d(64, 128, 1, 2), IMAGES
    ),
    "max_pool2d 2": Case(lambda x: ops.max_pool2d(x, 2), of(F.max_pool2d, kernel_size=2), IMAGES),
    "embedding 1024 of 96x256": Case(
        lambda x: ops.embedding(x, 96, 256),
        lambda: nn.Embedding(96, 256),
        {"x": (1024,)},
        {"x": 96},
    ),
    "attention 8x4 heads, 128": Case(
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, True),
        lambda: (
            lambda q, k, v: F.scaled_dot_product_attention(
                *(a.transpose(1, 2) for a in (q, k, v)), is_causal=True
            )
        ),
        dict.fromkeys("qkv", HEADS),
    ),
    "lstm 32x64x256": Case(lambda x: ops.lstm(x, 256, fused=True)[0], lstm, {"x": (32, 64, 256)}),
}


def inputs_of(case: Case) -> dict[str, Array]:
    """Normal numbers, and indices."""
    random = np.random.default_rng(0)
    return {
        key: random.integers(0, case.high[key], shape).astype(np.int32)
        if key in case.high
        else random.standard_normal(shape, np.float32)
        for key, shape in case.shapes.items()
    }


def our_calls(case: Case, feeds: dict[str, Array]) -> Callable[[], object]:
    """All rows but those of the feeds and of the sum that makes a loss of the output."""
    graph = taskflow.Graph()
    y = case.ours(
        *(graph.input(key, array.shape, str(array.dtype)) for key, array in feeds.items())
    )
    feeds = dict(feeds)
    loss = y
    if y.shape:
        feeds["gradient"] = np.random.default_rng(1).standard_normal(y.shape, np.float32)
        loss = ops.sum_to(
            ops.multiply(y, graph.input("gradient", y.shape), name="made.up"), (), name="made.loss"
        )
    sources = [
        r
        for r in (*graph.inputs, *graph.parameters)
        if r.dtype == "float32" and r.name != "gradient"
    ]
    for region, gradient in differentiate(loss, sources).items():
        graph.output(region.name, gradient)
    machine = taskflow.MachineModel.local()
    executor = taskflow.Executor(
        taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    )
    executor(feeds)
    names = [str(executor.task_graph[row]).split(": ", 1)[1] for row in executor.program.rows]
    made_up = [name.split()[1].startswith("made.") or name.startswith("feed") for name in names]
    calls = [
        call
        for call, is_made_up in zip(executor.program.calls, made_up, strict=True)
        if not is_made_up
    ]

    def step() -> None:
        for call in calls:
            call()

    return step


def their_calls(case: Case, feeds: dict[str, Array]) -> Callable[[], object]:
    """Forward, and backward from a given gradient."""
    function = case.theirs()
    inputs = [
        torch.from_numpy(a.astype(np.int64))
        if a.dtype == np.int32
        else torch.from_numpy(a).requires_grad_()
        for a in feeds.values()
    ]
    gradient = torch.randn_like(function(*inputs))
    trained = [*(x for x in inputs if x.requires_grad), *getattr(function, "parameters", list)()]

    def step() -> None:
        for tensor in trained:
            tensor.grad = None
        function(*inputs).backward(gradient)

    return step


def time_both(sides: list[Callable[[], object]], rounds: int) -> list[float]:
    """Medians in seconds."""
    times: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for step, found in zip(sides, times, strict=True):
            begin = time.process_time()
            for _ in range(5):
                step()
            if turn:
                found.append((time.process_time() - begin) / 5)
    return [float(np.median(found)) for found in times]


def main() -> None:
    """Print a line per operator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'forward and backward':28s} {'taskflow us':>12s} {'torch us':>10s} {'ratio':>6s}")
    for name, case in CASES.items():
        feeds = inputs_of(case)
        ours, theirs = time_both([our_calls(case, feeds), their_calls(case, feeds)], options.rounds)
        print(
            f"{name:28s} {ours * 1e6:12.0f} {theirs * 1e6:10.0f} {ours / theirs:6.2f}", flush=True
        )


if __name__ == "__main__":
    main()
