"""Attention on a GPU: by cuDNN where it is installed and takes it, else by `flash`; heads that are too wide for that
some queries at a time.

Arrays are (batch, points, heads, features), statistics (batch, heads, queries). cuDNN takes float16 and bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ops.cuda import flash
from ops.cuda.kernels import BLOCK, source
from ops.tiles import contiguous, deliver, origin, work_array
from taskflow import Array, Context, Kernel

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ATTENTION = source("attention")
HEADS = source("heads")
_LANES, _MOST_ARRAYS, _MOST_ELEMENTS = (
    8,
    4,
    1 << 31,
)  # of a vector; of a launch; between elements that 32 bits count
_BLOCK_BYTES = 160 << 20  # of the scores of some queries; GPT-2's 1024 are then three blocks
_GRAIN = 64  # queries of a block are a multiple of this: a tile of a product


class Scoring(NamedTuple):
    """How scores are made; `alibi` is the number of all heads, where they have biases by distance, else 0."""

    scale: float
    is_causal: bool
    alibi: int = 0


@partial(Kernel, takes_mixed=True)
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
    alibi: int = 0,
) -> None:
    """See `fused_attention`."""
    if not y.size:
        return
    if not alibi and _forward_by_library(ctx, q, k, v, y, statistics, scale, is_causal):
        return
    if not alibi and flash.takes(q, v):
        flash.forward(ctx, q, k, v, y, statistics, scale=scale, is_causal=is_causal)
        return
    _forward_by_blocks(ctx, (q, k, v, y, statistics), Scoring(scale, is_causal, alibi))


@partial(Kernel, takes_mixed=True)
def gradients(ctx: Context, *arrays: Array, scale: float, is_causal: bool, alibi: int = 0) -> None:
    """See `fused_attention`. Keys that no query sees are not read, and have gradients."""
    keys = arrays[4].shape[1]
    for gradient in arrays[-2:]:
        if keys < gradient.shape[1]:
            gradient[:, keys:].fill(0)
    arrays = *arrays[:-2], *(gradient[:, :keys] for gradient in arrays[-2:])
    if not alibi and _gradients_by_library(ctx, *arrays, scale=scale, is_causal=is_causal):
        return
    if not alibi and flash.takes(arrays[3], arrays[5]):
        flash.gradients(ctx, *arrays, scale=scale, is_causal=is_causal)
        return
    _gradients_by_blocks(ctx, arrays, Scoring(scale, is_causal, alibi))


def scale_and_mask(ctx: Context, scores: Array, scale: float, seen: int) -> None:
    """Contiguous (batch, heads, queries, keys) times `scale`; minus infinity where the first query does not see
    `seen` keys, and each one behind it a key more."""
    numbers = *scores.shape[2:], seen, float(scale), scores.size
    ctx.launch(
        ATTENTION,
        f"scale_and_mask_{scores.dtype}",
        scores.size,
        scores,
        *numbers,
    )


def add_biases(ctx: Context, scores: Array, heads: int, head: int, first: int) -> None:
    """See `ops.attention.alibi.add_biases`."""
    _, count, queries, keys = scores.shape
    numbers = queries, first, keys, count, head, _power(heads)
    ctx.launch(
        ATTENTION,
        f"add_biases_{scores.dtype}",
        _threads(scores),
        scores,
        *numbers,
    )


# -- some queries at a time --------------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Some queries, the keys that any of them sees, and memory (batch, heads, queries, keys) of two dtypes."""

    rows: slice
    keys: slice
    wide: list[Array]
    narrow: list[Array]


def _forward_by_blocks(ctx: Context, arrays: Sequence[Array], scoring: Scoring) -> None:
    query, key, value = _by_head(ctx, dict(zip("qkv", arrays)))
    out = ctx.scratch("y", (*query.shape[:3], value.shape[3]), arrays[3].dtype)
    kept = work_array(ctx, "statistics", arrays[4])
    for block in _blocks(ctx, query, key, kept.dtype, 1, _first(ctx, 0, scoring.is_causal)):
        ctx.xp.matmul(query[:, :, block.rows], _turned(key, block), out=block.wide[0])
        ctx.launch(
            ATTENTION,
            f"attention_weights_{query.dtype}",
            _threads(block.wide[0]),
            *block.wide,
            *block.narrow,
            kept,
            *_numbers(ctx, 0, block, kept, scoring),
        )
        ctx.xp.matmul(block.narrow[0], value[:, :, block.keys], out=out[:, :, block.rows])
    _move(ctx, "scatter_heads", [(out, arrays[3])])
    deliver(ctx, kept, arrays[4])


