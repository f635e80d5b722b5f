"""Activations that mobile and detection networks use: hard ones, self-gated ones, and a slope that is learned.

Element by element; every axis may be split.
"""

from __future__ import annotations

from ops.building import check_number, check_positive, checked, distinct, term, terms
from ops.elementwise.broadcast import elementwise, launch, of_one
from ops.elementwise.formula import formula
from ops.initializers import Init
from taskflow import LogicalRegion, Operator

_SOFTPLUS = "(max(x, 0) + log1p(exp(-abs(x))))"
_TANH = f"tanh({_SOFTPLUS})"

hardsigmoid = of_one(
    "hardsigmoid",
    "min(max(x / 6 + 1/2, 0), 1), as torch's: the gradient is 0 at -3 and 3.",
    elementwise("min(max(x + 3, 0), 6) / 6", 4, x="where((x > -3) * (x < 3), g / 6, 0)"),
)
hardswish = of_one(
    "hardswish",
    "x hardsigmoid(x) (Howard et al., ICCV 2019), as torch's of 2.13: the gradient is 0 at -3 and 1 at 3.",
    elementwise(
        "x * min(max(x + 3, 0), 6) / 6",
        5,
        x="where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g))",
    ),
)
mish = of_one(
    "mish",
    "x tanh(softplus(x)) (Misra, BMVC 2020), as torch's.",
    elementwise(f"x * {_TANH}", 30, x=f"g * ({_TANH} + x * (1 - {_TANH} * {_TANH}) * sigmoid(x))"),
)
selu = of_one(
    "selu",
    "1.0507 elu(x, 1.6733) (Klambauer et al., NIPS 2017), as torch's: the gradient at 0 is 1.7581.",
    elementwise(
        "1.0507009873554805 * (max(x, 0) + 1.6732632423543772 * expm1(min(x, 0)))",
        12,
        x="1.0507009873554805 * where(x <= 0, 1.6732632423543772 * g * exp(min(x, 0)), g)",
    ),
)
softsign = of_one(
    "softsign",
    "x / (1 + |x|).",
    elementwise("x / (1 + abs(x))", 3, x="g / ((1 + abs(x)) * (1 + abs(x)))"),
)
logsigmoid = of_one(
    "logsigmoid",
    "log σ(x), exact for large |x|.",
    elementwise("min(x, 0) - log1p(exp(-abs(x)))", 20, x="g * sigmoid(-x)"),
)
log_sigmoid = logsigmoid
log1p = of_one("log1p", "log(1 + x).", elementwise("log1p(x)", 8, x="g / (1 + x)"))
expm1 = of_one("expm1", "exp(x) - 1.", elementwise("expm1(x)", 8, x="g * (z + 1)"))
erf = of_one(
    "erf", "The error function.", elementwise("erf(x)", 8, x="1.1283791670955126 * g * exp(-x * x)")
)
_CELU = elementwise(
    "max(x, 0) + alpha * expm1(min(x, 0) / alpha)",
    12,
    x="where(x <= 0, g * exp(min(x, 0) / alpha), g)",
)
_HARDTANH = elementwise("min(max(x, low), high)", 2, x="where((x > low) * (x < high), g, 0)")


def hardtanh(
    x: LogicalRegion, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None
) -> LogicalRegion:
    """x between `min_val` and `max_val`, as torch's: at the ends the gradient is 0, unlike that of `clip`.

    Args:
        x: any shape, floating point.
        min_val, max_val: numbers.
        name: of the operator.

    Raises:
        ValueError: `min_val` is above `max_val`, or `x` is of another dtype.
    """
    where = f"hardtanh '{name or 'hardtanh'}'"
    if not check_number(where, "min_val", min_val) <= check_number(where, "max_val", max_val):
        raise ValueError(f"{where}: min_val is {min_val} and max_val is {max_val}")
    return launch("hardtanh", _HARDTANH, {"x": x, "low": min_val, "high": max_val}, name)


def relu6(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """min(max(x, 0), 6), as torch's: the gradient is 0 at 0 and 6. `x`: floating point, else ValueError."""
    return hardtanh(x, 0.0, 6.0, name or "relu6")


def celu(x: LogicalRegion, alpha: float = 1.0, name: str | None = None) -> LogicalRegion:
    """x where it is positive, else alpha (exp(x / alpha) - 1) (Barron 2017), as torch's.

    Args:
        x: any shape, floating point.
        alpha: a finite number, not 0.
        name: of the operator.

    Raises:
        ValueError: `alpha` is 0 or not finite, or `x` is of another dtype.
    """
    check_number(f"celu '{name or 'celu'}'", "alpha", alpha, "a finite number other than 0")
    return launch("celu", _CELU, {"x": x, "alpha": alpha}, name)


def prelu(
    x: LogicalRegion, num_parameters: int = 1, name: str | None = None, *, weight_init: Init = 0.25
) -> LogicalRegion:
    """x where it is positive, else a learned slope times x (He et al., ICCV 2015), as torch.nn.PReLU.

    At 0 the gradient is that slope.

    Args:
        x: (batch, channels, ...), floating point.
        num_parameters: 1 slope for all, or one per channel (dimension 1; of a vector, its only one).
        name: of the operator; its parameter is `<name>.weight` of shape (num_parameters,).
        weight_init: first values.

    Raises:
        ValueError: there are neither one slope nor as many as channels, or `x` is of another dtype.
    """
    where = checked("prelu", name, x)
    check_positive(where, num_parameters=num_parameters)
    dim = min(1, x.ndim - 1)
    if num_parameters != 1 and (not x.ndim or x.shape[dim] != num_parameters):
        raise ValueError(f"{where}: there are {num_parameters} slopes, '{x.name}' is {x.shape}")
    name = x.graph.unique_name(name or "prelu")
    weight = x.graph.parameter(f"{name}.weight", (num_parameters,), weight_init, x.dtype)
    axes = distinct(x.axes)
    inputs = {"x": (x, term(axes)), "slope": (weight, "1" if num_parameters == 1 else axes[dim])}
    return formula(
        name,
        "where(x > 0, x, slope * x)",
        inputs,
        term(axes),
        backward=_prelu_backward,
    )


def _prelu_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    (full, channel), _ = terms(op)
    read = {"g": (g, full), "x": (op.inputs[0], full)}
    text = "where(x > 0, g, slope * g)"
    gx = formula(f"{op.name}.dx", text, {**read, "slope": (op.inputs[1], channel)}, full)
    return gx, formula(f"{op.name}.dweight", "where(x > 0, 0, g * x)", read, channel)
