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
    where = _checked_tokens(name, q, k, v)
    return _launch(
        q.graph.unique_name(name or "attention"),
        [q, k, v],
        borders_of(where, lengths, q.shape[0]),
        score_options(q, check_scale(where, scale, q), is_causal, alibi),
    )


def _checked_tokens(name: str | None, q: LogicalRegion, k: LogicalRegion, v: LogicalRegion) -> str:
    """As `checked`; ValueError unless there are as many tokens and heads of each."""
    for role, region in (("q", q), ("k", k), ("v", v)):
        where = checked("packed_attention", name or "attention", region, role, ndim=(3,))
    if q.shape != k.shape or q.shape[:2] != v.shape[:2]:
        raise ValueError(
            f"{where}: '{q.name}' is {q.shape}, '{k.name}' is {k.shape} and '{v.name}' is {v.shape}"
        )
    return where


def _windows(axis: str, borders: Array, is_causal: bool) -> dict[str, Image]:
    """Of every token the keys that it sees, and the queries that see it."""
    first = np.repeat(borders[:-1], np.diff(borders))
    end = np.repeat(borders[1:], np.diff(borders))
    token = np.arange(borders[-1])
    return {
        "keys": Image(axis, first, token + 1 if is_causal else end),
        "queries": Image(axis, token if is_causal else first, end),
    }


def _launch(
    name: str, inputs: list[LogicalRegion], borders: Array, options: dict[str, Any]
) -> LogicalRegion:
    s, h, d = distinct(inputs[0].axes, ("keys", "e"))
    windows = _windows(s, borders, options["is_causal"])
    options["borders"] = tuple(borders.tolist())
    features = 1 / inputs[0].shape[2] + 1 / inputs[2].shape[2]  # a point is of both
    return launch_first(
        name,
        f"{s} {h} ^{d}, keys {h} ^{d}, keys {h} ^e -> {s} {h} ^e, {term((h, s))}",
        inputs,
        kernel=_forward.bind(**options),
        windows={"keys": windows["keys"]},
        backward=partial(_backward, windows=windows, flops=5 * features, options=options),
        flops={"keys": 2 * features},
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
    (q_term, *rest), (y_term, row) = terms(op)
    rest = [*_at_queries((y_term, y_term, row, q_term)), *rest]
    return launch_all(
        f"{op.name}.dx",
        f"{', '.join(rest)} -> {q_term}, {q_term}, {y_term}",
        [gy, *op.outputs, *op.inputs],
        kernel=_gradients.bind(**options),
        windows=windows,
        flops={"keys": flops},
    )


def _at_queries(by_token: Sequence[str]) -> list[str]:
    """The terms of what is read of all queries that see some keys; the first one begins with the axis of tokens."""
    axis = by_token[0].split()[0]
    return [
        " ".join("queries" if dim == axis else dim for dim in text.split()) for text in by_token
    ]


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
    for document, queries in _documents(ctx, 3, borders):
        keys = Span(document.lo, queries.hi if options["is_causal"] else document.hi)
        kernel.function(
            _told(ctx, [queries, keys, keys], 0),
            *_of_document(queries.at(ctx.rect(0).lo[0]), keys.at(ctx.rect(1).lo[0]), *arrays),
            **options,
        )


def _of_document(
    rows: slice,
    seen: slice,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    statistics: Array,
) -> tuple[Array, ...]:
    return q[None, rows], k[None, seen], v[None, seen], y[None, rows], statistics[None, :, rows]


class _Call(NamedTuple):
    """Tokens of a point as queries or as keys, those of both, and the gradients that are made: of q, k and v."""

    part: Span
    queries: Span
    keys: Span
    makes: tuple[int, ...]


def _calls(ctx: Context, borders: Sequence[int], is_causal: bool) -> Iterator[_Call]:
    """Where a point has a part of a document, its tokens as queries and as keys are two calls."""
    for document, part in _documents(ctx, 6, borders):
        if part == document:
            yield _Call(part, part, part, (0, 1, 2))
            continue
        keys = Span(document.lo, part.hi if is_causal else document.hi)
        queries = Span(part.lo if is_causal else document.lo, document.hi)
        yield _Call(part, part, keys, (0,))
        yield _Call(part, queries, part, (1, 2))


def _gradients_by(
    kernel: Kernel,
    ctx: Context,
    arrays: Sequence[Array],
    borders: Sequence[int],
    **options: Any,
) -> None:
    for call in _calls(ctx, borders, options["is_causal"]):
        told = _told(ctx, [*[call.queries] * 4, call.keys, call.keys], 3)
        places = call.queries.at(ctx.rect(3).lo[0]), call.keys.at(ctx.rect(4).lo[0])
        read = _read(*places, *arrays[:6])
        kernel.function(
            told,
            *read,
            *_made(told, call.makes, read[3:], arrays[6:], call.part.at(ctx.rect(6).lo[0])),
            **options,
        )


def _read(
    rows: slice,
    seen: slice,
    gy: Array,
    y: Array,
    statistics: Array,
    q: Array,
    k: Array,
    v: Array,
) -> tuple[Array, ...]:
    by_query = gy[None, rows], y[None, rows], statistics[None, :, rows], q[None, rows]
    return *by_query, k[None, seen], v[None, seen]


def _made(
    told: Context,
    makes: Sequence[int],
    inputs: Sequence[Array],
    gradients: Sequence[Array],
    at: slice,
) -> list[Array]:
    """The gradients of inputs at some tokens, and memory in the place of those that are not made."""
    return [
        gradients[n][None, at] if n in makes else told.scratch(("unused", n), a.shape, a.dtype)
        for n, a in enumerate(inputs)
    ]


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
