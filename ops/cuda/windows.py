"""Windows of images on GPUs: loops for kernels that differ in nothing but the device that these run on, and pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ops.cpu import windows
from ops.cuda.kernels import in_dtype, launch, source, widest
from ops.tiles import deliver, origin
from taskflow import Array, Context, Kernel, Rect, Window

WINDOWS = source("windows")
POOLING = source("pooling")
_MOST_PLACES = 1 << 31  # kernels find windows by 32 bits
Extents = Sequence[tuple[int, int]]  # points and windows of both dimensions


def window_loops(ctx: Context) -> Any:
    """The functions of `ops.cpu.windows` for the device of a context."""
    if ctx.is_cuda:
        return WindowLoops(ctx)
    return windows


class WindowLoops:
    """The functions of `ops.cpu.windows` by the same names, on the GPU of a context; arrays are contiguous."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def max_pool(self, x: Array, y: Array, index: Array, *numbers: int) -> None:
        """See `ops.cpu.windows.max_pool`."""
        extents = *x.shape[1:3], *y.shape[1:]
        launch(
            self._ctx,
            WINDOWS,
            f"max_pool_{widest(x, y)}",
            y.size,
            [x],
            [y, index],
            *extents,
            *numbers,
            y.size,
        )

    def max_pool_gradient(self, gy: Array, index: Array, gx: Array, *numbers: int) -> None:
        """See `ops.cpu.windows.max_pool_gradient`."""
        extents = *gx.shape[1:3], *gy.shape[1:]
        dtype = widest(gy, gx)
        work = in_dtype(self._ctx, "sums", gx, dtype)  # what is there is added to
        name = f"max_pool_gradient_{dtype}"
        launch(
            self._ctx,
            WINDOWS,
            name,
            gx.size,
            [gy, index],
            [work],
            *extents,
            *numbers,
            gx.size,
        )
        deliver(self._ctx, work, gx)


# -- means of all windows, maxima of adaptive ones ---------------------------------------------------------------------
#
# Arrays lie in memory in any way. Windows are of one size (`windows`), or a number of them covers each dimension
# (`extents`).


@partial(Kernel, takes_mixed=True)
def _pool(
    ctx: Context, *arrays: Array, kernel: str, windows: Sequence[Window] = (), extents: Extents = ()
) -> None:
    _launch(
        ctx,
        kernel,
        arrays,
        arrays[1],
        _along(windows, extents, ctx.rect(1), ctx.rect(0)),
    )


@partial(Kernel, takes_mixed=True)
def _pool_gradient(
    ctx: Context, *arrays: Array, kernel: str, windows: Sequence[Window] = (), extents: Extents = ()
) -> None:
    _launch(
        ctx,
        kernel,
        arrays,
        arrays[-1],
        _along(windows, extents, ctx.rect(0), ctx.rect(len(arrays) - 1)),
    )


mean = _pool.bind(kernel="mean_pool")
mean_gradient = _pool_gradient.bind(kernel="mean_pool_gradient")
largest = _pool.bind(kernel="most_pool")
largest_gradient = _pool_gradient.bind(kernel="most_pool_gradient")


def _launch(
    ctx: Context, kernel: str, arrays: Sequence[Array], out: Array, along: Sequence[int]
) -> None:
    dtype = widest(*(a for a in arrays if "float" in a.dtype.name))
    works = [
        in_dtype(ctx, k, a, dtype) if "float" in a.dtype.name else a for k, a in enumerate(arrays)
    ]
    steps = [stride // a.itemsize for a in works for stride in a.strides]
    ctx.launch(
        POOLING,
        f"{kernel}_{dtype}",
        out.size,
        *map(origin, works),
        *steps,
        *along,
        out.shape[1],
        out.size,
    )
    for work, a in zip(works, arrays, strict=True):
        if a is out and work is not a:
            ctx.xp.copyto(a, work, casting="same_kind")


def _along(windows: Sequence[Window], extents: Extents, outputs: Rect, points: Rect) -> list[int]:
    """`Along` of both dimensions, in coordinates that count the padding."""
    kinds = [(w.stride, w.size, 0, 0, w.padding) for w in windows] or [
        (0, 0, *extent, 0) for extent in extents
    ]
    for extent, count in extents:
        if extent * (count + 1) > _MOST_PLACES:
            raise ValueError(
                f"a pool on a GPU: {count} windows over {extent} points are more than kernels count"
            )
    along = list[int]()
    for (*kind, padding), d in zip(kinds, (2, 3), strict=True):
        along += [*kind, outputs.lo[d], outputs.shape[d], points.lo[d] + padding, points.shape[d]]
    return along
