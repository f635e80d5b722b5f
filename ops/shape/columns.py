"""Windows of images as columns, and back: each is the gradient of the other. All may be split but a window's points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ops.building import checked, launch_first, pair
from ops.dense.convolution import windows_over
from ops.shape.rearrange import reshape
from ops.tiles import read_under, sums_under, taps
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Window

Pair = int | Sequence[int]


def unfold(
    x: LogicalRegion,
    kernel_size: Pair,
    dilation: Pair = 1,
    padding: Pair = 0,
    stride: Pair = 1,
    name: str | None = None,
) -> LogicalRegion:
    """What every window reads, a column for each, as torch.nn.functional.unfold; padding counts as zeros.

    Args:
        x: (batch, channels, height, width), floating point.
        kernel_size, dilation, padding, stride: a number, or one each for height and width.
        name: of the operator; the result is `<name>.columns`.

    Returns:
        (batch, channels * points of a window, windows).

    Raises:
        ValueError: `x` has not four dimensions or is of another dtype, or the windows do not fit.
    """
    where = checked("unfold", name, x, ndim=(4,))
    windows = windows_over(where, x, kernel_size, stride, padding, dilation)
    name = x.graph.unique_name(name or "unfold")
    taken = launch_first(
        name,
        "n c y x -> n c ^i ^j h w",
        [x],
        kernel=_take.bind(windows=windows),
        sizes={"i": windows[0].size, "j": windows[1].size},
        windows={"y": windows[0], "x": windows[1]},
        backward=partial(_take_backward, windows=windows),
        flops=1,
    )
    with x.graph.following(name):
        return reshape(taken, (x.shape[0], -1, prod(taken.shape[4:])), f"{name}.columns")


def fold(
    x: LogicalRegion,
    output_size: Pair,
    kernel_size: Pair,
    dilation: Pair = 1,
    padding: Pair = 0,
    stride: Pair = 1,
    name: str | None = None,
) -> LogicalRegion:
    """Images that columns of windows are added up to, as torch.nn.functional.fold.

    Args:
        x: (batch, channels * points of a window, windows), floating point.
        output_size: height and width of the images, or one number for both.
        kernel_size, dilation, padding, stride: a number, or one each for height and width.
        name: of the operator; what it reads is `<name>.windows`.

    Returns:
        (batch, channels, *output_size).

    Raises:
        ValueError: `x` has not three dimensions or is of another dtype, the windows do not fit into the images, or
            there are other than so many columns of so many points.
    """
    where = checked("fold", name, x, ndim=(3,))
    sizes = pair(where, "output_size", output_size)
    windows = windows_over(
        where, replace(x, shape=(*x.shape[:1], 1, *sizes)), kernel_size, stride, padding, dilation
    )
    points = prod(w.size for w in windows)
    counts = [w.output_extent(n) for w, n in zip(windows, sizes, strict=True)]
    if x.shape[1] % points or x.shape[2] != prod(counts):
        raise ValueError(
            f"{where}: '{x.name}' is {x.shape}; {counts[0]} times {counts[1]} columns of a multiple of {points} points "
            "are needed"
        )
    name = x.graph.unique_name(name or "fold")
    shape = (x.shape[0], x.shape[1] // points, windows[0].size, windows[1].size, *counts)
    with x.graph.following(name):
        columns = reshape(x, shape, f"{name}.windows")
    return _add_windows(name, columns, windows, sizes)


def _add_windows(
    name: str, columns: LogicalRegion, windows: Sequence[Window], sizes: Sequence[int]
) -> LogicalRegion:
    return launch_first(
        name,
        "n c ^i ^j p q -> n c h w",
        [columns],
        kernel=_put.bind(windows=windows),
        sizes={"h": sizes[0], "w": sizes[1]},
        windows={
            "p": replace(windows[0], transposed=True),
            "q": replace(windows[1], transposed=True),
        },
        backward=partial(_put_backward, windows=windows),
        flops=prod(columns.shape) / prod((*columns.shape[:2], *sizes)),
    )


def _take_backward(op: Operator, gy: LogicalRegion, *, windows: Sequence[Window]) -> LogicalRegion:
    return _add_windows(f"{op.name}.dx", gy, windows, op.inputs[0].shape[2:])


def _put_backward(op: Operator, gy: LogicalRegion, *, windows: Sequence[Window]) -> LogicalRegion:
    _, _, i, j, p, q = op.inputs[0].shape
    return launch_first(
        f"{op.name}.dx",
        "n c y x -> n c ^i ^j h w",
        [gy],
        kernel=_take.bind(windows=windows),
        sizes={"i": i, "j": j, "h": p, "w": q},
        windows={"y": windows[0], "x": windows[1]},
        flops=1,
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


@Kernel
def _take(ctx: Context, x: Array, y: Array, *, windows: Sequence[Window]) -> None:
    padded = read_under(ctx, x, windows, 0)
    for (i, j), view in taps(padded, windows, y.shape[4:]):
        ctx.xp.copyto(y[:, :, i, j], view)


@Kernel
def _put(ctx: Context, columns: Array, y: Array, *, windows: Sequence[Window]) -> None:
    y.fill(0)
    if columns.size == 0:  # no window reads this tile
        return
    with sums_under(ctx, y, windows) as total:
        for (i, j), view in taps(total, windows, columns.shape[4:]):
            ctx.xp.add(view, columns[:, :, i, j], out=view)
