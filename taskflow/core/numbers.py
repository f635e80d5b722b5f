"""Numbers that a user gives: of Python or of NumPy, finite, within bounds; refused with where, name and value."""

from __future__ import annotations

from math import inf, isfinite
from numbers import Integral, Real
from typing import TypeGuard

KIB = 1 << 10
MIB = KIB << 10
GIB = MIB << 10


def is_whole(value: object, least: int = 1) -> TypeGuard[int]:
    """Whether it is a whole number from `least`; a truth value is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def flag(where: str, name: str, value: object) -> bool:
    """The truth value.

    Raises:
        TypeError: it is none, also where it is a number.
    """
    if type(value).__name__ not in ("bool", "bool_"):  # of Python, of NumPy
        raise TypeError(f"{where}: {name} is {value!r}, True or False is needed")
    return bool(value)


def whole(where: str, name: str, value: object, least: int = 1) -> int:
    """The whole number.

    Raises:
        ValueError: it is none, or less than `least`.
    """
    if not is_whole(value, least):
        raise ValueError(f"{where}: {name} is {value!r}, a whole number from {least} is needed")
    return int(value)


def real(
    where: str,
    name: str,
    value: object,
    least: float = -inf,
    most: float = inf,
    above: bool = False,
) -> float:
    """The number.

    Args:
        least, most: what it may be; with `above` it may not be `least`.

    Raises:
        ValueError: it is none, not finite, or out of these bounds.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    if not is_number or not least <= value <= most or (above and value == least):  # type: ignore[operator]
        low = "" if least == -inf else f" above {least:g}" if above else f" from {least:g}"
        high = "" if most == inf else f" to {most:g}"
        raise ValueError(f"{where}: {name} is {value!r}, a finite number{low}{high} is needed")
    return float(value)  # type: ignore[arg-type]
