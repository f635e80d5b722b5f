"""The decorators of compiled functions: numba's, with a cache on disk that misses no change (see `code_cache`).

`njit` is for what Python calls, `inner` and `leaf` for what only compiled functions call. Importing numba takes 0.3 s:
it waits for the first call of one of these functions, so that their modules are imported like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any, TypeVar, overload

__all__ = ["inlined", "inner", "leaf", "njit"]

_Result = TypeVar("_Result")
_Function = Callable[..., _Result]  # arguments are compiled for what types they have: NumPy's numbers serve as int


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


def inner(function: _Function[_Result]) -> _Function[_Result]:
    """For a function that only compiled functions call: it is a part of theirs, and has no code of its own."""
    return _Compiled(function, {"no_cpython_wrapper": True})


def leaf(function: _Function[_Result]) -> _Function[_Result]:
    """`inner` for a function that makes no array: without the counting of references to those it is given."""
    return _Compiled(function, {"no_cpython_wrapper": True, "_nrt": False})


def inlined(function: _Function[_Result]) -> _Function[_Result]:
    """`leaf` for a function that becomes a part of its callers, as if it were written there.

    A call copies every array that is passed on: a pass over 79,000 rows takes 2.0 ms with calls, 0.5 ms without.
    """
    return _Compiled(function, {"no_cpython_wrapper": True, "_nrt": False, "forceinline": True})


class _Compiled(partial[Any]):
    """A function of which numba makes a dispatcher when it is called, or met in one that is compiled.

    A `partial` of the dispatcher from then on: this adds 0.02 us to a call of 0.2 us, a `__call__` of Python's 0.1 us.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], is_kept: bool = False) -> None:
        update_wrapper(self, function)
        self._function, self._options, self._is_kept = function, options, is_kept
        self.__setstate__((self._first_call, (), {}, self.__dict__))

    def __new__(cls, function: Callable[..., Any], *_: object) -> _Compiled:
        """Nothing is compiled, and numba not imported."""
        return super().__new__(cls, function)

    def _first_call(self, *args: Any, **named: Any) -> Any:
        self.__setstate__((self._dispatcher, (), {}, self.__dict__))
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
        found = decorator(no_cfunc_wrapper=True, **self._options)(self._function)
        if self._is_kept and found is not self._function:  # NUMBA_DISABLE_JIT
            found._cache = CodeCache(self._function, self._options)
        return found
