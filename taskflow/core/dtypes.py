"""Dtype names: those of floating point, and those of half the size of float32.

NumPy has float16 of its own; bfloat16 comes with the package ml_dtypes, which is imported when a region of it is made.
"""

from __future__ import annotations

import numpy as np

HALF = ("float16", "bfloat16")


def is_floating(dtype: str) -> bool:
    """Whether numbers of this dtype are of floating point."""
    return dtype.startswith(("float", "bfloat"))


def known_dtype(name: object) -> str:
    """The NumPy name of a dtype.

    Raises:
        TypeError: there is no such dtype.
        ModuleNotFoundError: it is bfloat16, and ml_dtypes is not installed.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401 (makes NumPy know the name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("bfloat16 on NumPy needs the package ml_dtypes: pip install ml_dtypes") from error
    return str(np.dtype(name))  # type: ignore[call-overload]
