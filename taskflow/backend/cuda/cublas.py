"""Matrix products by cuBLAS, called through ctypes, because CuPy refuses its own calls while a graph is captured.

cuBLAS counts columns first: a row-major array of shape (m, n) is to it one of (n, m). So z = x y is asked for as
zᵀ = yᵀ xᵀ. A matrix may be transposed, or a part of a larger one, as long as one of its two dimensions has no gaps.

A handle belongs to one stream, and so does its workspace: products side by side would spoil each other's sums in one
that they share. The workspace is set after the stream, which resets it to an allocation of cuBLAS's own (every capture
would grow memory then).

The arguments are checked against NumPy in tests/backend/test_cublas.py.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from taskflow.backend.context import Array, pointer
from taskflow.core.numbers import MIB

_NONE = 0
_TRANSPOSED = 1
TYPES = {"float16": 2, "bfloat16": 14, "float32": 0, "float64": 1}  # cudaDataType
COMPUTE_TYPES = {
    "float16": 68,
    "bfloat16": 68,
    "float32": 68,
    "float64": 70,
    "tf32": 77,
}  # cublasComputeType
_DEFAULT_ALGORITHM = -1
WORKSPACE = "the workspace of cuBLAS"
WORKSPACE_BYTES = 32 * MIB  # NVIDIA's advice for Hopper


@dataclass(frozen=True)
class Operand:
    """A stack of matrices as cuBLAS is told of it: row-major with `leading` elements from row to row.

    `is_transposed`: the array's rows are its columns.
    """

    is_transposed: bool
    leading: int
    batch_stride: int

    @property
    def operation(self) -> int:
        """What cuBLAS does with it first."""
        return _TRANSPOSED if self.is_transposed else _NONE


def operand(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Operand | None:
    """A matrix, or a stack with even steps, of these strides in bytes; None where cuBLAS cannot read it in place."""
    (rows, columns) = shape[-2:]
    (down, right) = strides[-2:]
    batch = _even_step(shape[:-2], strides[:-2])
    if batch is None or down % itemsize or right % itemsize or batch % itemsize:
        return None
    down = down // itemsize
    right = right // itemsize
    batch = batch // itemsize
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return Operand(False, max(down if rows > 1 else columns, columns, 1), batch)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return Operand(True, max(right if columns > 1 else rows, rows, 1), batch)
    return None


def _even_step(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The step from one matrix of a stack to the next, None where it is not even."""
    steps = [(n, s) for n, s in zip(shape, strides) if n != 1]
    for (_, outer), (n, inner) in pairwise(steps):
        if outer != n * inner:
            return None
    return steps[-1][1] if steps else 0


@dataclass(frozen=True)
class Gemm:
    """The arguments of a call, in the order of cublasGemmStridedBatchedEx: its first operand is y."""

    operations: tuple[int, int]
    extents: tuple[int, int, int]
    first: Operand
    second: Operand
    result: Operand
    count: int


def plan_gemm(x: Array, y: Array, z: Array) -> Gemm | None:
    """How z = x y is asked for; None where an operand must be copied first."""
    left, right, result = (operand(a.shape, a.strides, a.itemsize) for a in (x, y, z))
    if left is None or right is None or result is None or result.is_transposed:
        return None
    return Gemm(
        (right.operation, left.operation),
        (z.shape[-1], z.shape[-2], x.shape[-1]),
        right,
        left,
        result,
        int(np.prod(z.shape[:-2], dtype=np.int64)),
    )


