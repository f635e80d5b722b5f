"""GPUs of different ranks: memory that is mapped by CUDA IPC, and communicators of NCCL.

IPC facts: a handle names the whole block that cudaMalloc took, so the offset in it travels, too; a process cannot open
its own handle; memory of cudaMallocAsync has none. NCCL facts: calls of one rank must be on one stream in the order
that all ranks share (`execute.gpu.together` sees to it); two ranks on one GPU are refused as "duplicate" unless
NCCL takes them for two hosts (NCCL_HOSTID), when it moves everything through sockets: slow, but right (measured on an
H200 with NCCL 2.28.9).

Not yet run on hardware.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import cupy
import numpy as np
from cupy.cuda import runtime

from taskflow.backend.context import Array, pointer
from taskflow.backend.cuda.nccl import NcclBuffers, NcclRanks, is_short_of_memory
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.comm.transport import Transport
from taskflow.core.system import host_name

FLAGS = CudaSource(Path(__file__).with_name("flags.cu"))


def rank_gpu_of(gpu: int) -> RankGpu:
    """Where a rank with this GPU works."""
    from cupy.cuda import nccl

    library = int(nccl.get_version()) if nccl.available else 0
    reaches = [k for k in range(runtime.getDeviceCount()) if k == gpu or runtime.deviceCanAccessPeer(gpu, k)]
    return RankGpu(host_name(), _identity(gpu), tuple(map(_identity, reaches)), library)


def _identity(gpu: int) -> str:
    facts = runtime.getDeviceProperties(gpu)
    address = "{pciDomainID:04x}:{pciBusID:02x}:{pciDeviceID:02x}".format(**facts)
    return f"{address} {facts.get('uuid')!r}"


# -- memory of other processes -----------------------------------------------------------------------------------------


def share(array: Array, gpu: int, ranks: Transport) -> tuple[list[Array] | None, str]:
    """The arrays of all ranks, this one's own being `array`; or None, and why."""
    handles = ranks.gather(_handle(array))
    failure = next((h for h in handles if isinstance(h, str)), "")
    arrays: list[Array] = []
    if not failure:
        try:
            arrays = [array if r == ranks.rank else _map(handle, gpu) for r, handle in enumerate(handles)]
        except runtime.CUDARuntimeError as error:
            failure = f"a GPU's memory cannot be mapped: {error}"
    failure = next(filter(None, ranks.gather(failure)), "")
    return (None, failure) if failure else (arrays, "")


def _handle(array: Array) -> tuple[bytes, int, int] | str:
    """IPC handle of its block, where in it the array begins, and its bytes; or why there is none."""
    address = pointer(array)
    try:
        return runtime.ipcGetMemHandle(address), address - _block_start(address), int(array.nbytes)
    except (runtime.CUDARuntimeError, RuntimeError, OSError) as error:
        return f"a GPU's memory cannot be shared: {error}"


def _block_start(pointer: int) -> int:
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    library = ctypes.CDLL("libcuda.so.1")
    status = library.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    if status:
        raise RuntimeError(f"cuMemGetAddressRange: status {status}")
    return base.value


class _Mapped:
    """What keeps the memory of another process mapped."""

    def __init__(self, handle: bytes) -> None:
        self.pointer = int(runtime.ipcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess))
        weakref.finalize(self, runtime.ipcCloseMemHandle, self.pointer).atexit = False  # the driver ends before


def _map(shared: tuple[bytes, int, int], gpu: int) -> Array:
    handle, offset, size = shared
    with cupy.cuda.Device(gpu):
        mapped = _Mapped(handle)
        # of this GPU, as CuPy sees it: kernels here read it, and CuPy refuses arrays of another one
        memory = cupy.cuda.UnownedMemory(mapped.pointer + offset, size, mapped, gpu)
        found: Array = cupy.ndarray((size,), np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
    return found


# -- NCCL --------------------------------------------------------------------------------------------------------------


def make_communicators(
    gpu: int, groups: Sequence[tuple[int, ...]], ranks: Transport
) -> dict[tuple[int, ...], Communicator]:
    """A communicator for each group with this rank, made in the order of `groups`; all ranks call it."""
    from cupy.cuda import nccl

    found = ranks.gather(_identity(gpu) + host_name())
    if len(set(found)) < len(found):
        os.environ["NCCL_HOSTID"] = f"rank {ranks.rank}"
    ids = ranks.gather({k: nccl.get_unique_id() for k, g in enumerate(groups) if g[0] == ranks.rank})
    with cupy.cuda.Device(gpu):
        try:
            return {
                group: NcclRanks(group, ranks.rank, ids[group[0]][k], nccl, _current_stream, _is_short)
                for k, group in enumerate(groups)
                if ranks.rank in group
            }
        except nccl.NcclError as error:
            if _is_short(error):
                raise MemoryError("buffers of NCCL") from error
            raise


def _is_short(error: Exception) -> bool:
    return is_short_of_memory(error, int(runtime.memGetInfo()[0]), communicator_bytes(1))


def communicator_bytes(peers: int) -> int:
    """See `StreamBackend.communicator_bytes`."""
    return NcclBuffers.of(os.environ).bytes_for(peers)


def _current_stream() -> int:
    return int(cupy.cuda.get_current_stream().ptr)
