"""CUDA C from programs and expressions: one kernel for a pass, for a sum or for a maximum.

Takes the steps of `ops.expressions.expression`; gives a kernel for each pass, dtypes and number of dimensions. Arrays
are read where they lie: each has a step per dimension, 0 where it is repeated. Numbers of half size are computed with
as float32 and rounded once. Sums are taken in a fixed order: results are equal from run to run. They ran on an
H200 on 2026-11-27, in five precisions, right but for batch norm, whose count went there as an integer. Tests compile
the sources for GPUs and run them as C++.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np

from ops.expressions.expression import COMPARISONS, OF_C, Argument, Expression
from ops.expressions.program import OUT, Pass, result_of, value_in
from ops.tiles import block_tables, origin
from taskflow import Array, Context, CudaSource

T = TypeVar("T")
Dtypes = tuple[tuple[str, str], ...]  # name, and dtype of its array, "" of a number, or _CELL
_COMMON = Path(__file__).with_suffix(".cu")
_BLOCK = 256
_PART = 4096  # points that a block sums at least, where a sum is shared among blocks
_MOST_PARTS = 256
_LANES = 32  # of a warp
_SHARE = 16 * _BLOCK  # elements of a point among several that one block computes
_CELL = "cell"  # an array of one number of float64, of the host, whatever the dtype of the others

_C = {
    **{
        name: f"{{}} {sign} {{}}"
        for name, sign in zip(("add", "subtract", "multiply", "divide"), "+-*/")
    },
    **{name: f"(A)({{}} {sign} {{}})" for name, sign in COMPARISONS.items()},
    **{name: f"{name}({{}})" for name in OF_C},
    "power": "pow({}, {})",
    "fmod": "fmod({}, {})",
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
    def points(self) -> int:
        return prod(self.extents)

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.extents, *(s for steps in self.steps for s in steps))


def evaluate(
    ctx: Context, expression: Expression, values: Mapping[str, Array | float], out: Array
) -> None:
    """See `ops.expressions.passes.evaluate`."""
    arrays, numbers = _operands(expression, values)
    run(ctx, result_of(expression), arrays | {OUT: out}, numbers)


def run(
    ctx: Context,
    one: Pass,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, float],
    cells: Mapping[str, Array] | None = None,
) -> None:
    """Run a pass on arrays and numbers by name; `cells` are numbers of float64 on the device.

    Arrays that are set have all points, and may be read, too. Sums are kernels of their own, after the others.
    """
    if targets := [name for name in arrays if name in one.maps]:
        out = arrays[targets[0]]
        if out.size:
            _run_maps(ctx, one, out, arrays, numbers, cells or {})
    for a in one.assignments:
        if a.is_sum:
            value = value_in(one, a, frozenset(arrays))
            total = arrays[a.target]
            ndim = max(arrays[name].ndim for name in value.names if name in arrays)
            total = total[(*[None] * (ndim - total.ndim), ...)]
            axes = [k for k, n in enumerate(total.shape) if n == 1]
            reduce(ctx, value, {**arrays, **numbers}, total, axes)


def _run_maps(
    ctx: Context,
    one: Pass,
    out: Array,
    arrays: Mapping[str, Array],
    numbers: Mapping[str, float],
    cells: Mapping[str, Array],
) -> None:
    """The assignments that are no sums, in one launch; `out` is one that is set."""
    arrays = _used(one, arrays)
    numbers = _used(one, numbers)
    cells = _used(one, cells)
    layout = _layout(out.shape, list(arrays.values()))
    source, name = _map(one, _dtypes(arrays, numbers, cells), len(layout.extents))
    ctx.launch(
        source,
        name,
        out.size,
        *map(origin, arrays.values()),
        *cells.values(),
        *numbers.values(),
        *layout.numbers,
        out.size,
    )


def run_together(
    ctx: Context,
    one: Pass,
    points: Sequence[Mapping[str, Array]],
    numbers: Mapping[str, float],
    cells: Mapping[str, Array],
) -> Callable[[], None]:
    """A call that does `run` for several points in one launch.

    The arrays of a point have one size and no gaps; those of shape () are equal in all points.
    """
    arrays = _used(one, points[0])
    numbers = _used(one, numbers)
    cells = _used(one, cells)
    large = tuple(name for name in arrays if arrays[name].ndim)
    tables = _tables(ctx, points, large)
    return partial(
        ctx.launch,
        *_map_many(one, _dtypes(arrays, numbers, cells), large),
        tables[1].size // 2 * _BLOCK,
        *(arrays[name] for name in arrays if name not in large),
        *cells.values(),
        *tables,
        *numbers.values(),
        _SHARE,
        block=_BLOCK,
    )


def _tables(
    ctx: Context, points: Sequence[Mapping[str, Array]], large: Sequence[str]
) -> list[Array]:
    """Where the arrays of every point lie, and how many elements they have; of every block its point and begin."""
    rows = [
        [*(ctx.address(point[name]) for name in large), point[large[0]].size] for point in points
    ]
    return block_tables(ctx, rows, _SHARE)


def _used(one: Pass, values: Mapping[str, T]) -> dict[str, T]:
    """What the assignments that are no sums need."""
    return {name: value for name, value in values.items() if name in one.mapped}


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
    named, numbers = _operands(expression, values)
    arrays = list(named.values())
    outer, inner = _around(arrays, out, ctx.xp.broadcast_shapes(*(a.shape for a in arrays)), axes)
    if not outer.points:
        return
    lanes = _lanes(arrays, outer, inner)
    blocks = -(-outer.points // lanes)
    parts = min(_MOST_PARTS, max(1, inner.points * lanes // _PART)) if blocks < _MOST_PARTS else 1
    source, name = _reduction(
        expression,
        _dtypes(named, numbers),
        out.dtype.name,
        len(outer.extents),
        len(inner.extents),
        kind,
    )
    is_wide = "float64" in [a.dtype.name for a in (out, *arrays)]
    dtype = "float64" if is_wide else "float32"
    sums = ctx.scratch(("partial", name), (outer.points * parts,), dtype)
    ctx.launch(
        source,
        name,
        blocks * parts * _BLOCK,
        *map(origin, arrays),
        sums,
        *numbers.values(),
        *outer.numbers,
        *inner.numbers,
        inner.points,
        parts,
        outer.points,
        lanes,
    )
    ctx.launch(
        source,
        f"{name}_end",
        outer.points,
        sums,
        origin(out),
        *outer.numbers,
        parts,
        divisor,
        outer.points,
    )


def _around(
    arrays: Sequence[Array], out: Array, shape: Sequence[int], axes: Sequence[int]
) -> tuple[_Layout, _Layout]:
    """The layout of what is kept, with `out` as the last array, and of what is summed over `axes` of `shape`."""
    kept = [1 if k in axes else n for k, n in enumerate(shape)]
    summed = [n if k in axes else 1 for k, n in enumerate(shape)]
    return (
        _layout(kept, [_without(a, axes, len(shape)) for a in (*arrays, out)]),
        _layout(summed, [_only(a, axes, len(shape)) for a in arrays]),
    )


def _lanes(arrays: Sequence[Array], outer: _Layout, inner: _Layout) -> int:
    """So many sums a block makes side by side: several where they lie beside each other, what is summed does not."""
    largest = max(range(len(arrays)), key=lambda k: arrays[k].size)
    apart = [step for step in inner.steps[largest] if step]
    is_beside = bool(outer.extents) and outer.steps[largest][-1] == 1 and min(apart, default=1) > 1
    return min(_LANES, 1 << (prod(outer.extents) - 1).bit_length()) if is_beside else 1


# -- layouts -----------------------------------------------------------------------------------------------------------


def _operands(
    expression: Expression, values: Mapping[str, Array | float]
) -> tuple[dict[str, Array], dict[str, float]]:
    """Arrays and numbers that occur, each in the order of the names."""
    operands = {name: values[name] for name in expression.names}
    numbers = {
        name: float(v) for name, v in operands.items() if isinstance(v, int | float | np.number)
    }
    return {
        name: v for name, v in operands.items() if not isinstance(v, int | float | np.number)
    }, numbers


def _dtypes(
    arrays: Mapping[str, Array], numbers: Iterable[str], cells: Iterable[str] = ()
) -> Dtypes:
    of_arrays = ((name, a.dtype.name) for name, a in arrays.items())
    return *of_arrays, *((name, "") for name in numbers), *((name, _CELL) for name in cells)


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
    steps = [0 if n == 1 else stride // a.itemsize for n, stride in zip(a.shape, a.strides)]
    return [0] * lead + steps


def _without(a: Array, axes: Sequence[int], ndim: int) -> Array:
    """`a` with one point in each of the axes."""
    lead = ndim - a.ndim
    return a[(*(slice(0, 1) if k + lead in axes else slice(None) for k in range(a.ndim)), ...)]


def _only(a: Array, axes: Sequence[int], ndim: int) -> Array:
    """`a` with one point in each of the other axes."""
    return _without(a, [k for k in range(ndim) if k not in axes], ndim)


# -- sources -----------------------------------------------------------------------------------------------------------


@cache
def _map(one: Pass, dtypes: Dtypes, ndim: int) -> tuple[CudaSource, str]:
    code = _Code(dtypes, one.targets)
    signature = code.signature(_sizes("n", "s", ndim, len(code.arrays)), "long long count")
    body = f"""
  long long at = THREAD;
  if (at >= count) return;
{code.locate("s", "n", ndim, "at", [])}
{code.read(one.reads)}
{code.assigned(one)}"""
    return _source(code, signature, body, "")


@cache
def _map_many(one: Pass, dtypes: Dtypes, large: tuple[str, ...]) -> tuple[CudaSource, str]:
    """A block for each part: a row of `table` has the addresses of the large arrays of a point and their size; one of
    `starts` the number of a point, and the first element of the part.
    """
    code = _Code(dtypes, one.targets)
    width = len(large)
    types = [CudaSource.c_type(code.arrays[name]) for name in large]
    pointers = "\n".join(
        f"  {code.pointer(name)} = ({types[k]}*)row[{k}];" for k, name in enumerate(large)
    )
    tables = "const long long* table, const long long* starts, "
    scalars = [name for name in code.arrays if name not in large]
    signature = code.signature("", "long long part", scalars, tables)
    places = "\n".join(
        f"  long long {name}_at = {'at' if name in large else 0};" for name in code.arrays
    )
    body = f"""
  const long long* row = table + starts[2 * blockIdx.x] * {width + 1};
  long long begin = starts[2 * blockIdx.x + 1], end = begin + part < row[{width}] ? begin + part : row[{width}];
{pointers}
  for (long long at = begin + threadIdx.x; at < end; at += BLOCK) {{
{places}
{code.read(one.reads)}
{code.assigned(one)}
  }}"""
    return _source(code, signature, body, "")


@cache
def _reduction(
    expression: Expression, dtypes: Dtypes, out: str, rows: int, ndim: int, kind: str
) -> tuple[CudaSource, str]:
    code = _Code(dtypes, wide="double" if out == "float64" else "float")
    sizes = _sizes("n", "s", rows, len(code.arrays) + 1), _sizes("m", "t", ndim, len(code.arrays))
    counts = "long long points, long long parts, long long rows, long long lanes"
    signature = code.signature("".join(sizes), counts, first="A* partial, ")
    combine = "total += s0" if kind == "sum" else "total = larger(total, s0)"
    first = "0" if kind == "sum" else "log((A)0)"  # minus infinity
    body = f"""
  __shared__ A shared[BLOCK];
  int width = (int)lanes, lane = (int)threadIdx.x % width, beside = BLOCK / width;
  long long row = blockIdx.x / parts * lanes + lane, part = blockIdx.x % parts;
  long long begin = points * part / parts, end = row < rows ? points * (part + 1) / parts : begin;
{code.locate("s", "n", rows, "row", [])}
  A total = {first};
  for (long long at = begin + (int)threadIdx.x / width; at < end; at += beside) {{
{code.locate("t", "m", ndim, "at", [], "in_")}
{code.read(expression.names, "in_")}
{code.steps(expression)}
    {combine};
  }}
  if (width == 1) total = block_{kind}(total, shared);
  shared[threadIdx.x] = total;
  __syncthreads();
  for (int at = width > 1 && threadIdx.x < width ? lane + width : BLOCK; at < BLOCK; at += width) {{
    A s0 = shared[at];
    {combine};
  }}
  if (threadIdx.x < width && row < rows) partial[row * parts + part] = total;"""
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
    arrays = f"const A* partial, {CudaSource.c_type(out)}* out"
    rest = f"{arrays}, {sizes[0]}long long parts, double divisor, long long count"
    return _source(
        code, signature, body, f'extern "C" __global__ void NAME_end({rest}) {{{end}\n}}'
    )


def _source(code: _Code, signature: str, body: str, more: str) -> tuple[CudaSource, str]:
    text = f'typedef {code.wide} A;\nextern "C" __global__ void NAME({signature}) {{{body}\n}}\n{more}\n'
    name = f"generated_{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    return CudaSource(_COMMON, text.replace("NAME", name)), name


def _sizes(extent: str, step: str, ndim: int, arrays: int) -> str:
    """Parameters of a layout, with a comma behind."""
    names = [f"{extent}{d}" for d in range(ndim)] + [
        f"{step}{k}_{d}" for k in range(arrays) for d in range(ndim)
    ]
    return "".join(f"long long {name}, " for name in names)


class _Code:
    """What kernels of the same names share."""

    def __init__(self, dtypes: Dtypes, targets: Collection[str] = (), wide: str = "float") -> None:
        self.arrays = {name: dtype for name, dtype in dtypes if dtype and dtype != _CELL}
        self.numbers = [name for name, dtype in dtypes if not dtype]
        self.cells = [name for name, dtype in dtypes if dtype == _CELL]
        self.targets = targets
        self.wide = "double" if "float64" in self.arrays.values() else wide

    def signature(
        self, sizes: str, last: str, arrays: Iterable[str] | None = None, first: str = ""
    ) -> str:
        """Parameters: arrays, cells, the first of the rest, numbers, and the rest."""
        pointers = "".join(
            f"{self.pointer(name)}, " for name in (self.arrays if arrays is None else arrays)
        )
        cells = "".join(f"const double* a_{name}, " for name in self.cells)
        numbers = "".join(f"double number_{name}, " for name in self.numbers)
        return f"{pointers}{cells}{first}{numbers}{sizes}{last}"

    def pointer(self, name: str) -> str:
        """Declares where an array begins."""
        return f"{'' if name in self.targets else 'const '}{CudaSource.c_type(self.arrays[name])}* a_{name}"

    def locate(
        self, step: str, extent: str, ndim: int, at: str, more: Sequence[str], mark: str = ""
    ) -> str:
        """Where point `at` lies in every array: variables <mark><name>_at."""
        points = [f"{mark}{at}{d}" for d in range(ndim)]
        lines = []
        inner = ""
        for d in reversed(range(ndim)):
            quotient = f"{at}{f' / ({inner})' if inner else ''}"
            lines.append(f"  long long {points[d]} = {quotient}{f' % {extent}{d}' if d else ''};")
            inner = f"{inner} * {extent}{d}" if inner else f"{extent}{d}"
        for k, name in enumerate([*self.arrays, *more]):
            place = " + ".join(f"{p} * {step}{k}_{d}" for d, p in enumerate(points)) or "0"
            lines.append(f"  long long {mark}{name}_at = {place};")
        return "\n".join(lines)

    def read(self, names: Collection[str], mark: str = "") -> str:
        """Variables v_<name> with the first values of names, and v_<name> of what is set without being read."""
        lines = []
        for name in (n for n in self.arrays if n in names):
            place = f"{name}_at + {mark}{name}_at" if mark else f"{name}_at"
            lines.append(f"  A v_{name} = (A)a_{name}[{place}];")
        lines += [f"  A v_{name} = (A)number_{name};" for name in self.numbers]
        return "\n".join([*lines, *(f"  A v_{name} = (A)a_{name}[0];" for name in self.cells)])

    def steps(self, expression: Expression) -> str:
        """The value of the expression as `s0`."""
        slots = {0, *(step.slot for step in expression.steps)}
        lines = [f"  A {', '.join(f's{k}' for k in sorted(slots))};"]
        if not expression.steps:
            lines.append(f"  s0 = v_{expression.text};")
        for step in expression.steps:
            lines.append(
                f"  s{step.slot} = {_C[step.function].format(*map(_argument, step.arguments))};"
            )
        return "\n".join(lines)

    def assigned(self, one: Pass) -> str:
        """All assignments of a pass that are no sums, and what they leave in arrays."""
        lines = []
        defined = set(one.reads)
        for a in one.assignments:
            if not a.is_sum:
                declared = "" if a.target in defined else f"  A v_{a.target};\n"
                lines.append(f"{declared}  {{\n{self.steps(a.value)}\n  v_{a.target} = s0;\n  }}")
                defined.add(a.target)
        for name in (n for n in self.arrays if n in self.targets):
            lines.append(f"  a_{name}[{name}_at] = {_store(f'v_{name}', self.arrays[name])};")
        return "\n".join(lines)


def _argument(argument: Argument) -> str:
    if isinstance(argument, str):
        return f"v_{argument}"
    return f"(A){argument!r}" if isinstance(argument, float) else f"s{argument}"


def _store(value: str, out: str) -> str:
    return f"{value} != 0" if out == "bool" else f"({CudaSource.c_type(out)}){value}"
