"""Launches of the runtime's own kernels: folds, and looks at arrays for checked execution and for guards of updates.

A fold combines partial results in one pass, wherever a GPU can read them, its peers' memory included: in the order of
the arguments, those of half size in float32, rounded once. So the bits are those of `taskflow.execute.fold`. One kernel
is made for a dtype, a number of parts and of dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path

from taskflow.backend.context import Array, origin
from taskflow.backend.sources import MOST_DIMENSIONS, CudaSource
from taskflow.core.dtypes import HALF

Launch = tuple[
    CudaSource, str, int, tuple[Array | int, ...]
]  # file, kernel, threads at least, arguments

_FOLD = Path(__file__).with_name("fold.cu")
_CHECK = CudaSource(Path(__file__).with_name("check.cu"))
_INSPECTING_THREADS = 256  # one block
_EXPONENTS = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F80_0000,
    "float64": 0x7FF0_0000_0000_0000,
}


def fold_kernel(combine: str, target: Array, parts: Sequence[Array]) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.fold`."""
    arrays = [*parts, target]
    if all(a.flags.c_contiguous for a in arrays):
        arrays = [a.reshape(-1) for a in arrays]
    shape = arrays[-1].shape
    source, name = fold_source(combine, target.dtype.name, len(parts), len(shape))
    steps = (stride // a.itemsize for a in arrays for stride in a.strides)
    return source, name, prod(shape), (*map(origin, arrays), *shape, *steps, prod(shape))


@cache
def fold_source(combine: str, dtype: str, parts: int, ndim: int) -> tuple[CudaSource, str]:
    """A kernel and its name: of `parts` arrays and the result, with extents and steps of `ndim` dimensions."""
    stored = CudaSource.c_type(dtype)
    wide = "float" if dtype in HALF else stored
    name, arrays = (
        f"fold_{combine}_{dtype}_{parts}_{ndim}",
        [*(f"p{k}" for k in range(parts)), "out"],
    )
    numbers = (
        [f"n{d}" for d in range(ndim)]
        + [f"{a}_{d}" for a in arrays for d in range(ndim)]
        + ["count"]
    )
    parameters = [f"const {stored}* p{k}" for k in range(parts)] + [f"{stored}* out"]
    lines = [
        f'extern "C" __global__ void {name}({", ".join([*parameters, *(f"long long {n}" for n in numbers)])}) {{'
    ]
    lines += [
        "  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;",
        "  if (at >= count) return;",
    ]
    lines += [f"  long long i{d} = at % n{d}; at /= n{d};" for d in reversed(range(ndim))]
    value = {a: f"{a}[{' + '.join(f'i{d} * {a}_{d}' for d in range(ndim)) or '0'}]" for a in arrays}
    lines += [f"  {wide} total = {value['p0']};"]
    lines += [
        f"  total = combine_{combine}<{wide}>(total, {value[f'p{k}']});" for k in range(1, parts)
    ]
    return CudaSource(_FOLD, "\n".join([*lines, f"  {value['out']} = total;", "}", ""])), name


def poison_kernel(array: Array) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.poison`."""
    return _CHECK, f"poison_{array.itemsize * 8}", array.size, (_bits(array), *_layout(array))


def inspect_kernel(array: Array, out: Array) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.inspect`."""
    return (
        _CHECK,
        f"inspect_{array.itemsize * 8}",
        _INSPECTING_THREADS,
        (_bits(array), out, *_layout(array)),
    )


def not_finite_kernel(array: Array, flag: Array) -> Launch:
    """What `StreamBackend.launch` gets for a `StreamBackend.note_not_finite`."""
    exponent = _EXPONENTS[array.dtype.name]
    name = f"not_finite_{array.itemsize * 8}"
    return _CHECK, name, array.size, (_bits(array), flag, exponent, *_layout(array))


def _bits(array: Array) -> Array:
    """Where an array begins, its numbers as unsigned integers of their size."""
    return origin(array).view(f"uint{array.itemsize * 8}")


def _layout(array: Array) -> tuple[int, ...]:
    """Extents and steps in elements, filled up to six dimensions, and the number of elements."""
    shape = array.shape
    strides = array.strides
    if array.flags.c_contiguous:
        shape = (array.size,)
        strides = (array.itemsize,)
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(
            f"an array of {len(shape)} dimensions with gaps: a check looks at most at {MOST_DIMENSIONS}"
        )
    missing = MOST_DIMENSIONS - len(shape)
    steps = [s // array.itemsize for s in strides]
    return (*[1] * missing, *shape, *[0] * missing, *steps, array.size)
