"""Memory that ranks of one host map of each other (CUDA IPC), and when it is freed.

IPC facts: a handle names the whole block that cudaMalloc took, so the offset in it travels, too; whole grains of 2 MiB
are mapped, so a block is made of such, or its neighbours would be lent with it; a process cannot open its own handle;
memory of cudaMallocAsync has none. Memory must not be freed while another process maps it, and nobody knows when the
last array in it goes: the cycle collector comes by at another time on each rank. So a block whose arrays are gone is
kept until all ranks meet the next time, to share memory, and say what they still map.
(Rejected: a barrier where an executor is closed. A rank that leaves by an exception would hang the others.)

On one H200 (2026-11-27, docs/cuda.md) ranks that share the GPU did not run to their end: `auto` and `shared` failed
after 54 s, `messages` and `nccl` were not over after 110 s while five other jobs ran there.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import Counter
from functools import cache
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from taskflow.backend.context import Array
from taskflow.backend.cuda.queues import malloc
from taskflow.comm.transport import Transport
from taskflow.core.numbers import MIB

_GRAIN_BYTES = 2 * MIB


class _Lent:
    """The memory of this process while arrays are in it."""


class _Mapped:
    """The memory of another process while arrays are in it."""

    def __init__(self, handle: bytes) -> None:
        self.pointer = int(runtime.ipcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess))


class MappedMemory:
    """What this process lends to others and maps of them.

    Blocks are numbered by the call of `share`, which all ranks make together.
    """

    def __init__(self) -> None:
        self._count = 0
        self._lent: dict[int, Any] = {}  # own blocks that are not freed
        self._ended: set[int] = set()  # of these, such that no array here is in any more
        self._open = Counter[int]()  # how many of the others' blocks are mapped here

    def share(self, size_bytes: int, gpu: int, ranks: Transport) -> tuple[list[Array] | None, str]:
        """A zeroed byte array of each rank, this one's of that size; or None, and why.

        Raises:
            NoRoom: this GPU has no room for it.
        """
        self._free(ranks)
        number = self._count
        self._count = self._count + 1
        with cupy.cuda.Device(gpu):
            block = malloc(-(-max(size_bytes, 1) // _GRAIN_BYTES) * _GRAIN_BYTES)
            cupy.cuda.MemoryPointer(block, 0).memset(0, block.size)
            runtime.deviceSynchronize()
        lent = _Lent()
        self._lent[number] = block
        weakref.finalize(lent, self._ended.add, number).atexit = False
        mine = bytes_at(int(block.ptr), size_bytes, lent, gpu)
        handles = ranks.gather(_handle(int(block.ptr), size_bytes))
        failure = next((h for h in handles if isinstance(h, str)), "")
        arrays = list[Array]()
        if not failure:
            try:
                arrays = [
                    mine if r == ranks.rank else self._map(number, h, gpu)
                    for r, h in enumerate(handles)
                ]
            except runtime.CUDARuntimeError as error:
                failure = f"a GPU's memory cannot be mapped: {error}"
        failure = next(filter(None, ranks.gather(failure)), "")
        return (None, failure) if failure else (arrays, "")

    def _free(self, ranks: Transport) -> None:
        """Free the blocks that nobody uses any more, here or on another rank."""
        gc.collect()  # executors refer to themselves: what has ended here is known now
        mapped = set().union(
            *ranks.gather(sorted(number for number, count in self._open.items() if count))
        )
        for number in sorted(self._ended - mapped):
            self._ended.remove(number)
            del self._lent[number]

    def _map(self, number: int, shared: tuple[bytes, int, int], gpu: int) -> Array:
        handle, offset, size = shared
        with cupy.cuda.Device(gpu):
            mapped = _Mapped(handle)
        self._open[number] += 1
        weakref.finalize(
            mapped, self._unmap, number, mapped.pointer
        ).atexit = False  # the driver ends before
        # of this GPU, as CuPy sees it: kernels here read it, and CuPy refuses arrays of another one
        return bytes_at(mapped.pointer + offset, size, mapped, gpu)

    def _unmap(self, number: int, pointer: int) -> None:
        runtime.ipcCloseMemHandle(pointer)
        self._open[number] -= 1


@cache
def mapped_memory() -> MappedMemory:
    """That of this process: executors come and go, and what one of them has lent the next one frees."""
    return MappedMemory()


def bytes_at(pointer: int, size_bytes: int, owner: object, gpu: int) -> Array:
    """A byte array of a GPU in memory that lives as long as its owner."""
    memory = cupy.cuda.UnownedMemory(pointer, size_bytes, owner, gpu)
    array: Array = cupy.ndarray((size_bytes,), np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
    return array


def _handle(pointer: int, size_bytes: int) -> tuple[bytes, int, int] | str:
    """IPC handle of its block, where in it an array begins, and its bytes; or why there is none."""
    try:
        return runtime.ipcGetMemHandle(pointer), pointer - _block_start(pointer), size_bytes
    except (runtime.CUDARuntimeError, RuntimeError, OSError) as error:
        return f"a GPU's memory cannot be shared: {error}"


def _block_start(pointer: int) -> int:
    base = ctypes.c_uint64()
    size = ctypes.c_size_t()
    library = ctypes.CDLL("libcuda.so.1")
    status = library.cuMemGetAddressRange_v2(
        ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
    )
    if status:
        raise RuntimeError(f"cuMemGetAddressRange: status {status}")
    return base.value
