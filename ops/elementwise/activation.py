"""Activations: elementwise functions of one region; every axis may be split."""

from __future__ import annotations

from math import pi, sqrt

from ops.elementwise.broadcast import elementwise, launch, of_one
from ops.elementwise.pointwise import pointwise
from taskflow import LogicalRegion

_RELU = elementwise("max(x, 0)", 1, x="where(z > 0, g, 0)")
relu_gradient = pointwise(_RELU.gradients["x"], ("g", "z"), {})
relu = of_one("relu", "max(x, 0).", _RELU)
sigmoid = of_one("sigmoid", "1 / (1 + exp(-x)).", elementwise("sigmoid(x)", 8, x="g * z * (1 - z)"))
tanh = of_one("tanh", "Hyperbolic tangent.", elementwise("tanh(x)", 8, x="g * (1 - z * z)"))
silu = of_one(
    "silu",
    "x σ(x) (Hendrycks and Gimpel 2016), as torch's.",
    elementwise("x * sigmoid(x)", 9, x="g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"),
)


def leaky_relu(x: LogicalRegion, negative_slope: float = 0.01, name: str | None = None) -> LogicalRegion:
    """x where it is positive, else negative_slope x (Maas et al. 2013), as torch's.

    Args:
        x: any shape, floating point.
        negative_slope: a number.
        name: of the operator.

    Raises:
        ValueError: `x` is of another dtype.
    """
    return launch("leaky_relu", _LEAKY_RELU, {"x": x, "slope": negative_slope}, name)


def elu(x: LogicalRegion, alpha: float = 1.0, name: str | None = None) -> LogicalRegion:
    """x where it is positive, else alpha (exp(x) - 1) (Clevert et al., ICLR 2016), as torch's.

    Args:
        x: any shape, floating point.
        alpha: a number.
        name: of the operator.

    Raises:
        ValueError: `x` is of another dtype.
    """
    return launch("elu", _ELU, {"x": x, "alpha": alpha}, name)


def softplus(x: LogicalRegion, beta: float = 1.0, name: str | None = None) -> LogicalRegion:
    """log(1 + exp(beta x)) / beta, as torch's, but exact for large x too.

    Args:
        x: any shape, floating point.
        beta: positive.
        name: of the operator.

    Raises:
        ValueError: `beta` is not positive, or `x` is of another dtype.
    """
    if not beta > 0:
        raise ValueError(f"softplus '{name or 'softplus'}': beta is {beta}, it is positive")
    return launch("softplus", _SOFTPLUS, {"x": x, "beta": beta}, name)


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
        raise ValueError(f"gelu '{name or 'gelu'}': approximate is '{approximate}', it is 'none' or 'tanh'")
    return launch("gelu", _GELU[approximate], {"x": x}, name)


_NORMAL = f"(0.5 + 0.5 * erf(x * {sqrt(0.5)}))"
_DENSITY = f"({1 / sqrt(2 * pi)} * exp(-0.5 * x * x))"


# -- mathematics -------------------------------------------------------------------------------------------------------

_LEAKY_RELU = elementwise("max(x, 0) + slope * min(x, 0)", 4, x="g * ((x > 0) + slope * (x <= 0))")
_ELU = elementwise("max(x, 0) + alpha * expm1(min(x, 0))", 12, x="g * ((x > 0) + alpha * (x <= 0) * exp(min(x, 0)))")
_SOFTPLUS = elementwise("(max(beta * x, 0) + log1p(exp(-abs(beta * x)))) / beta", 20, x="g * sigmoid(beta * x)")

_ROOT, _CUBIC = sqrt(2 / pi), 0.044715
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
