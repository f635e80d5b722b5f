"""Functions of one region, element by element; every axis may be split."""

from __future__ import annotations

from ops.elementwise.broadcast import elementwise, launch
from taskflow import LogicalRegion

_EXP = elementwise("exp(x)", 8, x="g * z")
_LOG = elementwise("log(x)", 8, x="g / x")
_SIN = elementwise("sin(x)", 8, x="g * cos(x)")
_COS = elementwise("cos(x)", 8, x="-g * sin(x)")
_SQRT = elementwise("sqrt(x)", 4, x="0.5 * g / z")
_RSQRT = elementwise("1 / sqrt(x)", 5, x="-0.5 * g * z * z * z")
_ABS = elementwise("abs(x)", x="g * sign(x)")
_CLIP = elementwise("min(max(x, low), high)", 2, x="g * (x >= low) * (x <= high)")


def exp(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """e to the power of x. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("exp", _EXP, {"x": x}, name)


def log(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Natural logarithm. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("log", _LOG, {"x": x}, name)


def sin(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Sine. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("sin", _SIN, {"x": x}, name)


def cos(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Cosine. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("cos", _COS, {"x": x}, name)


def sqrt(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Square root. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("sqrt", _SQRT, {"x": x}, name)


def rsqrt(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """1 / square root. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("rsqrt", _RSQRT, {"x": x}, name)


def abs(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Absolute value, with a gradient of 0 at 0. `x`: any shape, floating point; ValueError for another dtype."""
    return launch("abs", _ABS, {"x": x}, name)


def clip(
    x: LogicalRegion, min: float = float("-inf"), max: float = float("inf"), name: str | None = None
) -> LogicalRegion:
    """x, but at least `min` and at most `max`, as torch.clip; at the ends the gradient is that of x.

    Args:
        x: any shape, floating point.
        min, max: numbers.
        name: of the operator.

    Raises:
        ValueError: `min` is above `max`, or `x` is of another dtype.
    """
    if not min <= max:
        raise ValueError(f"clip '{name or 'clip'}': min is {min} and max is {max}")
    return launch("clip", _CLIP, {"x": x, "low": min, "high": max}, name)
