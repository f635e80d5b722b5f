"""Expressions: what they compute, how few slots they need, and what they refuse."""

import numpy as np
import pytest

from ops.expressions.expression import Expression, Step
from ops.expressions.passes import evaluate
from taskflow import Context

X, Y = np.linspace(-2, 2, 12).reshape(4, 3), np.array([0.5, -1.0, 2.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", X),
        ("-x", -X),
        ("x * y + 2", X * Y + 2),
        ("(x - y) * (x - y)", (X - Y) ** 2),
        ("exp(x) / (1 + exp(x)) - sigmoid(x)", 0 * X),
        ("(x > y) + (x == x) * min(x, y)", (X > Y) + np.minimum(X, Y)),
        ("fmod(x, y) + fmod(3, x - 5)", np.fmod(X, Y) + np.fmod(3, X - 5)),
        ("1 - (2 - (3 - (4 - x)))", X - 2),
        ("x * 2 * (x + exp(x)) * (x + 1)", 2 * X * (X + np.exp(X)) * (X + 1)),  # exp is step 1
        ("((x + 1) * (x + 2)) / ((x + 3) * (x + 4))", (X + 1) * (X + 2) / ((X + 3) * (X + 4))),
    ],
)
def test_value(text: str, expected: np.ndarray) -> None:
    out = np.full(X.shape, np.nan)
    evaluate(Context((), {}), Expression.parse(text), {"x": X, "y": Y}, out)
    np.testing.assert_allclose(out, expected, rtol=1e-15, atol=1e-15)


def test_equal_parts_are_computed_once_and_slots_are_used_again() -> None:
    assert Expression.parse("exp(x) * (exp(x) + 1) * (exp(x) + 2)").steps == (
        Step("exp", ("x",), 0),
        Step("add", (0, 1.0), 1),
        Step("multiply", (0, 1), 1),
        Step("add", (0, 2.0), 0),
        Step("multiply", (1, 0), 0),
    )


def test_where_picks() -> None:
    out = np.empty(X.shape)
    evaluate(Context((), {}), Expression.parse("where(c, x, 7)"), {"x": X, "c": X > 0}, out)
    np.testing.assert_array_equal(out, np.where(X > 0, X, 7))


@pytest.mark.parametrize(
    "text", ["f(x)", "x @ y", "x if y else z", "x < y < z", "exp(x, base=2)", "'x'"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expression .*: cannot read"):
        Expression.parse(text)


@pytest.mark.parametrize(
    "text",
    ["where(x > 0, x * y, -x)", "where(-x < 0, -(-x) * y, -x)", "where(x > 0, -x + x - x, -x) + 0"],
)
def test_where_picks_among_results(text: str) -> None:
    out = np.empty(X.shape)
    evaluate(Context((), {}), Expression.parse(text), {"x": X, "y": Y}, out)
    expected = np.where(X > 0, -X if "+" in text else X * Y, -X)
    np.testing.assert_allclose(out, expected, rtol=1e-15)


def test_expressions_in_the_place_of_names() -> None:
    put = Expression.parse("x * sigmoid(y)").renamed({"x": "a - b", "y": "c"})
    assert put.text == "(a - b) * (where(c < 0, exp(-abs(c)), 1) / (1 + exp(-abs(c))))"
    assert put.names == ("a", "b", "c")
