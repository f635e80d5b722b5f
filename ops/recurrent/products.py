"""Products of recurrent layers with their weights, and their gradients. Gates have dimensions (..., g, h)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda import rows as gpu_rows
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from ops.tiles import contiguous, matrix, result_matrix
from taskflow import Array, Context, Kernel


@partial(Kernel, is_captured=True)
def gates(
    ctx: Context,
    x: Array,
    h: Array,
    weight_ih: Array,
    weight_hh: Array,
    *rest: Array,
) -> None:
    """W_ih x + W_hh h + biases. Of partial sums over i or m, the first part of the other axis adds its product."""
    *biases, y = rest
    with result_matrix(ctx, "y", y, -2) as flat:
        added: list[Array] = []
        is_first = {axis: ctx.interval(axis)[0] == 0 for axis in ("i", "m")}
        if is_first["m"]:
            ctx.xp.matmul(matrix(ctx, "x", x), matrix(ctx, "weight_ih", weight_ih, 2).T, out=flat)
        else:
            ctx.xp.copyto(flat, 0)
        if is_first["i"]:
            product = ctx.scratch("product", flat.shape, flat.dtype)
            ctx.xp.matmul(
                matrix(ctx, "h", h), matrix(ctx, "weight_hh", weight_hh, 2).T, out=product
            )
            added = [product]
        _add(ctx, flat, added, biases if is_first["i"] and is_first["m"] else ())


@partial(Kernel, is_captured=True)
def product(ctx: Context, x: Array, weight: Array, *rest: Array, axis: str) -> None:
    """W x + biases; of partial sums over `axis` the first part adds these."""
    *biases, y = rest
    with result_matrix(ctx, "y", y, -2) as flat:
        ctx.xp.matmul(matrix(ctx, "x", x), matrix(ctx, "weight", weight, 2).T, out=flat)
        if biases and ctx.interval(axis)[0] == 0:
            _add(ctx, flat, [], biases)


def _add(ctx: Context, flat: Array, whole: Sequence[Array], biases: Sequence[Array]) -> None:
    """flat += matrices, and biases (g, h): these are added up first, a pass less; one kernel for all on GPUs."""
    biases = [_flat(ctx, ("bias", k), a) for k, a in enumerate(biases)]
    if ctx.is_cuda:
        terms = {f"t{k}": term for k, term in enumerate([*whole, *biases])}
        if terms:
            evaluate(
                ctx, Expression.parse(" + ".join(["flat", *terms])), {"flat": flat, **terms}, flat
            )
        return
    for term in whole:
        ctx.xp.add(flat, term, out=flat)
    if len(biases) > 1:
        biases = [ctx.xp.add(*biases, out=ctx.scratch("bias", biases[0].shape, flat.dtype))]
    for bias in biases:
        ctx.xp.add(flat, bias, out=flat)


def _flat(ctx: Context, slot: object, a: Array) -> Array:
    return contiguous(ctx, slot, a).reshape(-1)


@partial(Kernel, is_captured=True)
def input_gradient(ctx: Context, ggates: Array, weight: Array, gx: Array) -> None:
    """gx = ggates W, with the dimensions of all gates taken as one."""
    with result_matrix(ctx, "gx", gx) as flat:
        ctx.xp.matmul(matrix(ctx, "ggates", ggates, -2), matrix(ctx, "weight", weight, 2), out=flat)


@partial(Kernel, is_captured=True)
def weight_gradient(ctx: Context, *args: Array) -> None:
    """The sum over steps of ggatesᵀ x, as one product of the steps one after the other."""
    count = len(args) // 2
    gates = [matrix(ctx, ("ggates", k), a, -2) for k, a in enumerate(args[:count])]
    xs = [matrix(ctx, ("x", k), a) for k, a in enumerate(args[count:-1])]
    with result_matrix(ctx, "gweight", args[-1]) as flat:
        ctx.xp.matmul(_stacked(ctx, "ggates", gates).T, _stacked(ctx, "x", xs), out=flat)


def _stacked(ctx: Context, slot: str, parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    height, width = parts[0].shape
    out = ctx.scratch((slot, "stacked"), (len(parts) * height, width), parts[0].dtype)
    for k, part in enumerate(parts):
        ctx.xp.copyto(out[k * height : (k + 1) * height], part)
    return out


@partial(Kernel, is_captured=True, cuda=gpu_rows.sums_of_rows)
def bias_gradient(ctx: Context, *args: Array) -> None:
    """The sum of the gradients of gates over samples and steps; the last argument is the result."""
    *all_gates, gbias = args
    part = ctx.scratch("part", gbias.shape, gbias.dtype)
    for k, ggates in enumerate(all_gates):
        ctx.xp.sum(ggates, axis=tuple(range(ggates.ndim - 2)), out=part if k else gbias)
        if k:
            ctx.xp.add(gbias, part, out=gbias)


@partial(Kernel, is_captured=True)
def zero(ctx: Context, out: Array) -> None:
    """A first state of zeros."""
    ctx.xp.copyto(out, 0)
