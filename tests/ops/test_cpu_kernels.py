"""Compiled kernels: their functions beside the C library's, and beside the kernels by passes that they stand in for."""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import ops
from ops.expressions import math as cpu_math
from taskflow import Graph

from .interpreter import run

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
}


def applied(name: str) -> Callable[[Any, Any], None]:
    """A loop that applies a function of `cpu_math`."""
    function = getattr(cpu_math, name)

    @numba.njit(error_model="numpy")
    def loop(x: Any, y: Any) -> None:
        for k in range(x.size):
            y[k] = function(x[k])

    return loop


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_float32_and_float64(name: str) -> None:
    loop = applied(name)
    for dtype, tolerance in (("float32", 4e-7), ("float64", 1e-15)):
        x = np.concatenate([np.linspace(-30, 30, 20001), [-80.0, -87.0, 80.0]]).astype(dtype)
        y = np.empty_like(x)
        loop(x, y)
        expected = np.array([FUNCTIONS[name](v) for v in x.tolist()])
        np.testing.assert_array_less(np.abs(y - expected) / np.maximum(1, expected), tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_the_ends(name: str) -> None:
    loop = applied(name)
    x = np.array([-np.inf, np.inf, np.nan, 0.0], np.float32)
    y = np.empty_like(x)
    loop(x, y)
    low, high = (0, math.inf) if name == "exp" else (-1, 1)
    np.testing.assert_allclose(y, [low, high, math.nan, FUNCTIONS[name](0)], atol=3e-7)


def test_relu_keeps_nan() -> None:
    graph = Graph()
    y = ops.relu(graph.input("x", (4,), "float32"))
    values = {"x": np.array([-1.0, 0.0, np.nan, 2.0], np.float32)}
    np.testing.assert_array_equal(run(graph, values)[y.name], [0, 0, np.nan, 2])