def _gradients_by_blocks(ctx: Context, arrays: Sequence[Array], scoring: Scoring) -> None:
    by_head = _by_head(ctx, dict(zip("gqkv", (arrays[0], *arrays[3:6]))))
    g, query, key, _ = by_head
    kept = contiguous(ctx, "statistics", arrays[2])
    out = ctx.scratch("gq", query.shape, kept.dtype)
    totals = _Totals(ctx, kept.dtype, by_head[2:])
    for block in _blocks(ctx, query, key, kept.dtype, 2, _first(ctx, 3, scoring.is_causal)):
        _write_slopes(ctx, by_head, kept, block, scoring)
        weights, slopes = block.narrow
        ctx.xp.matmul(slopes, key[:, :, block.keys], out=out[:, :, block.rows])
        totals.add(0, slopes, query[:, :, block.rows])
        totals.add(1, weights, g[:, :, block.rows])
    _move(ctx, "scatter_sums", list(zip((out, *totals.sums), arrays[6:])))


def _write_slopes(
    ctx: Context, by_head: Sequence[Array], kept: Array, block: _Block, scoring: Scoring
) -> None:
    """The weights of a block, and the slopes of its scores."""
    g, query, key, value = by_head
    ctx.xp.matmul(query[:, :, block.rows], _turned(key, block), out=block.wide[0])
    ctx.xp.matmul(g[:, :, block.rows], _turned(value, block), out=block.wide[1])
    ctx.launch(
        ATTENTION,
        f"attention_slopes_{query.dtype}",
        _threads(block.wide[0]),
        *block.wide,
        kept,
        *block.narrow,
        *_numbers(ctx, 3, block, kept, scoring),
    )


def _turned(by_key: Array, block: _Block) -> Array:
    """The features of the keys of a block, (batch, heads, features, keys)."""
    return by_key[:, :, block.keys].swapaxes(2, 3)


