"""Sums and means over dimensions, and the gradient of a broadcast.

Every axis may be split, one that is summed over gives partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from ops.building import (
    check_dim,
    check_region,
    checked,
    distinct,
    gradient_of_first,
    launch_first,
    term,
)
from ops.elementwise.broadcast import sum_over
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from taskflow import Array, Context, Kernel, LogicalRegion

Dims = int | Sequence[int] | None


def sum(
    x: LogicalRegion, dim: Dims = None, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """The sum over one dimension, several, or all, as torch.sum.

    Args:
        x: any shape, floating point.
        dim: the dimensions that are summed over; all when None.
        keepdim: whether they stay with an extent of 1.
        name: of the operator.

    Raises:
        ValueError: a dimension is out of range or named twice, or `x` is of another dtype.
    """
    return _reduce("sum", x, dim, keepdim, name)


def mean(
    x: LogicalRegion, dim: Dims = None, keepdim: bool = False, name: str | None = None
) -> LogicalRegion:
    """The mean over one dimension, several, or all, as torch.mean; args and errors as `sum`.

    Split over a dimension that is averaged, each task holds the share of its points in the mean of all.
    """
    return _reduce("mean", x, dim, keepdim, name)


def global_avg_pool2d(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """The mean of every channel of every image: torch's adaptive_avg_pool2d to one point, flattened.

    Args:
        x: (batch, channels, height, width), floating point.
        name: of the operator.

    Returns:
        (batch, channels).

    Raises:
        ValueError: `x` has not four dimensions, or is of another dtype.
    """
    checked("global_avg_pool2d", name, x, ndim=(4,))
    return mean(x, (2, 3), name=name or "global_avg_pool2d")


def _reduce(
    kind: str, x: LogicalRegion, dim: Dims, keepdim: bool, name: str | None
) -> LogicalRegion:
    dims = reduced_dims(f"{kind} '{name or kind}'", x, dim)
    axes = distinct(x.axes)
    factor = 1 / prod(x.shape[d] for d in dims) if kind == "mean" else 1.0
    return launch_first(
        name or kind,
        f"{term(axes)} -> {kept_term(axes, dims, keepdim)}",
        [x],
        kernel=_sum.bind(dims=dims, factor=factor),
        backward=partial(gradient_of_first, kernel=_repeat.bind(dims=dims, factor=factor)),
        flops=1,
    )


def kept_term(axes: Sequence[str], dims: Sequence[int], keepdim: bool) -> str:
    """The term of what is reduced over `dims`."""
    return term(["1" if k in dims else a for k, a in enumerate(axes) if keepdim or k not in dims])


def sum_to(
    x: LogicalRegion, shape: LogicalRegion | Sequence[int], name: str | None = None
) -> LogicalRegion:
    """The sum over the dimensions along which `shape`, aligned at the right, would be repeated to that of `x`.

    It is the gradient of a broadcast. `x` itself when the shapes are equal.

    Args:
        x: floating point.
        shape: extents, or a region that has them; dimensions that it lacks are summed away, extents of 1 are kept.
        name: of the operator.

    Raises:
        ValueError: `shape` does not broadcast to the shape of `x`.
    """
    target = shape.shape if isinstance(shape, LogicalRegion) else tuple(shape)
    _check_target(checked("sum_to", name, x), x, target)
    if target == x.shape:
        return x
    axes = distinct(x.axes)
    lead = x.ndim - len(target)
    kept = [a if x.shape[lead + k] == target[k] else "1" for k, a in enumerate(axes[lead:])]
    return launch_first(
        name or "sum_to",
        f"{term(axes)} -> {term(kept)}",
        [x],
        kernel=sum_over.bind(
            axes=tuple(k for k in range(x.ndim) if k < lead or kept[k - lead] == "1")
        ),
        backward=partial(gradient_of_first, kernel=_repeat),
        flops=1,
    )


def _check_target(where: str, x: LogicalRegion, target: Sequence[int]) -> None:
    """ValueError unless it broadcasts to the shape of `x`."""
    if len(target) > x.ndim or any(
        n not in (1, m) for m, n in zip(x.shape[x.ndim - len(target) :], target)
    ):
        raise ValueError(
            f"{where}: the shape {target} does not broadcast to that of '{x.name}', {x.shape}"
        )


def named_dims(dim: Dims, ndim: int) -> Sequence[int]:
    """One dimension, several, or None for all."""
    if dim is None:
        return range(ndim)
    return dim if isinstance(dim, Sequence) else (dim,)


def reduced_dims(where: str, x: LogicalRegion, dim: Dims) -> tuple[int, ...]:
    """The dimensions that `dim` names, in order; ValueError when one is out of range or named twice."""
    check_region(where, x)
    dims = tuple(sorted(check_dim(where, d, x.ndim) for d in named_dims(dim, x.ndim)))
    if len(set(dims)) < len(dims):
        raise ValueError(f"{where}: dim {dim} names a dimension of '{x.name}' twice")
    return dims


@partial(Kernel, takes_mixed_on_cuda=True)
def _sum(ctx: Context, x: Array, y: Array, *, dims: tuple[int, ...], factor: float) -> None:
    if ctx.is_cuda:
        out = y if y.ndim == x.ndim else ctx.xp.expand_dims(y, dims)
        cuda_source.reduce(
            ctx,
            Expression.parse("x"),
            {"x": x},
            out,
            dims,
            divisor=1 / factor,
        )
        return
    ctx.xp.sum(x, axis=dims, keepdims=y.ndim == x.ndim, out=y)
    if factor != 1:
        ctx.xp.multiply(y, factor, out=y)


@partial(Kernel, is_captured=True)
def _repeat(
    ctx: Context,
    gy: Array,
    gx: Array,
    *,
    dims: tuple[int, ...] = (),
    factor: float = 1.0,
) -> None:
    """`gy` lacks `dims`, or only leading ones."""
    if dims and gy.ndim < gx.ndim:
        gy = gy[tuple(None if d in dims else slice(None) for d in range(gx.ndim))]
    ctx.xp.multiply(gy, factor, out=gx)
