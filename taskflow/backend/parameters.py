"""Parameters of CUDA kernels: read from their source, and what a launch may pass for them.

A GPU gets bits: an integer passed for a double is another number, and an array of float32 read as half is garbage, both
without a word. So a source is read for the parameters of its kernels (`parameters_of`), and a launch is held to them
(`Signature.hold`): numbers are converted to the parameter's type, all else that differs is refused by kernel and
parameter.

    text of a source:  #define SCALE(T, name) extern "C" __global__ void scale_##name(T* x, double s) {...}
                       SCALE(float, float32)
    signatures:        {"scale_float32": Signature("scale_float32", (x: float*, s: double))}
    launch:            x, 3  ->  x, np.float64(3)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from taskflow.backend.macros import Macros
from taskflow.core.columns import Array

C_TYPES = {
    "bool": "bool",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
}  # dtype -> the type of `taskflow/types.cu` or of C that holds its numbers
_SPELLINGS = {
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "unsigned int": "uint32",
    "long": "int64",
    "long int": "int64",
    "long long int": "int64",
    "unsigned long": "uint64",
    "unsigned long int": "uint64",
    "unsigned long long int": "uint64",
    "short int": "int16",
    "unsigned short int": "uint16",
    "ptrdiff_t": "int64",
    "size_t": "uint64",
    **{f"{dtype}_t": dtype for dtype in C_TYPES if "int" in dtype},
}
_DTYPES = {stored: dtype for dtype, stored in C_TYPES.items()} | _SPELLINGS  # C type -> dtype
_BOUNDS = r"(?:[\w\s]*__launch_bounds__\s*\([^)]*\))?"
_KERNEL = re.compile(rf"__global__{_BOUNDS}[\w\s]*?\b(\w+)\s*\(([^)]*)\)")
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;")
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([\w\s]+?)\s*;")
_QUALIFIERS = {
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "struct",
    "__grid_constant__",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a CUDA kernel.

    Attributes:
        name: in the source.
        type: of C, as `const float*`.
        dtype: of the numbers that a pointer leads to, or of the number; empty: a type of the source's own.
        is_pointer: whether an array is passed.
    """

    name: str
    type: str
    dtype: str
    is_pointer: bool

    def hold(self, value: object) -> Array | np.generic:
        """What is passed for `value`: an array as it is, or a number of the parameter's type.

        Raises:
            TypeError: an array of another dtype, an array for a number, or the other way round.
            ValueError: a number that the type cannot hold.
        """
        if self.is_pointer:
            return self._array(value)
        if getattr(value, "shape", ()) or not isinstance(value, Real | np.bool_ | np.generic):
            raise TypeError(f"the argument is {_text(value)}")
        return self._number(value)

    def _array(self, value: Any) -> Array | np.generic:
        dtype = getattr(value, "dtype", None)
        if isinstance(value, np.generic) or dtype is None:
            if type(value) is int and value == 0:
                return np.uint64(0)  # a null pointer
            raise TypeError(f"the argument is {_text(value)}")
        if self.dtype and dtype.name != self.dtype:
            raise TypeError(f"the argument is {_text(value)}")
        return value  # type: ignore[no-any-return]

    def _number(self, value: Any) -> np.generic:
        dtype = np.dtype(self.dtype)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                number = dtype.type(float(value))
            if np.isinf(number) and not np.isinf(float(value)):
                raise ValueError(f"{value!r} does not fit")
            return number  # type: ignore[no-any-return]
        try:
            whole = int(value) if isinstance(value, bool | np.bool_) else operator.index(value)
        except TypeError:
            raise TypeError(f"the argument is {_text(value)}") from None
        if dtype.kind == "b":
            return np.bool_(whole)
        bounds = np.iinfo(dtype)
        if not bounds.min <= whole <= bounds.max:
            raise ValueError(f"{whole} does not fit")
        return dtype.type(whole)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Signature:
    """A CUDA kernel and its parameters."""

    kernel: str
    parameters: tuple[Parameter, ...]

    def hold(self, args: Sequence[object]) -> list[Array | np.generic]:
        """The arguments of a launch as the kernel takes them; see `Parameter.hold`.

        Raises:
            TypeError: there are too many or too few, or one is of another kind or dtype than its parameter.
            ValueError: a number does not fit.
        """
        if len(args) != len(self.parameters):
            raise TypeError(f"CUDA kernel '{self.kernel}': {self._count(len(args))}")
        held = []
        for parameter, value in zip(self.parameters, args):
            try:
                held.append(parameter.hold(value))
            except (TypeError, ValueError) as error:
                where = (
                    f"CUDA kernel '{self.kernel}': parameter '{parameter.name}' is {parameter.type}"
                )
                raise type(error)(f"{where}, and {error}") from None
        return held

    def _count(self, given: int) -> str:
        names = [parameter.name for parameter in self.parameters]
        text = f"it takes {len(names)} arguments ({', '.join(names)}), not {given}"
        return f"{text}: '{names[given]}' is missing" if given < len(names) else text


def _text(value: Any) -> str:
    """What was passed, in words."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or isinstance(value, np.generic):
        return f"the {type(value).__name__} {value!r}"
    return f"an array of {dtype}"


# -- reading a source --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceFacts:
    """What a text of CUDA C defines: macros, names of types, and kernels by name."""

    macros: Macros
    types: Mapping[str, str]
    signatures: Mapping[str, Signature]

    def and_of(self, text: str) -> SourceFacts:
        """The same with what stands in more text, which is behind the rest."""
        macros, code = self.macros.and_of(text)
        types = {
            **self.types,
            **{name: old for old, name in _TYPEDEF.findall(code)},
            **dict(_USING.findall(code)),
        }
        signatures = {
            name: Signature(name, tuple(_parameters(rest, types)))
            for name, rest in _KERNEL.findall(code)
        }
        return SourceFacts(macros, types, {**self.signatures, **signatures})


NOTHING = SourceFacts(Macros({}), {}, {})  # of an empty text


def _parameters(text: str, types: Mapping[str, str]) -> Iterator[Parameter]:
    """Parameters of a list that stands in parentheses; macros are spelled out in it."""
    for part in filter(None, (part.strip() for part in text.split(","))):
        words = re.findall(r"\w+|\*", part)
        name = words.pop()
        is_pointer = "*" in words
        if not words:
            continue  # (void)
        kept = " ".join(word for word in words if word not in _QUALIFIERS and word != "*")
        shown = " ".join(word for word in words if word != "*" and not word.startswith("__"))
        yield Parameter(
            name,
            shown + "*" * words.count("*"),
            _dtype_of(_resolve(kept, types), words.count("*")),
            is_pointer,
        )


def _resolve(stored: str, types: Mapping[str, str]) -> str:
    for _ in range(len(types) + 1):
        if stored in _DTYPES or stored not in types:
            break
        stored = types[stored]
    return stored


def _dtype_of(stored: str, pointers: int) -> str:
    return _DTYPES.get(stored, "") if pointers < 2 else ""
