"""Cross entropy over split classes, accuracy, and the order of rows on GPUs; see `gpu` for the rest.

Not yet run on hardware; the tests compile the source for GPUs, and run it as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from numpy.typing import DTypeLike

from ops.cuda.kernels import in_dtype, wide
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.tiles import contiguous, deliver, last, rows, work_array
from taskflow import Array, Context, CudaSource, Kernel

CLASSES = CudaSource(Path(__file__).parent / "classes.cu")
_BLOCK = 256
_IS_BELOW, _DIFFERS = Expression.parse("before < k"), Expression.parse("t != ignored")


@partial(Kernel, takes_half=True)
def entropy_sums(ctx: Context, *arrays: Array, classes: int, smoothing: float, ignored: int | None) -> None:
    """See `cross_entropy`; a class out of range makes the loss NaN."""
    y, largest, t, total, right = arrays
    most, target = wide(ctx, "largest", largest), contiguous(ctx, "t", t)
    made = [_wide_work(ctx, slot, a, most.dtype) for slot, a in (("total", total), ("right", right))]
    numbers = ctx.rect(0).lo[-1], y.shape[-1], classes, ignored is not None, ignored or 0, float(smoothing)
    name = f"entropy_sums_{y.dtype}_{target.dtype}"
    ctx.launch(CLASSES, name, total.size * _BLOCK, rows(ctx, "y", y), most, target, *made, *numbers)
    for work, out in zip(made, (total, right), strict=True):
        deliver(ctx, work, out)


@partial(Kernel, takes_half=True)
def entropy_gradient(ctx: Context, *arrays: Array, classes: int, smoothing: float) -> None:
    """See `cross_entropy`."""
    gtotal, gright, y, largest, t, gy = arrays
    g, h, most = (wide(ctx, k, a) for k, a in enumerate((gtotal, gright, largest)))
    work, target = _wide_work(ctx, "gy", gy, most.dtype), contiguous(ctx, "t", t)
    numbers = ctx.rect(2).lo[-1], y.shape[-1], classes, float(smoothing), gy.size
    name = f"entropy_gradient_{y.dtype}_{target.dtype}"
    ctx.launch(CLASSES, name, gy.size, g, h, contiguous(ctx, "y", y), most, target, work, *numbers)
    deliver(ctx, work, gy)


@partial(Kernel, takes_half=True)
def count_rows(ctx: Context, t: Array, count: Array, *, ignored: int) -> None:
    """See `cross_entropy`."""
    _sum(ctx, _DIFFERS, {"t": t, "ignored": ignored}, t, count)


@partial(Kernel, takes_half=True)
def count_before(ctx: Context, y: Array, t: Array, right: Array, before: Array) -> None:
    """See `metrics.accuracy`."""
    found, target = wide(ctx, "right", right), contiguous(ctx, "t", t)
    work = _wide_work(ctx, "before", before, found.dtype)
    name = f"count_before_{y.dtype}_{target.dtype}"
    numbers = ctx.rect(0).lo[-1], y.shape[-1]
    ctx.launch(CLASSES, name, before.size * _BLOCK, rows(ctx, "y", y), target, found, work, *numbers)
    deliver(ctx, work, before)


@partial(Kernel, takes_half=True)
def share_below(ctx: Context, before: Array, share: Array, *, k: int, count: int) -> None:
    """See `metrics.accuracy`."""
    _sum(ctx, _IS_BELOW, {"before": before, "k": k}, before, share, count)


def _wide_work(ctx: Context, slot: object, a: Array, dtype: DTypeLike) -> Array:
    """As `work_array`, in the dtype of sums."""
    return work_array(ctx, slot, a) if a.dtype == dtype else ctx.scratch(slot, a.shape, dtype)


def _sum(
    ctx: Context, expression: Expression, values: dict[str, Array | float], a: Array, out: Array, divisor: float = 1.0
) -> None:
    """A scalar: the sum of an expression over all of `a`."""
    cuda_source.reduce(ctx, expression, values, out.reshape((1,) * a.ndim), range(a.ndim), divisor=divisor)


@partial(Kernel, takes_half=True)
def in_order(ctx: Context, x: Array, values: Array, indices: Array, *, dim: int, largest: bool) -> None:
    """See `extremes.topk`; for each of the `k` the row is read once."""
    x, values, indices = (last(a, dim) for a in (x, values, indices))
    made = work_array(ctx, "values", values), work_array(ctx, "indices", indices)
    count, read = values.size // values.shape[-1], rows(ctx, "x", in_dtype(ctx, "cast", x, values.dtype))
    numbers = x.shape[-1], values.shape[-1], largest
    ctx.launch(CLASSES, f"in_order_{values.dtype}", count * _BLOCK, read, *made, *numbers)
    deliver(ctx, made[0], values)
    deliver(ctx, made[1], indices)


@partial(Kernel, takes_half=True)
def points_behind(ctx: Context, x: Array, largest: Array, behind: Array, *, dim: int, extent: int) -> None:
    """See `extremes.argmax`."""
    row = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    lo, read, work = ctx.rect(0).lo[dim], rows(ctx, "x", last(x, dim)), work_array(ctx, "behind", behind)
    most = contiguous(ctx, "largest", in_dtype(ctx, "cast", largest, x.dtype)).reshape(row)
    ctx.launch(CLASSES, f"points_behind_{x.dtype}", behind.size * _BLOCK, read, most, work, lo, x.shape[dim], extent)
    deliver(ctx, work, behind)
