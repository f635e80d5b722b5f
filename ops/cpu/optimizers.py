"""Compiled updates of parameters, each in one pass; see `cpu` for what holds for all compiled kernels."""

from __future__ import annotations

import math
from typing import Any

from taskflow import njit


@njit(nogil=True, error_model="numpy")
def adagrad(p: Any, g: Any, total: Any, rate: Any, eps: Any, decay: Any) -> None:
    """One step of Adagrad."""
    for k in range(p.size):
        gradient = g[k] + decay * p[k]
        total[k] += gradient * gradient
        p[k] -= rate * gradient / (math.sqrt(total[k]) + eps)


@njit(nogil=True, error_model="numpy")
def rmsprop(
    p: Any, g: Any, square: Any, mean: Any, v: Any, rate: Any, alpha: Any, eps: Any, momentum: Any, decay: Any
) -> None:
    """One step of RMSProp; an empty `mean` is not centred, an empty `v` is no momentum."""
    one = p.dtype.type(1)
    for k in range(p.size):
        gradient = g[k] + decay * p[k]
        square[k] = alpha * square[k] + (one - alpha) * (gradient * gradient)
        spread = square[k]
        if mean.size > 0:
            mean[k] = alpha * mean[k] + (one - alpha) * gradient
            spread -= mean[k] * mean[k]
        step = gradient / (math.sqrt(spread) + eps)
        if v.size > 0:
            v[k] = momentum * v[k] + step
            step = v[k]
        p[k] -= rate * step


@njit(nogil=True, error_model="numpy")
def lamb(
    p: Any, g: Any, m: Any, v: Any, out: Any, beta1: Any, beta2: Any, scale: Any, root: Any, eps: Any, decay: Any
) -> tuple[float, float]:
    """LAMB's direction of a step; gives the sums of squares of parameter and direction, in double precision."""
    one = p.dtype.type(1)
    weight, step = 0.0, 0.0
    for k in range(p.size):
        m[k] = beta1 * m[k] + (one - beta1) * g[k]
        v[k] = beta2 * v[k] + (one - beta2) * (g[k] * g[k])
        out[k] = scale * m[k] / (math.sqrt(v[k]) / root + eps) + decay * p[k]
        weight += p[k] * p[k]
        step += out[k] * out[k]
    return weight, step
