"""Cases of elementwise operators. See `cases`."""

import math
from collections.abc import Callable

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, sigmoid


def of_x(function: Callable[[Array], Array]) -> Callable[[Values], Array]:
    return lambda v: function(v["x"])


def positive(x: LogicalRegion) -> LogicalRegion:
    return ops.add(ops.multiply(x, x, name="square"), 0.5, name="shifted")


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# -- of one region -----------------------------------------------------------------------------------------------------

for operator, function in (
    (ops.relu, lambda x: np.maximum(x, 0)),
    (ops.sigmoid, sigmoid),
    (ops.tanh, np.tanh),
    (ops.gelu, gelu),
    (ops.silu, lambda x: x * sigmoid(x)),
    (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (ops.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    (ops.softplus, lambda x: np.log1p(np.exp(x))),
    (ops.exp, np.exp),
    (ops.sin, np.sin),
    (ops.cos, np.cos),
    (ops.abs, np.abs),
):
    case(operator.__name__, operator, of_x(function), {"x": (5, 7)})
for operator, function in ((ops.log, np.log), (ops.sqrt, np.sqrt), (ops.rsqrt, lambda x: x**-0.5)):
    case(
        operator.__name__,
        lambda x, operator=operator: operator(positive(x)),
        of_x(lambda x, function=function: function(x**2 + 0.5)),
        {"x": (5, 7)},
    )
case("gelu by tanh", lambda x: ops.gelu(x, approximate="tanh"), of_x(gelu_tanh), {"x": (5, 3, 2)})
case("relu of a scalar", ops.relu, of_x(lambda x: np.maximum(x, 0)), {"x": ()})
case(
    "elu, alpha",
    lambda x: ops.elu(x, 0.3),
    of_x(lambda x: np.where(x > 0, x, 0.3 * np.expm1(x))),
    {"x": (7,)},
)
case(
    "softplus, beta",
    lambda x: ops.softplus(x, 2.0),
    of_x(lambda x: np.log1p(np.exp(2 * x)) / 2),
    {"x": (7,)},
)
case("clip", lambda x: ops.clip(x, -0.5, 0.7), of_x(lambda x: np.clip(x, -0.5, 0.7)), {"x": (5, 7)})
case("clip below", lambda x: ops.clip(x, min=0.1), of_x(lambda x: np.maximum(x, 0.1)), {"x": (7,)})


# -- of two, with broadcasting -----------------------------------------------------------------------------------------

SHAPES = ((5, 7), (7,), (1, 7), (5, 1), (), (2, 5, 7), (2, 1, 1))

for operator, operation in (
    (ops.add, np.add),
    (ops.subtract, np.subtract),
    (ops.multiply, np.multiply),
    (ops.maximum, np.maximum),
    (ops.minimum, np.minimum),
):
    for shape in SHAPES if operator is ops.multiply else SHAPES[1::2]:
        case(
            f"{operator.__name__} (5, 7) and {shape}",
            operator,
            lambda v, operation=operation: operation(v["x"], v["y"]),
            {"x": (5, 7), "y": shape},
        )
    case(
        f"{operator.__name__} (4, 1) and (1, 3)",
        operator,
        lambda v, operation=operation: operation(v["x"], v["y"]),
        {"x": (4, 1), "y": (1, 3)},
    )
    case(
        f"{operator.__name__} a number",
        lambda x, operator=operator: operator(operator(x, 1.5), 0.3),
        lambda v, operation=operation: operation(operation(v["x"], 1.5), 0.3),
        {"x": (5, 3)},
    )
    case(
        f"{operator.__name__} to a number",
        lambda x, operator=operator: operator(0.7, x),
        lambda v, operation=operation: operation(0.7, v["x"]),
        {"x": (5, 3)},
    )
case(
    "divide",
    lambda x, y: ops.divide(x, positive(y)),
    lambda v: v["x"] / (v["y"] ** 2 + 0.5),
    {"x": (5, 1), "y": (7, 1, 5)},
)
case("divide by a number", lambda x: ops.divide(x, 1.5), lambda v: v["x"] / 1.5, {"x": (5, 3)})
case(
    "divide a number",
    lambda x: ops.divide(0.7, positive(x)),
    lambda v: 0.7 / (v["x"] ** 2 + 0.5),
    {"x": (5, 3)},
)
case("square", lambda x: ops.multiply(x, x), lambda v: v["x"] ** 2, {"x": (5, 3)})
case(
    "pow",
    lambda x, y: ops.pow(positive(x), y),
    lambda v: (v["x"] ** 2 + 0.5) ** v["y"],
    {"x": (5, 7), "y": (5, 1)},
)
case("pow of a number", lambda x: ops.pow(x, 3), lambda v: v["x"] ** 3, {"x": (5, 3)})
case("pow to a number", lambda x: ops.pow(1.5, x), lambda v: 1.5 ** v["x"], {"x": (5, 3)})

for operator, operation in (
    (ops.greater, np.greater),
    (ops.greater_equal, np.greater_equal),
    (ops.less, np.less),
    (ops.less_equal, np.less_equal),
    (ops.equal, np.equal),
    (ops.not_equal, np.not_equal),
):
    case(
        operator.__name__,
        lambda i, x, operator=operator: ops.where(operator(i, 1), x, 2.5),
        lambda v, operation=operation: np.where(operation(v["i"], 1), v["x"], 2.5),
        {"i": (5, 7), "x": (5, 7)},
        ["i"],
    )
case(
    "where",
    lambda x, y: ops.where(ops.less(x, y), x, y),
    lambda v: np.minimum(v["x"], v["y"]),
    {"x": (5, 7), "y": (7,)},
)


# -- sums --------------------------------------------------------------------------------------------------------------

case("sum_to (3)", lambda x: ops.sum_to(x, (3,)), lambda v: v["x"].sum((0, 1)), {"x": (2, 5, 3)})
case(
    "sum_to (5, 1)",
    lambda x: ops.sum_to(x, (5, 1)),
    lambda v: v["x"].sum((0, 2))[:, None],
    {"x": (2, 5, 3)},
)
case("sum_to a scalar", lambda x: ops.sum_to(x, ()), lambda v: v["x"].sum(), {"x": (5, 3)})
case(
    "sum_to a region",
    lambda x, y: ops.sum_to(ops.multiply(x, y), y),
    lambda v: (v["x"] * v["y"]).sum(0),
    {"x": (5, 3), "y": (3,)},
)
