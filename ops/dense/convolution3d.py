"""Convolution and pooling of volumes, composed of operators on images.

Depth is a loop over the few planes of a window: they are put side by side as channels, and one convolution of images
reads them all, so that the product is as large as in one operator. Pooling goes over images first, then over depth.
"""

from __future__ import annotations

from collections.abc import Callable

from ops.building import checked, integers, parameters
from ops.dense.convolution import (
    Convolution,
    Sizes,
    check_channels,
    convolution_backward,
    windows_over,
)
from ops.initializers import Init
from ops.reduce.adaptive_pooling import adaptive_avg_pool2d
from ops.reduce.pooling import avg_pool2d, max_pool2d
from ops.shape.expand import unsqueeze
from ops.shape.padding import pad
from ops.shape.rearrange import concat, permute, reshape
from ops.shape.sections import slice
from taskflow import LogicalRegion, Window


def triple(where: str, key: str, value: Sizes) -> tuple[int, int, int]:
    """A number for depth, height and width, or one each; ValueError for anything else."""
    depth, height, width = integers(where, key, value, 3)
    return depth, height, width


def conv3d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """Three-dimensional cross-correlation, as torch.nn.functional.conv3d.

    Args:
        x: (batch, channels, depth, height, width), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, dilation: a number, or one each for depth, height and width; padding is with
            zeros.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,).
        name: of the convolution of images; `<name>.weight` is (out_channels, channels / groups, *kernel_size).
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, depth', height', width'), of the dtype of `x`. The batch and the channels may be split,
        and so may depth, as a part of the images.

    Raises:
        ValueError: `x` has not five dimensions, the channels do not divide into the groups, or a window does not fit.
    """
    where = checked("conv3d", name, x, ndim=(5,))
    windows = windows_over(where, x, kernel_size, stride, padding, dilation)
    check_channels(where, x, out_channels, groups)
    name = x.graph.unique_name(name or "conv3d")
    shape = (out_channels, x.shape[1] // groups, *(w.size for w in windows))
    weight, *biases = parameters(x, name, shape, bias, weight_init, bias_init)
    planes, depth = _planes(name, x, windows[0])
    flat = reshape(weight, (shape[0], shape[1] * shape[2], *shape[3:]), f"{name}.flat")
    y = Convolution(windows[1:], groups).forward(
        name, planes, flat, *biases, backward=convolution_backward
    )
    volumes = reshape(y, (x.shape[0], depth, *y.shape[1:]), f"{name}.volumes")
    return permute(volumes, (0, 2, 1, 3, 4), f"{name}.back")


def _planes(name: str, x: LogicalRegion, window: Window) -> tuple[LogicalRegion, int]:
    """For every result in depth an image with all planes of its window, and how many results there are.

    The images are (batch * results, channels * planes of a window, height, width).
    """
    if window.padding:
        x = pad(x, (0, 0, 0, 0, window.padding, window.padding), name=f"{name}.pad")
    last = (x.shape[2] - (window.size - 1) * window.dilation - 1) // window.stride * window.stride
    beside = []
    for start in range(0, window.size * window.dilation, window.dilation):
        plane = slice(x, 2, start, start + last + 1, f"{name}.taken", step=window.stride)
        plane = permute(plane, (0, 2, 1, 3, 4), f"{name}.turned")
        beside.append(unsqueeze(plane, 3, f"{name}.plane"))
    planes = beside[0] if len(beside) == 1 else concat(beside, 3, f"{name}.planes")
    depth = last // window.stride + 1
    return reshape(
        planes,
        (x.shape[0] * depth, x.shape[1] * window.size, *x.shape[3:]),
        f"{name}.images",
    ), depth


def max_pool3d(
    x: LogicalRegion,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The maximum of every window, as torch.nn.functional.max_pool3d; the first one where several are equal.

    Args:
        x: (batch, channels, depth, height, width), floating point.
        kernel_size, stride, padding: a number, or one each for depth, height and width; see `max_pool2d`.
        name: of the pooling of images; that over depth is `<name>.depth`.

    Raises:
        ValueError: `x` has not five dimensions, or the windows do not fit.
    """
    return _pool("max_pool3d", max_pool2d, x, kernel_size, stride, padding, name)


def avg_pool3d(
    x: LogicalRegion,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    name: str | None = None,
) -> LogicalRegion:
    """The mean of every window, as torch.nn.functional.avg_pool3d; args and errors as `max_pool3d`."""
    return _pool("avg_pool3d", avg_pool2d, x, kernel_size, stride, padding, name)


def _pool(
    kind: str,
    pool: Callable[..., LogicalRegion],
    x: LogicalRegion,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    name: str | None,
) -> LogicalRegion:
    where = checked(kind, name, x, ndim=(5,))
    size = triple(where, "kernel_size", kernel_size)
    step = triple(where, "stride", size if stride is None else stride)
    edge = triple(where, "padding", padding)
    name = x.graph.unique_name(name or kind)
    flat = pool(_merged(x, name), size[1:], step[1:], edge[1:], name)
    lines = reshape(flat, (*x.shape[:3], flat.shape[2] * flat.shape[3]), f"{name}.lines")
    made = pool(lines, (size[0], 1), (step[0], 1), (edge[0], 0), f"{name}.depth")
    return reshape(made, (*made.shape[:3], *flat.shape[2:]), f"{name}.volumes")


def adaptive_avg_pool3d(
    x: LogicalRegion, output_size: Sizes, name: str | None = None
) -> LogicalRegion:
    """The mean of every window, as torch.nn.functional.adaptive_avg_pool3d; args and errors as of images."""
    where = checked("adaptive_avg_pool3d", name, x, ndim=(5,))
    size = triple(where, "output_size", output_size)
    name = x.graph.unique_name(name or "adaptive_avg_pool3d")
    flat = adaptive_avg_pool2d(_merged(x, name), size[1:], name)
    lines = reshape(flat, (*x.shape[:3], size[1] * size[2]), f"{name}.lines")
    made = adaptive_avg_pool2d(lines, (size[0], size[1] * size[2]), f"{name}.depth")
    return reshape(made, (*x.shape[:2], *size), f"{name}.volumes")


def _merged(x: LogicalRegion, name: str) -> LogicalRegion:
    """Channels and depth as one dimension."""
    return reshape(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]), f"{name}.images")
