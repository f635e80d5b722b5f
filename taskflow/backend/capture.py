"""Captured kernels: their calls are noted once and repeated in every step, on CPUs as CUDA graphs do it on GPUs.

A kernel looks at shapes and strides, makes views, and calls a few functions of NumPy or numba. The first part is the
same in every step, takes longer than a small product, and holds the interpreter's lock against the other threads. So
an executor runs a captured kernel once on a context that notes what it calls, and keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from taskflow.backend.context import Array, Context
from taskflow.core.geometry import Rect

Call = Callable[[], object]

_NUMBERS = bool, int, float, complex, np.number, np.bool_
_VIEWS = frozenset(("broadcast_shapes", "broadcast_to", "dtype"))  # of NumPy: what reads no values


def note_calls(function: Callable[..., None], context: Context, arrays: Sequence[Array]) -> Call:
    """What the function of a captured kernel calls on these arrays, as one call.

    Raises:
        TypeError: it calls what cannot be noted.
    """
    noting = _Noting(context)
    function(noting, *arrays)
    calls = noting.calls
    return calls[0] if len(calls) == 1 else partial(call_each, calls)


def call_each(calls: Sequence[Call]) -> None:
    """Several calls as one."""
    for call in calls:
        call()


def _compiled(function: Callable[..., object], args: Sequence[object]) -> Callable[..., object]:
    """What numba compiled of a function for just these types: it need not look at them in every step (0.1 us or more).

    The function itself where it is not numba's, has defaults, or may only be compiled for types of its own.
    """
    numba: Any = function
    if (
        not hasattr(function, "typeof_pyval")
        or numba.py_func.__defaults__
        or not numba._can_compile
    ):
        return function
    entries = _ENTRIES.setdefault(function, {})
    kinds = tuple(map(_kind, args))
    try:
        compiled = entries.get(kinds)
    except TypeError:  # an argument cannot be looked up: a list, say
        return function
    return compiled or entries.setdefault(
        kinds, numba.compile(tuple(map(numba.typeof_pyval, args)))
    )


_ENTRIES: WeakKeyDictionary[Callable[..., object], dict[object, Callable[..., object]]] = (
    WeakKeyDictionary()
)


def _kind(value: object) -> object:
    """What is equal for values of one type of numba's: finding that out takes 20 us."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.num
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    return type(value) if isinstance(value, _NUMBERS) else value


class _Noting(Context):
    """The context of a point on which calls are noted, and not made."""

    __slots__ = ("calls", "plain", "xp")

    def __init__(self, context: Context) -> None:
        at = context.point, context.ahead, context.added, context.pace
        super().__init__(context.boxes, None, context._run, context._workspace, *at)
        self.calls: list[Call] = []
        self.plain = context
        self.xp = _Numpy(self.calls)

    def part(
        self,
        rects: Sequence[Rect],
        intervals: Mapping[str, tuple[int, int]],
        is_alike: bool = True,
    ) -> Context:
        part = super().part(rects, intervals, is_alike)
        assert isinstance(part, _Noting)
        part.plain = self.plain.part(rects, intervals, is_alike)
        return part

    def call(self, function: Callable[..., object], *args: object) -> None:
        self.calls.append(partial(_compiled(function, args), *args))

    def each_step(self, function: Callable[..., object], *args: object) -> None:
        self.calls.append(partial(function, self.plain, *args))


class _Numpy:
    """NumPy's functions, which note their calls: of those that write into an array."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        return (
            attribute
            if name in _VIEWS or not callable(attribute)
            else partial(self._note, attribute, name)
        )

    def _note(
        self, function: Callable[..., object], name: str, *args: object, **options: object
    ) -> object:
        if name != "copyto" and options.get("out") is None:
            raise TypeError(
                f"a captured kernel calls numpy.{name} without `out`, so it cannot be repeated"
            )
        self._calls.append(partial(function, *args, **options))
        return options.get("out")
