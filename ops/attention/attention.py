"""Attention, composed of operators: projections to heads, scores, softmax, weighted sum, projection back.

Splits over the batch, the heads `k` (Parameter in the projections), queries `q`, and, as partial sums, over features.
In the weighted sum the keys `t` may be split too; only the softmax keeps them whole. Key and value projections follow
the query's configuration, softmax and weighted sum that of the scores, unless they are named themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from math import inf
from typing import Any, TypedDict, Unpack

from ops.attention.alibi import add_biases
from ops.attention.fused_attention import fused_attention
from ops.attention.grouped import repeat_heads
from ops.attention.heads import project_from_heads, project_to_heads
from ops.attention.joined import attend_parts, project_to_parts
from ops.attention.linear_attention import (
    check_heads,
    check_scale,
    memory_linear_attention,
    score_options,
)
from ops.attention.packed_attention import packed_attention
from ops.building import (
    check_positive,
    check_region,
    checked,
    distinct,
    launch_first,
    terms,
)
from ops.cuda import attention as gpu_attention
from ops.dense.product import Layouts, contract, multiply_matrices
from ops.elementwise.arithmetic import add
from ops.elementwise.arithmetic import where as choose
from ops.elementwise.dropout import dropout
from ops.loss.softmax import softmax
from ops.tiles import deliver, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


class AttentionKernel(TypedDict, total=False):
    """How attention is made; nothing said: composed of operators, without biases."""

    memory_linear: bool
    fused: bool
    joined: bool
    alibi: bool


FUSED = "fused"
MEMORY_LINEAR = "memory-linear"
PACKED = "packed"


def multihead_attention(
    x: LogicalRegion,
    num_heads: int,
    memory: LogicalRegion | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    bias: bool = True,
    training: bool = True,
    name: str | None = None,
    *,
    mask: LogicalRegion | None = None,
    lengths: Sequence[int] | None = None,
    kv_heads: int | None = None,
    **kernel: Unpack[AttentionKernel],
) -> LogicalRegion:
    """Multi-head attention (Vaswani et al., NeurIPS 2017), as torch.nn.MultiheadAttention with batch_first.

    Args:
        x: (batch, queries, features), floating point: makes the queries, and keys and values without a `memory`; with
            `lengths` (tokens, features).
        num_heads: divides the features.
        memory: (batch, keys, its features), floating point: makes keys and values (cross attention).
        is_causal: whether query number q sees only the keys up to number q.
        dropout_p: probability of zero for each attention weight.
        bias: whether the projections add one.
        training: whether dropout takes place.
        name: the projections are `<name>.q`, `.k`, `.v` and `.out`, with a weight (features, in) and a bias each; the
            rows of torch's `in_proj_weight` are those of q, k, v in this order.
        memory_linear: by `memory_linear_attention`, which keeps no scores and has no dropout; queries and keys may be
            split alike.
        fused: by `fused_attention`, one operator without dropout, which sees the keys whole.
        joined: of a `fused` one without `memory` and `kv_heads`: one product makes queries, keys and values, in one
            region (`ops.attention.joined`). On one device a step reads and launches less.
        alibi: whether the score of query q and key t has slope (t - q) more, by the slope of its head (`alibi_slopes`):
            positions without an embedding. `joined` attention has none.
        mask: of bool, whether a query sees a key, or of floating point, added to the scores; its shape broadcasts to
            (batch, heads, queries, keys). A query that sees no key gives zeros (before the last projection).
        lengths: of documents that lie one behind the other, see `packed_attention`, which it is then.
        kv_heads: heads of keys and values, a divisor of `num_heads`: as many heads of queries share each
            (`repeat_heads`). None: as many as there are.

    Returns:
        (batch, queries, features), with `lengths` (tokens, features).

    Raises:
        ValueError: the shapes do not agree, the features do not divide into heads, a dtype is wrong, there is dropout,
            a mask or a memory where there can be none, or two of `memory_linear`, `fused` and `lengths` are asked for.
    """
    source = x if memory is None else memory
    ndim = (3,) if lengths is None else (2,)
    where = checked("multihead_attention", name or "attention", x, ndim=ndim)
    checked("multihead_attention", name or "attention", source, "memory", ndim=ndim)
    check_positive(where, num_heads=num_heads)
    if unknown := sorted(kernel.keys() - AttentionKernel.__annotations__.keys()):
        raise TypeError(f"{where}: there is no argument '{unknown[0]}'")
    features = x.shape[-1]
    if features % num_heads:
        raise ValueError(f"{where}: {features} features do not divide into {num_heads} heads")
    if source.shape[0] != x.shape[0]:
        raise ValueError(f"{where}: '{x.name}' is {x.shape} and '{source.name}' is {source.shape}")
    kind = _kind_of(where, kernel, lengths, memory)
    if kind and dropout_p and training:
        raise ValueError(f"{where}: {kind} attention has no dropout, dropout_p is {dropout_p}")
    if kind and mask is not None:
        raise ValueError(f"{where}: {kind} attention has no mask, '{mask.name}' was given")
    alibi = kernel.get("alibi", False)
    shared = num_heads if kv_heads is None else kv_heads
    check_positive(where, kv_heads=shared)
    if num_heads % shared or (kind == PACKED and shared != num_heads):
        raise ValueError(f"{where}: kv_heads is {shared}, of {num_heads} heads")
    name = x.graph.unique_name(name or "attention", "q")
    if kernel.get("joined"):
        if kind != FUSED or memory is not None or shared != num_heads:
            raise ValueError(
                f"{where}: joined=True is for fused attention without memory or kv_heads"
            )
        if alibi:
            raise ValueError(f"{where}: joined attention has no alibi")
        y = attend_parts(project_to_parts(x, num_heads, bias, name), is_causal, f"{name}.scores")
        return project_from_heads(y, features, bias, f"{name}.out")
    q = project_to_heads(x, num_heads, features // num_heads, bias, f"{name}.q")
    k, v = _keys_and_values(source, q, shared, bias, name)
    if lengths is not None:
        y = packed_attention(q, k, v, lengths, is_causal, f"{name}.scores", alibi=alibi)
    elif kind == FUSED:
        y = fused_attention(q, k, v, is_causal, f"{name}.scores", alibi=alibi)
    elif kind == MEMORY_LINEAR:
        y = memory_linear_attention(q, k, v, is_causal, f"{name}.scores", alibi=alibi)
    else:
        y = scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal,
            dropout_p,
            training,
            f"{name}.scores",
            mask=mask,
            alibi=alibi,
        )
    return project_from_heads(y, features, bias, f"{name}.out")


def _keys_and_values(
    source: LogicalRegion, q: LogicalRegion, shared: int, bias: bool, name: str
) -> list[LogicalRegion]:
    """Of so many heads, which are repeated where there are more of queries."""
    heads = q.shape[-2]
    with q.graph.following(q.name) if shared == heads else nullcontext():
        regions = [
            project_to_heads(source, shared, q.shape[-1], bias, f"{name}.{part}") for part in "kv"
        ]
    if shared == heads:
        return regions
    return [repeat_heads(r, heads // shared, f"{r.name}.repeated") for r in regions]


def _kind_of(
    where: str,
    kernel: AttentionKernel,
    lengths: Sequence[int] | None,
    memory: LogicalRegion | None,
) -> str:
    """The attention that is asked for; empty: that which keeps its scores."""
    fused = kernel.get("fused", False)
    memory_linear = kernel.get("memory_linear", False)
    if memory_linear and fused:
        raise ValueError(f"{where}: it is either memory_linear or fused, not both")
    if lengths is not None and (fused or memory_linear or memory is not None):
        raise ValueError(f"{where}: lengths, and fused, memory_linear or a memory")
    asked = {FUSED: fused, MEMORY_LINEAR: memory_linear, PACKED: lengths is not None}
    return next((kind for kind, is_asked in asked.items() if is_asked), "")


def scaled_dot_product_attention(
    q: LogicalRegion,
    k: LogicalRegion,
    v: LogicalRegion,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    training: bool = True,
    name: str | None = None,
    *,
    mask: LogicalRegion | None = None,
    scale: float | None = None,
    alibi: bool = False,
) -> LogicalRegion:
    """softmax(q kᵀ / sqrt(d)) v for every head, as torch's function with dimensions 1 and 2 exchanged.

    A query that sees no key gives zeros and has no gradient, as in torch.

    Args:
        q: (batch, queries, heads, d), floating point.
        k, v: (batch, keys, heads, d).
        is_causal, dropout_p, training, mask, alibi: as for `multihead_attention`.
        name: of the operator of the scores; softmax and weighted sum are `<name>.softmax` and `<name>.sum`.
        scale: of the scores, in the place of 1 / sqrt(d).

    Returns:
        (batch, queries, heads, d).

    Raises:
        ValueError: the shapes do not agree, `scale` is no finite number, or a dtype is wrong.
    """
    where = check_heads("scaled_dot_product_attention", name, q, k, v, alike=4)
    check_mask(where, mask, q, k)
    factor = check_scale(where, scale, q)
    name = q.graph.unique_name(name or "attention")
    b, s, heads, d = distinct(q.axes, ("t",))
    row = f"{b} {heads} {s} t"
    options = score_options(q, factor, is_causal, alibi)
    scores = _score(name, f"{b} {s} {heads} {d}, {b} t {heads} {d} -> {row}", [q, k], options)
    with q.graph.following(name):
        if mask is not None:
            scores = _masked(scores, mask, f"{name}.mask")
        weights = softmax(scores, name=f"{name}.softmax", zero_rows=mask is not None)
        weights = dropout(weights, dropout_p, training, f"{name}.drop")
        pattern = f"{row}, {b} t {heads} {d} -> {b} {s} {heads} {d}"
        return contract(f"{name}.sum", pattern, weights, v)


def _score(
    name: str, pattern: str, inputs: Sequence[LogicalRegion], options: dict[str, Any]
) -> LogicalRegion:
    return launch_first(
        name,
        pattern,
        inputs,
        kernel=_scores.bind(layouts=Layouts.of(pattern), **options),
        backward=partial(_scores_backward, scale=options["scale"]),
        flops=2,
    )


def _masked(scores: LogicalRegion, mask: LogicalRegion, name: str) -> LogicalRegion:
    if mask.dtype == "bool":
        return choose(mask, scores, -inf, name)
    return add(scores, mask, name)


def check_mask(where: str, mask: LogicalRegion | None, q: LogicalRegion, k: LogicalRegion) -> None:
    """ValueError unless a mask is of bool or floating point, and its shape broadcasts to that of the scores."""
    if mask is not None:
        check_region(where, mask, "mask", floating=mask.dtype != "bool")
        shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
        if mask.ndim > 4 or any(
            n not in (1, m) for n, m in zip(mask.shape, shape[4 - mask.ndim :], strict=True)
        ):
            raise ValueError(f"{where}: mask '{mask.name}' is {mask.shape}, the scores are {shape}")


@partial(Kernel, takes_mixed=True)
def _scores_on_gpu(
    ctx: Context,
    q: Array,
    k: Array,
    out: Array,
    *,
    layouts: Layouts,
    scale: float,
    is_causal: bool,
    alibi: int = 0,
) -> None:
    work = work_array(ctx, "scores", out)
    multiply_matrices(ctx, q, k, work, layouts=layouts)
    gpu_attention.scale_and_mask(ctx, work, scale, _seen(ctx, out, is_causal))
    _add_biases(ctx, work, alibi)
    deliver(ctx, work, out)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_scores_on_gpu)
def _scores(
    ctx: Context,
    q: Array,
    k: Array,
    out: Array,
    *,
    layouts: Layouts,
    scale: float,
    is_causal: bool,
    alibi: int = 0,
) -> None:
    """Keys behind the query count as minus infinity, in partial sums too."""
    from ops.cpu import rows as cpu_rows

    work = work_array(ctx, "scores", out)
    multiply_matrices(ctx, q, k, work, layouts=layouts)
    ctx.call(
        cpu_rows.scale_and_mask,
        work.reshape(-1, *out.shape[2:]),
        out.dtype.type(scale),
        _seen(ctx, out, is_causal),
    )
    _add_biases(ctx, work, alibi)
    deliver(ctx, work, out)


def _add_biases(ctx: Context, scores: Array, heads: int) -> None:
    """Once among partial sums: to those of the first features."""
    if heads and ctx.rect(0).lo[3] == 0:
        _, head, query, key = ctx.rect(2).lo
        add_biases(ctx, scores, heads, head, query - key)


def _seen(ctx: Context, out: Array, is_causal: bool) -> int:
    """How many of these keys the first of these queries sees, none if it is not positive."""
    *_, first_query, first_key = ctx.rect(2).lo
    return int(first_query + 1 - first_key) if is_causal else int(out.shape[3])


def _scores_backward(
    op: Operator, gy: LogicalRegion, *, scale: float
) -> tuple[LogicalRegion, LogicalRegion]:
    """The gradient of the softmax is zero where the mask is, so it needs none."""
    (q_term, k_term), (y_term,) = terms(op)
    q, k = op.inputs
    gq = contract(
        f"{op.name}.dq",
        f"{y_term}, {k_term} -> {q_term}",
        gy,
        k,
        scale,
    )
    return gq, contract(
        f"{op.name}.dk",
        f"{y_term}, {q_term} -> {k_term}",
        gy,
        q,
        scale,
    )
