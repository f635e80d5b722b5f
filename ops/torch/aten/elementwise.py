"""Element by element: arithmetic with torch's promotion of dtypes, conditions, activations, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ops.elementwise import activation, arithmetic, logical, rectifiers, rounding
from ops.elementwise.arithmetic import add, multiply, subtract
from ops.elementwise.broadcast import elementwise, launch
from ops.elementwise.dropout import dropout
from ops.elementwise.logical import logical_and, logical_not
from ops.shape.expand import cast, expand
from ops.shape.sections import slice
from ops.torch.buffers import add_number
from ops.torch.refusals import Missing, need
from ops.torch.site import Site
from taskflow import LogicalRegion

Rule = Callable[..., Any]
Region = LogicalRegion


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


# -- arithmetic --------------------------------------------------------------------------------------------------------


def compute(site: Site, function: Callable[..., Region], *operands: Any) -> Region:
    """`function(*operands, name)` in the dtype of the result; integers are computed in float64, exact up to 2^53."""
    dtype = "float64" if _is_integer(site.dtype) else site.dtype
    need("float" in dtype, f"arithmetic of {site.dtype}")
    made = [cast(x, dtype) if isinstance(x, Region) else float(x) for x in operands]
    result = function(*made, site.name)
    return cast(result, site.dtype)


def _add(site: Site, x: Any, y: Any, *, alpha: float = 1) -> Region:
    if site.dtype == "bool":
        return logical.logical_or(x, y, site.name)
    if _is(x) and x.dtype == site.dtype and isinstance(y, int) and _is_integer(site.dtype):
        return add_number(x, y * int(alpha), site.name)
    if alpha == 1:
        return compute(site, add, x, y)
    scaled = (
        multiply(cast(y, "float64") if _is_integer(y.dtype) else y, float(alpha))
        if _is(y)
        else y * alpha
    )
    return compute(site, add, x, scaled)


def _subtract(site: Site, x: Any, y: Any, *, alpha: float = 1) -> Region:
    if alpha != 1:
        return _add(site, x, y, alpha=-alpha)
    return compute(site, subtract, x, y)


def _multiply(site: Site, x: Any, y: Any) -> Region:
    return logical_and(x, y, site.name) if site.dtype == "bool" else compute(site, multiply, x, y)


def _divide(site: Site, x: Any, y: Any, *, rounding_mode: str | None = None) -> Region:
    if rounding_mode is not None:
        return compute(
            site, _own({"floor": "floor_divide", "trunc": "trunc_divide"}[rounding_mode]), x, y
        )
    return compute(site, arithmetic.divide, x, y)


def _is(x: Any) -> bool:
    return isinstance(x, Region)


# x / y may round to a whole number that x does not reach: fmod is exact
_IS_BELOW = "(fmod(x, y) != 0) * ((y < 0) != (fmod(x, y) < 0))"
_FLOORED = f"where(y == 0, x / y, round((x - fmod(x, y)) / y - {_IS_BELOW}))"
_OWN = {
    "trunc_divide": elementwise("trunc(x / y)", 5, x="0 * (g == g)", y="0 * (g == g)"),
    "floor_divide": elementwise(_FLOORED, 30, x="0 * (g == g)", y="0 * (g == g)"),
    "remainder": elementwise(
        f"fmod(x, y) + where({_IS_BELOW}, y, 0)", 30, x="g", y=f"-g * ({_FLOORED})"
    ),
    "fmod": elementwise("fmod(x, y)", 20, x="g", y="-g * trunc(x / y)"),
    "at_least": elementwise(
        "max(x, y)", x="where(x >= y, g, 0)", y="where(x < y, g, 0)"
    ),  # ties are all of x
    "at_most": elementwise("min(x, y)", x="where(x <= y, g, 0)", y="where(x > y, g, 0)"),
    "between": elementwise(
        "min(max(x, y), w)",
        x="where((x >= y) * (x <= w), g, 0)",
        y="where((y < w) * (x < y), g, 0)",
        w="where(max(x > w, w < y), g, 0)",
    ),
    "inverse_root": elementwise("1 / sqrt(x)", 5, x="-0.5 * g * x ** -1.5"),
}


def _own(kind: str) -> Callable[..., Region]:
    """An operator of up to three operands, and its name."""
    return lambda *given: launch(kind, _OWN[kind], dict(zip("xyw", given[:-1])), given[-1])


def _square(x: Region, name: str) -> Region:
    return multiply(x, x, name)


def _power(site: Site, x: Any, y: Any) -> Region:
    """torch's special cases, which know the sign of zero."""
    special: dict[float, Callable[..., Region]] = {
        2: _square,
        0.5: activation.sqrt,
        -0.5: _own("inverse_root"),
    }
    if not _is(y) and y in special:
        return compute(site, special[y], x)
    return compute(site, arithmetic.pow, x, y)


