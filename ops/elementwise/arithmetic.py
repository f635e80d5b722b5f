"""Arithmetic and comparisons of two operands with broadcasting; every axis may be split."""

from __future__ import annotations

from ops.building import check_region
from ops.elementwise.broadcast import OfTwo, Operand, elementwise, launch, of_two
from taskflow import LogicalRegion

_ADD = elementwise("x + y", x="g", y="g")


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


_AS_ADD = "args, broadcasting and errors as `add`."
subtract = of_two("subtract", f"x - y; {_AS_ADD}", elementwise("x - y", x="g", y="-g"))
multiply = of_two("multiply", f"x y; {_AS_ADD}", elementwise("x * y", x="g * y", y="g * x"))
divide = of_two("divide", f"x / y; {_AS_ADD}", elementwise("x / y", x="g / y", y="-g * z / y"))
maximum = of_two(
    "maximum",
    f"The larger one; equal operands get half of the gradient each, as torch's; {_AS_ADD}",
    elementwise(
        "max(x, y)",
        x="where(x < y, 0, where(x == y, 0.5 * g, g))",
        y="where(y < x, 0, where(x == y, 0.5 * g, g))",
    ),
)
minimum = of_two(
    "minimum",
    f"The smaller one; equal operands get half of the gradient each, as torch's; {_AS_ADD}",
    elementwise(
        "min(x, y)",
        x="where(x > y, 0, where(x == y, 0.5 * g, g))",
        y="where(y > x, 0, where(x == y, 0.5 * g, g))",
    ),
)
pow = of_two(
    "pow",
    f"x to the power of y, as torch.pow: NaN for a negative x unless y is whole; {_AS_ADD}",
    # z log(x) is 0 where x is 0 and y is not negative
    elementwise(
        "x ** y",
        20,
        x="where(y == 0, 0, g * y * x ** (y - (y != 0)))",
        y="g * z * log(x + (x == 0) * (y >= 0))",
    ),
)
_WHERE = elementwise(
    "where(condition, x, y)", x="where(condition, g, 0)", y="where(condition, 0, g)"
)


def where(
    condition: LogicalRegion, x: Operand, y: Operand, name: str | None = None
) -> LogicalRegion:
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
        raise ValueError(
            f"{place}: condition '{condition.name}' is {condition.dtype}, bool is needed"
        )
    values = [r for r in (x, y) if isinstance(r, LogicalRegion)]
    if not values:
        raise ValueError(f"{place}: x and y are {x} and {y}, at least one region is needed")
    operands = {"condition": condition, "x": x, "y": y}
    return launch(
        "where",
        _WHERE,
        operands,
        name,
        values[0].dtype,
        any_dtype=["condition"],
    )


def _comparison(kind: str, sign: str) -> OfTwo:
    doc = f"x {sign} y as a bool region, for `where`; any dtypes, no gradient. Broadcasting and errors as `add`."
    return of_two(kind, doc, elementwise(f"x {sign} y"), "bool", any_dtype="xy")


equal = _comparison("equal", "==")
not_equal = _comparison("not_equal", "!=")
less = _comparison("less", "<")
less_equal = _comparison("less_equal", "<=")
greater = _comparison("greater", ">")
greater_equal = _comparison("greater_equal", ">=")
