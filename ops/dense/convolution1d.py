"""Convolution of sequences: that of images of one line.

Splits over `n` (Sample), over `o` and `c` (Parameter; `c` gives partial sums), over `w` (Attribute, with a halo) and,
with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ops.building import check_not_negative, check_positive, checked
from ops.dense.convolution import (
    ConvolutionKernels,
    convolve,
    gradient_weight,
    gradient_x,
    launch_convolution,
)
from ops.initializers import Init
from taskflow import Array, Context, Kernel, LogicalRegion, Rect, Window


def conv1d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """One-dimensional cross-correlation, as torch.nn.functional.conv1d.

    Args:
        x: (batch, channels, length), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, dilation: numbers; padding is with zeros.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,).
        name: of the operator; `<name>.weight` is (out_channels, channels / groups, kernel_size).
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, length'), of the dtype of `x`.

    Raises:
        ValueError: `x` has not three dimensions, the channels do not divide into the groups, or the window does not
            fit.
    """
    where = checked("conv1d", name, x, ndim=(3,))
    check_positive(where, kernel_size=kernel_size, stride=stride, dilation=dilation)
    check_not_negative(where, padding=padding)
    window = Window("w", kernel_size, stride, padding, dilation)
    if window.output_extent(x.shape[2]) < 1:
        raise ValueError(
            f"{where}: a window of {dilation * (kernel_size - 1) + 1} points does not fit into the {x.shape[2]} points "
            f"of '{x.name}' and a padding of {padding}"
        )
    inits = weight_init, bias_init
    return launch_convolution(
        where, name or "conv1d", x, [window], out_channels, groups, bias, inits, line_kernels()
    )


def line_kernels() -> ConvolutionKernels:
    """The kernels of convolutions over one dimension."""
    forward, of_x, of_weight = (
        _on_lines.bind(kernel=kernel) for kernel in (convolve, gradient_x, gradient_weight)
    )
    return ConvolutionKernels(forward, of_x, of_weight, _gradient_bias)


# -- kernels -----------------------------------------------------------------------------------------------------------


class _OnLines:
    """A context whose boxes of three dimensions have a height of one point more."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def rect(self, k: int) -> Rect:
        box = self._ctx.rect(k)
        return (
            box
            if len(box.lo) != 3
            else Rect((*box.lo[:2], 0, box.lo[2]), (*box.hi[:2], 1, box.hi[2]))
        )


@partial(Kernel, is_compiled=True)
def _on_lines(ctx: Context, *arrays: Array, kernel: Callable[..., None], **options: object) -> None:
    """A kernel of images on sequences."""
    kernel(_OnLines(ctx), *(a[:, :, None] if a.ndim == 3 else a for a in arrays), **options)


@Kernel
def _gradient_bias(ctx: Context, gy: Array, gbias: Array) -> None:
    ctx.xp.sum(gy, axis=(0, 2), out=gbias)
