"""Rotary position embedding: pairs of features turned by an angle that grows with the position.

Splits over every axis but the features; where pairs are neighbours, over pairs too. The angles come from global
positions, so that a split over the sequence turns as one device does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ops.building import (
    check_not_negative,
    check_number,
    checked,
    distinct,
    launch_first,
    term,
    terms,
)
from ops.cuda import kernels as gpu
from taskflow import Array, Context, Kernel, LogicalRegion, Operator


@dataclass(frozen=True)
class RotaryScaling:
    """Angles for contexts that are longer than those of training: frequency f of pair i becomes
    f (kept + (1 - kept) / factor), where kept = clip(offset + per_frequency f + per_pair i, 0, 1).

    With `factor` alone all positions are divided by it (Chen et al. 2023, arXiv 2306.15595); a ramp over frequencies
    is Llama 3.1's, one over the pairs YaRN's (Peng et al. 2023, arXiv 2309.00071).

    Attributes:
        factor: how many times longer.
        offset, per_frequency, per_pair: of the ramp between frequencies that are divided (0) and kept (1).
        magnitude: of what is turned, as a multiple of what it was.
    """

    factor: float = 1.0
    offset: float = 0.0
    per_frequency: float = 0.0
    per_pair: float = 0.0
    magnitude: float = 1.0


def rotary_embedding(
    x: LogicalRegion,
    base: float = 10000.0,
    interleaved: bool = False,
    offset: int = 0,
    name: str | None = None,
    *,
    scaling: RotaryScaling | None = None,
) -> LogicalRegion:
    """Pair i of d/2 at position p is turned by the angle (offset + p) base^(-2i/d): RoFormer, Su et al. 2021 (arXiv
    2104.09864, equation 34).

    Args:
        x: (batch, positions, ..., d), floating point, d even; queries or keys of `scaled_dot_product_attention`, say.
        base: of the angles.
        interleaved: whether features 2i and 2i + 1 are a pair, as in the paper; else i and i + d/2, as in GPT-NeoX and
            Llama.
        offset: the position of the first point.
        name: of the operator.
        scaling: of the angles; None: as they are.

    Returns:
        The shape of `x`.

    Raises:
        ValueError: `x` has fewer than three dimensions or an odd number of features, `base` or the factor of `scaling`
            is not positive, or the dtype is wrong.
    """
    where = checked("rotary_embedding", name, x)
    if x.ndim < 3 or x.shape[-1] % 2:
        raise ValueError(
            f"{where}: '{x.name}' has shape {x.shape}, at least three dimensions and an even extent "
            "of the last are needed"
        )
    check_number(where, "base", base, "a positive finite number")
    check_not_negative(where, offset=offset)
    scaling = RotaryScaling() if scaling is None else scaling
    check_number(where, "scaling.factor", scaling.factor, "a positive finite number")
    pairs = "(f ^pair)" if interleaved else "(^pair ^f)"
    options = {
        "base": base,
        "features": x.shape[-1],
        "interleaved": interleaved,
        "offset": offset,
        "scaling": scaling,
        "sign": 1.0,
    }
    return _launch(
        x,
        name or "rotary_embedding",
        term((*distinct(x.axes[:-1], ("f", "pair")), pairs)),
        options,
    )


def _launch(x: LogicalRegion, name: str, axes: str, options: Mapping[str, Any]) -> LogicalRegion:
    return launch_first(
        name,
        f"{axes} -> {axes}",
        [x],
        kernel=_turn.bind(**options),
        sizes={"pair": 2, "f": x.shape[-1] // 2},
        backward=partial(_backward, options=options),
        flops=3,
    )


def _backward(op: Operator, gy: LogicalRegion, *, options: Mapping[str, Any]) -> LogicalRegion:
    """The gradient is turned back."""
    axes = terms(op)[1][0]
    return _launch(gy, f"{op.name}.dx", axes, {**options, "sign": -options["sign"]})


@partial(Kernel, cuda=gpu.turn)
def _turn(
    ctx: Context,
    x: Array,
    y: Array,
    *,
    base: float,
    features: int,
    interleaved: bool,
    offset: int,
    scaling: RotaryScaling,
    sign: float,
) -> None:
    frequencies = _frequencies(np.arange(*ctx.interval("f")), base, features, scaling)
    positions = np.arange(offset + ctx.rect(1).lo[1], offset + ctx.rect(1).hi[1])
    angle = positions.reshape(-1, *[1] * (x.ndim - 2)) * frequencies
    cos = (scaling.magnitude * ctx.xp.cos(angle)).astype(x.dtype)
    sin = (sign * scaling.magnitude * ctx.xp.sin(angle)).astype(x.dtype)
    (a, b) = _pairs(x, interleaved)
    (turned_a, turned_b) = _pairs(y, interleaved)
    product = ctx.scratch("product", a.shape, a.dtype)
    ctx.xp.multiply(a, cos, out=turned_a)
    ctx.xp.multiply(b, sin, out=product)
    ctx.xp.subtract(turned_a, product, out=turned_a)
    ctx.xp.multiply(b, cos, out=turned_b)
    ctx.xp.multiply(a, sin, out=product)
    ctx.xp.add(turned_b, product, out=turned_b)


def _frequencies(pairs: Array, base: float, features: int, scaling: RotaryScaling) -> Array:
    """Radians that a position turns these pairs by."""
    frequencies: Array = base ** (-2 * pairs / features)
    ramp = scaling.offset + scaling.per_frequency * frequencies + scaling.per_pair * pairs
    kept = np.clip(ramp, 0.0, 1.0)
    frequencies *= kept + (1.0 - kept) / scaling.factor
    return frequencies


def _pairs(x: Array, interleaved: bool) -> tuple[Array, Array]:
    """The first and the second features of all pairs."""
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
