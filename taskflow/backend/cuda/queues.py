"""Streams of a GPU, and what libraries keep for each of them: handles, and workspaces that no two streams may share.

A stream owns its handles: they are made when it first needs them, and destroyed with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
from cupy.cuda import runtime

from taskflow.backend.context import pointer
from taskflow.backend.cuda.cublas import WORKSPACE, Cublas
from taskflow.backend.cuda.cublaslt import CublasLt, load_library
from taskflow.backend.cuda.cudnn import Cudnn
from taskflow.backend.streams import NoRoom, NotCapturable

_NO_MEMORY = 2  # cudaErrorMemoryAllocation


class CudaStream:
    """A non-blocking stream of a GPU, which is the current one.

    Attributes:
        gpu: its GPU.
        stream: as CuPy has it.
        ptr: its pointer.
    """

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.ptr = int(self.stream.ptr)
        self._blas: Cublas | None = None
        self._lt: CublasLt | None = None
        self._cudnn: Cudnn | None = None

    @property
    def has_workspace(self) -> bool:
        """Whether cuBLAS holds a workspace for it."""
        return self._blas is not None

    def blas(self, is_capturing: bool) -> Cublas:
        """Its handle of cuBLAS.

        Raises:
            NotCapturable: it has yet to be made, while a graph is captured.
        """
        if self._blas is None:
            refuse(is_capturing, "a handle of cuBLAS is made")
            self._blas = Cublas(partial(malloc, purpose=WORKSPACE), self.ptr)
        return self._blas

    def lt(self, is_capturing: bool) -> CublasLt:
        """Its handle of cuBLASLt, which has the workspace of cuBLAS; see `blas`."""
        if self._lt is None:
            refuse(is_capturing, "a handle of cuBLASLt is made")
            self._lt = CublasLt(load_library(), self.blas(is_capturing).workspace, pointer)
        return self._lt

    def plans_with(self, cudnn: Cudnn) -> None:
        """From now on cuDNN may keep a handle for this stream."""
        if self._cudnn is None:
            self._cudnn = cudnn
            weakref.finalize(self, cudnn.release, self.ptr).atexit = False


def refuse(is_capturing: bool, what: str) -> None:
    """Raise NotCapturable, if a graph is captured."""
    if is_capturing:
        raise NotCapturable(what)


def malloc(size_bytes: int, purpose: str = "memory") -> Any:
    """A block of its own on the current GPU, of no pool.

    Raises:
        NoRoom: there is none.
    """
    try:
        return cupy.cuda.Memory(size_bytes)
    except runtime.CUDARuntimeError as error:
        if error.status != _NO_MEMORY:
            raise
        raise NoRoom(size_bytes, purpose) from error


def reach(gpus: set[int], gpu: int) -> None:
    """Give one more GPU access to the memory of others, and them to its own.

    Raises:
        ValueError: two of them have no way to each other.
    """
    for other in sorted(gpus - {gpu}):
        for here, there in ((gpu, other), (other, gpu)):
            if not runtime.deviceCanAccessPeer(here, there):
                raise ValueError(
                    f"executor: GPU {here} cannot reach the memory of GPU {there}: the devices of one process must; "
                    "run a rank for each GPU instead (mpirun)"
                )
            _enable(here, there)


def _enable(here: int, there: int) -> None:
    with cupy.cuda.Device(here):
        try:
            runtime.deviceEnablePeerAccess(there)
        except runtime.CUDARuntimeError as error:
            if "PeerAccessAlreadyEnabled" not in str(error):
                raise


def synchronize(gpus: set[int], wait: Callable[[], object] = runtime.deviceSynchronize) -> None:
    """Return when all streams of these GPUs are done."""
    for gpu in sorted(gpus):
        with cupy.cuda.Device(gpu):
            wait()
