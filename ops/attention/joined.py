"""Attention of one region of queries, keys and values, which one product makes: self-attention that reads less.

Three products of the same values read them three times, and their gradients are three products and two sums. Here the
weights of queries, keys and values, parameters of their own, are put together first, and there is one product, one
gradient of the values and one of the weights, which is taken apart at the end; `p` counts the three parts.

Splits: batch, positions, heads `k` and, as partial sums, features of the product; batch, queries and heads of
attention. Where queries are split, a device gets the queries of others for
nothing: `project_to_heads` and `fused_attention` are for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ops.attention.fused_attention import (
    forward,
    gradients,
    made_of,
    seen_again,
    seen_keys,
)
from ops.attention.linear_attention import score_options
from ops.building import checked, distinct, launch_all, launch_first, parameters, term, terms
from ops.cuda import attention as gpu_attention
from ops.cuda.kernels import BLOCK, source
from ops.dense.linear import multiply_biased, multiply_gradients
from ops.tiles import block_tables, contiguous, deliver, matrix, merged, result_matrix, work_array
from taskflow import Array, Context, Kernel, LogicalRegion, Operator

_PARTS = source("parts")
_NAMES = "qkv"
_PARAMETERS = {"weights": "(k ^d) i", "biases": "(k ^d)"}
_SHARE = 1 / len(_NAMES)  # a point of the iteration space is of each part
_PART = 4096  # elements that a block moves


def project_to_parts(
    x: LogicalRegion, num_heads: int, bias: bool = True, name: str | None = None
) -> LogicalRegion:
    """y[b, s, p, k, d] = sum over i of x[b, s, i] weight_p[(k d), i] + bias_p[(k d)], for p of queries, keys, values.

    Args:
        x: (batch, positions, features), floating point.
        num_heads: divides the features.
        bias: whether to add one.
        name: of the operator, `<name>.parts`; its parameters are those of `project_to_heads` for `<name>.q`, `.k` and
            `.v`: weights (features, features) and biases (features,).

    Returns:
        (batch, positions, 3, num_heads, features / num_heads), of the dtype of `x`.

    Raises:
        ValueError: `x` has other dimensions or another dtype, or the features do not divide into heads.
    """
    where = checked("project_to_parts", name, x, ndim=(3,))
    features = x.shape[-1]
    if features % num_heads:
        raise ValueError(f"{where}: {features} features do not divide into {num_heads} heads")
    name = x.graph.unique_name(name or "attention", "parts")
    weights = _weights(x, num_heads, bias, name)
    points = term(distinct(x.axes[:-1], ("i", "p", "k", "d")))
    rows = ", ^p (k ^d)" if bias else ""
    return launch_first(
        f"{name}.parts",
        f"{points} i, ^p (k ^d) i{rows} -> {points} ^p k ^d",
        [x, *weights],
        kernel=_project,
        sizes={"k": num_heads},
        backward=_project_backward,
    )


def _weights(x: LogicalRegion, heads: int, bias: bool, name: str) -> list[LogicalRegion]:
    """The weights of all parts in one region, and their biases."""
    shape = x.shape[-1], x.shape[-1]
    of_parts = [parameters(x, f"{name}.{part}", shape, bias) for part in _NAMES]
    with x.graph.following(f"{name}.parts"):
        return [
            _put_together(f"{name}.{what}", regions, _PARAMETERS[what], heads)
            for what, regions in zip(_PARAMETERS, zip(*of_parts, strict=True))
        ]


def _put_together(name: str, parts: Sequence[LogicalRegion], row: str, heads: int) -> LogicalRegion:
    """One region of regions of equal shapes, which are its first dimension `p`."""
    pattern = f"{', '.join([row] * len(parts))} -> ^p {row}"
    sizes = {"p": len(parts), "k": heads}
    return launch_first(
        name,
        pattern,
        parts,
        kernel=_join,
        sizes=sizes,
        backward=_take_apart,
        flops=0,
    )


def _take_apart(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, ...]:
    read, (out,) = terms(op)
    pattern = f"{out} -> {', '.join(read)}"
    sizes = {"k": op.extents["k"]}
    return launch_all(
        f"{op.name}.dx",
        pattern,
        [g],
        kernel=_apart,
        sizes=sizes,
        flops=0,
        dtype=[g.dtype] * len(read),
    )


def _project_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    x, weight = op.inputs[:2]
    (x_term, *rest), (y_term,) = terms(op)
    sizes = {"k": op.extents["k"]}
    gx = launch_first(
        f"{op.name}.dx",
        f"{y_term}, {rest[0]} -> {x_term}",
        [gy, weight],
        kernel=_gradient_x,
        sizes=sizes,
    )
    return gx, *launch_all(
        f"{op.name}.dweight",
        f"{y_term}, {x_term} -> {', '.join(rest)}",
        [gy, x],
        kernel=_gradient_parameters,
        sizes=sizes,
    )


def attend_parts(
    parts: LogicalRegion, is_causal: bool = False, name: str | None = None
) -> LogicalRegion:
    """`fused_attention` of what `project_to_parts` gives.

    Args:
        parts: (batch, positions, 3, heads, d), floating point.
        is_causal: whether a query sees only the keys up to its own position.
        name: of the operator.

    Returns:
        (batch, positions, heads, d). Batch, queries and heads may be split.

    Raises:
        ValueError: `parts` has another shape or dtype.
    """
    where = checked("attend_parts", name, parts, "parts", ndim=(5,))
    if parts.shape[2] != len(_NAMES):
        raise ValueError(f"{where}: '{parts.name}' is {parts.shape}, of three parts")
    b, s, p, h, d = distinct(parts.axes, ("t", "made"))
    options = score_options(parts, float(parts.shape[-1] ** -0.5), is_causal, alibi=False)
    return launch_first(
        name or "attention",
        f"{b} {s} ^{p} {h} ^{d}, {b} ^t ^{p} {h} ^{d} -> {b} {s} {h} ^{d}, {term((b, h, s))}",
        [parts, parts],
        kernel=_attend.bind(**options),
        backward=partial(_attend_backward, flops=10 * _SHARE, **options),
        **seen_keys(is_causal, s, parts.shape[1], parts.shape[1], 4 * _SHARE),
    )


def _attend_backward(
    op: Operator,
    gy: LogicalRegion | None,
    _: LogicalRegion | None,
    *,
    flops: float,
    **options: float,
) -> tuple[LogicalRegion | None, ...]:
    assert gy is not None, "the statistics are not public"
    read, made = terms(op)
    gradient = launch_first(
        f"{op.name}.dx",
        f"{', '.join((made[0], *made, *read))} -> {made_of(op, read[1])}",
        [gy, *op.outputs, *op.inputs],
        kernel=_attend_gradients.bind(**options),
        **seen_again(op, 1, flops),
    )
    return gradient, None


# -- kernels: parts are put together and taken apart -------------------------------------------------------------------


def _join_parts(ctx: Context, *arrays: Array) -> None:
    *parts, whole = arrays
    for part, place in zip(parts, whole, strict=True):
        ctx.xp.copyto(place, part, casting="same_kind")


def _take_parts(ctx: Context, whole: Array, *parts: Array) -> None:
    for place, part in zip(whole, parts, strict=True):
        ctx.xp.copyto(part, place, casting="same_kind")


def _moves_together(
    ctx: Context, points: Sequence[Sequence[Array]], *, whole: int
) -> Callable[[], None]:
    """A call that moves the parts of several points in one launch; number `whole` of the arrays is of all parts."""
    moves = list[tuple[Array, Array]]()
    for arrays in points:
        if whole == 0:
            moves += zip(arrays[0], arrays[1:])
        else:
            moves += zip(arrays[:-1], arrays[-1])
    rows = [[ctx.address(source), ctx.address(target), source.size] for source, target in moves]
    tables = block_tables(ctx, rows, _PART)
    return partial(
        ctx.launch,
        _PARTS,
        f"move_{moves[0][0].dtype.name}_{moves[0][1].dtype.name}",
        tables[1].size // 2 * BLOCK,
        *tables,
        _PART,
        block=BLOCK,
    )


_JOIN = Kernel(_join_parts, takes_mixed=True, together=partial(_moves_together, whole=-1))
_APART = Kernel(_take_parts, takes_mixed=True, together=partial(_moves_together, whole=0))
_join = Kernel(_join_parts, is_captured=True, takes_mixed=True, cuda=_JOIN)
_apart = Kernel(_take_parts, is_captured=True, takes_mixed=True, cuda=_APART)


# -- kernels: the product ----------------------------------------------------------------------------------------------

_FEATURES = -3  # the dimensions of y behind its positions


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _project(ctx: Context, x: Array, weight: Array, *rest: Array) -> None:
    *biases, y = rest
    bias = [contiguous(ctx, "bias", a).reshape(-1) for a in biases if ctx.interval("i")[0] == 0]
    with result_matrix(ctx, "y", y, _FEATURES) as flat:
        multiply_biased(ctx, matrix(ctx, "x", x), matrix(ctx, "weight", weight), flat, bias)


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True)
def _gradient_x(ctx: Context, gy: Array, weight: Array, gx: Array) -> None:
    with result_matrix(ctx, "gx", gx) as flat:
        right = matrix(ctx, "weight", weight)
        ctx.xp.matmul(matrix(ctx, "gy", gy, _FEATURES), right, out=flat)


@partial(Kernel, is_captured=True, takes_mixed_on_cuda=True, accumulates=True)
def _gradient_parameters(ctx: Context, gy: Array, x: Array, *outputs: Array) -> None:
    works = [_place(ctx, k, a) for k, a in enumerate(outputs)]
    multiply_gradients(
        ctx,
        matrix(ctx, "gy", gy, _FEATURES),
        matrix(ctx, "x", x),
        merged(works[0], 0, works[0].ndim - 1),
        [work.reshape(-1) for work in works[1:]],
        ctx.interval("i")[0] == 0,
    )
    for work, a in zip(works, outputs, strict=True):
        deliver(ctx, work, a)


def _place(ctx: Context, output: int, a: Array) -> Array:
    """Contiguous memory for an output, with what is there already where the kernel adds to it."""
    work = work_array(ctx, output, a)
    if work is not a and ctx.adds_to(output):
        ctx.xp.copyto(work, a)
    return work


# -- kernels: attention ------------------------------------------------------------------------------------------------


def _parts(rows: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Queries of the points of the rows, keys and values of those that they see."""
    return rows[:, :, 0], seen[:, :, 1], seen[:, :, 2]


