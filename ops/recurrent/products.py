"""Products of recurrent layers with their weights, and their gradients. Gates have dimensions (..., g, h)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ops.cuda import rows as gpu_rows
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from ops.tiles import contiguous, deliver_matrix, matrix, result_matrix
from taskflow import Array, Context, Kernel


@partial(Kernel, is_captured=True)
def gates(ctx: Context, x: Array, h: Array, weight_ih: Array, weight_hh: Array, *rest: Array) -> None:
    """W_ih x + W_hh h + biases. Of partial sums over i or m, the first part of the other axis adds its product."""
    *biases, y = rest
    flat = result_matrix(ctx, "y", y, y.ndim - 2)
    added: list[Array] = []
    is_first = {axis: ctx.interval(axis)[0] == 0 for axis in ("i", "m")}
    if is_first["m"]:
        ctx.xp.matmul(matrix(ctx, "x", x), _matrix(ctx, "weight_ih", weight_ih).T, out=flat)
    else:
        ctx.xp.copyto(flat, 0)
    if is_first["i"]:
        product = ctx.scratch("product", flat.shape, flat.dtype)
        ctx.xp.matmul(matrix(ctx, "h", h), _matrix(ctx, "weight_hh", weight_hh).T, out=product)
        added = [product]
    _add(ctx, flat, added, biases if is_first["i"] and is_first["m"] else ())
    deliver_matrix(ctx, flat, y, y.ndim - 2)


@partial(Kernel, is_captured=True)
def product(ctx: Context, x: Array, weight: Array, *rest: Array, axis: str) -> None:
    """W x + bias; of partial sums over `axis` the first part adds the bias."""
    *biases, y = rest
    flat = result_matrix(ctx, "y", y, y.ndim - 2)
    ctx.xp.matmul(matrix(ctx, "x", x), _matrix(ctx, "weight", weight).T, out=flat)
    if biases and ctx.interval(axis)[0] == 0:
        _add(ctx, flat, [], biases)
    deliver_matrix(ctx, flat, y, y.ndim - 2)


def _add(ctx: Context, flat: Array, whole: Sequence[Array], biases: Sequence[Array]) -> None:
    """flat += matrices, and biases (g, h): these are added up first, a pass less; one kernel for all on GPUs."""
    biases = [_flat(ctx, ("bias", k), a) for k, a in enumerate(biases)]
    if ctx.is_cuda:
        terms = {f"t{k}": term for k, term in enumerate([*whole, *biases])}
        if terms:
            evaluate(ctx, Expression.parse(" + ".join(["flat", *terms])), {"flat": flat, **terms}, flat)
        return
    for term in whole:
        ctx.xp.add(flat, term, out=flat)
    if len(biases) > 1:
        total = ctx.scratch("bias", biases[0].shape, flat.dtype)
        biases = [ctx.xp.add(*biases, out=total)]
    for bias in biases:
        ctx.xp.add(flat, bias, out=flat)


def _flat(ctx: Context, slot: object, a: Array) -> Array:
    return contiguous(ctx, slot, a).reshape(-1)


def _matrix(ctx: Context, slot: object, a: Array) -> Array:
    """(g, h, ...) as a matrix of (g h, rest)."""
    return matrix(ctx, slot, a, 2)


def _gate_rows(ctx: Context, slot: object, a: Array) -> Array:
    """(..., g, h) as a matrix of (rows, g h)."""
    return matrix(ctx, slot, a, a.ndim - 2)


@partial(Kernel, is_captured=True)
def input_gradient(ctx: Context, ggates: Array, weight: Array, gx: Array) -> None:
    """gx = ggates W, with the dimensions of all gates taken as one."""
    flat = result_matrix(ctx, "gx", gx)
    ctx.xp.matmul(_gate_rows(ctx, "ggates", ggates), _matrix(ctx, "weight", weight), out=flat)
    deliver_matrix(ctx, flat, gx)


@partial(Kernel, is_captured=True)
def weight_gradient(ctx: Context, *args: Array) -> None:
    """The sum over steps of ggatesᵀ x, as one product of the steps one after the other."""
    *inputs, gweight = args
    count = len(inputs) // 2
    left = _stacked(ctx, "ggates", [_gate_rows(ctx, ("ggates", k), a) for k, a in enumerate(inputs[:count])])
    right = _stacked(ctx, "x", [matrix(ctx, ("x", k), a) for k, a in enumerate(inputs[count:])])
    flat = result_matrix(ctx, "gweight", gweight)
    ctx.xp.matmul(left.T, right, out=flat)
    deliver_matrix(ctx, flat, gweight)


def _stacked(ctx: Context, slot: str, parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    height, width = parts[0].shape
    out = ctx.scratch((slot, "stacked"), (len(parts) * height, width), parts[0].dtype)
    for k, part in enumerate(parts):
        ctx.xp.copyto(out[k * height : (k + 1) * height], part)
    return out


@partial(Kernel, is_captured=True)
def input_gates(ctx: Context, x: Array, weight: Array, *rest: Array) -> None:
    """W_ih x + biases for all steps, time first in memory."""
    *biases, y = rest
    target = _time_first(y)
    flat = result_matrix(ctx, "y", target, 2)
    ctx.xp.matmul(matrix(ctx, "x", _time_first(x)), _matrix(ctx, "weight", weight).T, out=flat)
    if biases and ctx.interval("i")[0] == 0:  # once among the partial sums
        _add(ctx, flat, [], biases)
    deliver_matrix(ctx, flat, target, 2)


def _time_first(a: Array) -> Array:
    """(batch, steps, ...) as (steps, batch, ...)."""
    return a.transpose(1, 0, *range(2, a.ndim))


@partial(Kernel, is_captured=True)
def inputs_gradient(ctx: Context, ggates: Array, weight: Array, gx: Array) -> None:
    """The gradient of the inputs of all steps."""
    input_gradient(ctx, _time_first(ggates), weight, _time_first(gx))


@partial(Kernel, is_captured=True)
def input_weight_gradient(ctx: Context, ggates: Array, x: Array, gweight: Array) -> None:
    """The sum over steps and samples of ggatesᵀ x."""
    weight_gradient(ctx, _time_first(ggates), _time_first(x), gweight)


@partial(Kernel, is_captured=True)
def side_by_side(ctx: Context, *args: Array) -> None:
    """The gradients of the steps' gates in their places, zeros for later steps that have none."""
    *parts, y = args
    first_step = ctx.rect(len(parts)).lo[1]
    if sum(part.shape[1] for part in parts if part.size) < y.shape[1]:
        ctx.xp.copyto(y, 0)
    for k, part in enumerate(parts):
        if part.size:
            ctx.xp.copyto(y[:, k - first_step : k - first_step + 1], part)


@partial(Kernel, is_captured=True)
def state_weight_gradient(ctx: Context, ggates: Array, *args: Array) -> None:
    """The sum over steps of ggatesᵀ h, as one product; `ggates` has all steps, of which the last may have no h."""
    *hs, gweight = args
    left = _gate_rows(ctx, "ggates", _time_first(ggates)[: len(hs)])
    right = _stacked(ctx, "h", [matrix(ctx, ("h", k), h) for k, h in enumerate(hs)])
    flat = result_matrix(ctx, "gweight", gweight)
    ctx.xp.matmul(left.T, right, out=flat)
    deliver_matrix(ctx, flat, gweight)


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
