"""Kernels for GPUs: what operators run there instead of their NumPy kernels, on the sources of this folder.

They are the variants that kernels name (`taskflow.Kernel.cuda`): those of one element or pair of elements here, more in
`rows`, `tables` and so on. Every other operator runs its NumPy kernel on CuPy as it is; docs/cuda_operators.md has the
list.

Indices are not checked here, which would make the host wait: one out of range gives NaN, so the loss is not finite.

The tests compile the sources for GPUs, and run them as C++ against the NumPy kernels; tests/gpu runs them on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.tiles import contiguous, deliver
from taskflow import Array, Context, CudaSource, Kernel

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

BLOCK = 256  # threads that share a row


def source(name: str) -> CudaSource:
    """A source of this folder."""
    return CudaSource(Path(__file__).parent / f"{name}.cu")


def constant(source: CudaSource, name: str) -> int:
    """The number that a source defines by that name."""
    definition = re.search(rf"^#define {name} (\d+)", source.text, re.MULTILINE)
    assert definition, f"{source} defines no {name}"
    return int(definition[1])


DROPOUT = source("dropout")
ROTARY = source("rotary")
PAIRS = source("pairs")


def launch(
    ctx: Context,
    source: CudaSource,
    name: str,
    threads: int,
    inputs: Sequence[Array | int],
    outputs: Sequence[Array],
    *numbers: object,
    block: int = BLOCK,
) -> None:
    """Launch a kernel of inputs, outputs and numbers, each array without gaps: in its place, or copied.

    An input of 0 is a null pointer. Floating arrays of another dtype than the kernel's are cast to it, and what it
    writes is rounded to theirs: `widest` says which kernel loses nothing.
    """
    stored = [parameter.dtype for parameter in source.signature(name).parameters]
    reads = [
        a if isinstance(a, int) else _read(ctx, (name, "input", k), a, stored[k])
        for k, a in enumerate(inputs)
    ]
    works = [
        a
        if a.flags.c_contiguous and dtype == a.dtype.name
        else ctx.scratch((name, "output", k), a.shape, dtype)
        for k, (a, dtype) in enumerate(
            (a, _taken(a, stored[k + len(reads)])) for k, a in enumerate(outputs)
        )
    ]
    ctx.launch(
        source,
        name,
        threads,
        *reads,
        *works,
        *numbers,
        block=block,
    )
    for work, a in zip(works, outputs, strict=True):
        deliver(ctx, work, a)


def _read(ctx: Context, slot: object, a: Array, stored: str) -> Array:
    dtype = _taken(a, stored)
    return contiguous(ctx, slot, a) if dtype == a.dtype.name else in_dtype(ctx, slot, a, dtype)


def _taken(a: Array, stored: str) -> str:
    """The dtype in which a kernel gets an array: that of its parameter where both are floating."""
    return stored if "float" in a.dtype.name and "float" in stored else str(a.dtype.name)


def widest(*arrays: Array) -> str:
    """The dtype of the widest array: a kernel that is named by it rounds none of them before it computes."""
    return str(max(arrays, key=lambda a: a.itemsize).dtype.name)


def in_dtype(ctx: Context, slot: object, a: Array, dtype: DTypeLike) -> Array:
    """`a` in a dtype: itself, or a copy."""
    if a.dtype == dtype:
        return a
    copy = ctx.scratch(slot, a.shape, dtype)
    ctx.xp.copyto(copy, a, casting="same_kind")
    return copy


def wide(ctx: Context, slot: object, a: Array) -> Array:
    """`a`, in float32 if it is of half size."""
    return in_dtype(ctx, slot, a, a.dtype if a.dtype.itemsize > 2 else "float32")


@partial(Kernel, takes_mixed=True)
def drop(ctx: Context, x: Array, y: Array, *, name: str, p: float, shape: tuple[int, ...]) -> None:
    """See `dropout`."""
    where = ctx.key(name), *ctx.index_map(shape, ctx.rect(1))
    scale = 1 / (1 - p) if p < 1 else 0.0
    launch(
        ctx,
        DROPOUT,
        f"dropout_{widest(x, y)}",
        y.size,
        [x],
        [y],
        *where,
        p,
        scale,
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def gumbel(ctx: Context, x: Array, y: Array, *, name: str, shape: tuple[int, ...]) -> None:
    """See `dropout.gumbel`."""
    where = ctx.key(name), *ctx.index_map(shape, ctx.rect(1))
    launch(
        ctx,
        DROPOUT,
        f"gumbel_{widest(x, y)}",
        y.size,
        [x],
        [y],
        *where,
        y.size,
    )


@partial(Kernel, takes_mixed=True)
def turn(
    ctx: Context,
    x: Array,
    y: Array,
    *,
    base: float,
    features: int,
    interleaved: bool,
    offset: int,
    scaling: Any,
    sign: float,
) -> None:
    """See `rotary`; `scaling` is a RotaryScaling."""
    pairs = x.shape[-1] // 2
    step, apart = (2, 1) if interleaved else (1, pairs)
    layout = x.shape[1], prod(x.shape[2:-1]), pairs, step, apart
    where = offset + ctx.rect(1).lo[1], ctx.interval("f")[0], features // 2
    ramp = scaling.offset, scaling.per_frequency, scaling.per_pair
    numbers = *layout, *where, base, scaling.factor, *ramp, scaling.magnitude, sign, x.size // 2
    launch(
        ctx,
        ROTARY,
        f"turn_{widest(x, y)}",
        x.size // 2,
        [x],
        [y],
        *numbers,
    )


def take_pairs(ctx: Context, products: Array, y: Array, lo: int) -> None:
    """y[:, p] = the product of pair `lo` + p, of the matrices `products`."""
    name = f"take_pairs_{widest(products, y)}"
    numbers = (lo, y.shape[1], products.shape[-1], y.size)
    launch(ctx, PAIRS, name, y.size, [products], [y], *numbers)


def put_pairs(ctx: Context, gy: Array, weights: Array, lo: int) -> None:
    """The gradient of `take_pairs`, for both orders of a pair; zeros for what is no pair of this tile."""
    numbers = lo, gy.shape[1], weights.shape[-1], weights.size
    launch(
        ctx,
        PAIRS,
        f"put_pairs_{widest(gy, weights)}",
        weights.size,
        [gy],
        [weights],
        *numbers,
    )
