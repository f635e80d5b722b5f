"""The module `cupy` as kernels get it: with matrix products that can be captured, and with what it lacks of NumPy's.

Functions that count in 32 bits are refused for larger arrays (`taskflow.backend.sizes`).

Arrays of another GPU are taken as they lie there: access to it is asked for when its first stream is made
(`queues.reach`). CuPy would take them, too, with a warning for each launch.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import cupy

from taskflow.backend.context import Array
from taskflow.backend.sizes import COUNTS_ANY_SIZE, refuse_large


class Products(Protocol):
    """Who multiplies on the current stream."""

    def blas(self) -> Any:
        """Its cuBLAS."""

    def product(
        self, a: Array, b: Array, out: Array, epilogue: str, bias: Array | None, aux: Array | None
    ) -> bool:
        """A product by cuBLASLt; False where it cannot do it."""


class Arrays:
    """See the module; products are those of a backend."""

    def __init__(self, backend: Products) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        value = getattr(cupy, name)
        if (
            callable(value)
            and not isinstance(value, cupy.ufunc | type)
            and name not in COUNTS_ANY_SIZE
        ):
            value = partial(refuse_large, name, value)
        setattr(self, name, value)  # found at once the next time
        return value

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Any:
        """The matrix product, batched over leading dimensions."""
        if out is None:
            lead = cupy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            out = cupy.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
        return self._backend.blas().matmul(a, b, out, cupy)

    def add_product(self, a: Array, b: Array, out: Array) -> None:
        """`out` += the matrix product."""
        self._backend.blas().matmul(a, b, out, cupy, adds=True)

    def product(
        self,
        a: Array,
        b: Array,
        out: Array,
        epilogue: str,
        bias: Array | None = None,
        aux: Array | None = None,
    ) -> bool:
        """The matrix product and what follows it (see `cublaslt.EPILOGUES`); False: nothing was done."""
        return self._backend.product(a, b, out, epilogue, bias, aux)

    @staticmethod
    def take(
        a: Array,
        indices: Array,
        axis: int | None = None,
        out: Array | None = None,
        mode: str = "clip",
    ) -> Any:
        """`cupy.take`, which wraps indices around: here they are clipped."""
        extent = a.size if axis is None else a.shape[axis]
        return refuse_large("take", cupy.take, a, indices.clip(0, extent - 1), axis, out)

    @staticmethod
    def copyto(target: Array, source: Any, casting: str = "same_kind", where: Any = None) -> None:
        """`cupy.copyto`; arrays may be of another GPU."""
        gpu = cupy.cuda.runtime.getDevice()
        cupy.copyto(as_of(target, gpu), as_of(source, gpu), casting, as_of(where, gpu))


def as_of(array: Any, gpu: int) -> Any:
    """An array, or a number, as CuPy takes it on this GPU, wherever its memory lies."""
    if not isinstance(array, cupy.ndarray) or array.device.id == gpu:
        return array
    memory = array.data.mem
    seen = cupy.cuda.UnownedMemory(memory.ptr, memory.size, memory, gpu)
    pointer = cupy.cuda.MemoryPointer(seen, array.data.ptr - memory.ptr)
    return cupy.ndarray(array.shape, array.dtype, pointer, array.strides)


class _Exported:
    """What was exported for a stream, as `cupy.from_dlpack` takes it."""

    def __init__(self, value: Any, stream: int) -> None:
        self._device = value.__dlpack_device__()
        self._capsule = value.__dlpack__(
            stream=stream
        )  # now: whoever made it says what the stream waits for

    def __dlpack_device__(self) -> Any:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


def from_dlpack(value: Any, stream: int) -> Any:
    """The array of another library on its GPU, once a stream, given by its pointer, may read it; nothing is copied."""
    return cupy.from_dlpack(_Exported(value, stream))
