"""The dense-to-sparse gate: all experts at first, fewer as a temperature falls.

Source: Nie et al., "EvoMoE: An Evolutional Mixture-of-Experts Training Framework via Dense-To-Sparse Gate" (2021),
arXiv 2112.14397, and the gate of its authors' code: https://github.com/codecaution/EvoMoE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ops.building import check_number, check_region, checked, first
from ops.elementwise.arithmetic import divide
from ops.elementwise.dropout import gumbel
from ops.loss.softmax import softmax
from ops.moe.gate import top_k_gate
from ops.optim.groups import Rate
from ops.optim.updating import Named
from taskflow import Array, Context, Graph, Kernel, LogicalRegion

_POSITIVE = "a positive finite number"


def dense_to_sparse_gate(
    scores: LogicalRegion,
    k: int,
    temperature: Rate | LogicalRegion = 1.0,
    threshold: float = 0.02,
    noisy: bool = True,
    name: str | None = None,
) -> tuple[LogicalRegion, LogicalRegion, LogicalRegion]:
    """The experts whose part of softmax((scores + Gumbel noise) / temperature) is not below the threshold.

    A low temperature leaves one expert, a high one all: lower it from step to step, and give graphs of smaller `k` to
    executors that share their regions (`Executor(share=)`). Weights are not scaled up to one for experts left out.

    Args:
        scores: (..., experts), floating point, one for each expert.
        k: choices of a token at most, the likeliest.
        temperature: a number, a function of the number of finished steps, or a region of shape ().
        threshold: of a weight; the likeliest expert is always chosen.
        noisy: whether there is noise, as in training.
        name: of the operator that chooses; those before are `<name>.noise`, `<name>.cooled`, `<name>.softmax`.

    Returns:
        weights (..., k), of the dtype of `scores`, choices (..., k), int32, -1 for none, and what they are chosen by:
        probabilities of the shape of `scores`.

    Raises:
        ValueError: `k` is not in 1..experts, a number is out of range, or a dtype or shape is wrong.
    """
    where = checked("dense_to_sparse_gate", name, scores, "scores", least=1)
    name = scores.graph.unique_name(name or "dense_to_sparse_gate", "softmax")
    if noisy:
        scores = gumbel(scores, f"{name}.noise")
    if isinstance(temperature, LogicalRegion):
        check_region(where, temperature, "temperature")
        if temperature.shape:
            raise ValueError(f"{where}: temperature '{temperature.name}' is {temperature.shape}")
    elif callable(temperature):
        check_number(where, "temperature(0)", temperature(0), _POSITIVE)
        temperature = rate_of_step(scores.graph, temperature, scores.dtype, f"{name}.temperature")
    else:
        check_number(where, "temperature", temperature, _POSITIVE)
    scores = divide(scores, temperature, f"{name}.cooled")
    probabilities = softmax(scores, name=f"{name}.softmax")
    chosen = top_k_gate(probabilities, k, normalize=False, name=name, threshold=threshold)
    return *chosen, probabilities


def rate_of_step(
    graph: Graph, rate: Callable[[int], float], dtype: str, name: str
) -> LogicalRegion:
    """A region of shape () that holds `rate` of the number of finished steps."""
    kernel = _write_rate.bind(rate=Named(rate))
    return first(
        graph.launch(
            name,
            "-> .",
            [],
            kernel=kernel,
            dtype=dtype,
            flops=1,
        )
    )


@partial(Kernel, takes_mixed=True)
def _rate_on_gpu(ctx: Context, out: Array, *, rate: Named) -> None:
    cell = ctx.cell("rate", np.float64, lambda run: rate.schedule(run.step))
    ctx.xp.copyto(out, cell.reshape(()), casting="same_kind")


@partial(Kernel, cuda=_rate_on_gpu)
def _write_rate(ctx: Context, out: Array, *, rate: Named) -> None:
    out[...] = rate.schedule(ctx.step)
