"""Arrays of NumPy from what a user gives: what would be lost in silence is refused.

`numpy.asarray` drops masks, units and gradients, wraps sparse matrices as objects, and raises errors that name nothing.
`astype` wraps integers round and makes infinite what is too large.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.dtypes import HALF, is_floating

Array = np.ndarray[Any, np.dtype[Any]]
_PLAIN = (np.ndarray, np.memmap, np.matrix)


def check_plain(where: str, value: object) -> None:
    """Refuse an array that says more than its numbers.

    Raises:
        ValueError: some of it is masked.
        TypeError: it is of another subclass of NumPy's arrays, or a sparse matrix.
    """
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            count = int(np.ma.getmaskarray(value).sum())
            raise ValueError(
                f"{where}: {count} of {value.size} numbers are masked; give them values, as by filled()"
            )
    elif isinstance(value, np.ndarray) and type(value) not in _PLAIN:
        raise TypeError(
            f"{where}: is a {type(value).__name__}, of which only the numbers would be left; give an array"
        )
    elif hasattr(value, "toarray"):
        raise TypeError(
            f"{where}: is a sparse {type(value).__name__}; give an array, as by toarray()"
        )


def as_array(where: str, value: object) -> Array:
    """What is given as an array; `where` begins messages.

    Raises:
        ValueError: some of it is masked, or rows have different lengths.
        TypeError: it cannot be read as numbers: by its own account, or it holds Python objects.
    """
    check_plain(where, value)
    try:
        array = np.asarray(value)
    except Exception as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{where}: cannot be read as an array: {error}") from error
    if array.dtype == object:
        raise TypeError(
            f"{where}: is a {type(value).__name__} of Python objects, numbers are needed"
        )
    return array


def cast_array(where: str, given: Array, dtype: str) -> Array:
    """The same numbers in another dtype, rounded where both are of floating point.

    Raises:
        ValueError: they are no real numbers, or one of them does not fit.
    """
    if given.dtype == dtype:
        return given
    if given.dtype.kind not in "biuf" and given.dtype.name not in HALF:
        raise ValueError(f"{where}: the value is {given.dtype}, the region {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = given.astype(dtype)
        lost = ~np.isfinite(cast) & np.isfinite(given) if is_floating(dtype) else cast != given
    if lost.any():
        raise ValueError(f"{where}: {dtype} cannot hold {given[lost].ravel()[0]!s}")
    return cast
