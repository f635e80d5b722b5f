"""Dropout: a mask that depends on (seed, operator, step, global index), never on the partition.

The mask is not kept for the backward operator, which makes it again.
"""

from __future__ import annotations

from functools import partial

from ops.building import checked, distinct, launch_first, term, terms
from ops.cuda import kernels as gpu
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def dropout(x: LogicalRegion, p: float = 0.5, training: bool = True, name: str | None = None) -> LogicalRegion:
    """Zeroes each element with probability `p` and scales the others by 1 / (1 - p), as torch.nn.functional.dropout.

    Args:
        x: any shape, floating point.
        p: probability of zero, in [0, 1].
        training: when False, or p is 0, the result is `x` itself.
        name: of the operator; it is part of what the mask depends on.

    Raises:
        ValueError: `p` is not a probability, or `x` is of another dtype.
    """
    where = checked("dropout", name, x)
    if not 0 <= p <= 1:
        raise ValueError(f"{where}: p is {p}, a probability is in [0, 1]")
    if not training or p == 0:
        return x
    name = x.graph.unique_name(name or "dropout")
    axes = term(distinct(x.axes))
    kernel = _drop.bind(name=name, p=float(p), shape=x.shape)
    return launch_first(name, f"{axes} -> {axes}", [x], kernel=kernel, backward=_backward, flops=20)


def _backward(op: Operator, gy: LogicalRegion) -> LogicalRegion:
    """The same mask on the gradient: the kernel knows the name of the forward operator."""
    axes = terms(op)[1][0]
    return launch_first(f"{op.name}.dx", f"{axes} -> {axes}", [gy], kernel=op.kernel, backward=_backward, flops=20)


@partial(Kernel, is_compiled=True, cuda=gpu.drop)
def _drop(ctx: Context, x: Array, y: Array, *, name: str, p: float, shape: tuple[int, ...]) -> None:
    number = ctx.scratch("number", y.shape, "float64")
    ctx.uniform(number, name, shape, ctx.rect(1))
    kept = ctx.scratch("kept", y.shape, bool)
    ctx.xp.greater_equal(number, p, out=kept)
    ctx.xp.multiply(x, 1 / (1 - p) if p < 1 else 0.0, out=y)
    ctx.xp.multiply(y, kept, out=y)
