"""CUDA C from expressions: one kernel that evaluates an expression, and sums or takes the maximum, in one pass.

Takes the steps of `ops.elementwise.expressions`; gives a kernel for each expression, dtypes and number of dimensions.
Arrays are read where they lie: each has a step per dimension, 0 where it is repeated. Numbers of half size are computed
with as float32 and rounded once. Sums are taken in a fixed order: results are equal from run to run.
Not yet run on hardware; the tests compile the sources for GPUs and run them as C++ against NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ops.cpu.tiles import Array, Context, origin
from taskflow import CudaSource

if TYPE_CHECKING:
    from ops.elementwise.expressions import Argument, Expression

Dtypes = tuple[tuple[str, str], ...]  # name, and dtype of its array or "" of a number
_COMMON = Path(__file__).parents[1] / "cuda" / "generated.cu"
_BLOCK = 256
_PART = 4096  # points that a block sums at least, where a sum is shared among blocks
_MOST_PARTS = 256

_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
}
_C = {
    **{name: f"{{}} {sign} {{}}" for name, sign in zip(("add", "subtract", "multiply", "divide"), "+-*/")},
    **{name: f"(A)({{}} {sign} {{}})" for name, sign in (("less", "<"), ("less_equal", "<="), ("greater", ">"))},
    **{
        name: f"(A)({{}} {sign} {{}})" for name, sign in (("greater_equal", ">="), ("equal", "=="), ("not_equal", "!="))
    },
    **{name: f"{name}({{}})" for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sqrt", "erf")},
    "power": "pow({}, {})",
    "negative": "-{}",
    "absolute": "fabs({})",
    "sign": "sign_of({})",
    "maximum": "larger({}, {})",
    "minimum": "smaller({}, {})",
    "where": "{} != 0 ? {} : {}",
}


@dataclass(frozen=True)
class _Layout:
    """Points of all arrays: extents, and per array the steps in elements, of as few dimensions as will do."""

    extents: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.extents, *(s for steps in self.steps for s in steps))


def evaluate(ctx: Context, expression: Expression, values: Mapping[str, Array | float], out: Array) -> None:
    """See `Expression.evaluate`."""
    if not out.size:
        return
    arrays, numbers = _operands(expression, values)
    layout = _layout(out.shape, [*arrays, out])
    source, name = _map(expression, _dtypes(expression, values), out.dtype.name, len(layout.extents))
    ctx.launch(source, name, out.size, *map(origin, [*arrays, out]), *numbers, *layout.numbers, out.size)


def reduce(
    ctx: Context,
    expression: Expression,
    values: Mapping[str, Array | float],
    out: Array,
    axes: Sequence[int],
    kind: str = "sum",
    divisor: float = 1.0,
) -> None:
    """`out` = sum or maximum (`kind`) of the expression over `axes`, divided by `divisor`; `out` keeps them as 1."""
    arrays, numbers = _operands(expression, values)
    shape = ctx.xp.broadcast_shapes(*(a.shape for a in arrays))
    kept = [0 if k in axes else n for k, n in enumerate(shape)]
    outer = _layout([n or 1 for n in kept], [_without(a, axes, len(shape)) for a in [*arrays, out]])
    inner = _layout([n if k in axes else 1 for k, n in enumerate(shape)], [_only(a, axes, len(shape)) for a in arrays])
    rows, points = prod(outer.extents), prod(inner.extents)
    if not rows:
        return
    parts = min(_MOST_PARTS, max(1, points // _PART)) if rows < _MOST_PARTS else 1
    dims = len(outer.extents), len(inner.extents)
    dtypes = _dtypes(expression, values)
    source, name = _reduction(expression, dtypes, out.dtype.name, *dims, kind)
    wide = "float64" if "float64" in (out.dtype.name, *(dtype for _, dtype in dtypes)) else "float32"
    partial = ctx.scratch(("partial", name), (rows * parts,), wide)
    arguments = (*map(origin, arrays), partial, *numbers, *outer.numbers, *inner.numbers, points, parts)
    ctx.launch(source, name, rows * parts * _BLOCK, *arguments)
    ctx.launch(source, f"{name}_end", rows, partial, origin(out), *outer.numbers, parts, float(divisor), rows)


# -- layouts -----------------------------------------------------------------------------------------------------------


def _operands(expression: Expression, values: Mapping[str, Array | float]) -> tuple[list[Array], list[float]]:
    """Arrays and numbers that occur, each in the order of the names."""
    found = [values[name] for name in expression.names]
    numbers = [float(v) for v in found if isinstance(v, int | float)]
    return [v for v in found if not isinstance(v, int | float)], numbers


def _dtypes(expression: Expression, values: Mapping[str, Array | float]) -> Dtypes:
    named = {name: values[name] for name in expression.names}
    return tuple((name, "" if isinstance(v, int | float) else v.dtype.name) for name, v in named.items())


def _layout(shape: Sequence[int], arrays: Sequence[Array]) -> _Layout:
    """Dimensions that lie alike in all arrays are one."""
    steps = [_steps(shape, a) for a in arrays]
    dims = [k for k, n in enumerate(shape) if n != 1]
    merged: list[list[int]] = [[k] for k in dims[:1]]
    for outer, k in pairwise(dims):
        if all(s[outer] == shape[k] * s[k] for s in steps):
            merged[-1].append(k)
        else:
            merged.append([k])
    extents = tuple(prod(shape[k] for k in group) for group in merged)
    return _Layout(extents, tuple(tuple(s[group[-1]] for group in merged) for s in steps))


def _steps(shape: Sequence[int], a: Array) -> list[int]:
    """Elements from one point to the next in every dimension of `shape`, to which `a` is broadcast."""
    lead = len(shape) - a.ndim
    own = [0 if n == 1 else stride // a.itemsize for n, stride in zip(a.shape, a.strides)]
    return [0] * lead + own


def _without(a: Array, axes: Sequence[int], ndim: int) -> Array:
    """`a` with one point in each of the axes."""
    lead = ndim - a.ndim
    return a[(*(slice(0, 1) if k + lead in axes else slice(None) for k in range(a.ndim)), ...)]


def _only(a: Array, axes: Sequence[int], ndim: int) -> Array:
    """`a` with one point in each of the other axes."""
    return _without(a, [k for k in range(ndim) if k not in axes], ndim)


# -- sources -----------------------------------------------------------------------------------------------------------


@cache
def _map(expression: Expression, dtypes: Dtypes, out: str, ndim: int) -> tuple[CudaSource, str]:
    code = _Code(expression, dtypes, out)
    signature = code.signature(f"{_TYPES[out]}* out", _sizes("n", "s", ndim, len(code.arrays) + 1), "long long count")
    body = f"""
  long long at = THREAD;
  if (at >= count) return;
{code.locate("s", "n", ndim, "at", ["out"])}
  out += out_at;
{code.body()}
  *out = {code.stored(out)};"""
    return _source(code, signature, body, "")


@cache
def _reduction(
    expression: Expression, dtypes: Dtypes, out: str, rows: int, ndim: int, kind: str
) -> tuple[CudaSource, str]:
    code = _Code(expression, dtypes, out)
    sizes = _sizes("n", "s", rows, len(code.arrays) + 1), _sizes("m", "t", ndim, len(code.arrays))
    signature = code.signature("A* partial", *sizes, "long long points, long long parts")
    combine = "total += s0" if kind == "sum" else "total = larger(total, s0)"
    first = "0" if kind == "sum" else "log((A)0)"  # minus infinity
    body = f"""
  __shared__ A shared[BLOCK];
  long long row = blockIdx.x / parts, part = blockIdx.x % parts;
  long long begin = points * part / parts, end = points * (part + 1) / parts;
{code.locate("s", "n", rows, "row", [])}
  A total = {first};
  for (long long at = begin + threadIdx.x; at < end; at += BLOCK) {{
{code.locate("t", "m", ndim, "at", [], "in_")}
{code.body("in_")}
    {combine};
  }}
  total = block_{kind}(total, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;"""
    end = f"""
  long long row = THREAD;
  if (row >= count) return;
{code.locate("s", "n", rows, "row", ["out"])}
  A total = partial[row * parts];
  for (long long at = 1; at < parts; ++at) {{
    A s0 = partial[row * parts + at];
    {combine};
  }}
  total = total / (A)divisor;
  out[out_at] = {_store("total", out)};"""
    rest = f"const A* partial, {_TYPES[out]}* out, {sizes[0]}long long parts, double divisor, long long count"
    return _source(code, signature, body, f'extern "C" __global__ void NAME_end({rest}) {{{end}\n}}')


def _source(code: _Code, signature: str, body: str, more: str) -> tuple[CudaSource, str]:
    text = f'typedef {code.wide} A;\nextern "C" __global__ void NAME({signature}) {{{body}\n}}\n{more}\n'
    name = f"generated_{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    return CudaSource(_COMMON, text.replace("NAME", name)), name


def _sizes(extent: str, step: str, ndim: int, arrays: int) -> str:
    """Parameters of a layout, with a comma behind."""
    names = [f"{extent}{d}" for d in range(ndim)] + [f"{step}{k}_{d}" for k in range(arrays) for d in range(ndim)]
    return "".join(f"long long {name}, " for name in names)


class _Code:
    """What kernels of one expression share."""

    def __init__(self, expression: Expression, dtypes: Dtypes, out: str) -> None:
        self.expression = expression
        self.arrays = {name: dtype for name, dtype in dtypes if dtype}
        self.numbers = [name for name, dtype in dtypes if not dtype]
        self.wide = "double" if "float64" in (out, *self.arrays.values()) else "float"

    def signature(self, *rest: str) -> str:
        """Parameters: arrays, the first of the rest, numbers, and the rest."""
        arrays = "".join(f"const {_TYPES[dtype]}* a_{name}, " for name, dtype in self.arrays.items())
        numbers = "".join(f"double number_{name}, " for name in self.numbers)
        return f"{arrays}{rest[0]}, {numbers}{''.join(rest[1:])}"

    def locate(self, step: str, extent: str, ndim: int, at: str, more: Sequence[str], mark: str = "") -> str:
        """Where point `at` lies in every array: variables <mark><name>_at."""
        points, lines = [f"{mark}{at}{d}" for d in range(ndim)], []
        inner = ""
        for d in reversed(range(ndim)):
            quotient = f"{at}{f' / ({inner})' if inner else ''}"
            lines.append(f"  long long {points[d]} = {quotient}{f' % {extent}{d}' if d else ''};")
            inner = f"{inner} * {extent}{d}" if inner else f"{extent}{d}"
        for k, name in enumerate([*self.arrays, *more]):
            place = " + ".join(f"{p} * {step}{k}_{d}" for d, p in enumerate(points)) or "0"
            lines.append(f"  long long {mark}{name}_at = {place};")
        return "\n".join(lines)

    def body(self, mark: str = "") -> str:
        """The value of the expression as `s0`."""
        lines = []
        for name in self.arrays:
            place = f"{name}_at + {mark}{name}_at" if mark else f"{name}_at"
            lines.append(f"  A v_{name} = (A)a_{name}[{place}];")
        lines += [f"  A v_{name} = (A)number_{name};" for name in self.numbers]
        slots = {0, *(step.slot for step in self.expression.steps)}
        lines.append(f"  A {', '.join(f's{k}' for k in sorted(slots))};")
        if not self.expression.steps:
            lines.append(f"  s0 = v_{self.expression.text};")
        for step in self.expression.steps:
            lines.append(f"  s{step.slot} = {_C[step.function].format(*map(_argument, step.arguments))};")
        return "\n".join(lines)

    @staticmethod
    def stored(out: str) -> str:
        """`s0` as the output has it."""
        return _store("s0", out)


def _argument(argument: Argument) -> str:
    if isinstance(argument, str):
        return f"v_{argument}"
    return f"(A){argument!r}" if isinstance(argument, float) else f"s{argument}"


def _store(value: str, out: str) -> str:
    return f"{value} != 0" if out == "bool" else f"({_TYPES[out]}){value}"
