"""Interpreted until hot: when a compiled function runs as ordinary Python, and when it waits for the compiler.

A function is compiled where the time that it spent as Python, and what its next call would take, is more than compiling
takes: so whoever interprets loses half of the time at most (ski rental; Karlin et al., "Competitive randomized
algorithms for nonuniform problems", 1994). Seconds of a call are those of the last one, by the sizes of the arguments;
seconds of compiling go by the byte code of all functions that it calls. Meanwhile another process may compile it (see
`ahead`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import numpy as np

HOT = "hot"
NEVER = "never"
ALWAYS = "always"
_SECONDS_PER_BYTE = 4e-4  # of byte code; 0.12 to 1.3 ms on a core of 2.5 GHz
_START_SECONDS = 0.5  # importing numba, and whatever a variant takes besides
# Of the arguments, where nothing is known yet: a call looks at each once or twice.
_SECONDS_PER_ELEMENT = 1e-6
# Of the time of compiling: so much is spent before the other process is asked to compile, and between two looks at
# whether it has; a look takes 0.1 ms.
_EARLY = 0.02
_LOOK = 0.005


def mode() -> str:
    """What TASKFLOW_COMPILE says: hot (where there is nothing), never or always.

    Raises:
        ValueError: it says something else.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return NEVER
    said = os.environ.get("TASKFLOW_COMPILE", "") or HOT
    if said not in (HOT, NEVER, ALWAYS):
        raise ValueError(f"TASKFLOW_COMPILE: '{HOT}', '{NEVER}' or '{ALWAYS}', not '{said}'")
    return said


class Temperature:
    """How long a function has run as Python.

    Attributes:
        compile_seconds: what compiling it takes.
        spent: seconds.
    """

    def __init__(self, compile_seconds: float) -> None:
        self.compile_seconds = compile_seconds
        self.spent = 0.0
        self._rate = _SECONDS_PER_ELEMENT
        self._next_look = dict[str, float]()

    def is_hot(self, size: int) -> bool:
        """Whether a call with so many elements had better wait for the compiler."""
        return self.spent + self._rate * size > self.compile_seconds

    def is_warm(self) -> bool:
        """Whether it had better be compiled by another process."""
        return self.spent > _EARLY * self.compile_seconds

    def is_due(self, name: str) -> bool:
        """Whether to look for the file of this name (again)."""
        if self.spent < self._next_look.get(name, 0.0):
            return False
        self._next_look[name] = self.spent + _LOOK * self.compile_seconds
        return True

    def note(self, size: int, seconds: float) -> None:
        """A call with so many elements took so long."""
        self.spent += seconds
        self._rate = seconds / size


class Cold:
    """What this process has waited because functions were not compiled yet.

    Attributes:
        seconds: in which they ran as Python for the time being, or were compiled.
    """

    seconds = 0.0


def size_of(values: Iterable[Any]) -> int:
    """Elements of all arrays among the values and within their tuples, one at least."""
    return max(1, sum(map(_elements, values)))


def _elements(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


def compile_seconds(
    function: Callable[..., Any], called: Callable[[Any], Callable[..., Any] | None]
) -> float:
    """About the time of the processor that compiling takes; `called` gives the function behind what compiles it."""
    seen = {function}
    pending = [function]
    size = 0
    while pending:
        current = pending.pop()
        size += len(current.__code__.co_code)
        new = set(filter(None, map(called, _globals_of(current)))) - seen
        seen |= new
        pending += new
    return _START_SECONDS + size * _SECONDS_PER_BYTE


def _globals_of(function: Callable[..., Any]) -> Iterator[Any]:
    """What its module has for the names that it uses."""
    return map(function.__globals__.get, _names(function.__code__))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