def _clamp(site: Site, x: Region, min: Any = None, max: Any = None) -> Region:
    if _is(min) or _is(max):
        if min is None or max is None:
            return compute(
                site, _own("at_least" if max is None else "at_most"), x, max if min is None else min
            )
        return compute(site, _own("between"), x, min, max)
    low, high = -np.inf if min is None else min, np.inf if max is None else max
    return compute(site, lambda a, name: activation.clip(a, float(low), float(high), name), x)


# -- conditions --------------------------------------------------------------------------------------------------------


def _compare(function: Rule) -> Rule:
    def rule(site: Site, x: Any, y: Any) -> Region:
        if _is(x) and _is(y) and x.dtype != y.dtype:
            wide = str(np.result_type(x.dtype, y.dtype))
            x = cast(x, wide)
            y = cast(y, wide)
        made: Region = function(x, y, site.name)
        return made

    return rule


def _where(site: Site, condition: Any, x: Any, y: Any) -> Region:
    """Two numbers need a region to stand beside each other: one of them is a constant."""
    if not _is(condition):
        chosen = x if condition else y
        return expand(
            cast(chosen if _is(chosen) else site.number(chosen), site.dtype), site.shape, site.name
        )
    if not _is(x) and not _is(y):
        x = site.number(x)
    condition = condition if condition.dtype == "bool" else logical_not(logical_not(condition))
    return compute(site, partial(_choose, condition), x, y)


def _choose(condition: Region, x: Any, y: Any, name: str) -> Region:
    return arithmetic.where(condition, x, y, name)


def _masked_fill(site: Site, x: Region, mask: Region, value: Any) -> Region:
    return _where(site, mask, value, x)


def _logical(function: Rule) -> Rule:
    def rule(site: Site, *operands: Any) -> Region:
        need(site.dtype == "bool", "bitwise arithmetic of integers")
        made: Region = function(*operands, site.name)
        return made

    return rule


def _exclusive(x: Region, y: Region, name: str) -> Region:
    return arithmetic.not_equal(logical_not(x), logical_not(y), name)


# torch multiplies by float32's sixth in its gradient, in float64 too
_HARDSIGMOID = elementwise(
    "min(max(x + 3, 0), 6) / 6", 4, x="where((x > -3) * (x < 3), g * 0.1666666716337204, 0)"
)


# -- activations -------------------------------------------------------------------------------------------------------


def _unary(function: Callable[..., Region]) -> Rule:
    return lambda site, x: compute(site, lambda a, name: function(a, name=name), x)


