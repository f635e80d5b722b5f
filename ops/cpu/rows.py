"""Compiled kernels over the rows of matrices: softmax, cross entropy, layer norm; see `ops.cpu` as well.

A row is read and written while it is in the first-level cache, so memory is passed once. What is summed stands in the
row of the result first, since `sum_of` gives the sum of a row the same bits wherever it lies.
"""

from __future__ import annotations

import math

from ops.cpu.lanes import max_of, sum_of
from ops.expressions.math import exp
from taskflow import Array, njit

# Never "reassoc" for a sum: see `lanes`.
_CONTRACT = {"contract"}


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def _exp_row(x: Array, y: Array) -> tuple[float, float]:
    """y = exp(x - max x), its sum and the maximum."""
    most = max_of(x)
    for k in range(x.size):
        y[k] = exp(x[k] - most)
    return sum_of(y), most


@njit(nogil=True, error_model="numpy")
def softmax(x: Array, y: Array) -> None:
    """y = exp(x) / sum exp(x), row by row."""
    for r in range(x.shape[0]):
        total, _ = _exp_row(x[r], y[r])
        scale = x.dtype.type(1) / total
        for k in range(x.shape[1]):
            y[r, k] *= scale


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def softmax_gradient(gy: Array, y: Array, gx: Array) -> None:
    """gx = y (gy - sum(gy y)), row by row."""
    for r in range(y.shape[0]):
        for k in range(y.shape[1]):
            gx[r, k] = gy[r, k] * y[r, k]
        total = sum_of(gx[r])
        for k in range(y.shape[1]):
            gx[r, k] = (gy[r, k] - total) * y[r, k]


@njit(nogil=True, error_model="numpy")
def cross_entropy(y: Array, t: Array, row: Array, levels: Array) -> float:
    """levels = log(sum exp(y)) row by row; gives the sum over rows of level - y[t].

    `row` is scratch memory for the classes, which may be fewer than y has columns: those behind are padding.
    """
    loss = 0.0
    for r in range(y.shape[0]):
        total, most = _exp_row(y[r, : row.size], row)
        loss += math.log(total) - (y[r, t[r]] - most)
        levels[r] = math.log(total) + most
    return loss


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cross_entropy_gradient(
    scale: float,
    y: Array,
    levels: Array,
    t: Array,
    classes: int,
    gy: Array,
) -> None:
    """gy = scale (exp(y - level) - 1 at t), 0 behind the classes."""
    for r in range(gy.shape[0]):
        level = levels[r]
        for k in range(classes):
            gy[r, k] = scale * exp(y[r, k] - level)
        gy[r, t[r]] -= scale
        for k in range(classes, gy.shape[1]):
            gy[r, k] = 0


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def entropy_sums(
    y: Array,
    largest: Array,
    t: Array,
    first: int,
    keep: float,
    spread: float,
    row: Array,
    total: Array,
    right: Array,
) -> None:
    """total = sum of exp(y - largest), right = keep (y - largest at t) + spread sum of (y - largest), row by row.

    Classes begin at `first`; a `t` elsewhere adds nothing. `row` is scratch memory of one row.
    """
    for r in range(y.shape[0]):
        for k in range(y.shape[1]):
            row[k] = exp(y[r, k] - largest[r])
        total[r] = sum_of(row)
        at = t[r] - first
        right[r] = keep * (y[r, at] - largest[r]) if 0 <= at < y.shape[1] else 0
        if spread != 0:
            for k in range(y.shape[1]):
                row[k] = y[r, k] - largest[r]
            right[r] += spread * sum_of(row)


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def entropy_gradient(
    gtotal: Array,
    gright: Array,
    y: Array,
    largest: Array,
    t: Array,
    first: int,
    keep: float,
    spread: float,
    gy: Array,
) -> None:
    """The gradient of `entropy_sums`."""
    for r in range(y.shape[0]):
        share = spread * gright[r] if spread != 0 else gy.dtype.type(0)  # 0 times infinity is none
        for k in range(y.shape[1]):
            gy[r, k] = exp(y[r, k] - largest[r]) * gtotal[r] + share
        at = t[r] - first
        if 0 <= at < y.shape[1]:
            gy[r, at] += keep * gright[r]


