"""The gradient of a broadcast as an operator; every axis may be split, one that is summed gives partial sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.building import checked, distinct, gradient_of_first, launch_first, term
from ops.elementwise.broadcast import sum_over
from taskflow import Array, Context, Kernel, LogicalRegion


def sum_to(x: LogicalRegion, shape: LogicalRegion | Sequence[int], name: str | None = None) -> LogicalRegion:
    """The sum over the dimensions along which `shape`, aligned at the right, would be repeated to that of `x`.

    It is the gradient of a broadcast. `x` itself when the shapes are equal.

    Args:
        x: floating point.
        shape: extents, or a region that has them; dimensions that it lacks are summed away, extents of 1 are kept.
        name: of the operator.

    Raises:
        ValueError: `shape` does not broadcast to the shape of `x`.
    """
    where = checked("sum_to", name, x)
    target = shape.shape if isinstance(shape, LogicalRegion) else tuple(shape)
    if len(target) > x.ndim or any(b not in (1, a) for a, b in zip(x.shape[x.ndim - len(target) :], target)):
        raise ValueError(f"{where}: the shape {target} does not broadcast to that of '{x.name}', {x.shape}")
    if target == x.shape:
        return x
    axes = distinct(x.axes)
    lead = x.ndim - len(target)
    kept = [a if x.shape[lead + k] == target[k] else "1" for k, a in enumerate(axes[lead:])]
    summed = tuple(k for k in range(x.ndim) if k < lead or kept[k - lead] == "1")
    return launch_first(
        name or "sum_to",
        f"{term(axes)} -> {term(kept)}",
        [x],
        kernel=sum_over.bind(axes=summed),
        backward=partial(gradient_of_first, kernel=_repeat),
        flops=1,
    )


@partial(Kernel, is_captured=True)
def _repeat(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x)
