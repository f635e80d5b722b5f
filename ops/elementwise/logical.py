"""Logic of conditions; any dtype goes in, what is not zero holds, bool comes out. Every axis may be split."""

from __future__ import annotations

from ops.elementwise.broadcast import elementwise, launch, of_two
from taskflow import LogicalRegion

_AS = "any dtypes, no gradient. Broadcasting and errors as `add`."
logical_and = of_two(
    "logical_and",
    f"Whether both are not zero, as a bool region; {_AS}",
    elementwise("(x != 0) * (y != 0)"),
    "bool",
    "xy",
)
logical_or = of_two(
    "logical_or",
    f"Whether one is not zero, as a bool region; {_AS}",
    elementwise("max(x != 0, y != 0)"),
    "bool",
    "xy",
)
_NOT = elementwise("x == 0")


def logical_not(x: LogicalRegion, name: str | None = None) -> LogicalRegion:
    """Whether `x` is zero, as a bool region; any dtype, no gradient."""
    return launch(
        "logical_not",
        _NOT,
        {"x": x},
        name,
        "bool",
        any_dtype="x",
    )
