"""Activations and functions of one region, element by element; every axis may be split."""

from __future__ import annotations

import math

from ops.building import check_number
from ops.elementwise.broadcast import elementwise, launch, of_one
from ops.elementwise.pointwise import pointwise
from taskflow import LogicalRegion

RELU = elementwise("max(x, 0)", 1, x="where(z > 0, g, 0)")
relu_gradient = pointwise(RELU.gradients["x"], ("g", "z"), {})
relu = of_one("relu", "max(x, 0), with a gradient of 0 at 0, as torch's.", RELU)
sigmoid = of_one("sigmoid", "1 / (1 + exp(-x)).", elementwise("sigmoid(x)", 8, x="g * z * (1 - z)"))
tanh = of_one("tanh", "Hyperbolic tangent.", elementwise("tanh(x)", 8, x="g * (1 - z * z)"))
silu = of_one(
    "silu",
    "x σ(x) (Hendrycks and Gimpel 2016), as torch's.",
    elementwise("x * sigmoid(x)", 9, x="g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"),
)
exp = of_one("exp", "e to the power of x.", elementwise("exp(x)", 8, x="g * z"))
log = of_one("log", "Natural logarithm.", elementwise("log(x)", 8, x="g / x"))
sin = of_one("sin", "Sine.", elementwise("sin(x)", 8, x="g * cos(x)"))
cos = of_one("cos", "Cosine.", elementwise("cos(x)", 8, x="-g * sin(x)"))
sqrt = of_one("sqrt", "Square root.", elementwise("sqrt(x)", 4, x="0.5 * g / z"))
rsqrt = of_one("rsqrt", "1 / square root.", elementwise("1 / sqrt(x)", 5, x="-0.5 * g * z * z * z"))
abs = of_one(
    "abs", "Absolute value, with a gradient of 0 at 0.", elementwise("abs(x)", x="g * sign(x)")
)


def leaky_relu(
    x: LogicalRegion, negative_slope: float = 0.01, name: str | None = None
) -> LogicalRegion:
    """x where it is positive, else negative_slope x (Maas et al. 2013), as torch's; its slope at 0, too.

    Args:
        x: any shape, floating point.
        negative_slope: a finite number.
        name: of the operator.

    Raises:
        ValueError: `negative_slope` is not finite, or `x` is of another dtype.
    """
    slope = check_number(
        f"leaky_relu '{name or 'leaky_relu'}'", "negative_slope", negative_slope, "a finite number"
    )
    return launch("leaky_relu", _LEAKY_RELU, {"x": x, "slope": slope}, name)


def elu(x: LogicalRegion, alpha: float = 1.0, name: str | None = None) -> LogicalRegion:
    """x where it is positive, else alpha (exp(x) - 1) (Clevert et al., ICLR 2016), as torch's; alpha is the slope at 0.

    Args:
        x: any shape, floating point.
        alpha: a finite number.
        name: of the operator.

    Raises:
        ValueError: `alpha` is not finite, or `x` is of another dtype.
    """
    check_number(f"elu '{name or 'elu'}'", "alpha", alpha, "a finite number")
    return launch("elu", _ELU, {"x": x, "alpha": alpha}, name)


def softplus(
    x: LogicalRegion, beta: float = 1.0, name: str | None = None, *, threshold: float | None = None
) -> LogicalRegion:
    """log(1 + exp(beta x)) / beta, as torch's, but exact for large x too.

    Args:
        x: any shape, floating point.
        beta: positive.
        name: of the operator.
        threshold: x itself where beta x is above it, as torch has it above 20; None: nowhere.

    Raises:
        ValueError: `beta` is not positive and finite, `threshold` is no number, or `x` is of another dtype.
    """
    where = f"softplus '{name or 'softplus'}'"
    check_number(where, "beta", beta, "a positive finite number")
    if threshold is None:
        return launch("softplus", _SOFTPLUS, {"x": x, "beta": beta}, name)
    check_number(where, "threshold", threshold)
    return launch("softplus", _SOFTPLUS_BELOW, {"x": x, "beta": beta, "most": threshold}, name)


def gelu(x: LogicalRegion, approximate: str = "none", name: str | None = None) -> LogicalRegion:
    """x Φ(x) (Hendrycks and Gimpel 2016), as torch.nn.functional.gelu.

    Args:
        x: any shape, floating point.
        approximate: "none" for the normal distribution function itself (erf), "tanh" for its approximation.
        name: of the operator.

    Raises:
        ValueError: `approximate` is neither, or `x` is of another dtype.
    """
    if approximate not in _GELU:
        raise ValueError(
            f"gelu '{name or 'gelu'}': approximate is '{approximate}', it is 'none' or 'tanh'"
        )
    return launch("gelu", _GELU[approximate], {"x": x}, name)


def clip(
    x: LogicalRegion, min: float = float("-inf"), max: float = float("inf"), name: str | None = None
) -> LogicalRegion:
    """x, but at least `min` and at most `max`, as torch.clip; at the ends the gradient is that of x.

    Args:
        x: any shape, floating point.
        min, max: numbers.
        name: of the operator.

    Raises:
        ValueError: `min` is above `max`, one is NaN, or `x` is of another dtype.
    """
    where = f"clip '{name or 'clip'}'"
    if not check_number(where, "min", min) <= check_number(where, "max", max):
        raise ValueError(f"{where}: min is {min} and max is {max}")
    return launch("clip", _CLIP, {"x": x, "low": min, "high": max}, name)


clamp = clip
_NORMAL = f"(0.5 + 0.5 * erf(x * {math.sqrt(0.5)}))"
_DENSITY = f"({1 / math.sqrt(2 * math.pi)} * exp(-0.5 * x * x))"


# -- mathematics -------------------------------------------------------------------------------------------------------

_CLIP = elementwise("min(max(x, low), high)", 2, x="where((x >= low) * (x <= high), g, 0)")
_LEAKY_RELU = elementwise("where(x > 0, x, slope * x)", 4, x="where(x > 0, g, slope * g)")
_ELU = elementwise(
    "max(x, 0) + alpha * expm1(min(x, 0))", 12, x="where(x <= 0, alpha * g * exp(min(x, 0)), g)"
)
_SOFT = "(max(beta * x, 0) + log1p(exp(-abs(beta * x)))) / beta"
_SOFTPLUS = elementwise(_SOFT, 20, x="g * sigmoid(beta * x)")
_SOFTPLUS_BELOW = elementwise(
    f"where(beta * x > most, x, {_SOFT})", 22, x="where(beta * x > most, g, g * sigmoid(beta * x))"
)

_ROOT = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
_INNER = f"tanh(x * ({_ROOT} + {_CUBIC * _ROOT} * x * x))"
_GELU = {
    "none": elementwise(f"x * {_NORMAL}", 20, x=f"g * ({_NORMAL} + x * {_DENSITY})"),
    "tanh": elementwise(
        f"0.5 * x * (1 + {_INNER})",
        20,
        x=f"0.5 * g * (1 + {_INNER} + x * (1 - {_INNER} * {_INNER}) * ({_ROOT} + {3 * _CUBIC * _ROOT} * x * x))",
    ),
}
GELU_TANH = _GELU["tanh"]
ACTIVATIONS = ("relu", "gelu_tanh")  # that `linear` has in it
