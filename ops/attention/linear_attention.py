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
from typing import Any, NamedTuple

import numpy as np

from ops.attention.alibi import add_biases
from ops.building import check_number, checked, distinct, launch_all, launch_first, term, terms
from ops.cuda import attention as gpu_attention
from ops.cuda.attention import Scoring
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
    options = score_options(q, factor, is_causal, alibi)
    return _launch(q.graph.unique_name(name or "attention"), [q, k, v], options)


class _Terms(NamedTuple):
    """Of queries, keys and values, of a number of each query, and of the weighted sums."""

    q: str
    k: str
    v: str
    row: str
    sums: str

    @staticmethod
    def of(axes: Sequence[str]) -> _Terms:
        """With the names that the queries' axes have."""
        b, s, h, d = distinct(axes, ("t", "e"))
        keys = f"{b} t {h}"
        row = term((b, s, h))
        return _Terms(f"{row} ^{d}", f"{keys} ^{d}", f"{keys} ^e", row, f"{row} ^e")


def _launch(name: str, inputs: list[LogicalRegion], options: dict[str, Any]) -> LogicalRegion:
    """The three operators."""
    graph = inputs[0].graph
    text = _Terms.of(inputs[0].axes)
    with graph.following(name):
        largest = launch_first(
            f"{name}.max",
            f"{text.q}, {text.k} -> max[{text.row}]",
            inputs[:2],
            kernel=_largest.bind(**options),
            flops=2,
        )
    x, total = launch_all(
        name,
        f"{text.q}, {text.k}, {text.v}, {text.row} -> {text.sums}, {text.row}",
        [*inputs, largest],
        kernel=_sums.bind(**options),
        backward=partial(_backward, **options),
        flops=4,
    )
    with graph.following(name):
        read = {"x": (x, text.sums), "total": (total, text.row)}
        return formula(
            f"{name}.value",
            "x / total",
            read,
            text.sums,
            backward=_value_backward,
        )


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
    read = {"g": (g, full), "total": (total, row)}
    gx = formula(f"{op.name}.dx", "g / total", read, full)
    read = {"g": (g, full), "z": (op.outputs[0], full), "total": (total, row)}
    return gx, formula(f"{op.name}.dtotal", "-g * z / total", read, row)


def _backward(
    op: Operator, gsum: LogicalRegion | None, gtotal: LogicalRegion | None, **options: float
) -> tuple[LogicalRegion | None, ...]:
    """All three gradients from the scores made once more; the largest score cancels."""
    assert gsum is not None and gtotal is not None, "only the quotient is public"
    (*inputs, row), (out, _) = terms(op)
    made = ", ".join(inputs)
    gradients = launch_all(
        f"{op.name}.dx",
        f"{out}, {row}, {made}, {row} -> {made}",
        [gsum, gtotal, *op.inputs],
        kernel=_gradients.bind(**options),
        flops=10,
    )
    return *gradients, None


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Arrays are (batch, points, heads, features); the products want heads before points. `rows` are some queries. `alibi`
# is the number of all heads, where scores have biases by distance, else 0.


def blocks(
    ctx: Context, q: Array, k: Array, number: int, scoring: Scoring
) -> Iterator[tuple[slice, Array]]:
    """Some queries at a time, and their scores (batch, heads, queries, keys): minus infinity for keys behind.

    `q` and `k` have heads before points; `number` is that of `q` among the arguments of the kernel, `k` is the next.
    Scores are of the first keys alone where none of the queries sees others.
    """
    count = block_shape(q, k)[2]
    for start in range(0, q.shape[2], count):
        rows = slice(start, min(start + count, q.shape[2]))
        yield rows, _scores(ctx, q, k, number, rows, scoring)


def _scores(ctx: Context, q: Array, k: Array, number: int, rows: slice, scoring: Scoring) -> Array:
    first = ctx.rect(number).lo[1] - ctx.rect(number + 1).lo[1]  # query, of the keys here
    seen = max(min(first + rows.stop, k.shape[2]), 1) if scoring.is_causal else k.shape[2]
    scores = block(ctx, "scores", q, k, rows, seen)
    first += rows.start
    ctx.xp.matmul(q[:, :, rows], k[:, :, :seen].swapaxes(2, 3), out=scores)
    _scale_and_mask(ctx, scores, scoring.scale, first + 1 if scoring.is_causal else k.shape[2])
    if scoring.alibi:
        add_biases(ctx, scores, scoring.alibi, ctx.rect(number).lo[2], first)
    return scores


