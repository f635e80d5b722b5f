"""Convolution in own kernels where cuDNN is not: products whose matrices of columns are never made (`implicit.cu`).

Arrays are channels-last and contiguous; weights (out channels, height, width, channels of a group). The corner is that
of `ops.cuda.convolution`. The gradient of the weight sums over all pixels: these are shared among enough blocks to fill
a GPU, by the shapes alone, so that the bits are the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from ops.cuda.kernels import in_dtype, source
from ops.tiles import contiguous
from taskflow import Array, Context, CudaSource, Window

Windows = tuple[Window, Window]

_IMPLICIT = source("implicit")
_THREADS = 128
_ROWS = 64  # of a block
_TYPES = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
}  # of numbers, and of their sums
_VECTOR_BYTES = 16
_BLOCKS = 528  # that fill a GPU: four for each of 132 multiprocessors
_LEAST_PIXELS = 256  # that are worth a block
_MOST_PIXELS = 1 << 30  # numbers of pixels are 32-bit


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
    outs = y.shape[3] // groups
    cols, depth = _tile(x.dtype.name, outs, weight.shape[3])
    blocks = -(-prod(y.shape[:3]) // _ROWS) * groups * -(-outs // cols)
    row = 0 if bias is None else contiguous(ctx, "bias", in_dtype(ctx, "cast", bias, x.dtype))
    flags = _is_even(ctx, x, weight.shape[3]), _is_even(ctx, weight, weight.shape[3])
    _launch(
        ctx,
        "convolve",
        _kind(ctx, x),
        (cols, depth),
        blocks,
        (x, weight, row, y),
        (*_shape(x, y, windows, corner, groups), is_rectified, *flags),
    )


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
    ins = weight.shape[3]
    outs = gy.shape[3] // groups
    cols, depth = _tile(gy.dtype.name, ins, outs)
    kinds = windows[0].stride * windows[1].stride
    pixels = gx.shape[0] * prod(-(-n // w.stride) for n, w in zip(gx.shape[1:3], windows))
    blocks = -(-pixels // _ROWS) * kinds * groups * -(-ins // cols)
    flags = _is_even(ctx, gy, outs), _is_even(ctx, weight, ins)
    _launch(
        ctx,
        "slopes_of_image",
        _kind(ctx, gy),
        (cols, depth),
        blocks,
        (gy, weight, gx),
        (*_shape(gx, gy, windows, corner, groups), *flags),
    )


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
    ins = gweight.shape[3]
    outs = gy.shape[3] // groups
    pixels = prod(gy.shape[:3])
    if not gy.size:
        gweight.fill(0)
        return
    cols, depth = _tile(x.dtype.name, ins, _ROWS)
    tiles = -(-outs // _ROWS) * groups * windows[0].size * windows[1].size * -(-ins // cols)
    number = max(1, min(-(-_BLOCKS // tiles), -(-pixels // _LEAST_PIXELS)))
    split = -(-pixels // (number * depth)) * depth
    number = -(-pixels // split)
    sums = gweight.dtype if gweight.dtype.itemsize > 2 else "float32"
    is_direct = number == 1 and gweight.dtype == sums
    parts = gweight if is_direct else ctx.scratch("parts", (number, *gweight.shape), sums)
    flags = _is_even(ctx, gy, outs), _is_even(ctx, x, ins)
    _launch(
        ctx,
        "slopes_of_weight",
        _kind(ctx, x),
        (cols, depth),
        tiles * number,
        (gy, x, parts),
        (*_shape(x, gy, windows, corner, groups), split, *flags),
    )
    if not is_direct:
        text = kernel_source("slopes_of_weight", gweight.dtype.name, cols, depth)
        ctx.launch(
            text,
            f"add_parts_{gweight.dtype}",
            gweight.size,
            parts,
            gweight,
            number,
            gweight.size,
        )


@cache
def kernel_source(kernel: str, dtype: str, cols: int, depth: int) -> CudaSource:
    """A kernel whose blocks have so many columns, and take so much of the depth at a time."""
    numbers = *_TYPES.get(dtype, (dtype, "float")), dtype, cols, depth
    return CudaSource(_IMPLICIT.path, f"{kernel.upper()}({', '.join(map(str, numbers))})\n")


def _kind(ctx: Context, a: Array) -> str:
    """How pixels are multiplied: by their dtype, or as tf32."""
    return "tf32" if ctx.uses_tf32 and a.dtype.name == "float32" else str(a.dtype.name)


def _tile(dtype: str, cols: int, depth: int) -> tuple[int, int]:
    """Columns and depth of a block: as for narrow matrices, or wide ones; all tiles fill at most 48 KB."""
    return 16 if cols <= 16 else 64, 16 if depth <= 16 or dtype == "float64" else 32


def _shape(
    x: Array, y: Array, windows: Windows, corner: Sequence[int], groups: int
) -> tuple[int, ...]:
    """What the kernels are told of a convolution of `x` to `y`."""
    for a in (x, y):
        if prod(a.shape[:3]) > _MOST_PIXELS:
            raise ValueError(
                f"a convolution on a GPU: {prod(a.shape[:3])} pixels of a tile, more than {_MOST_PIXELS}"
            )
    return (
        *x.shape[:3],
        *y.shape[1:3],
        groups,
        x.shape[3] // groups,
        y.shape[3] // groups,
        *(w.size for w in windows),
        *corner,
        *(w.stride for w in windows),
        *(w.dilation for w in windows),
    )


def _is_even(ctx: Context, a: Array, channels: int) -> int:
    """Whether each `channels` of an array begin and end at multiples of 16 bytes."""
    return int(not (ctx.address(a) % _VECTOR_BYTES or channels * a.itemsize % _VECTOR_BYTES))


def _launch(
    ctx: Context,
    kernel: str,
    dtype: str,
    tile: tuple[int, int],
    blocks: int,
    arrays: Sequence[Array | int],
    numbers: Sequence[int],
) -> None:
    text, name = kernel_source(kernel, dtype, *tile), f"{kernel}_{dtype}"
    ctx.launch(
        text,
        name,
        blocks * _THREADS,
        *arrays,
        *numbers,
        block=_THREADS,
    )
