"""Means and maxima of windows of images on GPUs, which lie in memory in any way; see `kernels` for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda.kernels import in_dtype, source
from ops.tiles import origin
from taskflow import Array, Context, Kernel, Rect, Window

POOLING = source("pooling")
Extents = Sequence[tuple[int, int]]


@partial(Kernel, takes_half=True)
def mean(ctx: Context, x: Array, y: Array, *, windows: Sequence[Window]) -> None:
    """See `pooling.avg_pool2d`."""
    _launch(ctx, "mean_pool", [x, y], y, _equal(windows, ctx.rect(1), ctx.rect(0)))


@partial(Kernel, takes_half=True)
def mean_gradient(ctx: Context, gy: Array, gx: Array, *, windows: Sequence[Window]) -> None:
    """See `pooling.avg_pool2d`."""
    _launch(ctx, "mean_pool_gradient", [gy, gx], gx, _equal(windows, ctx.rect(0), ctx.rect(1)))


@partial(Kernel, takes_half=True)
def adaptive_mean(ctx: Context, x: Array, y: Array, *, extents: Extents) -> None:
    """See `adaptive_pooling.adaptive_avg_pool2d`."""
    _launch(ctx, "mean_pool", [x, y], y, _adaptive(extents, ctx.rect(1), ctx.rect(0)))


@partial(Kernel, takes_half=True)
def adaptive_mean_gradient(ctx: Context, gy: Array, gx: Array, *, extents: Extents) -> None:
    """See `adaptive_pooling.adaptive_avg_pool2d`."""
    _launch(ctx, "mean_pool_gradient", [gy, gx], gx, _adaptive(extents, ctx.rect(0), ctx.rect(1)))


@partial(Kernel, takes_half=True)
def adaptive_max(ctx: Context, x: Array, y: Array, index: Array, *, extents: Extents) -> None:
    """See `adaptive_pooling.adaptive_max_pool2d`."""
    _launch(ctx, "most_pool", [x, y, index], y, _adaptive(extents, ctx.rect(1), ctx.rect(0)))


@partial(Kernel, takes_half=True)
def adaptive_max_gradient(ctx: Context, gy: Array, index: Array, gx: Array, *, extents: Extents) -> None:
    """See `adaptive_pooling.adaptive_max_pool2d`."""
    _launch(ctx, "most_pool_gradient", [gy, index, gx], gx, _adaptive(extents, ctx.rect(0), ctx.rect(2)))


def _launch(ctx: Context, kernel: str, arrays: Sequence[Array], out: Array, along: Sequence[int]) -> None:
    arrays = [in_dtype(ctx, k, a, out.dtype) if a.dtype.kind != "i" else a for k, a in enumerate(arrays)]
    steps = [stride // a.itemsize for a in arrays for stride in a.strides]
    ctx.launch(POOLING, f"{kernel}_{out.dtype}", out.size, *map(origin, arrays), *steps, *along, out.shape[1], out.size)


def _equal(windows: Sequence[Window], outputs: Rect, points: Rect) -> list[int]:
    """`Along` of windows of one size, in coordinates that count the padding, for both dimensions."""
    found = []
    for window, d in zip(windows, (2, 3), strict=True):
        tiles = outputs.lo[d], outputs.shape[d], points.lo[d] + window.padding, points.shape[d]
        found += [window.stride, window.size, 0, 0, *tiles]
    return found


def _adaptive(extents: Extents, outputs: Rect, points: Rect) -> list[int]:
    """`Along` of a number of windows."""
    found = []
    for (extent, count), d in zip(extents, (2, 3), strict=True):
        found += [0, 0, extent, count, outputs.lo[d], outputs.shape[d], points.lo[d], points.shape[d]]
    return found
