"""Compiled kernels: their functions beside the C library's, and beside the kernels by passes that they stand in for."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

import ops
from ops.dense import convolution_kernels as convolution
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


@pytest.mark.parametrize("shape", [(1, 256, 256, 8), (3, 40, 64, 4), (9, 7, 5, 2)])
def test_a_convolution_gathers_no_more_columns_than_its_memory(shape):
    """Blocks cover every line of every image once; the largest has the memory that is asked for, and no more."""
    asked = []

    def scratch(_, size, dtype):
        asked.append(np.empty(size, dtype))
        return asked[0]

    y, elements = np.zeros(shape, np.float32), 72
    for images, lines, columns in convolution._blocks(
        SimpleNamespace(scratch=scratch), y, 1, elements
    ):
        y[images, lines] += 1
        assert columns.size == y[images, lines][..., 0].size * elements
    np.testing.assert_array_equal(y, 1)
    line = shape[2] * elements * y.itemsize
    least = convolution._REUSE * shape[3] * elements * y.itemsize
    assert asked[0].nbytes <= max(convolution._BLOCK_BYTES, least, line)
    assert asked[0].size <= shape[0] * shape[1] * shape[2] * elements