@partial(Kernel, takes_mixed=True)
def _attend_on_gpu(
    ctx: Context,
    rows: Array,
    seen: Array,
    y: Array,
    statistics: Array,
    **options: Any,
) -> None:
    gpu_attention.forward(ctx, *_parts(rows, seen), y, statistics, **options)


@partial(Kernel, float32_outputs=(1,), cuda=_attend_on_gpu, work="attention")
def _attend(
    ctx: Context,
    rows: Array,
    seen: Array,
    y: Array,
    statistics: Array,
    **options: Any,
) -> None:
    forward(ctx, *_parts(rows, seen), y, statistics, **options)


def _write_gradients(ctx: Context, kernel: Kernel, arrays: Sequence[Array], options: Any) -> None:
    """By `kernel`, of `fused_attention`: of queries zeros, but for the own ones."""
    rows, seen, g = arrays[-3:]
    begin = ctx.rect(3).lo[1] - ctx.rect(4).lo[1]
    end = begin + rows.shape[1]
    if begin:
        ctx.xp.copyto(g[:, :begin, 0], 0)
    if end < g.shape[1]:
        ctx.xp.copyto(g[:, end:, 0], 0)
    kernel(
        ctx,
        *arrays[:-3],
        *_parts(rows, seen),
        g[:, begin:end, 0],
        g[:, :, 1],
        g[:, :, 2],
        **options,
    )


@partial(Kernel, takes_mixed=True)
def _attend_gradients_on_gpu(ctx: Context, *arrays: Array, **options: Any) -> None:
    _write_gradients(ctx, gpu_attention.gradients, arrays, options)


@partial(Kernel, cuda=_attend_gradients_on_gpu, work="attention gradients")
def _attend_gradients(ctx: Context, *arrays: Array, **options: Any) -> None:
    _write_gradients(ctx, gradients, arrays, options)
