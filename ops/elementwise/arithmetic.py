"""Arithmetic and comparisons of two operands with broadcasting; every axis may be split."""

from __future__ import annotations

from ops.building import check_region
from ops.elementwise.broadcast import Operand, elementwise, launch
from taskflow import LogicalRegion

_ADD = elementwise("x + y", x="g", y="g")
_SUBTRACT = elementwise("x - y", x="g", y="-g")
_MULTIPLY = elementwise("x * y", x="g * y", y="g * x")
_DIVIDE = elementwise("x / y", x="g / y", y="-g * z / y")
_MAXIMUM = elementwise("max(x, y)", x="0.5 * g * ((x > y) + (x >= y))", y="0.5 * g * ((y > x) + (y >= x))")
_MINIMUM = elementwise("min(x, y)", x="0.5 * g * ((x < y) + (x <= y))", y="0.5 * g * ((y < x) + (y <= x))")
# y x^(y - 1) is 0 where y is 0, and z log(x) is 0 where x is 0
_POW = elementwise("x ** y", 20, x="g * y * x ** (y - (y != 0))", y="g * z * log(x + (x == 0))")
_WHERE = elementwise("where(condition, x, y)", x="where(condition, g, 0)", y="where(condition, 0, g)")


def add(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x + y; one of them may be a number. Shapes are aligned at the right, an extent of 1 is repeated.

    Args:
        x, y: regions of floating point whose shapes agree, or a region and a number. Both get gradients.
        name: of the operator.

    Returns:
        The common shape, the dtype of the first region.

    Raises:
        TypeError: both are numbers, or one is neither number nor region.
        ValueError: the shapes do not agree, or a region is not of floating point.

    >>> import ops, taskflow
    >>> x = taskflow.Graph().input("x", (5, 3))
    >>> ops.add(x, 1.0).shape
    (5, 3)
    """
    return launch("add", _ADD, {"x": x, "y": y}, name)


def subtract(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x - y; args, broadcasting and errors as `add`."""
    return launch("subtract", _SUBTRACT, {"x": x, "y": y}, name)


def multiply(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x y; args, broadcasting and errors as `add`."""
    return launch("multiply", _MULTIPLY, {"x": x, "y": y}, name)


def divide(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x / y; args, broadcasting and errors as `add`."""
    return launch("divide", _DIVIDE, {"x": x, "y": y}, name)


def maximum(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """The larger one; equal operands get half of the gradient each, as torch's. Args and errors as `add`."""
    return launch("maximum", _MAXIMUM, {"x": x, "y": y}, name)


def minimum(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """The smaller one; equal operands get half of the gradient each, as torch's. Args and errors as `add`."""
    return launch("minimum", _MINIMUM, {"x": x, "y": y}, name)


def pow(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x to the power of y, as torch.pow: NaN for a negative x unless y is whole. Args and errors as `add`."""
    return launch("pow", _POW, {"x": x, "y": y}, name)


def where(condition: LogicalRegion, x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x where the condition holds, else y, as torch.where; shapes broadcast as for `add`.

    Args:
        condition: of dtype bool, what a comparison gives.
        x, y: regions of floating point or numbers, not both numbers; both get gradients.
        name: of the operator.

    Raises:
        TypeError: `condition` is no region, or one of the others is neither number nor region.
        ValueError: the shapes do not agree, both are numbers, or a dtype is wrong.
    """
    place = f"where '{name or 'where'}'"
    check_region(place, condition, "condition", floating=False)
    if condition.dtype != "bool":
        raise ValueError(f"{place}: condition '{condition.name}' is {condition.dtype}, bool is needed")
    values = [r for r in (x, y) if isinstance(r, LogicalRegion)]
    if not values:
        raise ValueError(f"{place}: x and y are {x} and {y}, at least one region is needed")
    operands = {"condition": condition, "x": x, "y": y}
    return launch("where", _WHERE, operands, name, values[0].dtype, any_dtype=["condition"])


# -- comparisons -------------------------------------------------------------------------------------------------------

_COMPARISONS = {
    "equal": elementwise("x == y"),
    "not_equal": elementwise("x != y"),
    "less": elementwise("x < y"),
    "less_equal": elementwise("x <= y"),
    "greater": elementwise("x > y"),
    "greater_equal": elementwise("x >= y"),
}


def _compare(kind: str, x: Operand, y: Operand, name: str | None) -> LogicalRegion:
    return launch(kind, _COMPARISONS[kind], {"x": x, "y": y}, name, "bool", any_dtype="xy")


def equal(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x == y as a bool region, for `where`; any dtypes, no gradient. Broadcasting and errors as `add`."""
    return _compare("equal", x, y, name)


def not_equal(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x != y as a bool region; as `equal`."""
    return _compare("not_equal", x, y, name)


def less(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x < y as a bool region; as `equal`."""
    return _compare("less", x, y, name)


def less_equal(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x <= y as a bool region; as `equal`."""
    return _compare("less_equal", x, y, name)


def greater(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x > y as a bool region; as `equal`."""
    return _compare("greater", x, y, name)


def greater_equal(x: Operand, y: Operand, name: str | None = None) -> LogicalRegion:
    """x >= y as a bool region; as `equal`."""
    return _compare("greater_equal", x, y, name)
