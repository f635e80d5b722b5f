"""Kernels for GPUs: what operators run there instead of their NumPy kernels, on the sources of this folder.

They are the variants that kernels name (`taskflow.Kernel.cuda`); `rows`, `tables` and so on have more of them. Every
other operator runs its NumPy kernel on CuPy as it is; docs/cuda_operators.md has the list.

Indices are not checked here, which would make the host wait: one out of range gives NaN, so the loss is not finite.

Not yet run on hardware; the tests compile the sources for GPUs, and run them as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from numpy.typing import DTypeLike

from ops.tiles import contiguous, deliver, rows, work_array
from taskflow import Array, Context, CudaSource, Kernel

FOLDER = Path(__file__).parent
SOFTMAX, LAYER_NORM, DROPOUT = (CudaSource(FOLDER / f"{name}.cu") for name in ("softmax", "layer_norm", "dropout"))
_BLOCK = 256  # threads that share a row


def wide(ctx: Context, slot: object, a: Array) -> Array:
    """`a` contiguous, and in float32 if it is of half size."""
    if a.dtype.itemsize > 2:
        return contiguous(ctx, slot, a)
    copy = ctx.scratch(slot, a.shape, "float32")
    ctx.xp.copyto(copy, a)
    return copy


def in_dtype(ctx: Context, slot: object, a: Array, dtype: DTypeLike) -> Array:
    """`a` in a dtype: itself, or a copy."""
    if a.dtype == dtype:
        return a
    copy = ctx.scratch(slot, a.shape, dtype)
    ctx.xp.copyto(copy, a, casting="same_kind")
    return copy


# -- normalization -----------------------------------------------------------------------------------------------------


@partial(Kernel, takes_half=True)
def normalize_rows(
    ctx: Context, x: Array, weight: Array, bias: Array, y: Array, mean: Array, scale: Array, *, eps: float
) -> None:
    """See `layer_norm`."""
    outputs = [(out, work_array(ctx, slot, out)) for slot, out in (("y", y), ("mean", mean), ("scale", scale))]
    arrays = contiguous(ctx, "x", x), *(wide(ctx, k, a) for k, a in enumerate((weight, bias)))
    works = [work for _, work in outputs]
    ctx.launch(LAYER_NORM, f"layer_norm_{x.dtype}", mean.size * _BLOCK, *arrays, *works, x.shape[-1], float(eps))
    for out, work in outputs:
        deliver(ctx, work, out)


@partial(Kernel, takes_half=True)
def gradient_rows(ctx: Context, gy: Array, x: Array, mean: Array, scale: Array, weight: Array, gx: Array) -> None:
    """See `layer_norm`."""
    work = work_array(ctx, "gx", gx)
    arrays = *(contiguous(ctx, k, a) for k, a in enumerate((gy, x, mean, scale))), wide(ctx, "weight", weight)
    ctx.launch(LAYER_NORM, f"layer_norm_gradient_{x.dtype}", mean.size * _BLOCK, *arrays, work, x.shape[-1])
    deliver(ctx, work, gx)


@partial(Kernel, takes_half=True)
def row_sums(ctx: Context, gy: Array, x: Array, mean: Array, scale: Array, gweight: Array, gbias: Array) -> None:
    """See `layer_norm`."""
    outputs = [(out, work_array(ctx, slot, out)) for slot, out in (("gweight", gweight), ("gbias", gbias))]
    arrays = (contiguous(ctx, k, a) for k, a in enumerate((gy, x, mean, scale)))
    works = [work for _, work in outputs]
    ctx.launch(LAYER_NORM, f"layer_norm_sums_{x.dtype}", x.shape[-1], *arrays, *works, mean.size, x.shape[-1])
    for out, work in outputs:
        deliver(ctx, work, out)


# -- loss --------------------------------------------------------------------------------------------------------------


@partial(Kernel, takes_half=True)
def cross_entropy(ctx: Context, y: Array, t: Array, loss: Array, probability: Array, *, count: int) -> None:
    """See `softmax_cross_entropy`; a class out of range makes the loss NaN."""
    y, t, work = rows(ctx, "y", y), contiguous(ctx, "t", t), work_array(ctx, "probability", probability)
    losses = ctx.scratch("losses", (len(y),), loss.dtype)
    name = f"cross_entropy_{y.dtype}_{t.dtype}"
    ctx.launch(SOFTMAX, name, len(y) * _BLOCK, y, t, work, losses, y.shape[1])
    ctx.launch(SOFTMAX, f"sum_over_{loss.dtype}", _BLOCK, losses, loss, len(y), float(count))
    deliver(ctx, work, probability)


@partial(Kernel, takes_half=True)
def cross_entropy_gradient(ctx: Context, gloss: Array, probability: Array, t: Array, gy: Array, *, count: int) -> None:
    """See `softmax_cross_entropy`."""
    probability, t, work = contiguous(ctx, "p", probability), contiguous(ctx, "t", t), work_array(ctx, "gy", gy)
    name = f"cross_entropy_gradient_{gy.dtype}_{t.dtype}"
    ctx.launch(SOFTMAX, name, gy.size, gloss, probability, t, work, gy.shape[-1], gy.size, float(count))
    deliver(ctx, work, gy)


# -- dropout -----------------------------------------------------------------------------------------------------------


@partial(Kernel, takes_half=True)
def drop(ctx: Context, x: Array, y: Array, *, name: str, p: float, shape: tuple[int, ...]) -> None:
    """See `dropout`."""
    work = work_array(ctx, "y", y)
    scale = 1 / (1 - p) if p < 1 else 0.0
    where = ctx.key(name), *ctx.index_map(shape, ctx.rect(1))
    ctx.launch(DROPOUT, f"dropout_{x.dtype}", y.size, contiguous(ctx, "x", x), work, *where, float(p), scale, y.size)
    deliver(ctx, work, y)
