"""Attention whose memory grows with the number of queries and keys, never with their product.

The scores are made again, some queries at a time, wherever they are needed (Dao et al., NeurIPS 2022; Rabe and Staats
2021). Three operators make the result: the largest score of each query; the sum of exponentials with the weighted sum
of values; and their quotient. The first two combine partial results over the keys, and the gradient, which is one
operator, over both: so queries `q` and keys `t` may be split alike, and a sequence may lie on several devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ops.attention.alibi import add_biases
from ops.building import check_number, checked, distinct, launch_all, launch_first, term, terms
from ops.cuda import attention as gpu_attention
from ops.elementwise.formula import formula
from ops.tiles import contiguous, deliver, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_BLOCK_BYTES = 1 << 20  # of the scores of some queries: they stay near the core


def memory_linear_attention(
    q: LogicalRegion,
    k: LogicalRegion,
    v: LogicalRegion,
    is_causal: bool = False,
    name: str | None = None,
    *,
    scale: float | None = None,
    alibi: bool = False,
) -> LogicalRegion:
    """softmax(q kᵀ / sqrt(d)) v for every head; what `scaled_dot_product_attention` gives, without its scores.

    Args:
        q: (batch, queries, heads, d), floating point.
        k: (batch, keys, heads, d).
        v: (batch, keys, heads, e).
        is_causal: whether query number q sees only the keys up to number q.
        name: of the operator of the sums, which strategies split; the result is `<name>.value`.
        scale: of the scores, in the place of 1 / sqrt(d).
        alibi: see `multihead_attention`.

    Returns:
        (batch, queries, heads, e). Batch, queries, keys and heads may be split.

    Raises:
        ValueError: the shapes do not agree, `scale` is no finite number, or a dtype is wrong.
    """
    factor = check_scale(check_heads("memory_linear_attention", name, q, k, v), scale, q)
    graph = q.graph
    name = q.graph.unique_name(name or "attention")
    options = score_options(q, factor, is_causal, alibi)
    b, s, h, d = distinct(q.axes, ("t", "e"))
    q_term = f"{b} {s} {h} ^{d}"
    k_term = f"{b} t {h} ^{d}"
    v_term = f"{b} t {h} ^e"
    row = term((b, s, h))
    with graph.following(name):
        pattern = f"{q_term}, {k_term} -> max[{row}]"
        kernel = _largest.bind(**options)
        largest = launch_first(f"{name}.max", pattern, [q, k], kernel=kernel, flops=2)
    full = f"{b} {s} {h} ^e"
    pattern = f"{q_term}, {k_term}, {v_term}, {row} -> {full}, {row}"
    inputs = [q, k, v, largest]
    kernel = _sums.bind(**options)
    backward = partial(_backward, **options)
    x, total = launch_all(name, pattern, inputs, kernel=kernel, backward=backward, flops=4)
    with graph.following(name):
        read = {"x": (x, full), "total": (total, row)}
        return formula(f"{name}.value", "x / total", read, full, backward=_value_backward)


def check_heads(
    kind: str,
    name: str | None,
    q: LogicalRegion,
    k: LogicalRegion,
    v: LogicalRegion,
    alike: int = 3,
) -> str:
    """As `checked`; ValueError unless the heads are the same, and so many dimensions of keys and values are alike."""
    for role, region in (("q", q), ("k", k), ("v", v)):
        where = checked(kind, name or "attention", region, role, ndim=(4,))
    if k.shape[:alike] != v.shape[:alike] or q.shape[0] != k.shape[0] or q.shape[2:] != k.shape[2:]:
        raise ValueError(
            f"{where}: '{q.name}' is {q.shape}, '{k.name}' is {k.shape} and '{v.name}' is {v.shape}"
        )
    return where


def check_scale(where: str, scale: float | None, q: LogicalRegion) -> float:
    """The factor of the scores, 1 / sqrt(d) where none is given."""
    return (
        float(q.shape[-1] ** -0.5)
        if scale is None
        else check_number(where, "scale", scale, "a finite number")
    )


def score_options(q: LogicalRegion, scale: float, is_causal: bool, alibi: bool) -> dict[str, Any]:
    """What kernels are told of the scores of queries (..., heads, features); without `alibi`, nothing of that."""
    options: dict[str, Any] = {"scale": scale, "is_causal": bool(is_causal)}
    return options | {"alibi": q.shape[-2]} if alibi else options


def _value_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    """Of x / total: g / total, and minus the sum of g x / total²."""
    (full, row), _ = terms(op)
    total = op.inputs[1]
    inputs = {"g": (g, full), "total": (total, row)}
    gx = formula(f"{op.name}.dx", "g / total", inputs, full)
    known = {"g": (g, full), "z": (op.outputs[0], full), "total": (total, row)}
    return gx, formula(f"{op.name}.dtotal", "-g * z / total", known, row)


def _backward(
    op: Operator, gsum: LogicalRegion | None, gtotal: LogicalRegion | None, **options: float
) -> tuple[LogicalRegion | None, ...]:
    """All three gradients from the scores made once more; the largest score cancels."""
    assert gsum is not None and gtotal is not None, "only the quotient is public"
    (q_term, k_term, v_term, row), (out, _) = terms(op)
    pattern = f"{out}, {row}, {q_term}, {k_term}, {v_term}, {row} -> {q_term}, {k_term}, {v_term}"
    inputs, kernel = [gsum, gtotal, *op.inputs], _gradients.bind(**options)
    return *launch_all(f"{op.name}.dx", pattern, inputs, kernel=kernel, flops=10), None


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Arrays are (batch, points, heads, features); the products want heads before points. `rows` are some queries. `alibi`
# is the number of all heads, where scores have biases by distance, else 0.


def blocks(
    ctx: Context, q: Array, k: Array, number: int, scale: float, is_causal: bool, alibi: int = 0
) -> Iterator[tuple[slice, Array]]:
    """Some queries at a time, and their scores (batch, heads, queries, keys): minus infinity for keys behind.

    `q` and `k` have heads before points; `number` is that of `q` among the arguments of the kernel, `k` is the next.
    Scores are of the first keys alone where none of the queries sees others.
    """
    queries, keys = q.shape[2], k.shape[2]
    count = block_shape(q, k)[2]
    first = ctx.rect(number).lo[1] - ctx.rect(number + 1).lo[1]  # query, of the keys here
    for start in range(0, queries, count):
        rows = slice(start, min(start + count, queries))
        seen = max(min(first + rows.stop, keys), 1) if is_causal else keys
        scores = block(ctx, "scores", q, k, rows, seen)
        ctx.xp.matmul(q[:, :, rows], k[:, :, :seen].swapaxes(2, 3), out=scores)
        _scale_and_mask(ctx, scores, scale, first + 1 + start if is_causal else keys)
        if alibi:
            add_biases(ctx, scores, alibi, ctx.rect(number).lo[2], first + start)
        yield rows, scores


def block(ctx: Context, slot: str, q: Array, k: Array, rows: slice, seen: int) -> Array:
    """Scratch memory for the scores of some queries and the first keys, without gaps."""
    shape = block_shape(q, k)
    found = (*shape[:2], rows.stop - rows.start, seen)
    return ctx.scratch(slot, (prod(shape),), q.dtype)[: prod(found)].reshape(found)


def block_shape(q: Array, k: Array) -> tuple[int, int, int, int]:
    """Of the scores of so many queries that they stay near the core."""
    batch, count, queries, _ = q.shape
    keys = k.shape[2]
    return (
        batch,
        count,
        max(1, min(queries, _BLOCK_BYTES // max(batch * count * keys * q.itemsize, 1))),
        keys,
    )


def _scale_and_mask(ctx: Context, scores: Array, scale: float, seen: int) -> None:
    """See `gpu_attention.scale_and_mask`."""
    if ctx.is_cuda:
        gpu_attention.scale_and_mask(ctx, scores, scale, seen)
        return
    queries, keys = scores.shape[2:]
    np.multiply(scores, scale, out=scores)
    if seen < keys:
        np.copyto(scores, -np.inf, where=np.arange(keys) >= seen + np.arange(queries)[:, None])


def heads(a: Array) -> Array:
    """(batch, heads, points, features)"""
    return a.swapaxes(1, 2)


def _by_head(ctx: Context, **arrays: Array) -> list[Array]:
    """The same, without gaps on a GPU: products of many matrices want these evenly spaced."""
    return [
        contiguous(ctx, slot, heads(a)) if ctx.is_cuda else heads(a) for slot, a in arrays.items()
    ]


def _result(ctx: Context, slot: str, a: Array) -> Array:
    """Memory for an output of such products, which `_deliver` brings to its place."""
    return work_array(ctx, slot, heads(a)) if ctx.is_cuda else heads(a)


def _deliver(ctx: Context, work: Array, a: Array) -> None:
    if ctx.is_cuda:
        deliver(ctx, work, heads(a))


@Kernel
def _largest(ctx: Context, q: Array, k: Array, largest: Array, **options: Any) -> None:
    query, key = _by_head(ctx, q=q, k=k)
    for rows, scores in blocks(ctx, query, key, 0, **options):
        ctx.xp.max(scores, axis=3, out=heads(largest[:, rows]))


def _exponentials(ctx: Context, scores: Array, largest: Array) -> Array:
    ctx.xp.subtract(scores, largest[..., None], out=scores)
    ctx.xp.exp(scores, out=scores)
    return scores


@Kernel
def _sums(ctx: Context, *arrays: Array, **options: Any) -> None:
    q, k, v, largest, out, total = arrays
    query, key, value = _by_head(ctx, q=q, k=k, v=v)
    made = _result(ctx, "out", out)
    for rows, scores in blocks(ctx, query, key, 0, **options):
        weights = _exponentials(ctx, scores, heads(largest[:, rows]))
        ctx.xp.sum(weights, axis=3, out=heads(total[:, rows]))
        ctx.xp.matmul(weights, value[:, :, : scores.shape[3]], out=made[:, :, rows])
    _deliver(ctx, made, out)


@Kernel
def _gradients(ctx: Context, *arrays: Array, **options: Any) -> None:
    gsum, gtotal, q, k, v, largest, *made = arrays
    write_gradients(ctx, 2, (gsum, q, k, v), heads(largest), heads(gtotal), made, **options)


def write_gradients(
    ctx: Context,
    number: int,
    read: tuple[Array, Array, Array, Array],
    shift: Array,
    offset: Array,
    made: Sequence[Array],
    scale: float,
    is_causal: bool,
    alibi: int = 0,
) -> None:
    """With the weights p = exp(scores - shift) and u = g vᵀ, the slopes of the scores are p (u + offset).

    `read` are g, q, k and v, `made` the gradients of the last three; q is argument `number` of the kernel. `shift` and
    `offset` are (batch, heads, queries).
    """
    g, q, k, v = read
    gq, gk, gv = made
    gk.fill(0)
    gv.fill(0)
    query, key, value, gout = _by_head(ctx, q=q, k=k, v=v, g=g)
    part_k, part_v = (
        ctx.scratch(slot, heads(a).shape, a.dtype) for slot, a in (("gk", gk), ("gv", gv))
    )
    work = _result(ctx, "gq", gq)
    for rows, scores in blocks(ctx, query, key, number, scale, is_causal, alibi):
        weights = _exponentials(ctx, scores, shift[:, :, rows])
        g = gout[:, :, rows]
        seen = slice(scores.shape[3])
        more = part_k[:, :, seen], part_v[:, :, seen]
        ctx.xp.matmul(weights.swapaxes(2, 3), g, out=more[1])
        slopes = block(ctx, "slopes", query, key, rows, seen.stop)
        ctx.xp.matmul(g, value[:, :, seen].swapaxes(2, 3), out=slopes)
        slopes += offset[:, :, rows, None]
        slopes *= weights
        slopes *= scale
        ctx.xp.matmul(slopes, key[:, :, seen], out=work[:, :, rows])
        ctx.xp.matmul(slopes.swapaxes(2, 3), query[:, :, rows], out=more[0])
        for total, part in zip((gk, gv), more, strict=True):
            total[:, seen] += heads(part)
    _deliver(ctx, work, gq)
