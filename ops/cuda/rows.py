"""Softmax and sums of rows on GPUs; see `gpu`.

Not yet run on hardware; the tests compile the source for GPUs, and run it as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ops.cuda.kernels import in_dtype
from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.tiles import deliver, last, rows, work_array
from taskflow import Array, Context, CudaSource, Kernel

ROWS = CudaSource(Path(__file__).parent / "rows.cu")
_BLOCK = 256
_STEPS = 8  # that one kernel adds up
_SUM = Expression.parse("a + b")


@partial(Kernel, takes_half=True)
def softmax(ctx: Context, x: Array, y: Array, *, dim: int) -> None:
    """See `softmax.softmax`."""
    x, y = last(x, dim), last(y, dim)
    work, width = work_array(ctx, "y", y), x.shape[-1]
    read = rows(ctx, "x", in_dtype(ctx, "wide x", x, y.dtype))
    ctx.launch(ROWS, f"softmax_{y.dtype}", y.size // width * _BLOCK, read, work, width)
    deliver(ctx, work, y)


@partial(Kernel, takes_half=True)
def softmax_gradient(ctx: Context, gy: Array, y: Array, gx: Array, *, dim: int) -> None:
    """See `softmax.softmax`."""
    gy, y, gx = (last(a, dim) for a in (gy, y, gx))
    work, width = work_array(ctx, "gx", gx), gx.shape[-1]
    read = [rows(ctx, k, in_dtype(ctx, ("cast", k), a, gx.dtype)) for k, a in enumerate((gy, y))]
    ctx.launch(ROWS, f"softmax_gradient_{gx.dtype}", gx.size // width * _BLOCK, *read, work, width)
    deliver(ctx, work, gx)


@partial(Kernel, takes_half=True)
def sums_of_rows(ctx: Context, *args: Array) -> None:
    """See `recurrent.products.bias_gradient`; a few steps at a time."""
    *steps, total = args
    kept = total[(None,) * (steps[0].ndim - total.ndim)]
    part, axes = ctx.scratch("part", kept.shape, total.dtype), range(steps[0].ndim - total.ndim)
    for first in range(0, len(steps), _STEPS):
        values = {f"s{k}": step for k, step in enumerate(steps[first : first + _STEPS])}
        cuda_source.reduce(ctx, Expression.parse(" + ".join(values)), values, part if first else kept, axes)
        if first:
            cuda_source.evaluate(ctx, _SUM, {"a": kept, "b": part}, kept)