def _threads(scores: Array) -> int:
    """As many as share a row, for every row of scores."""
    return int(scores.size // max(scores.shape[3], 1) * BLOCK)


class _Totals:
    """Sums over blocks of queries, of the dtype of the statistics: of the gradients of keys and of values."""

    def __init__(self, ctx: Context, dtype: DTypeLike, likes: Sequence[Array]) -> None:
        self._ctx = ctx
        self.sums = [ctx.scratch(("total", n), a.shape, dtype) for n, a in enumerate(likes)]
        self._is_set = [False for _ in likes]

    def add(self, number: int, by_query: Array, rows: Array) -> None:
        """Add by_queryᵀ rows, to the first keys where these are fewer."""
        total = self.sums[number]
        keys = by_query.shape[3]
        if not self._is_set[number] and keys == total.shape[2]:
            self._ctx.xp.matmul(by_query.swapaxes(2, 3), rows, out=total)
        else:
            if not self._is_set[number]:
                total.fill(0)
            self._ctx.xp.add_product(by_query.swapaxes(2, 3), rows, out=total[:, :, :keys])
        self._is_set[number] = True


def _by_head(ctx: Context, arrays: Mapping[str, Array]) -> list[Array]:
    """Copies as (batch, heads, points, features) without gaps: products of many matrices want these evenly spaced."""
    by_head = [a.swapaxes(1, 2) for a in arrays.values()]
    copies = [ctx.scratch(slot, a.shape, a.dtype) for slot, a in zip(arrays, by_head)]
    _move(ctx, "gather_heads", list(zip(arrays.values(), copies)))
    return copies


def _move(ctx: Context, kernel: str, pairs: Sequence[tuple[Array, Array]]) -> None:
    """Copy up to four arrays to others, in one launch; each pair is of one without gaps by head and one as it lies."""
    strided = [source if kernel == "gather_heads" else target for source, target in pairs]
    if any(_span(a) >= _MOST_ELEMENTS or a.strides[3] != a.itemsize for a in strided):
        for source, target in pairs:
            ctx.xp.copyto(target, source.swapaxes(1, 2), casting="same_kind")
        return
    lanes = _LANES if all(_takes_lanes(ctx, a) for a in chain(*pairs)) else 1
    arguments: list[object] = []
    for (source, target), a in zip(pairs, strided):
        arguments += [origin(source), origin(target), *_lying(a, lanes)]
    arguments += [*arguments[:2], 0, 1, 1, 0, 0, 0] * (_MOST_ARRAYS - len(pairs))
    ctx.launch(
        HEADS,
        f"{kernel}_{lanes}_{pairs[0][1].dtype.name}",
        sum(a.size for a in strided) // lanes,
        *arguments,
        strided[0].shape[2],
    )


def _lying(a: Array, lanes: int) -> list[int]:
    """How an array lies, in vectors of so many features: their number, points, those of a head, and steps."""
    steps = [step // a.itemsize // lanes for step in a.strides[:3]]
    return [a.size // lanes, a.shape[1], a.shape[3] // lanes, *steps]


def _span(a: Array) -> int:
    """Elements from the first to the last one as they lie in memory; too many where they lie backwards."""
    if min(a.strides) < 0:
        return _MOST_ELEMENTS
    return (
        1 + sum((n - 1) * (step // a.itemsize) for n, step in zip(a.shape, a.strides))
        if a.size
        else 0
    )


def _takes_lanes(ctx: Context, a: Array) -> bool:
    """Whether vectors of features begin where one of their size may."""
    size = _LANES * a.itemsize
    return (
        a.shape[3] % _LANES == 0
        and not ctx.address(a) % 16
        and not any(step % size for step in a.strides[:3])
    )


def _first(ctx: Context, query: int, is_causal: bool) -> int | None:
    """The number of the first of the queries that are argument number `query`, from the first key on; None: no mask."""
    return ctx.rect(query).lo[1] - ctx.rect(query + 1).lo[1] if is_causal else None


def _blocks(
    ctx: Context,
    q: Array,
    k: Array,
    dtype: DTypeLike,
    count: int,
    first: int | None,
) -> Iterator[_Block]:
    """Some queries at a time, the last ones first, with `count` arrays of `dtype` and of that of `q`."""
    queries = q.shape[2]
    line = q.shape[0] * q.shape[1] * k.shape[2]
    together = _together(queries, line)
    wide = [ctx.scratch(("wide", n), (line * together,), dtype) for n in range(count)]
    narrow = [ctx.scratch(("narrow", n), (line * together,), q.dtype) for n in range(count)]
    for start in reversed(range(0, queries, together)):
        rows = slice(start, min(start + together, queries))
        seen = k.shape[2] if first is None else max(1, min(first + rows.stop, k.shape[2]))
        shape = *q.shape[:2], rows.stop - start, seen
        yield _Block(rows, slice(seen), _shaped(wide, shape), _shaped(narrow, shape))


def _together(queries: int, line: int) -> int:
    """Queries of a block, of so many scores each."""
    most = max(1, min(queries, _BLOCK_BYTES // max(line * 4, 1)))
    return most - (most % _GRAIN if _GRAIN < most < queries else 0)


def _shaped(memory: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    return [a[: prod(shape)].reshape(shape) for a in memory]


def _numbers(
    ctx: Context, query: int, block: _Block, kept: Array, scoring: Scoring
) -> tuple[float, ...]:
    """What the kernels are told of a block of the queries that are argument number `query`."""
    scores = block.wide[0]
    first = ctx.rect(query).lo[1] - ctx.rect(query + 1).lo[1] + block.rows.start
    lying = scores.shape[2], kept.shape[2], block.rows.start, first, scores.shape[3]
    biases = scores.shape[1], ctx.rect(query).lo[2], _power(scoring.alibi)
    return *lying, int(scoring.is_causal), *biases, scoring.scale


def _power(heads: int) -> int:
    """The largest power of two up to the number of all heads, which their slopes follow; 0: there are no biases."""
    return 1 << heads.bit_length() - 1 if heads else 0


# -- cuDNN -------------------------------------------------------------------------------------------------------------


def _forward_by_library(
    ctx: Context,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    statistics: Array,
    scale: float,
    is_causal: bool,
) -> bool:
    mask, keys = _mask(ctx, 0, is_causal)
    if mask is None:
        return False
    return bool(
        ctx.library(
            "attention",
            [_heads(q), _heads(k[:, :keys]), _heads(v[:, :keys])],
            [_heads(y), statistics[..., None]],
            scale=scale,
            mask=mask,
        )
    )


def _gradients_by_library(ctx: Context, *arrays: Array, scale: float, is_causal: bool) -> bool:
    gy, y, statistics, q, k, v, gq, gk, gv = arrays
    mask, keys = _mask(ctx, 3, is_causal)
    if mask is None:
        return False
    inputs = [
        _heads(gy),
        _heads(y),
        statistics[..., None],
        _heads(q),
        _heads(k[:, :keys]),
        _heads(v[:, :keys]),
    ]
    outputs = [_heads(gq), _heads(gk[:, :keys]), _heads(gv[:, :keys])]
    if not ctx.library(
        "attention_gradient",
        inputs,
        outputs,
        scale=scale,
        mask=mask,
    ):
        return False
    for gradient in (gk, gv):
        if keys < gradient.shape[1]:
            gradient[:, keys:].fill(0)
    return True


def _mask(ctx: Context, query: int, is_causal: bool) -> tuple[str | None, int]:
    """Which mask of cuDNN it is for the queries that are argument number `query`, and how many keys they see."""
    (lo, hi), (begin, end) = ((ctx.rect(n).lo[1], ctx.rect(n).hi[1]) for n in (query, query + 1))
    lo = lo - begin
    hi = hi - begin
    keys = end - begin
    if not is_causal or lo + 1 >= keys:
        return "", keys
    if lo == 0:
        return "first", min(hi, keys)
    return ("last", hi) if hi <= keys else (None, keys)


def _heads(a: Array) -> Array:
    """The view (batch, heads, points, features)."""
    return a.swapaxes(1, 2)
