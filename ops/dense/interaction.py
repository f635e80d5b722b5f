"""The dot interaction of DLRM: products of every pair of feature vectors.

Splits over the batch, over `e` (partial sums) and over `p`, the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ops.building import checked, launch_all, launch_first
from ops.cuda import kernels as gpu
from ops.tiles import contiguous, deliver, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, njit


def dot_interaction(xs: Sequence[LogicalRegion], name: str | None = None) -> LogicalRegion:
    """y[b, p] = sum over e of x_i[b, e] x_j[b, e] for every pair i > j, row by row (Naumov et al., arXiv 1906.00091).

    Args:
        xs: regions of one shape (batch, features), floating point; at least two.
        name: of the operator.

    Returns:
        (batch, pairs) with pairs = f (f - 1) / 2 for f regions, in the order (1, 0), (2, 0), (2, 1), (3, 0), ...

    Raises:
        ValueError: there are fewer than two regions, their shapes differ, or a dtype is wrong.
    """
    where = f"dot_interaction '{name or 'dot_interaction'}'"
    xs = list(xs)
    if len(xs) < 2:
        raise ValueError(f"{where}: at least two regions are needed")
    for k, x in enumerate(xs):
        checked("dot_interaction", name, x, f"xs[{k}]", ndim=(2,))
        if x.shape != xs[0].shape:
            raise ValueError(
                f"{where}: '{xs[0].name}' is {xs[0].shape} and '{x.name}' is {x.shape}"
            )
    return launch_first(
        name or "dot_interaction",
        f"{', '.join(['b e'] * len(xs))} -> b p",
        xs,
        kernel=_forward,
        sizes={"p": len(xs) * (len(xs) - 1) // 2},
        backward=_backward,
        flops=2,
    )


@cache
def _pairs(count: int) -> tuple[Any, Any]:
    return np.tril_indices(count, -1)


def _stacked(ctx: Context, xs: Sequence[Array]) -> Array:
    features = ctx.scratch("features", (xs[0].shape[0], len(xs), xs[0].shape[1]), xs[0].dtype)
    for k, x in enumerate(xs):
        ctx.xp.copyto(features[:, k], x)
    return features


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _forward(ctx: Context, *args: Array) -> None:
    *xs, y = args
    features = _stacked(ctx, xs)
    pairs = slice(*ctx.interval("p"))
    if ctx.is_cuda:
        products = ctx.scratch("products", (y.shape[0], len(xs), len(xs)), y.dtype)
        ctx.xp.matmul(features, features.transpose(0, 2, 1), out=products)
        gpu.take_pairs(ctx, products, y, pairs.start)
        return
    work = work_array(ctx, "y", y)
    ctx.call(multiply_pairs, features, *(a[pairs] for a in _pairs(len(xs))), work)
    deliver(ctx, work, y)


def _backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    terms = ", ".join(["b e"] * len(op.inputs))
    return launch_all(
        f"{op.name}.dx",
        f"b p, {terms} -> {terms}",
        [gy, *op.inputs],
        kernel=_gradient,
        flops=4,
    )


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _gradient(ctx: Context, gy: Array, *args: Array) -> None:
    count = len(args) // 2
    features = _stacked(ctx, args[:count])
    weights = _put_pairs(ctx, gy, count)
    gradients = ctx.scratch("gradients", features.shape, gy.dtype)
    ctx.xp.matmul(weights, features, out=gradients)
    for k, gx in enumerate(args[count:]):
        ctx.xp.copyto(gx, gradients[:, k])


def _put_pairs(ctx: Context, gy: Array, count: int) -> Array:
    """The gradients of products where their pairs stand in a matrix of `count` rows."""
    weights = ctx.scratch("weights", (gy.shape[0], count, count), gy.dtype)
    lo, hi = ctx.interval("p")
    if ctx.is_cuda:
        gpu.put_pairs(ctx, gy, weights, lo)
    else:
        i, j = _pairs(count)
        ctx.call(put_pairs, contiguous(ctx, "gy", gy), i[lo:hi], j[lo:hi], weights)
    return weights


@njit(nogil=True, fastmath={"contract", "reassoc"})
def multiply_pairs(features: Array, i: Array, j: Array, y: Array) -> None:
    """y[n, p] = the product of vectors i[p] and j[p] of row n; BLAS takes 1 us a row for matrices so small."""
    for n in range(y.shape[0]):
        for p in range(y.shape[1]):
            one = i[p]
            other = j[p]
            total = y.dtype.type(0)
            for e in range(features.shape[2]):
                total += features[n, one, e] * features[n, other, e]
            y[n, p] = total


@njit(nogil=True)
def put_pairs(gy: Array, i: Array, j: Array, weights: Array) -> None:
    """The gradient of `take_pairs`, for both orders of a pair; zeros for what is no pair of this tile."""
    for n in range(gy.shape[0]):
        weights[n] = 0
        for p in range(gy.shape[1]):
            weights[n, i[p], j[p]] = weights[n, j[p], i[p]] = gy[n, p]
