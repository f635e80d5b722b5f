"""Pooling to a given number of windows, which may differ in size.

Window i of `out` over `extent` points is floor(i extent / out) to ceil((i + 1) extent / out), as in torch. The mean may
be split along every axis: over the points of the image, partial sums. For the maximum the image stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ops.building import check_positive, checked, launch_first, pair
from ops.cuda import windows as gpu_windows
from ops.tiles import Interval, spatial
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


def adaptive_avg_pool2d(
    x: LogicalRegion, output_size: int | Sequence[int], name: str | None = None
) -> LogicalRegion:
    """The mean of every window, as torch.nn.functional.adaptive_avg_pool2d.

    Args:
        x: (batch, channels, height, width), floating point.
        output_size: a number of windows, or one each for height and width.
        name: of the operator.

    Returns:
        (batch, channels, *output_size), of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, or `output_size` is not positive.
    """
    return _launch("adaptive_avg_pool2d", x, output_size, name)


def adaptive_max_pool2d(
    x: LogicalRegion, output_size: int | Sequence[int], name: str | None = None
) -> LogicalRegion:
    """The maximum of every window, as torch.nn.functional.adaptive_max_pool2d; the first one where several are equal.

    Args, returns and raises as `adaptive_avg_pool2d`. Points of the image are not split, windows are.
    """
    return _launch("adaptive_max_pool2d", x, output_size, name)


def _launch(
    kind: str, x: LogicalRegion, output_size: int | Sequence[int], name: str | None
) -> LogicalRegion:
    where = checked(kind, name, x, ndim=(4,))
    made = pair(where, "output_size", output_size)
    for size in made:
        check_positive(where, output_size=size)
    extents = tuple(zip(x.shape[2:], made, strict=True))
    is_mean = kind == "adaptive_avg_pool2d"
    return launch_first(
        name or kind,
        # the second output says where in the image the maximum stands
        "n c y x -> n c h w" if is_mean else "n c ^y ^x -> n c h w, n c h w",
        [x],
        kernel=(_mean if is_mean else _max).bind(extents=extents),
        sizes={"h": made[0], "w": made[1]},
        backward=partial(_backward, extents=extents),
        flops=2 / made[0] + 2 / x.shape[3] if is_mean else 1 / (made[0] * made[1]),
        dtype=[x.dtype] if is_mean else [x.dtype, "int64"],
    )


def _backward(
    op: Operator, gy: LogicalRegion, *_: LogicalRegion | None, extents: Sequence[tuple[int, int]]
) -> LogicalRegion:
    """Split over windows, a task adds what belongs to its own. Only the maximum keeps the image whole."""
    gradient = _mean_gradient
    pattern = "n c h w -> n c y x"
    if len(op.outputs) > 1:
        gradient = _max_gradient
        pattern = "n c h w, n c h w -> n c ^y ^x"
    inputs, sizes = [gy, *op.outputs[1:]], {axis: op.extents[axis] for axis in "yx"}
    kernel = gradient.bind(extents=extents)
    return launch_first(
        f"{op.name}.dx",
        pattern,
        inputs,
        kernel=kernel,
        sizes=sizes,
        flops=op.flops,
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


def _bounds(window: int, extent: int, out: int) -> Interval:
    return window * extent // out, -(-(window + 1) * extent // out)


def _places(
    windows: Interval, points: Interval, extent: int, out: int
) -> Iterator[tuple[int, slice, int]]:
    """Of each window its number in the tile, the points of it that the other tile has, and its size."""
    for row, window in enumerate(range(*windows)):
        start, stop = _bounds(window, extent, out)
        yield (
            row,
            slice(max(start - points[0], 0), max(min(stop, points[1]) - points[0], 0)),
            stop - start,
        )


def _along(
    ctx: Context, windows: int, image: int, extents: Sequence[tuple[int, int]], dim: int
) -> Iterator[tuple[int, slice, int]]:
    """`_places` along one dimension of images, of the tiles of two arguments."""
    tile = spatial(ctx.rect(windows))
    return _places(tile[dim], spatial(ctx.rect(image))[dim], *extents[dim])


@partial(Kernel, cuda=gpu_windows.mean)
def _mean(ctx: Context, x: Array, y: Array, *, extents: Sequence[tuple[int, int]]) -> None:
    """Window by window: a product with shares would make infinity times zero of points outside of a window."""
    lines = ctx.scratch("lines", (*x.shape[:3], y.shape[3]), x.dtype)
    for at, where, size in _along(ctx, 1, 0, extents, 1):
        ctx.xp.sum(x[:, :, :, where], axis=3, out=lines[:, :, :, at])
        ctx.xp.divide(lines[:, :, :, at], size, out=lines[:, :, :, at])
    for at, where, size in _along(ctx, 1, 0, extents, 0):
        ctx.xp.sum(lines[:, :, where], axis=2, out=y[:, :, at])
        ctx.xp.divide(y[:, :, at], size, out=y[:, :, at])


@partial(Kernel, cuda=gpu_windows.mean_gradient)
def _mean_gradient(
    ctx: Context, gy: Array, gx: Array, *, extents: Sequence[tuple[int, int]]
) -> None:
    lines = ctx.scratch("lines", (*gy.shape[:3], gx.shape[3]), gy.dtype)
    share = ctx.scratch("share", gy.shape[:3], gy.dtype)
    ctx.xp.copyto(lines, 0)
    for at, where, size in _along(ctx, 0, 1, extents, 1):
        ctx.xp.divide(gy[:, :, :, at], size, out=share)
        ctx.xp.add(lines[:, :, :, where], share[..., None], out=lines[:, :, :, where])
    share = ctx.scratch("row", lines[:, :, 0].shape, gy.dtype)
    ctx.xp.copyto(gx, 0)
    for at, where, size in _along(ctx, 0, 1, extents, 0):
        ctx.xp.divide(lines[:, :, at], size, out=share)
        ctx.xp.add(gx[:, :, where], share[:, :, None], out=gx[:, :, where])


@partial(Kernel, cuda=gpu_windows.largest)
def _max(
    ctx: Context,
    x: Array,
    y: Array,
    index: Array,
    *,
    extents: Sequence[tuple[int, int]],
) -> None:
    (top, _), (left, _) = spatial(ctx.rect(1))
    for i in range(y.shape[2]):
        for j in range(y.shape[3]):
            (a, b), (c, d) = _bounds(top + i, *extents[0]), _bounds(left + j, *extents[1])
            window = x[:, :, a:b, c:d].reshape(*x.shape[:2], -1)
            at = window.argmax(axis=2)
            y[:, :, i, j] = ctx.xp.take_along_axis(window, at[..., None], axis=2)[..., 0]
            index[:, :, i, j] = (a + at // (d - c)) * x.shape[3] + c + at % (d - c)


@partial(Kernel, cuda=gpu_windows.largest_gradient)
def _max_gradient(
    ctx: Context,
    gy: Array,
    index: Array,
    gx: Array,
    *,
    extents: Sequence[tuple[int, int]],
) -> None:
    """Windows may overlap, so they are added one after the other."""
    gx.fill(0)
    images = ctx.xp.ogrid[: gx.shape[0], : gx.shape[1]]
    for i in range(gy.shape[2]):
        for j in range(gy.shape[3]):
            at = index[:, :, i, j]
            gx[(*images, at // gx.shape[3], at % gx.shape[3])] += gy[:, :, i, j]
