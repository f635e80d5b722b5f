"""What kernels share: tiles in memory, and tiles under windows.

A kernel gets tiles of any size, possibly views, possibly with a halo that the edge of the region clipped. `ctx.rect(k)`
says where a tile lies, so a kernel puts it where its windows expect it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskflow import Array, Context, Rect, Window

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Interval = tuple[int, int]
Image = tuple[Interval, Interval]  # the box of the last two dimensions
Index = tuple[Any, ...]  # of an array
PANELS, PANEL_BYTES = (
    16,
    1 << 15,
)  # a product that is added needs a 16th of its memory, or so many bytes


def contiguous(ctx: Context, slot: object, a: Array) -> Array:
    """`a`, copied to scratch memory unless it is contiguous; to be read."""
    return read_only(packed(ctx, slot, a))


def packed(ctx: Context, slot: object, a: Array) -> Array:
    """As `contiguous`, of an array that is written, too."""
    if a.flags.c_contiguous:
        return a
    copy = ctx.scratch(slot, a.shape, a.dtype)
    ctx.xp.copyto(copy, a)
    return copy


def read_only(a: Array) -> Array:
    """`a`, of which nothing is written: as the inputs of tasks are, so that kernels are compiled for that alone."""
    if getattr(a.flags, "writeable", False):
        a = a.view()
        a.flags.writeable = False
    return a


def zeros(ctx: Context, slot: object, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """In scratch memory, in the place of an input."""
    made = ctx.scratch(slot, shape, dtype)
    ctx.xp.copyto(made, 0)
    return read_only(made)


def work_array(ctx: Context, slot: object, a: Array) -> Array:
    """Contiguous memory to compute the output `a` in: itself, or scratch memory that `deliver` copies to it."""
    return a if a.flags.c_contiguous else ctx.scratch(slot, a.shape, a.dtype)


def sum_array(ctx: Context, slot: object, a: Array, output: int = 0) -> Array:
    """As `work_array`, of an output to which a kernel adds: zero, or the part of a sum that it holds already."""
    work = work_array(ctx, slot, a)
    if not ctx.adds_to(output):
        ctx.xp.copyto(work, 0)
    elif work is not a:
        ctx.xp.copyto(work, a)
    return work


def deliver(ctx: Context, work: Array, a: Array) -> None:
    """Bring the result of `work_array`, which may have been reshaped, to its place."""
    if not a.flags.c_contiguous or work.dtype != a.dtype:
        ctx.xp.copyto(a, work.reshape(a.shape), casting="same_kind")


def origin(a: Array) -> Array:
    """The first element of a view: a kernel that is told its steps gets where it begins."""
    index: Index = (
        ...,
        *[slice(0, 1)] * a.ndim,
    )  # the dots keep an array of no dimensions an array
    first: Array = a[index]
    return first


def block_tables(ctx: Context, rows: Sequence[Sequence[int]], step: int) -> list[Array]:
    """What a launch for several arrays is told: the rows, each of which ends with a number of elements; and of every
    block its row, and the first of the `step` elements that it is for."""
    starts = [(k, begin) for k, row in enumerate(rows) for begin in range(0, row[-1], step)]
    return [ctx.constant(np.array(table, np.int64).reshape(-1)) for table in (rows, starts)]


def channels_last(a: Array) -> Array:
    """The view (images, height, width, channels) of an array of images, or of a convolution's weights.

    Sequences have a height of 1.
    """
    return (a if a.ndim == 4 else a[:, :, None]).transpose(0, 2, 3, 1)


def last(a: Array, dim: int) -> Array:
    """A view with dimension `dim` behind all others."""
    return a.transpose(*(d for d in range(a.ndim) if d != dim), dim)


def rows(ctx: Context, slot: object, a: Array) -> Array:
    """`a` as a matrix: its last dimension by all the others."""
    return contiguous(ctx, slot, a).reshape(prod(a.shape[:-1]), a.shape[-1])


def add_product(ctx: Context, x: Array, y: Array, z: Array, scale: float = 1.0) -> None:
    """z += scale x y, matrices or stacks of them, a panel of rows at a time: no memory for all of the product."""
    if ctx.is_cuda and scale == 1 and x.dtype == y.dtype:
        ctx.xp.add_product(x, y, z)
        return
    step = max(-(-len(z) // PANELS), PANEL_BYTES * len(z) // max(z.nbytes, 1), 1)
    for begin in range(0, len(z), step):
        panel = z[begin : begin + step]
        part = ctx.scratch("panel", (min(step, len(z)), *z.shape[1:]), z.dtype)[: len(panel)]
        ctx.xp.matmul(
            x[begin : begin + step],
            y[begin : begin + step] if z.ndim > 2 and y.ndim > 2 else y,
            out=part,
        )
        if scale != 1:
            ctx.xp.multiply(part, scale, out=part)
        ctx.xp.add(panel, part, out=panel)


def merged(a: Array, batch: int, rows: int) -> Array:
    """A view as (batch..., rows, columns); the caller knows that they merge."""
    shape = a.shape[batch:]
    return a.reshape(*a.shape[:batch], prod(shape[:rows]), prod(shape[rows:]))


def merges(a: Array, batch: int, rows: int) -> bool:
    """Whether the dimensions of rows, and those of columns, are evenly spaced in memory."""
    split = batch + rows
    return _is_even(a.shape[batch:split], a.strides[batch:split]) and _is_even(
        a.shape[split:], a.strides[split:]
    )


def _is_even(shape: Sequence[int], strides: Sequence[int]) -> bool:
    steps = [(n, s) for n, s in zip(shape, strides) if n != 1]
    return all(outer == n * inner for (_, outer), (n, inner) in pairwise(steps))


def matrix(ctx: Context, slot: object, a: Array, rows: int = -1) -> Array:
    """`a` as an operand of BLAS: its first `rows` dimensions (if negative: all but so many) by the others.

    Rows may have gaps between them; what is scattered more than that is copied to scratch memory.
    """
    rows %= a.ndim
    return merged(a if _is_operand(a, rows) else contiguous(ctx, slot, a), 0, rows)


@contextmanager
def result_matrix(ctx: Context, slot: object, a: Array, rows: int = -1) -> Iterator[Array]:
    """Where BLAS puts the output `a` as such a matrix: in its place, or in memory that is copied there at the end."""
    rows %= a.ndim
    work = a if _is_operand(a, rows) else ctx.scratch(slot, a.shape, a.dtype)
    yield merged(work, 0, rows)
    if work is not a:
        ctx.xp.copyto(a, work)


def _is_operand(a: Array, rows: int) -> bool:
    return bool(
        a.flags.c_contiguous
        or (a.ndim > rows and a.strides[-1] == a.itemsize and merges(a, 0, rows))
    )


def check_classes(what: str, t: Array, classes: int, first: int = 0) -> None:
    """ValueError when an element is no class, from `first` on; NumPy would count a negative one from the end."""
    if t.size and not (t.min() >= first and t.max() < classes):
        wrong = next(int(v) for v in t.reshape(-1) if not first <= v < classes)
        raise ValueError(f"{what} {wrong} is not in {first}..{classes - 1}")


def take_along(
    ctx: Context,
    what: str,
    x: Array,
    index: Array,
    y: Array,
    dim: int,
    count: int,
) -> None:
    """y = the points of `x` along `dim` that `index` names, zero for those of all `count` that are not here."""
    check_classes(what, index, count)
    local = index.astype(ctx.xp.intp) - ctx.rect(0).lo[dim]
    ctx.xp.copyto(y, ctx.xp.take_along_axis(x, local.clip(0, x.shape[dim] - 1), axis=dim))
    if x.shape[dim] < count:
        ctx.xp.copyto(y, 0, where=(local < 0) | (local >= x.shape[dim]))


def reach(window: Window, interval: Interval) -> Interval:
    """The points that `interval` of a window's axis reads, padding included."""
    lo, hi = interval
    start = lo * window.stride - window.padding
    return start, start + (hi - lo - 1) * window.stride + (window.size - 1) * window.dilation + 1


