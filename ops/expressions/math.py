"""Functions for compiled kernels: of float32 as polynomials, which vectorize, of float64 from the C library.

The C library's functions of one number keep a loop from vectorizing: exp in float32 takes 2.7 ns a number that way,
0.5 ns as a polynomial. Errors in float32 are below two units in the last place of the larger of result and 1.

Called from compiled functions only; in Python they are the C library's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import overload

_OPTIONS: Any = {"fastmath": {"contract"}, "error_model": "numpy"}


def _compiled(function: Callable[[Any], Any], single: Callable[[Any], Any]) -> None:
    """Compiled code calls `single` for float32, else the function itself."""

    def choose(
        x: Any,
    ) -> Callable[[Any], Any]:  # numba compares the text of signatures: all are annotated alike
        return single if x == numba.float32 else function

    overload(function, jit_options=_OPTIONS)(choose)


def exp(x: Any) -> Any:
    """e to the power of x."""
    return math.exp(x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return math.tanh(x)


def erf(x: Any) -> Any:
    """Error function."""
    return math.erf(x)


def plus(x: Any, y: Any) -> Any:
    """x + y, in a sum whose order does not matter: so it vectorizes."""
    return x + y


@overload(plus, jit_options={"fastmath": {"reassoc"}})
def _plus(x: Any, y: Any) -> Callable[[Any, Any], Any]:
    return plus


def _exp_single(x: Any) -> Any:
    """2ⁿ times a polynomial of the rest (Cephes' `expf`); 0 below -87.3, infinite above 88.37."""
    f = np.float32
    inside = min(max(x, f(-87.3)), f(88.37))
    scaled = inside * f(1.44269504088896341)
    n = np.int32(scaled + (f(0.5) if scaled > 0 else f(-0.5)))
    r = inside - f(n) * f(0.693359375)
    r = r + f(n) * f(2.12194440e-4)
    p = f(1.9875691500e-4) * r + f(1.3981999507e-3)
    p = p * r + f(8.3334519073e-3)
    p = p * r + f(4.1665795894e-2)
    p = p * r + f(1.6666665459e-1)
    p = p * r + f(5.0000001201e-1)
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
    result = (p * r * r + r + f(1)) * power
    result = f(0) if x < f(-87.3) else result
    result = f(np.inf) if x > f(88.37) else result
    return result if x == x else x


def _tanh_single(x: Any) -> Any:
    """A ratio of polynomials (Eigen's `ptanh`); 1 from where it rounds to that: it may be multiplied by a large x."""
    f = np.float32
    inside = min(max(x, f(-7.90531110763549805)), f(7.90531110763549805))
    s = inside * inside
    p = f(-2.76076847742355e-16) * s + f(2.00018790482477e-13)
    p = p * s + f(-8.60467152213735e-11)
    p = p * s + f(5.12229709037114e-08)
    p = p * s + f(1.48572235717979e-05)
    p = p * s + f(6.37261928875436e-04)
    p = p * s + f(4.89352455891786e-03)
    q = f(1.19825839466702e-06) * s + f(1.18534705686654e-04)
    q = q * s + f(2.26843463243900e-03)
    q = q * s + f(4.89352518554385e-03)
    result = inside * p / q
    result = f(1) if x > f(9.02) else result
    result = f(-1) if x < f(-9.02) else result
    return result if x == x else x


def _erf_single(x: Any) -> Any:
    """A ratio of polynomials (Eigen's `erf_float`)."""
    f = np.float32
    inside = min(max(x, f(-4)), f(4))
    s = inside * inside
    p = f(-2.72614225801306e-10) * s + f(2.77068142495902e-08)
    p = p * s + f(-2.10102402082508e-06)
    p = p * s + f(-5.69250639462346e-05)
    p = p * s + f(-7.34990630326855e-04)
    p = p * s + f(-2.95459980854025e-03)
    p = p * s + f(-1.60960333262415e-02)
    q = f(-1.45660718464996e-05) * s + f(-2.13374055278905e-04)
    q = q * s + f(-1.68282697438203e-03)
    q = q * s + f(-7.37332916720468e-03)
    q = q * s + f(-1.42647390514189e-02)
    return inside * p / q if x == x else x


_compiled(exp, _exp_single)
_compiled(tanh, _tanh_single)
_compiled(erf, _erf_single)
