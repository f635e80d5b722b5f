"""Keywords of older releases: they are taken with a warning, see docs/deprecated.md."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")


def renamed(
    old: str, new: str
) -> Callable[[Callable[_Options, _Result]], Callable[_Options, _Result]]:
    """A function, or the `__init__` of a class, whose keyword `new` was called `old`.

    Raises:
        TypeError: when it is called with both.
    """

    def decorate(function: Callable[_Options, _Result]) -> Callable[_Options, _Result]:
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: _Options.args, **options: _Options.kwargs) -> _Result:
            if old in options:
                if new in options:
                    raise TypeError(f"{name}: {old}= is what {new}= was called; give one of them")
                what = f"{name}({old}=) is of an older release: use {new}="
                warnings.warn(what, FutureWarning, stacklevel=2)
                options[new] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate
