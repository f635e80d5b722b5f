"""Compiled loops generated from expressions, one for each expression and way in which its inputs are broadcast.

The source is written to a folder, since numba keeps compiled code on disk only for functions that have a file. No fast
mathematics: an element gets the bits of its operators one by one. Imported inside kernels only, as importing numba
costs 0.3 s.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.misc import appdirs

from ops.cpu import math as cpu_math
from ops.elementwise.expressions import Argument, Expression, Step

_numba: Any = numba
_appdirs: Any = appdirs  # neither has types for these
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
    path = _file(text)
    namespace: dict[str, Any] = {}
    exec(compile(text, str(path or "<generated>"), "exec"), namespace | vars(cpu_math), namespace)
    return numba.njit(cache=path is not None, nogil=True, error_model="numpy")(namespace["loop"])


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


def _file(text: str) -> Path | None:
    """A file of this text where compiled code is kept; None where nothing can be written."""
    folder = Path(_numba.config.CACHE_DIR or _appdirs.user_cache_dir("taskflow")) / "generated"
    path = folder / f"loop_{hashlib.sha256(text.encode()).hexdigest()[:24]}.py"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(written, path)  # complete whenever another process sees it
    except OSError:
        return None
    return path
