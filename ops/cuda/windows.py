"""Loops over the windows of images, for kernels that differ in nothing but the device that these run on."""

from __future__ import annotations

from typing import Any

from ops.cuda.kernels import source
from taskflow import Array, Context

WINDOWS = source("windows")
_Pair = tuple[int, int]  # of the vertical and the horizontal window


def window_loops(ctx: Context) -> Any:
    """The functions of `ops.cpu.windows` for the device of a context."""
    if ctx.is_cuda:
        return WindowLoops(ctx)
    from ops.cpu import windows

    return windows


class WindowLoops:
    """The functions of `ops.cpu.windows` by the same names, on the GPU of a context; arrays are contiguous."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def to_columns(self, x: Array, columns: Array, top: int, left: int, stride: _Pair, dilation: _Pair) -> None:
        """See `ops.cpu.windows.to_columns`."""
        numbers = *x.shape[1:], *columns.shape[1:], top, left, *stride, *dilation, columns.size
        self._ctx.launch(WINDOWS, f"to_columns_{x.dtype}", columns.size, x, columns, *numbers)

    def add_columns(self, columns: Array, x: Array, top: int, left: int, stride: _Pair, dilation: _Pair) -> None:
        """See `ops.cpu.windows.add_columns`."""
        numbers = *x.shape[1:], *columns.shape[1:], top, left, *stride, *dilation, x.size
        self._ctx.launch(WINDOWS, f"add_columns_{x.dtype}", x.size, columns, x, *numbers)

    def max_pool(self, x: Array, y: Array, index: Array, *numbers: int) -> None:
        """See `ops.cpu.windows.max_pool`."""
        extents = *x.shape[1:3], *y.shape[1:]
        self._ctx.launch(WINDOWS, f"max_pool_{x.dtype}", y.size, x, y, index, *extents, *numbers, y.size)

    def max_pool_gradient(self, gy: Array, index: Array, gx: Array, *numbers: int) -> None:
        """See `ops.cpu.windows.max_pool_gradient`."""
        extents = *gx.shape[1:3], *gy.shape[1:]
        self._ctx.launch(WINDOWS, f"max_pool_gradient_{gx.dtype}", gx.size, gy, index, gx, *extents, *numbers, gx.size)
