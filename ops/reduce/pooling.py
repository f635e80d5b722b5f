"""Pooling of images: the maximum or the mean of every window.

Splits over `n` (Sample), `c`, `h` and `w` (Attribute; windows that overlap read a halo).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ops.building import (
    check_not_negative,
    check_positive,
    checked,
    launch_first,
    layout_channels_last,
)
from ops.cuda import windows as gpu_windows
from ops.cuda.windows import window_loops
from ops.dense.convolution import windows_over
from ops.shape.rearrange import reshape
from ops.tiles import (
    channels_last,
    contiguous,
    deliver,
    reach,
    read_under,
    spatial,
    sums_under,
    taps,
    work_array,
)
from taskflow import Array, Context, Kernel, LogicalRegion, Operator, Rect, Window

_PATTERNS = {
    "avg_pool2d": "n c y x -> n c h w",
    "max_pool2d": "n c y x -> n c h w, n c h w",  # and where in its window a maximum stands
}


def max_pool2d(
    x: LogicalRegion,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The maximum of every window, as torch.nn.functional.max_pool2d; the first one where several are equal.

    Args:
        x: (batch, channels, height, width), floating point.
        kernel_size, stride, padding: a number, or one each for height and width; the stride is by default the
            kernel size; padding counts as minus infinity and is at most half the kernel size.
        name: of the operator.

    Returns:
        (batch, channels, height', width'), of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, or the windows do not fit.
    """
    return _launch(
        "max_pool2d",
        x,
        kernel_size,
        stride,
        padding,
        name,
    )


