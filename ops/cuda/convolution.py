"""Convolution on a GPU: by cuDNN where it is installed and takes it, else by own kernels (`implicit`).

Arrays are channels-last and contiguous. `corner` says where the window of the first output starts in the image, perhaps
outside of it: what windows read outside are zeros, before and after the image as far as they reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.cuda import implicit
from taskflow import Array, Context, Window

Windows = tuple[Window, Window]


@dataclass(frozen=True)
class Fit:
    """Where windows lie along one dimension: the points of the image that they are put over, and zeros around these."""

    points: slice
    before: int
    after: int


def fit(window: Window, outputs: int, extent: int, corner: int) -> Fit | None:
    """How the windows of so many outputs lie on `extent` points; None where they read none of them.

    As many zeros after as before, if that gives as many outputs: algorithms for that are the common ones.
    """
    start = max(corner, 0)
    before = max(-corner, 0)
    span = (window.size - 1) * window.dilation + 1
    end = corner + (outputs - 1) * window.stride + span
    if (extent - start + 2 * before - span) // window.stride + 1 == outputs:
        return Fit(slice(start, extent), before, before)
    stop = min(extent, end)
    return Fit(slice(start, stop), before, end - stop) if start < stop else None


def forward(
    ctx: Context,
    x: Array,
    weight: Array,
    bias: Array | None,
    y: Array,
    windows: Windows,
    corner: Sequence[int],
    groups: int,
    is_rectified: bool = False,
) -> None:
    """y = x * weight + bias, or 0 where that is less if it `is_rectified`."""
    image, options = _place(x, y, windows, corner)
    if image is None or not _by_library(ctx, image, weight, bias, y, options):
        implicit.forward(ctx, x, weight, bias, y, windows, corner, groups, is_rectified)
    elif is_rectified:
        ctx.xp.maximum(y, 0, out=y)


def _by_library(
    ctx: Context,
    image: Array,
    weight: Array,
    bias: Array | None,
    y: Array,
    options: Mapping[str, Any],
) -> bool:
    inputs = [_planes(image), _planes(weight)]
    outputs = [_planes(y)]
    if bias is not None and ctx.library(
        "convolution", [*inputs, _planes(bias.reshape(1, 1, 1, -1))], outputs, **options
    ):
        return True
    is_done = ctx.library("convolution", inputs, outputs, **options)
    if is_done and bias is not None:
        ctx.xp.add(y, bias, out=y)
    return bool(is_done)


def gradient_x(
    ctx: Context,
    gy: Array,
    weight: Array,
    gx: Array,
    windows: Windows,
    corner: Sequence[int],
    groups: int,
) -> None:
    """The gradient of the image; zero where no window reads it."""
    image, options = _place(gx, gy, windows, corner)
    if image is not None:
        if image.shape != gx.shape:
            gx.fill(0)
        if ctx.library(
            "convolution_gradient_x", [_planes(gy), _planes(weight)], [_planes(image)], **options
        ):
            return
    implicit.gradient_x(ctx, gy, weight, gx, windows, corner, groups)


def gradient_weight(
    ctx: Context,
    gy: Array,
    x: Array,
    gweight: Array,
    windows: Windows,
    corner: Sequence[int],
    groups: int,
) -> None:
    """The gradient of the weight."""
    image, options = _place(x, gy, windows, corner)
    if image is None or not ctx.library(
        "convolution_gradient_weight", [_planes(gy), _planes(image)], [_planes(gweight)], **options
    ):
        implicit.gradient_weight(ctx, gy, x, gweight, windows, corner, groups)


def _place(
    image: Array, outputs: Array, windows: Windows, corner: Sequence[int]
) -> tuple[Array | None, dict[str, Any]]:
    """The part of the image that is used, None where there is none, and the options of the operation."""
    vertical, horizontal = (
        fit(w, outputs.shape[k], image.shape[k], corner[k - 1]) for k, w in enumerate(windows, 1)
    )
    if vertical is None or horizontal is None or not outputs.size or not image.size:
        return None, {}
    options = {
        "before": (vertical.before, horizontal.before),
        "after": (vertical.after, horizontal.after),
        "stride": tuple(w.stride for w in windows),
        "dilation": tuple(w.dilation for w in windows),
    }
    return image[:, vertical.points, horizontal.points], options


def _planes(a: Array) -> Array:
    """The view (images, channels, height, width)."""
    return a.transpose(0, 3, 1, 2)
