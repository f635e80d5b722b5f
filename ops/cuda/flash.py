"""Fused attention in own kernels that keep no scores: one forward, one for the gradients (`flash.cu`).

They take heads of up to 128 features of float16, bfloat16 and float32, and of up to 64 of float64, wherever the arrays
lie in memory as long as the features of a head lie beside each other. Else nothing is done, and `attention` has another
way. Where all begins and goes on at multiples of 16 bytes, they read as many at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ops.cuda.kernels import source
from ops.tiles import contiguous, deliver, origin, work_array
from taskflow import Array, Context, CudaSource

_FLASH = source("flash")
_THREADS = 128
_TYPES = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
}  # of numbers, and of their sums
_TF32_FEATURES = 64  # of a head whose products may be rounded
_MOST_FEATURES = 128
_ROW_BYTES = 512  # of a head, and of it in shared memory
_SLICE = 16  # features that a matrix unit takes at once
_VECTOR_BYTES = 16


def takes(q: Array, v: Array) -> bool:
    """Whether there is a kernel for heads like these."""
    features = _features(q, v)
    return features <= _MOST_FEATURES and features * q.itemsize <= _ROW_BYTES


def forward(
    ctx: Context,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    statistics: Array,
    *,
    scale: float,
    is_causal: bool,
) -> None:
    """See `fused_attention`."""
    heads = _beside(ctx, q, k, v)
    kept = work_array(ctx, "statistics", statistics)
    (out,) = _places(ctx, heads[0], y)
    kind = _kind(ctx, q, v)
    _launch(
        ctx,
        "forward",
        kind,
        _blocks(q, tile_shape(*kind)[0]),
        [*heads, out, kept],
        _numbers(ctx, 0, q, k, v, is_causal),
        scale,
    )
    _deliver(ctx, [out], [y])
    deliver(ctx, kept, statistics)


def gradients(ctx: Context, *arrays: Array, scale: float, is_causal: bool) -> None:
    """See `fused_attention`."""
    kept = contiguous(ctx, "statistics", arrays[2])
    g, y, q, k, v = _beside(ctx, *arrays[:2], *arrays[3:6])
    made = arrays[6:]
    outs, kind = _places(ctx, q, *made), _kind(ctx, q, v)
    counts = [_blocks(a, tile_shape(*kind)[2]) for a in (q, k)]  # of queries, of keys
    numbers = *counts, *_numbers(ctx, 3, q, k, v, is_causal)
    _launch(
        ctx,
        "gradients",
        kind,
        sum(counts),
        [g, y, kept, q, k, v, *outs],
        numbers,
        scale,
    )
    _deliver(ctx, outs, made)


def tile_shape(dtype: str, features: int) -> tuple[int, int, int, int]:
    """Rows of a block and what it sees at a time, then those of the gradients: tiles fill at most 48 KB."""
    if dtype == "tf32":
        return 64, 32, 64, 16
    if dtype in _TYPES:
        is_small = features * (8 if dtype == "float64" else 4) <= _ROW_BYTES // 2
        return (64, 32, 32, 32) if is_small else (32, 16, 16, 16)
    return (
        (64, 64, 64, 32) if features <= _MOST_FEATURES // 2 else (64, 32, 64, 16)
    )  # 16 rows for each warp


@cache
def flash_source(dtype: str, features: int) -> CudaSource:
    """The kernels for heads of so many features or fewer, a multiple of 16."""
    numbers = *_TYPES.get(dtype, (dtype, "float")), dtype, features, *tile_shape(dtype, features)
    return CudaSource(_FLASH.path, f"FLASH({', '.join(map(str, numbers))})\n")


def _kind(ctx: Context, q: Array, v: Array) -> tuple[str, int]:
    """How heads are multiplied: by their dtype or as tf32; and the features of the tiles."""
    features = _features(q, v)
    dtype = str(q.dtype.name)
    return (
        "tf32" if ctx.uses_tf32 and dtype == "float32" and features <= _TF32_FEATURES else dtype,
        features,
    )


def _blocks(rows_of: Array, tile: int) -> int:
    """One for each head and tile of its rows."""
    return int(rows_of.shape[0] * rows_of.shape[2] * -(-rows_of.shape[1] // tile))


def _features(q: Array, v: Array) -> int:
    """Of the tiles in shared memory."""
    most: int = max(q.shape[3], v.shape[3])
    return -(-most // _SLICE) * _SLICE


def _beside(ctx: Context, *arrays: Array) -> list[Array]:
    """Arrays of heads with features beside each other: as they are, or copied."""
    return [
        a if a.strides[3] == a.itemsize or a.shape[3] == 1 else contiguous(ctx, ("head", k), a)
        for k, a in enumerate(arrays)
    ]


def _places(ctx: Context, like: Array, *outputs: Array) -> list[Array]:
    """Where kernels write: in the place of an output, or in memory that `_deliver` copies there."""
    return [
        a
        if a.dtype == like.dtype and a.strides[3] == a.itemsize
        else ctx.scratch(("made", k), a.shape, like.dtype)
        for k, a in enumerate(outputs)
    ]


def _deliver(ctx: Context, made: Sequence[Array], outputs: Sequence[Array]) -> None:
    for work, a in zip(made, outputs, strict=True):
        if work is not a:
            ctx.xp.copyto(a, work, casting="same_kind")


def _numbers(
    ctx: Context,
    query: int,
    q: Array,
    k: Array,
    v: Array,
    is_causal: bool,
) -> tuple[int, ...]:
    """What the kernels are told of heads; the queries are argument number `query`."""
    first = ctx.rect(query).lo[1] - ctx.rect(query + 1).lo[1]
    return q.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3], first, int(is_causal)


def _launch(
    ctx: Context,
    kernel: str,
    kind: tuple[str, int],
    blocks: int,
    arrays: Sequence[Array],
    numbers: Sequence[int],
    scale: float,
) -> None:
    """Arrays of four dimensions lie anywhere, of three without gaps."""
    heads = [a for a in arrays if a.ndim == 4]
    steps = [a.strides[d] // a.itemsize for a in heads for d in range(3)]
    numbers = *steps, *numbers, int(all(_is_even(ctx, a) for a in heads))
    ctx.launch(
        flash_source(*kind),
        f"flash_{kernel}_{kind[0]}",
        blocks * _THREADS,
        *(origin(a) if a.ndim == 4 else a for a in arrays),
        *numbers,
        scale,
        block=_THREADS,
    )


def _is_even(ctx: Context, a: Array) -> bool:
    """Whether all rows of heads begin and end at multiples of 16 bytes."""
    numbers = (ctx.address(a), a.shape[3] * a.itemsize, *a.strides[:3])
    return not any(n % _VECTOR_BYTES for n in numbers)
