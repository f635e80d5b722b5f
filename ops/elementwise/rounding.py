"""Whole numbers near a number, and its sign: constant between steps, so the gradient is 0 everywhere, as torch's."""

from __future__ import annotations

from ops.elementwise.broadcast import OfOne, elementwise, of_one
from taskflow import fake_quantize as fake_quantize


def _piecewise_constant(kind: str, doc: str, value: str) -> OfOne:
    return of_one(kind, f"{doc} The gradient is 0.", elementwise(value, 2, x="0 * (g == g)"))


floor = _piecewise_constant("floor", "The largest whole number that is not above x.", "floor(x)")
ceil = _piecewise_constant("ceil", "The smallest whole number that is not below x.", "ceil(x)")
trunc = _piecewise_constant("trunc", "x without what stands behind the point.", "trunc(x)")
round = _piecewise_constant("round", "The nearest whole number, of two the even one.", "round(x)")
sign = _piecewise_constant("sign", "1, 0 or -1, as torch's 0 for NaN.", "(x > 0) - (x < 0)")