class Cublas:
    """A handle for a stream, given by its pointer, of the current device; `allocate` gives memory with a pointer `ptr`.

    It is destroyed with this.
    """

    def __init__(self, allocate: Callable[[int], Any], stream: int) -> None:
        from cuda import pathfinder

        self._library = library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        address: Any = ctypes.c_void_p
        integer: Any = ctypes.c_int
        long: Any = ctypes.c_longlong
        library.cublasDestroy_v2.argtypes = [address]
        library.cublasSetStream_v2.argtypes = [address, address]
        library.cublasSetWorkspace_v2.argtypes = [address, address, ctypes.c_size_t]
        operand_types = [address, integer, integer, long]
        first = [address, *[integer] * 5, address, *operand_types * 2]
        library.cublasGemmStridedBatchedEx.argtypes = [
            *first,
            address,
            *operand_types,
            *[integer] * 3,
        ]
        self._handle = address()
        self._workspace = allocate(WORKSPACE_BYTES)
        self._check(library.cublasCreate_v2(ctypes.byref(self._handle)))
        weakref.finalize(
            self, library.cublasDestroy_v2, self._handle
        ).atexit = False  # the driver ends before
        self._check(library.cublasSetStream_v2(self._handle, stream))
        self._check(
            library.cublasSetWorkspace_v2(self._handle, self._workspace.ptr, WORKSPACE_BYTES)
        )
        self._factors = {t: (t(1), t(0)) for t in (ctypes.c_float, ctypes.c_double)}
        self.uses_tf32 = False

    @property
    def workspace(self) -> int:
        """Where WORKSPACE_BYTES on the device begin."""
        return int(self._workspace.ptr)

    def matmul(self, x: Array, y: Array, z: Array, xp: Any, adds: bool = False) -> Any:
        """z = x y, or z += x y, for arrays of two dimensions, or of more with equal leading ones.

        Where the steps of several leading dimensions make no batch, every index of the first is a call of its own; a
        result whose columns lie one behind the other is asked for as its transpose. `xp` copies matrices with gaps in
        both of their dimensions.
        """
        if x.dtype != y.dtype:
            raise TypeError(
                f"cuBLAS: a product of {x.dtype} {x.shape} and {y.dtype} {y.shape}: operands have one dtype"
            )
        if not z.size:
            return z
        if not x.shape[-1]:
            if not adds:
                z.fill(0)
            return z
        x, y = (
            xp.broadcast_to(a, (*z.shape[:-2], *a.shape[-2:]))
            for a in (_matrix(x, 0), _matrix(y, 1))
        )
        if _is_transposed(z):
            self.matmul(y.swapaxes(-1, -2), x.swapaxes(-1, -2), z.swapaxes(-1, -2), xp, adds)
            return z
        if z.ndim > 2 and plan_gemm(x, y, z) is None:
            for k in range(z.shape[0]):
                self.matmul(x[k], y[k], z[k], xp, adds)
            return z
        target = z if plan_gemm(z, z, z) is not None else xp.empty(z.shape, z.dtype)
        if adds and target is not z:
            xp.copyto(target, z)
        x, y = (
            a if operand(a.shape, a.strides, a.itemsize) else xp.ascontiguousarray(a)
            for a in (x, y)
        )
        gemm = plan_gemm(x, y, target)
        assert gemm is not None
        self._call(gemm, x, y, target, adds)
        if target is not z:
            xp.copyto(z, target)
        return z

    def _call(self, gemm: Gemm, x: Array, y: Array, z: Array, adds: bool) -> None:
        name = z.dtype.name
        one, zero = self._factors[ctypes.c_double if name == "float64" else ctypes.c_float]
        compute = COMPUTE_TYPES[
            "tf32" if self.uses_tf32 and x.dtype.name == name == "float32" else name
        ]
        first, second, result = (
            (pointer(a), TYPES[a.dtype.name], o.leading, o.batch_stride)
            for a, o in ((y, gemm.first), (x, gemm.second), (z, gemm.result))
        )
        operands = (
            ctypes.addressof(one),
            *first,
            *second,
            ctypes.addressof(one if adds else zero),
            *result,
        )
        options = gemm.count, compute, _DEFAULT_ALGORITHM
        call = self._library.cublasGemmStridedBatchedEx
        self._check(call(self._handle, *gemm.operations, *gemm.extents, *operands, *options))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuBLAS: status {status}")


def _is_transposed(a: Array) -> bool:
    """Whether the columns of its matrices lie one behind the other."""
    matrices = operand(a.shape, a.strides, a.itemsize)
    return matrices is not None and matrices.is_transposed


def _matrix(a: Array, missing: int) -> Any:
    """A vector as a matrix of one row (0) or column (1)."""
    return a if a.ndim > 1 else a[None, :] if missing == 0 else a[:, None]
