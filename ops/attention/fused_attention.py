"""Attention as one operator, whose memory grows with the number of queries and keys, never with their product.

The scores are made some queries at a time, and again for the gradient (Dao et al., NeurIPS 2022); of the softmax, only
one number of each query is kept: the logarithm of the sum of its exponentials. On a GPU this is one call of cuDNN where
that is installed (`ops.cuda.attention`). Every query sees its keys whole: `memory_linear_attention` splits these, too.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from ops.attention.linear_attention import (
    Softmax,
    block_shape,
    blocks,
    check_heads,
    check_scale,
    heads,
    score_options,
    write_gradients,
)
from ops.attention.ring import forward_rounds, gradient_rounds
from ops.building import distinct, launch_all, launch_first, term, terms
from ops.cuda import attention as gpu_attention
from ops.cuda.attention import Scoring
from taskflow import Array, Context, Image, Kernel, LogicalRegion, Operator


def fused_attention(
    q: LogicalRegion,
    k: LogicalRegion,
    v: LogicalRegion,
    is_causal: bool = False,
    name: str | None = None,
    *,
    scale: float | None = None,
    alibi: bool = False,
) -> LogicalRegion:
    """softmax(q kᵀ / sqrt(d)) v for every head in one operator; what `scaled_dot_product_attention` gives.

    Args:
        q: (batch, queries, heads, d), floating point.
        k: (batch, keys, heads, d).
        v: (batch, keys, heads, e).
        is_causal: whether query number q sees only the keys up to number q.
        name: of the operator.
        scale: of the scores, in the place of 1 / sqrt(d).
        alibi: see `multihead_attention`; on a GPU, some queries at a time, and not by cuDNN.

    Returns:
        (batch, queries, heads, e). Batch, queries and heads may be split.

    Raises:
        ValueError: the shapes do not agree, `scale` is no finite number, or a dtype is wrong.
    """
    factor = check_scale(check_heads("fused_attention", name, q, k, v), scale, q)
    name = q.graph.unique_name(name or "attention")
    return _launch(name, [q, k, v], score_options(q, factor, is_causal, alibi))


def _launch(name: str, inputs: list[LogicalRegion], options: dict[str, Any]) -> LogicalRegion:
    b, s, h, d = distinct(inputs[0].axes, ("t", "e", "made"))
    # a point of the iteration space is of both
    features = 1 / inputs[0].shape[3] + 1 / inputs[2].shape[3]
    return launch_first(
        name,
        f"{b} {s} {h} ^{d}, {b} ^t {h} ^{d}, {b} ^t {h} ^e -> {b} {s} {h} ^e, {term((b, h, s))}",
        inputs,
        kernel=forward.bind(**options),
        backward=partial(_backward, flops=5 * features, **options),
        **seen_keys(options["is_causal"], s, inputs[0].shape[1], inputs[1].shape[1], 2 * features),
    )


def seen_keys(is_causal: bool, axis: str, queries: int, keys: int, flops: float) -> dict[str, Any]:
    """What `launch` is told of keys `t` and of so many flops for each that a query sees.

    Causal: query number j sees j + 1 keys, so the work of some queries is that of where they are. All keys go to where
    any of them is, as one all-gather brings them.
    """
    if not is_causal:
        return {"flops": flops}
    return {"flops": {"t": flops}, "windows": {"t": _seen(axis, queries, keys)}}


def seen_again(op: Operator, number: int, flops: float) -> dict[str, Any]:
    """The same for the gradients of an operator; `number` is that of its input whose positions are keys."""
    if "t" not in op.windows:
        return {"flops": flops}
    keys = op.inputs[number].shape[1]
    return {
        "flops": {"t": flops / keys},  # for each key that is seen, of all whose gradients are made
        "windows": dict(op.windows),
        "sizes": {"made": keys},
    }


def made_of(op: Operator, text: str) -> str:
    """The term of a gradient of keys that have this one: no table says which are made."""
    return " ".join("^made" if dim == "^t" and op.windows else dim for dim in text.split())


@lru_cache
def _seen(axis: str, queries: int, keys: int) -> Image:
    seen = np.minimum(np.arange(1, queries + 1), keys)
    return Image(axis, np.zeros_like(seen), seen, is_whole=True)


def _backward(
    op: Operator,
    gy: LogicalRegion | None,
    _: LogicalRegion | None,
    *,
    flops: float,
    **options: float,
) -> tuple[LogicalRegion, ...]:
    """All three gradients, from the scores made once more."""
    assert gy is not None, "the statistics are not public"
    (q_term, *rest), (y_term, row) = terms(op)
    made = ", ".join([q_term, *map(partial(made_of, op), rest)])
    return launch_all(
        f"{op.name}.dx",
        f"{', '.join((y_term, y_term, row, q_term, *rest))} -> {made}",
        [gy, *op.outputs, *op.inputs],
        kernel=gradients.bind(**options),
        **seen_again(op, 1, flops),
    )


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Arrays are (batch, points, heads, features), statistics (batch, heads, queries).


@partial(
    Kernel, float32_outputs=(1,), cuda=gpu_attention.forward, work="attention", ring=forward_rounds
)
def forward(
    ctx: Context,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    statistics: Array,
    **options: Any,
) -> None:
    """The result and, of every query, the logarithm of its sum of exponentials."""
    for rows, scores in blocks(ctx, heads(q), heads(k), 0, Scoring(**options)):
        shape = *block_shape(heads(q), heads(k))[:3], 1
        most, total = (ctx.scratch(slot, shape, q.dtype)[:, :, : scores.shape[2]] for slot in "mt")
        ctx.xp.max(scores, axis=3, keepdims=True, out=most)
        ctx.xp.subtract(scores, most, out=scores)
        ctx.xp.exp(scores, out=scores)
        ctx.xp.sum(scores, axis=3, keepdims=True, out=total)
        ctx.xp.divide(scores, total, out=scores)
        ctx.xp.matmul(scores, heads(v)[:, :, : scores.shape[3]], out=heads(y[:, rows]))
        ctx.xp.log(total, out=total)
        ctx.xp.add(most[..., 0], total[..., 0], out=statistics[:, :, rows])


@partial(Kernel, cuda=gpu_attention.gradients, work="attention gradients", ring=gradient_rounds)
def gradients(ctx: Context, *arrays: Array, **options: Any) -> None:
    """Of the softmax: its sums of exponentials are in the statistics, and each slope is less the sum of gy y."""
    gy, y, statistics, *inputs = arrays[:6]
    products = ctx.scratch("products", y.shape, y.dtype)
    offset = ctx.scratch("offset", y.shape[:3], y.dtype)
    ctx.xp.multiply(gy, y, out=products)
    ctx.xp.sum(products, axis=3, out=offset)
    ctx.xp.negative(offset, out=offset)
    write_gradients(
        ctx,
        3,
        Softmax(gy, statistics, heads(offset), *inputs),
        arrays[6:],
        Scoring(**options),
    )
