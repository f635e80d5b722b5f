"""Folds on GPUs: partial results combined in one pass, wherever a GPU can read them, its peers' memory included.

Elements are combined in the order of the arguments, those of half size in float32, rounded once: the bits are those of
`taskflow.execute.fold`. One kernel is made for a dtype, a number of parts and of dimensions.

Not yet run on hardware; the tests compile the source for GPUs and run it as C++.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path

from taskflow.backend.context import Array, origin
from taskflow.backend.sources import CudaSource

_FILE = Path(__file__).with_name("fold.cu")
_TYPES = {  # as they are stored, and added up
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    "float16": ("float16", "float"),
    "bfloat16": ("bfloat16", "float"),
    **{name: (kind, kind) for name, kind in (("bool", "bool"), ("int8", "signed char"), ("uint8", "unsigned char"))},
    **{name: (kind, kind) for name, kind in (("int16", "short"), ("uint16", "unsigned short"), ("int32", "int"))},
    **{name: (kind, kind) for name, kind in (("uint32", "unsigned"), ("int64", "long long"))},
    "uint64": ("unsigned long long", "unsigned long long"),
}


def fold_kernel(
    combine: str, target: Array, parts: Sequence[Array]
) -> tuple[CudaSource, str, int, tuple[Array | int, ...]]:
    """What `StreamBackend.launch` gets for a `StreamBackend.fold`."""
    arrays = [*parts, target]
    if all(a.flags.c_contiguous for a in arrays):
        arrays = [a.reshape(-1) for a in arrays]
    shape = arrays[-1].shape
    source, name = fold_source(combine, target.dtype.name, len(parts), len(shape))
    steps = [stride // a.itemsize for a in arrays for stride in a.strides]
    return source, name, prod(shape), (*map(origin, arrays), *shape, *steps, prod(shape))


@cache
def fold_source(combine: str, dtype: str, parts: int, ndim: int) -> tuple[CudaSource, str]:
    """A kernel and its name: of `parts` arrays and the result, with extents and steps of `ndim` dimensions."""
    stored, wide = _TYPES[dtype]
    name, arrays = f"fold_{combine}_{dtype}_{parts}_{ndim}", [*(f"p{k}" for k in range(parts)), "out"]
    numbers = [f"n{d}" for d in range(ndim)] + [f"{a}_{d}" for a in arrays for d in range(ndim)] + ["count"]
    parameters = [f"const {stored}* p{k}" for k in range(parts)] + [f"{stored}* out"]
    lines = [f'extern "C" __global__ void {name}({", ".join([*parameters, *(f"long long {n}" for n in numbers)])}) {{']
    lines += ["  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;", "  if (at >= count) return;"]
    lines += [f"  long long i{d} = at % n{d}; at /= n{d};" for d in reversed(range(ndim))]
    value = {a: f"{a}[{' + '.join(f'i{d} * {a}_{d}' for d in range(ndim)) or '0'}]" for a in arrays}
    lines += [f"  {wide} total = {value['p0']};"]
    lines += [f"  total = combine_{combine}<{wide}>(total, {value[f'p{k}']});" for k in range(1, parts)]
    return CudaSource(_FILE, "\n".join([*lines, f"  {value['out']} = total;", "}", ""])), name
