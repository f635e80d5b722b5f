"""The decorators of compiled functions: numba's, with a cache on disk that misses no change (see `code_cache`).

`njit` is for kernels, which are compiled when they are first called; `tiered` for other functions that Python calls,
which run as Python until they are hot (see `tiers`); `inner` and `leaf` for what only these call. Importing numba takes
0.3 s: it waits until something is compiled, so that their modules are imported like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from threading import local
from time import perf_counter, thread_time
from typing import Any, TypeVar, overload

import numpy as np

from taskflow.core import ahead, code_folders, tiers
from taskflow.core.columns import with_attributes

__all__ = ["inlined", "inner", "leaf", "njit", "tiered"]

_Result = TypeVar("_Result")
# Arguments are compiled for what types they have: NumPy's numbers serve as int.
_Function = Callable[..., _Result]


@overload
def njit(function: _Function[_Result], /) -> _Function[_Result]: ...
@overload
def njit(**options: Any) -> Callable[[_Function[_Result]], _Function[_Result]]: ...
def njit(function: Any = None, /, **options: Any) -> Any:
    """`numba.njit` with a cache that holds what a function calls in its key: use it as that, with or without options.

    Compiled code is kept in `NUMBA_CACHE_DIR`, or the user's folder for caches. A change in a file of compiled
    functions, or of a constant that they name, makes a new key for all that may use it.
    """
    return partial(njit, **options) if function is None else _Compiled(function, options, True)


def tiered(function: _Function[_Result]) -> _Function[_Result]:
    """`njit` for a function that is ordinary Python, too: it runs as that while compiling it would take longer.

    What it calls runs as Python then, whatever is compiled of it.
    """
    return _Tiered(function, {}, True)


def inner(function: _Function[_Result]) -> _Function[_Result]:
    """For a function that only compiled functions call: it is a part of theirs, and has no code of its own."""
    return _Part(function, {"no_cpython_wrapper": True})


def leaf(function: _Function[_Result]) -> _Function[_Result]:
    """`inner` for a function that makes no array: without the counting of references to those it is given."""
    return _Part(function, {"no_cpython_wrapper": True, "_nrt": False})


def inlined(function: _Function[_Result]) -> _Function[_Result]:
    """`leaf` for a function that becomes a part of its callers, as if it were written there.

    A call copies every array that is passed on: a pass over 79,000 rows takes 2.0 ms with calls, 0.5 ms without.
    """
    return _Part(function, {"no_cpython_wrapper": True, "_nrt": False, "forceinline": True})


class _Compiled(partial[Any]):
    """A function of which numba makes a dispatcher when it is called, or met in one that is compiled.

    A `partial` of the dispatcher from then on: this adds 0.02 us to a call of 0.2 us, a `__call__` of Python's 0.1 us.
    """

    _calls_inner = False

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], is_kept: bool = False
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._options = options
        self._is_kept = is_kept
        self._become(self._first_call)

    def __new__(cls, function: Callable[..., Any], *_: object) -> _Compiled:
        """Nothing is compiled, and numba not imported."""
        return super().__new__(cls, function)

    def _become(self, function: Callable[..., Any]) -> None:
        """From now on a call is one of `function`."""
        self.__setstate__((function, (), {}, self.__dict__))

    def _first_call(self, *args: Any, **named: Any) -> Any:
        self._become(self._dispatcher)
        return self._dispatcher(*args, **named)

    def __getattr__(self, name: str) -> Any:
        """What else numba, or who looks into it, asks of a dispatcher."""
        return getattr(self._dispatcher, name)

    @cached_property
    def _dispatcher(self) -> Any:
        import numba

        from taskflow.core.code_cache import CodeCache
        from taskflow.core.linking import build_late

        build_late()
        decorator: Any = numba.njit  # has no types for the options that it does not speak of
        dispatcher = decorator(no_cfunc_wrapper=True, **self._options)(self._function)
        if self._is_kept and dispatcher is not self._function:  # NUMBA_DISABLE_JIT
            dispatcher._cache = CodeCache(self._function, self._options, self._calls_inner)
        return dispatcher


class _Part(_Compiled):
    """What Python calls only while it interprets what calls it."""

    def _first_call(self, *args: Any, **named: Any) -> Any:
        self._become(self._function)
        return self._function(*args, **named)

    @cached_property
    def _dispatcher(self) -> Any:
        """It is compiled for types; numba would compile it anew for each number that a caller writes out."""
        from numba.core import types

        dispatcher = super()._dispatcher
        if dispatcher is self._function:  # NUMBA_DISABLE_JIT
            return dispatcher
        unliteral: Any = types.unliteral  # mypy knows no types of it
        template = dispatcher.get_call_template

        def for_types(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return template([*map(unliteral, args)], {k: unliteral(v) for k, v in named.items()})

        dispatcher.get_call_template = for_types
        return dispatcher


_interpreter = local()  # of each thread `is_busy`: whether it interprets a tiered function


class _Tiered(_Compiled):
    """See `tiered`."""

    _calls_inner = True

    def _first_call(self, *args: Any, **named: Any) -> Any:
        mode = tiers.mode()
        if mode == tiers.ALWAYS:
            return super()._first_call(*args, **named)
        self._become(partial(self._interpret, 1) if mode == tiers.NEVER else self._cold_call)
        return self(*args, **named)

    def _cold_call(self, *args: Any, **named: Any) -> Any:
        """A call while it is not compiled."""
        if getattr(_interpreter, "is_busy", False):
            return self._function(*args, **named)
        size = tiers.size_of(args)
        begin = perf_counter()
        try:
            if self._temperature.is_hot(size) or self._is_at_hand(args):
                self._become(self._dispatcher)
                return self._dispatcher(*args, **named)
            return self._interpret(size, *args, **named)
        finally:
            tiers.Cold.seconds += perf_counter() - begin

    def _interpret(self, size: int, *args: Any, **named: Any) -> Any:
        """Run as Python, with integers that wrap around without a warning, as compiled ones do."""
        if getattr(_interpreter, "is_busy", False):
            return self._function(*args, **named)
        _interpreter.is_busy = True
        begin = thread_time()
        try:
            with np.errstate(all="ignore"):
                return _plain(self._function(*map(_readable, args), **named))
        finally:
            _interpreter.is_busy = False
            self._temperature.note(size, thread_time() - begin)

    @property
    def _is_warm(self) -> bool:
        return self._temperature.is_warm()

    @cached_property
    def _asked(self) -> set[str]:
        return set()

    @cached_property
    def _temperature(self) -> tiers.Temperature:
        return tiers.Temperature(tiers.compile_seconds(self._function, _function_of))

    @cached_property
    def _names(self) -> dict[bytes, str | None]:
        """Of the files with code for arguments as they were met, by the fingerprint that numba takes of their types."""
        return {}

    def _is_at_hand(self, args: tuple[Any, ...]) -> bool:
        """Whether it is on disk, compiled for such arguments; who runs for long as Python asks for that."""
        if not (self._is_warm or f"{self.__module__}.{self.__name__}" in code_folders.functions()):
            return False
        name = self._name(args)
        if not name or not self._temperature.is_due(name):
            return False
        if code_folders.has(name):
            return True
        if self._is_warm and name not in self._asked:
            self._asked.add(name)
            ahead.ask(name, (self.__module__, self.__name__), self._types(args))
        return False

    def _name(self, args: tuple[Any, ...]) -> str | None:
        """The name of the file that has it compiled for such arguments.

        Types take numba 100 us and the name 500 us, their fingerprint 0.3 us.
        """
        from numba._dispatcher import compute_fingerprint

        try:
            fingerprint = compute_fingerprint(args)
        except NotImplementedError:  # numba takes none of some types, such as functions
            return self._new_name(args)
        if fingerprint not in self._names:
            self._names[fingerprint] = self._new_name(args)
        return self._names[fingerprint]

    def _new_name(self, args: tuple[Any, ...]) -> str | None:
        dispatcher = self._dispatcher
        name: str | None = dispatcher._cache.name_of(
            self._types(args), dispatcher.targetctx.codegen()
        )
        return name

    def _types(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(self._dispatcher.typeof_pyval, args))


def _readable(value: Any) -> Any:
    """An argument whose records have attributes; those that compiled code has made have none."""
    if isinstance(value, np.ndarray) and value.dtype.type is np.void:
        return value.view(with_attributes(value.dtype))
    return _each(_readable, value) if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    """A result whose numbers are Python's, as those of compiled functions are."""
    if isinstance(value, np.generic):
        return value.item()
    return _each(_plain, value) if isinstance(value, tuple) else value


def _each(change: Callable[[Any], Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple, which may have names, of what is changed."""
    changed = [change(value) for value in values]
    if all(new is old for new, old in zip(changed, values, strict=True)):
        return values
    return type(values)(*changed) if hasattr(values, "_fields") else tuple(changed)


def _function_of(value: Any) -> Callable[..., Any] | None:
    """The function behind what one of these decorators has made."""
    return value._function if isinstance(value, _Compiled) else None
