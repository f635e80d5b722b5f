"""The loss of connectionist temporal classification and its gradient, beside torch's kernel, on one thread.

    python benchmarks/ctc.py

Torch's figure is of its loss and gradient from logarithms of probabilities that are there; ours makes these, too.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np

from ops.cpu import ctc

SHAPES = ((16, 300, 29, 40), (32, 48, 5, 12))  # samples, frames, classes, labels


def best(call: Callable[[], object], times: int = 10) -> float:
    """The least seconds of the processor of a call, after one that may compile."""
    call()
    seconds = []
    for _ in range(times):
        start = process_time()
        call()
        seconds.append(process_time() - start)
    return min(seconds)


def compare(samples: int, frames: int, classes: int, labels: int) -> None:
    import torch

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((samples, frames, classes)).astype(np.float32)
    targets = generator.integers(1, classes, (samples, labels)).astype(np.int32)
    counts = [np.full(samples, n, np.int32) for n in (frames, labels)]
    loss, gx = np.zeros(samples, np.float32), np.zeros_like(x)
    ours = best(lambda: ctc.losses(x, targets, *counts, 0, loss, gx))
    p = torch.tensor(x).transpose(0, 1).log_softmax(-1).requires_grad_()
    given = [torch.tensor(a).long() for a in (targets, *counts)]

    def torchs() -> torch.Tensor:
        p.grad = None
        made = torch.nn.functional.ctc_loss(p, *given, reduction="none")
        made.sum().backward()
        return made

    theirs = best(torchs)
    np.testing.assert_allclose(loss, torchs().detach().numpy(), rtol=1e-5)
    print(
        f"{samples} x {frames} frames, {classes} classes, {labels} labels: {ours * 1e3:.2f} ms, "
        f"torch {theirs * 1e3:.2f} ms, ratio {ours / theirs:.2f}"
    )


if __name__ == "__main__":
    try:
        import torch
    except ModuleNotFoundError:
        print("ctc: torch is not installed, nothing to compare with")
    else:
        for shape in SHAPES:
            compare(*shape)
