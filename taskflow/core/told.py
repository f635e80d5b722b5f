"""What can be told of a value without addresses of memory: equal on all ranks and from run to run.

Two functions may have one name: lambdas, those that a function makes, `kernel` of two programs. So what is kept by a
function's name is kept by a digest as well: of its code, what it closes over and what is bound to it.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    Enum,
    np.generic,
    np.dtype,
)
_DEEPEST = 8  # a function may close over itself


def digest_of_bytes(data: bytes) -> bytes:
    """A short hash."""
    return hashlib.blake2b(data, digest_size=8).digest()


def short_digest(value: object) -> bytes:
    """A short hash of what can be told of a value."""
    return digest_of_bytes(repr(told(value)).encode())


def told(value: Any, depth: int = 0) -> object:
    """What can be told of a value; objects of unknown types by their type."""
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, partial):
        return told((value.func, value.args, value.keywords), depth)
    if isinstance(value, MethodType):
        return told((value.__func__, value.__self__), depth)
    value = getattr(value, "py_func", value)  # of what numba compiled
    if isinstance(value, FunctionType):
        parts = value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__
        return value.__qualname__, told(parts, depth + 1)
    if isinstance(value, CellType):
        try:
            return told(value.cell_contents, depth)
        except ValueError:  # it is empty
            return None
    if isinstance(value, CodeType):
        return _told_code(value, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__qualname__, [
            told(getattr(value, f.name), depth + 1) for f in fields(value)
        ]
    return _told_data(value, depth)


def _told_data(value: Any, depth: int) -> object:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:  # its bytes are addresses
        return value.shape, told(value.tolist(), depth + 1)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, digest_of_bytes(value.tobytes())
    if isinstance(value, tuple | list):
        return [told(entry, depth + 1) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return [(str(key), told(entry, depth + 1)) for key, entry in value.items()]
    if isinstance(value, _PLAIN):
        return repr(value)
    name = getattr(
        value, "__qualname__", getattr(value, "__name__", None)
    )  # of a built-in function, a class, a module
    return type(value).__qualname__, getattr(value, "__module__", None) if name else None, name


@lru_cache(4096)
def _told_code(value: CodeType, depth: int) -> object:
    return value.co_code, value.co_names, told(value.co_consts, depth)
