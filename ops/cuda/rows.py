"""Softmax, the gates of LSTMs and GRUs on GPUs, in one pass each or one and a sum; see `gpu`.

Not yet run on hardware; the tests compile the source for GPUs, and run it as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ops.cpu.tiles import Array, Context, contiguous, deliver, last, rows, work_array
from ops.cuda.kernels import in_dtype
from ops.elementwise import generated
from ops.elementwise.expressions import Expression
from taskflow import CudaSource, Kernel

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


@Kernel
def lstm_cell(ctx: Context, gates: Array, c: Array, new_h: Array, new_c: Array, active: Array) -> None:
    """See `lstm_kernels.cell`."""
    works = [work_array(ctx, k, a) for k, a in enumerate((new_h, new_c, active))]
    read = contiguous(ctx, "gates", gates), contiguous(ctx, "c", c)
    ctx.launch(ROWS, f"lstm_cell_{c.dtype}", c.size, *read, *works, c.shape[-1], c.size)
    for work, a in zip(works, (new_h, new_c, active), strict=True):
        deliver(ctx, work, a)


@Kernel
def lstm_cell_of_sum(
    ctx: Context, gates: Array, inputs: Array, c: Array, new_h: Array, new_c: Array, active: Array
) -> None:
    """See `lstm_kernels.cell_of_sum`."""
    total = ctx.scratch("sum", gates.shape, gates.dtype)
    generated.evaluate(ctx, _SUM, {"a": gates, "b": inputs}, total)
    lstm_cell(ctx, total, c, new_h, new_c, active)


@Kernel
def lstm_cell_gradient(ctx: Context, *args: Array, has_gh: bool, has_gc: bool) -> None:
    """See `lstm_kernels.cell_gradient`."""
    *_, c, new_c, active, ggates, gc = args
    gh = contiguous(ctx, "gh", args[0]) if has_gh else 0
    flowing = contiguous(ctx, "flowing", args[has_gh]) if has_gc else 0
    works = work_array(ctx, "ggates", ggates), work_array(ctx, "gc", gc)
    read = (contiguous(ctx, k, a) for k, a in enumerate((c, new_c, active)))
    ctx.launch(ROWS, f"lstm_cell_gradient_{c.dtype}", c.size, gh, flowing, *read, *works, c.shape[-1], c.size)
    for work, a in zip(works, (ggates, gc), strict=True):
        deliver(ctx, work, a)


@partial(Kernel, takes_half=True)
def sums_of_rows(ctx: Context, *args: Array) -> None:
    """See `lstm_kernels.bias_gradient`; a few steps at a time."""
    *steps, total = args
    kept = total[(None,) * (steps[0].ndim - total.ndim)]
    part, axes = ctx.scratch("part", kept.shape, total.dtype), range(steps[0].ndim - total.ndim)
    for first in range(0, len(steps), _STEPS):
        values = {f"s{k}": step for k, step in enumerate(steps[first : first + _STEPS])}
        generated.reduce(ctx, Expression.parse(" + ".join(values)), values, part if first else kept, axes)
        if first:
            generated.evaluate(ctx, _SUM, {"a": kept, "b": part}, kept)


@Kernel
def gru_cell(ctx: Context, from_x: Array, from_h: Array, h: Array, new_h: Array) -> None:
    """See `gru`."""
    work, read = work_array(ctx, "new_h", new_h), [contiguous(ctx, k, a) for k, a in enumerate((from_x, from_h, h))]
    ctx.launch(ROWS, f"gru_cell_{h.dtype}", h.size, *read, work, h.shape[-1], h.size)
    deliver(ctx, work, new_h)


@Kernel
def gru_cell_gradient(
    ctx: Context, g: Array, from_x: Array, from_h: Array, h: Array, gx: Array, gh: Array, gstate: Array
) -> None:
    """See `gru`."""
    outputs = gx, gh, gstate
    works = [work_array(ctx, ("out", k), a) for k, a in enumerate(outputs)]
    read = [contiguous(ctx, k, a) for k, a in enumerate((g, from_x, from_h, h))]
    ctx.launch(ROWS, f"gru_cell_gradient_{h.dtype}", h.size, *read, *works, h.shape[-1], h.size)
    for work, a in zip(works, outputs, strict=True):
        deliver(ctx, work, a)