def _elu(
    site: Site, x: Region, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Region:
    need(scale == 1 and input_scale == 1, "an elu with scales")
    return activation.elu(x, float(alpha), site.name)


def _softplus(site: Site, x: Region, beta: float = 1, threshold: float = 20) -> Region:
    """torch takes x itself above the threshold, which differs by e^-threshold: no more than 2e-9 from 20 on."""
    if threshold >= 20:
        return activation.softplus(x, float(beta), site.name)
    soft = activation.softplus(x, float(beta), f"{site.name}.soft")
    is_above = arithmetic.greater(
        multiply(x, float(beta)), float(threshold), f"{site.name}.is_above"
    )
    return arithmetic.where(is_above, x, soft, site.name)


def _round(site: Site, x: Region, *, decimals: int = 0) -> Region:
    need(decimals == 0, f"rounding to {decimals} decimals")
    return compute(site, lambda a, name: rounding.round(a, name), x)


def _threshold(site: Site, x: Region, threshold: float, value: float) -> Region:
    """NaN stays."""
    is_below = arithmetic.less_equal(x, float(threshold), f"{site.name}.is_below")
    return arithmetic.where(is_below, float(value), x, site.name)


def _glu(site: Site, x: Region, dim: int = -1) -> Region:
    half = x.shape[dim] // 2
    gate = activation.sigmoid(slice(x, dim, half, 2 * half), f"{site.name}.gate")
    return multiply(slice(x, dim, 0, half), gate, site.name)


def _dropout(site: Site, x: Region, p: float, train: bool) -> Region:
    if p == 1 and train:
        return multiply(x, 0.0, site.name)
    return dropout(x, p, train and site.book.is_dropping, site.name)


_ONE_BY_NAME: dict[str, Callable[..., Region]] = {
    **{
        f.__name__: f
        for f in (activation.abs, activation.cos, activation.exp, activation.log, activation.relu)
    },
    **{
        f.__name__: f
        for f in (
            activation.rsqrt,
            activation.sigmoid,
            activation.silu,
            activation.sin,
            activation.sqrt,
        )
    },
    **{
        f.__name__: f
        for f in (activation.tanh, rectifiers.erf, rectifiers.expm1, rectifiers.hardswish)
    },
    **{f.__name__: f for f in (rectifiers.log1p, rectifiers.mish, rounding.sign)},
    **{f.__name__: f for f in (rounding.ceil, rounding.floor, rounding.trunc)},
    "log_sigmoid": rectifiers.logsigmoid,
    **{f.__name__: f for f in (rectifiers.relu6, rectifiers.selu)},
    "hardsigmoid": lambda x, name: launch("hardsigmoid", _HARDSIGMOID, {"x": x}, name),
    "log2": lambda x, name: multiply(activation.log(x), 1 / math.log(2), name),
    "log10": lambda x, name: multiply(activation.log(x), 1 / math.log(10), name),
    "neg": lambda x, name: multiply(x, -1.0, name),
    "reciprocal": lambda x, name: arithmetic.divide(1.0, x, name),
    "square": _square,
}

RULES: dict[str, Rule] = {
    **{name: _unary(function) for name, function in _ONE_BY_NAME.items()},
    "add": _add,
    "sub": _subtract,
    "rsub": lambda site, x, y, alpha=1: _subtract(site, y, x, alpha=alpha),
    "mul": _multiply,
    "div": _divide,
    "true_divide": _divide,
    "pow": _power,
    "remainder": lambda site, x, y: compute(site, _own("remainder"), x, y),
    "fmod": lambda site, x, y: compute(site, _own("fmod"), x, y),
    "maximum": lambda site, x, y: compute(site, arithmetic.maximum, x, y),
    "minimum": lambda site, x, y: compute(site, arithmetic.minimum, x, y),
    "max.other": lambda site, x, y: compute(site, arithmetic.maximum, x, y),
    "min.other": lambda site, x, y: compute(site, arithmetic.minimum, x, y),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda site, x, low: _clamp(site, x, low),
    "clamp_max": lambda site, x, high: _clamp(site, x, None, high),
    "addcmul": lambda site, x, a, b, *, value=1: compute(
        site,
        lambda x, a, b, name: add(x, multiply(multiply(a, b), float(value)), name),
        x,
        a,
        b,
    ),
    "eq": _compare(arithmetic.equal),
    "ne": _compare(arithmetic.not_equal),
    "lt": _compare(arithmetic.less),
    "le": _compare(arithmetic.less_equal),
    "gt": _compare(arithmetic.greater),
    "ge": _compare(arithmetic.greater_equal),
    "logical_and": _logical(logical_and),
    "logical_or": _logical(logical.logical_or),
    "logical_not": _logical(logical_not),
    **dict.fromkeys(("logical_xor", "bitwise_xor", "__xor__"), _logical(_exclusive)),
    "bitwise_and": _logical(logical_and),
    "bitwise_or": _logical(logical.logical_or),
    "bitwise_not": _logical(logical_not),
    "__and__": _logical(logical_and),
    "__or__": _logical(logical.logical_or),
    "where": _where,
    "masked_fill": _masked_fill,
    "elu": _elu,
    "gelu": lambda site, x, approximate="none": activation.gelu(x, approximate, site.name),
    "celu": lambda site, x, alpha=1.0: rectifiers.celu(x, float(alpha), site.name),
    "glu": _glu,
    "hardtanh": lambda site, x, low=-1, high=1: rectifiers.hardtanh(
        x, float(low), float(high), site.name
    ),
    "leaky_relu": lambda site, x, slope=0.01: activation.leaky_relu(x, float(slope), site.name),
    "round": _round,
    "softplus": _softplus,
    "threshold": _threshold,
    "dropout": _dropout,
    "native_dropout": lambda site, x, p, train: (
        _dropout(site, x, p, train is not False),
        Missing("a mask of dropout"),
    ),
}
