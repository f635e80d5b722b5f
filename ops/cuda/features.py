"""Pairs of features on GPUs: rotary embedding, and the interaction of regions; see `gpu` for the rest.

Not yet run on hardware; the tests compile the sources for GPUs, and run them as C++ against the NumPy kernels.
"""

from __future__ import annotations

from functools import partial
from math import prod
from pathlib import Path

from ops.cuda.kernels import in_dtype
from ops.tiles import contiguous, deliver, work_array
from taskflow import Array, Context, CudaSource, Kernel

_FOLDER = Path(__file__).parent
ROTARY, PAIRS = (CudaSource(_FOLDER / f"{name}.cu") for name in ("rotary", "pairs"))


@partial(Kernel, takes_half=True)
def turn(
    ctx: Context, x: Array, y: Array, *, base: float, features: int, interleaved: bool, offset: int, sign: float
) -> None:
    """See `rotary`."""
    work, pairs = work_array(ctx, "y", y), x.shape[-1] // 2
    step, apart = (2, 1) if interleaved else (1, pairs)
    layout = x.shape[1], prod(x.shape[2:-1]), pairs, step, apart
    where = offset + ctx.rect(1).lo[1], ctx.interval("f")[0], features // 2
    numbers = *layout, *where, float(base), float(sign), x.size // 2
    read = contiguous(ctx, "x", in_dtype(ctx, "cast", x, y.dtype))
    ctx.launch(ROTARY, f"turn_{y.dtype}", x.size // 2, read, work, *numbers)
    deliver(ctx, work, y)


def take_pairs(ctx: Context, products: Array, y: Array, lo: int) -> None:
    """y[:, p] = the product of pair `lo` + p, of the matrices `products`."""
    work = work_array(ctx, "y", y)
    numbers = lo, y.shape[1], products.shape[-1], y.size
    ctx.launch(PAIRS, f"take_pairs_{y.dtype}", y.size, products, work, *numbers)
    deliver(ctx, work, y)


def put_pairs(ctx: Context, gy: Array, weights: Array, lo: int) -> None:
    """The gradient of `take_pairs`, for both orders of a pair; zeros for what is no pair of this tile."""
    numbers = lo, gy.shape[1], weights.shape[-1], weights.size
    ctx.launch(PAIRS, f"put_pairs_{gy.dtype}", weights.size, contiguous(ctx, "gy", gy), weights, *numbers)