def avg_pool2d(
    x: LogicalRegion,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The mean of every window, as torch.nn.functional.avg_pool2d: padding counts as zeros.

    Args, returns and raises as `max_pool2d`.
    """
    return _launch(
        "avg_pool2d",
        x,
        kernel_size,
        stride,
        padding,
        name,
    )


def max_pool1d(
    x: LogicalRegion,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The maximum of every window, as torch.nn.functional.max_pool1d; the first one where several are equal.

    Args:
        x: (batch, channels, steps), floating point.
        kernel_size, stride, padding: as of `max_pool2d`, a number each.
        name: of the pooling of images of one line; the result is `<name>.steps`.

    Returns:
        (batch, channels, steps'), of the dtype of `x`.

    Raises:
        ValueError: `x` has not three dimensions, or the windows do not fit.
    """
    return _pool_lines("max_pool1d", x, kernel_size, stride, padding, name)


def avg_pool1d(
    x: LogicalRegion,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The mean of every window, as torch.nn.functional.avg_pool1d: padding counts as zeros; see `max_pool1d`."""
    return _pool_lines("avg_pool1d", x, kernel_size, stride, padding, name)


def _pool_lines(
    kind: str,
    x: LogicalRegion,
    kernel_size: int,
    stride: int | None,
    padding: int,
    name: str | None,
) -> LogicalRegion:
    where = checked(kind, name, x, ndim=(3,))
    stride = kernel_size if stride is None else stride
    check_positive(where, kernel_size=kernel_size, stride=stride)
    check_not_negative(where, padding=padding)
    name = x.graph.unique_name(name or kind)
    with x.graph.following(name):
        lines = reshape(x, (*x.shape[:2], 1, x.shape[2]), f"{name}.lines")
    made = _launch(
        kind.replace("1d", "2d"),
        lines,
        (1, kernel_size),
        (1, stride),
        (0, padding),
        name,
        where,
    )
    with x.graph.following(name):
        return reshape(made, (*made.shape[:2], made.shape[3]), f"{name}.steps")


def _launch(
    kind: str,
    x: LogicalRegion,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    name: str | None,
    where: str = "",
) -> LogicalRegion:
    """`where`: what messages call it, if not by `kind`."""
    where = where or checked(kind, name, x, ndim=(4,))
    stride = kernel_size if stride is None else stride
    windows = windows_over(where, x, kernel_size, stride, padding)
    _check_padding(where, windows)
    is_max = kind == "max_pool2d"
    return launch_first(
        name or kind,
        _PATTERNS[kind],
        [x],
        kernel=(_max if is_max else _mean).bind(windows=windows),
        windows={"y": windows[0], "x": windows[1]},
        backward=_backward,
        flops=windows[0].size * windows[1].size,
        dtype=[x.dtype, "int32"] if is_max else [x.dtype],
        layout=layout_channels_last(_PATTERNS[kind]),
    )


def _check_padding(where: str, windows: Sequence[Window]) -> None:
    for window in windows:
        if 2 * window.padding > window.size:
            raise ValueError(
                f"{where}: padding is {window.padding}, more than half the kernel size {window.size}"
            )


def _backward(op: Operator, gy: LogicalRegion, *_: LogicalRegion | None) -> LogicalRegion:
    inputs, windows = [gy, *op.outputs[1:]], (op.windows["y"], op.windows["x"])
    kernel = _mean_gradient if len(inputs) == 1 else _max_gradient
    height, width = op.inputs[0].shape[2:]
    pattern = f"{', '.join(['n c p q'] * len(inputs))} -> n c h w"
    return launch_first(
        f"{op.name}.dx",
        pattern,
        inputs,
        kernel=kernel.bind(windows=windows),
        sizes={"h": height, "w": width},
        windows={
            "p": replace(windows[0], transposed=True),
            "q": replace(windows[1], transposed=True),
        },
        flops=windows[0].size
        * windows[1].size
        * op.extents["h"]
        * op.extents["w"]
        / (height * width),
        layout=layout_channels_last(pattern),
    )


# -- kernels -----------------------------------------------------------------------------------------------------------


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _max(ctx: Context, x: Array, y: Array, index: Array, *, windows: Sequence[Window]) -> None:
    out = work_array(ctx, "y", channels_last(y))
    where = work_array(ctx, "index", channels_last(index))
    source = contiguous(ctx, "x", channels_last(x))
    ctx.call(
        window_loops(ctx).max_pool, source, out, where, *_numbers(windows, ctx.rect(1), ctx.rect(0))
    )
    deliver(ctx, out, channels_last(y))
    deliver(ctx, where, channels_last(index))


@partial(Kernel, is_compiled=True, is_captured=True, takes_mixed_on_cuda=True)
def _max_gradient(
    ctx: Context,
    gy: Array,
    index: Array,
    gx: Array,
    *,
    windows: Sequence[Window],
) -> None:
    out = work_array(ctx, "gx", channels_last(gx))
    ctx.xp.copyto(out, 0)
    if gy.size:
        gradient = contiguous(ctx, "gy", channels_last(gy))
        where = contiguous(ctx, "index", channels_last(index))
        numbers = _numbers(windows, ctx.rect(0), ctx.rect(2))
        ctx.call(window_loops(ctx).max_pool_gradient, gradient, where, out, *numbers)
    deliver(ctx, out, channels_last(gx))


def _numbers(
    windows: Sequence[Window], outputs: Rect, tile: Rect
) -> tuple[int, int, int, int, int, int]:
    """Where the first window starts in an array that holds `tile`, perhaps outside of it; sizes; strides."""
    vertical, horizontal = windows
    (first, _), (second, _) = spatial(outputs)
    top = reach(vertical, (first, first))[0] - tile.lo[2]
    left = reach(horizontal, (second, second))[0] - tile.lo[3]
    return top, left, vertical.size, horizontal.size, vertical.stride, horizontal.stride


@partial(Kernel, cuda=gpu_windows.mean)
def _mean(ctx: Context, x: Array, y: Array, *, windows: Sequence[Window]) -> None:
    padded = read_under(ctx, x, windows, 0)
    for (i, j), view in taps(padded, windows, y.shape[2:]):
        if i == j == 0:
            ctx.xp.copyto(y, view)
        else:
            ctx.xp.add(y, view, out=y)
    ctx.xp.multiply(y, 1 / (windows[0].size * windows[1].size), out=y)


@partial(Kernel, cuda=gpu_windows.mean_gradient)
def _mean_gradient(ctx: Context, gy: Array, gx: Array, *, windows: Sequence[Window]) -> None:
    gx.fill(0)
    if gy.size == 0:  # no window reads this tile
        return
    share = ctx.scratch("share", gy.shape, gy.dtype)
    ctx.xp.multiply(gy, 1 / (windows[0].size * windows[1].size), out=share)
    with sums_under(ctx, gx, windows) as total:
        for _, view in taps(total, windows, gy.shape[2:]):
            ctx.xp.add(view, share, out=view)