@njit(nogil=True)
def clear_unseen(x: Array, y: Array) -> None:
    """Zeros in the rows of `y` where a row of `x` is nothing but minus infinity."""
    for r in range(x.shape[0]):
        k = 0
        while k < x.shape[1] and x[r, k] == -math.inf:
            k += 1
        if k == x.shape[1]:
            for k in range(x.shape[1]):
                y[r, k] = 0


@njit(nogil=True)
def top_k(x: Array, largest: bool, values: Array, places: Array) -> None:
    """The largest (or smallest) of every row in their order and where they stand: of equals the first, NaN last."""
    for r in range(x.shape[0]):
        count = 0
        for k in range(x.shape[1]):
            at = count
            number = x[r, k]
            while at > 0 and _is_before(number, values[r, at - 1], largest):
                at -= 1
            if at == values.shape[1]:
                continue
            count = min(count + 1, values.shape[1])
            for i in range(count - 1, at, -1):
                values[r, i], places[r, i] = values[r, i - 1], places[r, i - 1]
            values[r, at] = number
            places[r, at] = k


@njit(nogil=True)
def _is_before(a: float, b: float, largest: bool) -> bool:
    return (a > b if largest else a < b) or (b != b and a == a)


@njit(nogil=True)
def scale_and_mask(scores: Array, scale: float, seen: int) -> None:
    """Scores times `scale` at the keys that a query sees, `seen` for the first and one more for each of the others.

    Minus infinity at the keys behind those. `scores` is (heads, queries, keys).
    """
    for h in range(scores.shape[0]):
        for q in range(scores.shape[1]):
            count = min(max(seen + q, 0), scores.shape[2])
            row = scores[h, q, :count]
            rest = scores[h, q, count:]
            for k in range(row.size):
                row[k] *= scale
            for k in range(rest.size):
                rest[k] = -math.inf


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def layer_norm(
    x: Array,
    weight: Array,
    bias: Array,
    y: Array,
    mean: Array,
    scale: Array,
    eps: float,
) -> None:
    """y = (x - mean) scale weight + bias, scale = 1 / sqrt(var + eps), row by row."""
    number = x.dtype.type
    for r in range(x.shape[0]):
        m = sum_of(x[r]) / number(x.shape[1])
        for k in range(x.shape[1]):
            y[r, k] = (x[r, k] - m) * (x[r, k] - m)
        s = number(1) / math.sqrt(sum_of(y[r]) / number(x.shape[1]) + number(eps))
        for k in range(x.shape[1]):
            y[r, k] = (x[r, k] - m) * s * weight[k] + bias[k]
        mean[r] = m
        scale[r] = s


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def layer_norm_gradient(
    gy: Array,
    x: Array,
    mean: Array,
    scale: Array,
    weight: Array,
    gx: Array,
) -> None:
    """gx = scale (g - mean(g) - x̂ mean(g x̂)) with g = gy weight, means over the row."""
    number = x.dtype.type
    for r in range(x.shape[0]):
        m = mean[r]
        s = scale[r]
        for k in range(x.shape[1]):
            gx[r, k] = gy[r, k] * weight[k]
        share = sum_of(gx[r]) / number(x.shape[1])
        for k in range(x.shape[1]):
            gx[r, k] = gy[r, k] * weight[k] * (x[r, k] - m)
        slope = sum_of(gx[r]) * s * s / number(x.shape[1])
        for k in range(x.shape[1]):
            gx[r, k] = s * (gy[r, k] * weight[k] - share - (x[r, k] - m) * slope)


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def layer_norm_sums(
    gy: Array,
    x: Array,
    mean: Array,
    scale: Array,
    gweight: Array,
    gbias: Array,
) -> None:
    """gweight = sum over rows of gy x̂, gbias = that of gy."""
    gweight[:] = 0
    gbias[:] = 0
    for r in range(x.shape[0]):
        m = mean[r]
        s = scale[r]
        for k in range(x.shape[1]):
            gweight[k] += gy[r, k] * ((x[r, k] - m) * s)
        for k in range(x.shape[1]):
            gbias[k] += gy[r, k]
