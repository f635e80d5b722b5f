"""Dtypes: those of floating point, those of half the size of float32, and whether their numbers are finite.

NumPy has float16 of its own; bfloat16 comes with the package ml_dtypes, which is imported when a region of it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

HALF = ("float16", "bfloat16")
KNOWN = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
KNOWN += (*HALF, "float32", "float64", "complex64", "complex128")


def is_floating(dtype: str) -> bool:
    """Whether numbers of this dtype are of floating point."""
    return dtype.startswith(("float", "bfloat"))


def computing_dtype(dtypes: Iterable[str]) -> str:
    """In which an operator with arguments of these computes: the first floating one; integers count as float32."""
    return next(filter(is_floating, dtypes), "float32")


def is_finite(array: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Whether all numbers of an array are.

    Then the sum of their squares is, which is the fastest to find, unless it overflows; and the least and the largest
    are, for what is no number is both.
    """
    if not array.size:
        return True
    if array.dtype.char in "fd" and (array.flags.c_contiguous or array.flags.f_contiguous):
        numbers = array.ravel(order="K")
        with np.errstate(all="ignore"):
            if np.isfinite(np.dot(numbers, numbers)):
                return True
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def known_dtype(where: str, name: object) -> str:
    """The NumPy name of a dtype; `where` begins messages.

    Raises:
        TypeError: there is no such dtype, or kernels do not take it: longdouble, texts and times, other byte orders.
        ModuleNotFoundError: it is bfloat16, and ml_dtypes is not installed.
    """
    if isinstance(name, str) and name != "bfloat16" and name in KNOWN:
        return name
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401 (makes NumPy know the name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "bfloat16 on NumPy needs the package ml_dtypes: pip install ml_dtypes"
            ) from error
    try:
        dtype = str(np.dtype(name))  # type: ignore[call-overload]
    except TypeError as error:
        raise TypeError(f"{where}: dtype is {name!r}, which NumPy does not know") from error
    if dtype not in KNOWN:
        raise TypeError(f"{where}: dtype is '{dtype}', kernels take {', '.join(KNOWN)}")
    return dtype
