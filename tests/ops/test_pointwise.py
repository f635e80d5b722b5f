"""Kernels of one expression: compiled loops beside passes of NumPy, for every way in which inputs are repeated."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from ops.elementwise.pointwise import _by_passes, pointwise
from ops.expressions.expression import Expression
from ops.expressions.loops import compiled_loop, source
from ops.expressions.program import result_of
from taskflow import Context, Kernel

Array = np.ndarray[Any, np.dtype[Any]]


def values(shape: Sequence[int], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def joined(outer: Kernel, k: int, inner: Kernel) -> Kernel:
    assert outer.join
    both = outer.join(SimpleNamespace(kernel=outer), k, SimpleNamespace(kernel=inner), False)  # type: ignore[arg-type]
    assert both is not None
    return both


def applied(kernel: Kernel, *arrays: Array, like: Array) -> Array:
    out = np.full_like(like, np.nan)
    kernel(Context((), {}), *arrays, out)
    return out


@pytest.mark.parametrize(
    "other", [(3, 4, 5), (5,), (4, 5), (3, 1, 1), (3, 4, 1), (1, 4, 1), (1, 1, 1), ()]
)
def test_inputs_are_repeated_as_numpy_does(other: tuple[int, ...]) -> None:
    expression = Expression.parse("max(x, y) * n + tanh(y)")
    x, y = values((3, 4, 5), 0), values(other, 1)
    by_loop = applied(pointwise(expression, ("x", "y"), {"n": 0.3}), x, y, like=x)
    np.testing.assert_allclose(by_loop, np.maximum(x, y) * 0.3 + np.tanh(y), rtol=1e-14)


def test_tiles_lie_as_they_like() -> None:
    expression = Expression.parse("max(x, 0) + y")
    x, y = values((2, 3, 4, 5), 0), values((2, 4, 5, 3), 1).transpose(0, 3, 1, 2)
    memory = np.empty((2, 4, 9, 3)).transpose(0, 3, 1, 2)[..., 2:7]
    pointwise(expression, ("x", "y"), {})(Context((), {}), x, y, memory)
    np.testing.assert_array_equal(memory, np.maximum(x, 0) + y)


def test_other_dtypes_go_by_passes() -> None:
    expression = Expression.parse("where(c, x, 0)")
    x = values((4, 3), 0).astype(np.float16)
    np.testing.assert_array_equal(
        applied(pointwise(expression, ("c", "x"), {}), x > 0, x, like=x),
        np.where(x > 0, x, np.float16(0)),
    )


@pytest.mark.parametrize(
    "text", ["max(x, y)", "min(x, y)", "where(x, y, 2)", "(x > y) + (x == y)", "abs(-x) / y"]
)
def test_loops_and_passes_agree_on_what_is_no_number(text: str) -> None:
    some = np.array([-1.0, 0.0, 2.0, np.nan, np.inf, -np.inf])
    x, y = (a.copy() for a in np.meshgrid(some, some))
    expression = Expression.parse(text)
    arguments = ("x", "matrix"), ("y", "matrix"), ("out", "matrix")
    loop, out = compiled_loop(result_of(expression), arguments, ()), np.empty_like(x)
    loop(x, y, out)
    with np.errstate(all="ignore"):
        passes = _by_passes.bind(expression=expression, names=("x", "y"), numbers={})
        np.testing.assert_array_equal(out, applied(passes, x, y, like=x))


def test_joined_kernels_give_the_same_bits_as_one_after_the_other() -> None:
    inner = pointwise(Expression.parse("x * sigmoid(y) + n"), ("x", "y"), {"n": 0.1})
    outer = pointwise(Expression.parse("exp(n * x) - max(y, x)"), ("y", "x"), {"n": -0.7})
    both = joined(outer, 1, inner)
    assert both.expression is not None and both.expression.names == ("x0", "x1", "x2")
    for dtype in ("float32", "float64"):
        a, b, c = (values((7, 9), k).astype(dtype) for k in range(3))
        expected = applied(outer, a, applied(inner, b, c, like=b), like=a)
        np.testing.assert_array_equal(applied(both, a, b, c, like=a), expected)


def test_the_source_is_a_loop_over_a_matrix() -> None:
    arguments = ("x", "row"), ("out", "matrix")
    text = source(result_of(Expression.parse("max(x, 0) * n")), arguments, ("n",))
    assert text.splitlines()[4:] == [
        "    h1 = np.empty(a1.shape[-1], a1.dtype)",
        "    for c in range(a1.shape[-1]):",
        "        t0 = number(0.0) if a0[c] <= number(0.0) or number(0.0) != number(0.0) else a0[c]",
        "        t1 = t0 * n_n",
        "        h1[c] = t1",
        "    for r in range(a1.shape[0]):",
        "        for c in range(a1.shape[-1]):",
        "            a1[r, c] = h1[c]",
    ]


def test_loops_run_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "/dev/null/nowhere")
    x = values((2, 3), 0)
    out = np.empty_like(x)
    compiled_loop(
        result_of(Expression.parse("x + x * 3")), (("x", "matrix"), ("out", "matrix")), ()
    )(x, out)
    np.testing.assert_array_equal(out, x + x * 3)
