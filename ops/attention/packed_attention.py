"""Attention over documents that lie one behind the other, without padding: each query sees the keys of its document.

One operator, as `fused_attention`, whose keys follow the queries by a table (`taskflow.Image`). So a split of tokens
reads what is left of documents at its borders alone, and the work of a point is the sum over its queries of the keys
that they see: where documents are of unequal length equal parts have unequal work (see `taskflow.even_work`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ops.attention import fused_attention as fused
from ops.attention.linear_attention import check_scale, score_options
from ops.building import checked, distinct, launch_all, launch_first, term, terms
from ops.cuda import attention as gpu_attention
from taskflow import Array, Context, Image, Kernel, LogicalRegion, Operator, Rect


def packed_attention(
    q: LogicalRegion,
    k: LogicalRegion,
    v: LogicalRegion,
    lengths: Sequence[int],
    is_causal: bool = False,
    name: str | None = None,
    *,
    scale: float | None = None,
    alibi: bool = False,
) -> LogicalRegion:
    """softmax(q kᵀ / sqrt(d)) v for every head and every document by itself, as flash-attn's `varlen` functions.

    Args:
        q, k: (tokens, heads, d), floating point.
        v: (tokens, heads, e).
        lengths: of the documents in their order, which sum to all tokens; or their borders (`cu_seqlens`: 0, then the
            end of each).
        is_causal: whether a token sees only those up to itself.
        name: of the operator.
        scale: of the scores, in the place of 1 / sqrt(d).
        alibi: see `fused_attention`.

    Returns:
        (tokens, heads, e). Tokens and heads may be split, tokens within a document, too.

    Raises:
        ValueError: the shapes or lengths do not agree, `scale` is no finite number, or a dtype is wrong.
    """
    for role, region in (("q", q), ("k", k), ("v", v)):
        where = checked("packed_attention", name or "attention", region, role, ndim=(3,))
    if q.shape != k.shape or q.shape[:2] != v.shape[:2]:
        raise ValueError(
            f"{where}: '{q.name}' is {q.shape}, '{k.name}' is {k.shape} and '{v.name}' is {v.shape}"
        )
    borders = borders_of(where, lengths, q.shape[0])
    name = q.graph.unique_name(name or "attention")
    s, h, d = distinct(q.axes, ("keys", "e"))
    first = np.repeat(borders[:-1], np.diff(borders))
    end = np.repeat(borders[1:], np.diff(borders))
    token = np.arange(q.shape[0])
    images = {"keys": Image(s, first, token + 1 if is_causal else end)}
    pattern = f"{s} {h} ^{d}, keys {h} ^{d}, keys {h} ^e -> {s} {h} ^e, {term((h, s))}"
    options = score_options(q, check_scale(where, scale, q), is_causal, alibi)
    options["borders"] = tuple(borders.tolist())
    features = 1 / q.shape[2] + 1 / v.shape[2]  # a point of the iteration space is of both
    behind = images | {"queries": Image(s, token if is_causal else first, end)}
    backward = partial(_backward, windows=behind, flops=5 * features, options=options)
    kernel = _forward.bind(**options)
    flops = {"keys": 2 * features}
    inputs = [q, k, v]
    return launch_first(
        name, pattern, inputs, kernel=kernel, windows=images, backward=backward, flops=flops
    )


def borders_of(where: str, lengths: Sequence[int], tokens: int) -> Array:
    """The borders of documents, of their lengths or borders; ValueError unless they are of so many tokens."""
    given = np.asarray(lengths)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        raise ValueError(f"{where}: lengths are whole numbers, not {lengths!r}")
    is_border = given[0] == 0 and given[-1] == tokens
    borders = given if is_border else np.concatenate([[0], np.cumsum(given)])
    if borders[-1] != tokens or (np.diff(borders) < 0).any():
        raise ValueError(f"{where}: lengths of {borders[-1]} tokens, there are {tokens}")
    return borders.astype(np.int64)


def _backward(
    op: Operator,
    gy: LogicalRegion | None,
    _: LogicalRegion | None,
    *,
    windows: dict[str, Image],
    flops: float,
    options: dict[str, Any],
) -> tuple[LogicalRegion, ...]:
    """All three gradients. A token is a query, which sees keys, and a key, which queries see."""
    assert gy is not None, "the statistics are not public"
    q_term, k_term, v_term = terms(op)[0]
    (s, h, d) = q_term.split()
    e = v_term.split()[2]
    read = f"queries {h} {e}, queries {h} {e}, {h} queries, queries {h} {d}, {k_term}, {v_term}"
    pattern = f"{read} -> {s} {h} {d}, {s} {h} {d}, {s} {h} {e}"
    return launch_all(
        f"{op.name}.dx",
        pattern,
        [gy, *op.outputs, *op.inputs],
        kernel=_gradients.bind(**options),
        windows=windows,
        flops={"keys": flops},
    )


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Those of `fused_attention`, a document at a time, as a batch of one.


class Span(NamedTuple):
    """Some tokens, and those from `first` on that an array has of them: `array[..., at]`."""

    lo: int
    hi: int

    def at(self, first: int) -> slice:
        """Where they are in an array whose tokens begin there."""
        return slice(self.lo - first, self.hi - first)


def _documents(ctx: Context, output: int, borders: Sequence[int]) -> Iterator[tuple[Span, Span]]:
    """Every document of which a point writes some tokens, and these."""
    lo = ctx.rect(output).lo[0]
    hi = ctx.rect(output).hi[0]
    for k in range(bisect_right(borders, lo) - 1, len(borders) - 1):
        if borders[k] >= hi:
            break
        if borders[k] < borders[k + 1]:
            yield (
                Span(borders[k], borders[k + 1]),
                Span(max(borders[k], lo), min(borders[k + 1], hi)),
            )


def _told(ctx: Context, spans: Sequence[Span], query: int) -> Context:
    """What a kernel of a batch of one is told of arguments with these tokens, and the heads of argument `query`."""
    lo = ctx.rect(query).lo[1]
    hi = ctx.rect(query).hi[1]
    rects = [Rect((0, span.lo, lo), (1, span.hi, hi)) for span in spans]
    return ctx.part(rects, {}, is_alike=False)


def _forward_by(
    kernel: Kernel,
    ctx: Context,
    arrays: Sequence[Array],
    borders: Sequence[int],
    **options: Any,
) -> None:
    q, k, v, y, statistics = arrays
    first = ctx.rect(0).lo[0]
    first_key = ctx.rect(1).lo[0]
    for document, queries in _documents(ctx, 3, borders):
        keys = Span(document.lo, queries.hi if options["is_causal"] else document.hi)
        rows = queries.at(first)
        seen = keys.at(first_key)
        read = q[None, rows], k[None, seen], v[None, seen]
        told = _told(ctx, [queries, keys, keys], 0)
        made = y[None, rows], statistics[None, :, rows]
        kernel.function(told, *read, *made, **options)


def _gradients_by(
    kernel: Kernel,
    ctx: Context,
    arrays: Sequence[Array],
    borders: Sequence[int],
    **options: Any,
) -> None:
    """Where a point has a part of a document, its tokens as queries and as keys are two calls."""
    is_causal = options["is_causal"]
    first, first_query, first_key = (ctx.rect(k).lo[0] for k in (6, 3, 4))
    for document, part in _documents(ctx, 6, borders):
        keys = Span(document.lo, part.hi if is_causal else document.hi)
        queries = Span(part.lo if is_causal else document.lo, document.hi)
        calls = [(part, keys, (0,)), (queries, part, (1, 2))]
        for query, key, makes in [(part, part, (0, 1, 2))] if part == document else calls:
            rows = query.at(first_query)
            seen = key.at(first_key)
            gy, y, statistics, q, k, v = arrays[:6]
            read = (*(a[None, rows] for a in (gy, y)), statistics[None, :, rows], q[None, rows])
            read = (*read, k[None, seen], v[None, seen])
            told = _told(ctx, [query, query, query, query, key, key], 3)
            made = [
                arrays[6 + n][None, part.at(first)]
                if n in makes
                else told.scratch(("unused", n), a.shape, a.dtype)
                for n, a in enumerate(read[3:])
            ]
            kernel.function(told, *read, *made, **options)


@partial(Kernel, takes_mixed=True)
def _forward_on_gpu(ctx: Context, *arrays: Array, **options: Any) -> None:
    _forward_by(gpu_attention.forward, ctx, arrays, **options)


@partial(Kernel, float32_outputs=(1,), cuda=_forward_on_gpu)
def _forward(ctx: Context, *arrays: Array, **options: Any) -> None:
    _forward_by(fused.forward, ctx, arrays, **options)


@partial(Kernel, takes_mixed=True)
def _gradients_on_gpu(ctx: Context, *arrays: Array, **options: Any) -> None:
    _gradients_by(gpu_attention.gradients, ctx, arrays, **options)


@partial(Kernel, cuda=_gradients_on_gpu)
def _gradients(ctx: Context, *arrays: Array, **options: Any) -> None:
    _gradients_by(fused.gradients, ctx, arrays, **options)