def block(ctx: Context, slot: str, q: Array, k: Array, rows: slice, seen: int) -> Array:
    """Scratch memory for the scores of some queries and the first keys, without gaps."""
    shape = block_shape(q, k)
    used = (*shape[:2], rows.stop - rows.start, seen)
    return ctx.scratch(slot, (prod(shape),), q.dtype)[: prod(used)].reshape(used)


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


def _by_head(ctx: Context, **arrays: Array) -> dict[str, Array]:
    """The same, without gaps on a GPU: products of many matrices want these evenly spaced."""
    return {
        slot: contiguous(ctx, slot, heads(a)) if ctx.is_cuda else heads(a)
        for slot, a in arrays.items()
    }


def _result(ctx: Context, slot: str, a: Array) -> Array:
    """Memory for an output of such products, which `_deliver` brings to its place."""
    return work_array(ctx, slot, heads(a)) if ctx.is_cuda else heads(a)


def _deliver(ctx: Context, work: Array, a: Array) -> None:
    if ctx.is_cuda:
        deliver(ctx, work, heads(a))


@Kernel
def _largest(ctx: Context, q: Array, k: Array, largest: Array, **options: Any) -> None:
    query, key = _by_head(ctx, q=q, k=k).values()
    for rows, scores in blocks(ctx, query, key, 0, Scoring(**options)):
        ctx.xp.max(scores, axis=3, out=heads(largest[:, rows]))


def _exponentials(ctx: Context, scores: Array, shift: Array) -> None:
    """In place of the scores."""
    ctx.xp.subtract(scores, shift[..., None], out=scores)
    ctx.xp.exp(scores, out=scores)


@Kernel
def _sums(ctx: Context, *arrays: Array, **options: Any) -> None:
    q, k, v, largest, out, total = arrays
    query, key, value = _by_head(ctx, q=q, k=k, v=v).values()
    made = _result(ctx, "out", out)
    for rows, weights in blocks(ctx, query, key, 0, Scoring(**options)):
        _exponentials(ctx, weights, heads(largest[:, rows]))
        ctx.xp.sum(weights, axis=3, out=heads(total[:, rows]))
        ctx.xp.matmul(weights, value[:, :, : weights.shape[3]], out=made[:, :, rows])
    _deliver(ctx, made, out)


@Kernel
def _gradients(ctx: Context, *arrays: Array, **options: Any) -> None:
    gsum, gtotal, *inputs = arrays[:5]
    softmax = Softmax(gsum, heads(arrays[5]), heads(gtotal), *inputs)
    write_gradients(ctx, 2, softmax, arrays[6:], Scoring(**options))


class Softmax(NamedTuple):
    """What gradients are made of: with the weights p = exp(scores - shift) and u = g vᵀ, the slopes of the scores are
    p (u + offset). `shift` and `offset` are (batch, heads, queries)."""

    g: Array
    shift: Array
    offset: Array
    q: Array
    k: Array
    v: Array


def write_gradients(
    ctx: Context, number: int, read: Softmax, made: Sequence[Array], scoring: Scoring
) -> None:
    """Write `made`, the gradients of queries, keys and values; q is argument `number` of the kernel."""
    made[1].fill(0)
    made[2].fill(0)
    read = read._replace(**_by_head(ctx, q=read.q, k=read.k, v=read.v, g=read.g))
    work = _result(ctx, "gq", made[0])
    for rows, weights in blocks(ctx, read.q, read.k, number, scoring):
        _exponentials(ctx, weights, read.shift[:, :, rows])
        _add_by_key(ctx, "gv", weights, read.g[:, :, rows], made[2])
        slopes = _slopes(ctx, read, rows, weights)
        slopes *= scoring.scale
        ctx.xp.matmul(slopes, read.k[:, :, : slopes.shape[3]], out=work[:, :, rows])
        _add_by_key(ctx, "gk", slopes, read.q[:, :, rows], made[1])
    _deliver(ctx, work, made[0])


def _add_by_key(ctx: Context, slot: str, weights: Array, rows: Array, total: Array) -> None:
    """total += weightsᵀ rows, to the keys that have weights."""
    seen = weights.shape[3]
    part = ctx.scratch(slot, heads(total).shape, total.dtype)[:, :, :seen]
    ctx.xp.matmul(weights.swapaxes(2, 3), rows, out=part)
    total[:, :seen] += heads(part)


def _slopes(ctx: Context, read: Softmax, rows: slice, weights: Array) -> Array:
    """Of the scores of some queries, times their scale."""
    seen = weights.shape[3]
    slopes = block(ctx, "slopes", read.q, read.k, rows, seen)
    ctx.xp.matmul(read.g[:, :, rows], read.v[:, :, :seen].swapaxes(2, 3), out=slopes)
    slopes += read.offset[:, :, rows, None]
    slopes *= weights
    return slopes
