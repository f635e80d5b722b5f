"""Compiled loops generated from expressions, one for each expression and way in which its inputs are broadcast.

No fast mathematics: an element gets the bits of its operators one by one. Imported inside kernels only, as importing
numba costs 0.3 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache

import taskflow
from ops.cpu import math as cpu_math
from ops.elementwise.expressions import Argument, Expression, Step

_READS = {"matrix": "{}[r, c]", "row": "{}[c]", "column": "{}[r]", "number": "{}[0]"}
_CODE = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "divide": "{} / {}",
    "negative": "-{}",
    "absolute": "abs({})",
    "sqrt": "math.sqrt({})",
    "exp": "exp({})",
    "tanh": "tanh({})",
    "erf": "erf({})",
    "maximum": "{1} if {0} <= {1} or {1} != {1} else {0}",  # NaN where one is, as NumPy's
    "minimum": "{1} if {0} >= {1} or {1} != {1} else {0}",
    "where": "{1} if {0} != zero else {2}",
    **{
        name: f"one if {{}} {sign} {{}} else zero"
        for name, sign in {
            "less": "<",
            "less_equal": "<=",
            "greater": ">",
            "greater_equal": ">=",
            "equal": "==",
            "not_equal": "!=",
        }.items()
    },
}


@cache
def compiled_loop(
    expression: Expression, names: tuple[str, ...], numbers: tuple[str, ...], layouts: tuple[str, ...]
) -> Callable[..., None]:
    """`loop(*inputs, *numbers, out)` writes the value of `expression` to every element of the matrix `out`.

    Args:
        expression: of the functions in `_CODE`.
        names: of the inputs, arrays of the dtype of `out`.
        numbers: names of numbers of that dtype.
        layouts: per input `matrix` (as `out`), `row` (a number per column), `column` (one per row) or `number`.
    """
    text = source(expression, names, numbers, layouts)
    own = f"loop_{hashlib.sha256(text.encode()).hexdigest()[:16]}"  # compiled code is linked by name
    module = {**vars(cpu_math)}
    exec(text.replace("def loop(", f"def {own}("), module)
    loop: Callable[..., None] = taskflow.njit(nogil=True, error_model="numpy")(module[own])
    return loop


def source(expression: Expression, names: tuple[str, ...], numbers: tuple[str, ...], layouts: tuple[str, ...]) -> str:
    """The loop as text."""
    read = {name: _READS[layout].format(name) for name, layout in zip(names, layouts, strict=True)}
    lines = [_line(step, {**read, **{name: name for name in numbers}}) for step in expression.steps]
    return "\n".join(
        [
            f"# {expression.text}",
            f"def loop({', '.join((*names, *numbers, 'out'))}):",
            "    number = out.dtype.type",
            "    zero, one = number(0), number(1)",
            "    for r in range(out.shape[0]):",
            "        for c in range(out.shape[1]):",
            *(f"            {line}" for line in lines),
            "            out[r, c] = s0",
            "",
        ]
    )


def _line(step: Step, known: Mapping[str, str]) -> str:
    def code(argument: Argument) -> str:
        if isinstance(argument, str):
            return known[argument]
        return f"number({argument!r})" if isinstance(argument, float) else f"s{argument}"

    return f"s{step.slot} = " + _CODE[step.function].format(*map(code, step.arguments))
