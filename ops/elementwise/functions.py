"""Functions of one region, element by element; every axis may be split."""

from __future__ import annotations

from ops.elementwise.broadcast import elementwise, launch, of_one
from taskflow import LogicalRegion

exp = of_one("exp", "e to the power of x.", elementwise("exp(x)", 8, x="g * z"))
log = of_one("log", "Natural logarithm.", elementwise("log(x)", 8, x="g / x"))
sin = of_one("sin", "Sine.", elementwise("sin(x)", 8, x="g * cos(x)"))
cos = of_one("cos", "Cosine.", elementwise("cos(x)", 8, x="-g * sin(x)"))
sqrt = of_one("sqrt", "Square root.", elementwise("sqrt(x)", 4, x="0.5 * g / z"))
rsqrt = of_one("rsqrt", "1 / square root.", elementwise("1 / sqrt(x)", 5, x="-0.5 * g * z * z * z"))
abs = of_one("abs", "Absolute value, with a gradient of 0 at 0.", elementwise("abs(x)", x="g * sign(x)"))
_CLIP = elementwise("min(max(x, low), high)", 2, x="g * (x >= low) * (x <= high)")


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