def spatial(rect: Rect) -> Image:
    """The intervals of the last two dimensions of a box."""
    return (rect.lo[-2], rect.hi[-2]), (rect.lo[-1], rect.hi[-1])


def overlap(box: Image, other: Image) -> tuple[Index, Index]:
    """Where the shared points of two boxes lie in the last two dimensions of an array of each of them."""
    shared = [(max(a, c), max(a, c, min(b, d))) for (a, b), (c, d) in zip(box, other, strict=True)]
    if any(hi == lo for lo, hi in shared):
        return (..., slice(0, 0), slice(0, 0)), (..., slice(0, 0), slice(0, 0))
    return (
        (..., *(slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(shared, box, strict=True))),
        (..., *(slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(shared, other, strict=True))),
    )


def pad_into(out: Array, box: Image, x: Array, tile: Image, value: float) -> None:
    """Put `x`, which lies at `tile` in its last two dimensions, into `out`, which lies at `box`; `value` elsewhere."""
    into, of = overlap(box, tile)
    if out[into].shape != out.shape:
        out.fill(value)
    out[into] = x[of]


def _under(windows: Sequence[Window], outputs: Rect) -> Image:
    """What the windows of these outputs read, padding included."""
    vertical, horizontal = spatial(outputs)
    return reach(windows[0], vertical), reach(windows[1], horizontal)


def read_under(ctx: Context, x: Array, windows: Sequence[Window], value: float) -> Array:
    """All of `x` that the windows of the tile of argument 1 read, `value` in the place of padding."""
    box = _under(windows, ctx.rect(1))
    tile = spatial(ctx.rect(0))
    if box == tile:
        return x
    padded = ctx.scratch("padded", (*x.shape[:2], *(hi - lo for lo, hi in box)), x.dtype)
    pad_into(padded, box, x, tile, value)
    return padded


@contextmanager
def sums_under(ctx: Context, y: Array, windows: Sequence[Window]) -> Iterator[Array]:
    """Zeros for all points under the windows of the tile of argument 0, of which `y` gets its own at the end."""
    box = _under(windows, ctx.rect(0))
    total = ctx.scratch("total", (*y.shape[:2], *(hi - lo for lo, hi in box)), y.dtype)
    total.fill(0)
    yield total
    into, of = overlap(spatial(ctx.rect(1)), box)
    y[into] = total[of]


def taps(
    a: Array, windows: Sequence[Window], extents: Sequence[int]
) -> Iterator[tuple[tuple[int, int], Array]]:
    """For every position inside the two windows: the points of `a` that `extents` outputs have there, as a view."""
    vertical, horizontal = windows
    for i in range(vertical.size):
        for j in range(horizontal.size):
            yield (
                (i, j),
                a[(..., _every(vertical, i, extents[0]), _every(horizontal, j, extents[1]))],
            )


def _every(window: Window, position: int, extent: int) -> slice:
    start = position * window.dilation
    return slice(start, start + (extent - 1) * window.stride + 1, window.stride)
