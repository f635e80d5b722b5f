"""Convolution of every channel on its own, without products of matrices.

Arrays are contiguous and channels-last: (images, height, width, channels), weights (channels, kh, kw, 1).
"""

from __future__ import annotations

from ops.tiles import Array, Context, Frame, contiguous


def fits(frame: Frame, x: Array, y: Array) -> bool:
    """Whether every group is one channel, of inputs and of outputs."""
    return frame.groups > 1 and x.shape[3] == y.shape[3] == frame.groups


def forward(ctx: Context, x: Array, weight: Array, bias: Array | None, y: Array, frame: Frame) -> None:
    """y = x convolved with weight, + bias."""
    from ops import cpu_windows

    y[...] = 0 if bias is None else bias
    cpu_windows.depthwise(x, contiguous(ctx, "taps", _taps(weight)), y, *frame.below(0))


def add_gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array, frame: Frame) -> None:
    """Add to gx what follows from gy."""
    from ops import cpu_windows

    cpu_windows.depthwise_gradient(gy, contiguous(ctx, "taps", _taps(weight)), gx, *frame.below(0))


def gradient_weight(ctx: Context, gy: Array, x: Array, gweight: Array, frame: Frame) -> None:
    """The gradient of the weights: per image first, since short sums are more exact than a long one."""
    from ops import cpu_windows

    by_image = ctx.scratch("by_image", (len(gy), *_taps(gweight).shape), gweight.dtype)
    by_image.fill(0)
    cpu_windows.depthwise_weight_gradient(gy, x, by_image, *frame.below(0))
    ctx.xp.sum(by_image, axis=0, out=_taps(gweight))


def _taps(weight: Array) -> Array:
    """(kh, kw, channels)."""
    return weight[..., 0].transpose(1, 2, 0)
