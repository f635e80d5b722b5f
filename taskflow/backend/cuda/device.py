"""GPUs through CuPy: streams, events, memory and CUDA graphs; `cuda_ranks` has what lies between ranks.

Facts that shape it (CuPy 14.2, measured on an H200 where a figure is given):

* CuPy refuses cuBLAS on a capturing stream, so matrix products are called here (`taskflow.backend.cuda.cublas`).
* CuPy's memory pools know no streams: a block that is dropped while another stream uses it is handed out again. So
  instances and scratch memory are slabs from cudaMalloc that live as long as the program. What a kernel allocates
  nevertheless is used on its one stream only, and within a graph it comes from a pool that the graph keeps.
* A device without a stream of its own in this thread would use the legacy stream, which waits for all others: every
  stream here is non-blocking, and nothing runs without one.

Not yet run on hardware.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import cupy
import cupyx
import numpy as np
from cupy.cuda import nvtx, runtime

from taskflow.backend.context import Array, pointer
from taskflow.backend.cuda.cublas import WORKSPACE, WORKSPACE_BYTES, Cublas
from taskflow.backend.cuda.cublaslt import CublasLt, load_library
from taskflow.backend.cuda.cudnn import Cudnn, CudnnPlan, find_cudnn
from taskflow.backend.cuda.kernels import KernelTable
from taskflow.backend.cuda.ranks import FLAGS, communicator_bytes, make_communicators, rank_gpu_of, share
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.streams import Call, NoRoom, NotCapturable, StreamBackend
from taskflow.comm.transport import Transport
from taskflow.core.errors import InternalError
from taskflow.core.system import gpu_of

_ANY_DIRECTION = 4  # cudaMemcpyDefault
_NO_MEMORY = 2  # cudaErrorMemoryAllocation
_REFUSALS = (NotCapturable, NotImplementedError, RuntimeError, TypeError)
_OPTIONS = ("--std=c++17",)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Stream:
    gpu: int
    stream: Any


class _Arrays:
    """The module `cupy`, with matrix products that can be captured and what its functions lack of NumPy's."""

    def __init__(self, backend: CudaStreams) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        value = getattr(cupy, name)
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
        self, a: Array, b: Array, out: Array, epilogue: str, bias: Array | None = None, aux: Array | None = None
    ) -> bool:
        """The matrix product and what follows it (see `cublaslt.EPILOGUES`); False: nothing was done."""
        return self._backend.product(a, b, out, epilogue, bias, aux)

    @staticmethod
    def take(a: Array, indices: Array, axis: int | None = None, out: Array | None = None, mode: str = "clip") -> Any:
        """`cupy.take`, which wraps indices around: here they are clipped."""
        extent = a.size if axis is None else a.shape[axis]
        return cupy.take(a, indices.clip(0, extent - 1), axis, out)


class CudaStreams(StreamBackend):
    """See the module.

    Args:
        is_checked: whether a step after the first may neither wait for the device nor allocate memory in kernels that
            are issued one by one: then it raises.
        is_profiled: name what is issued for a profiler (NVTX).
    """

    uses_variants = True

    def __init__(self, is_checked: bool = False, is_profiled: bool = False) -> None:
        self.is_profiled = is_profiled
        # as many queues as a rank has streams: one that waits for another rank holds up no other
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        if not cupy.cuda.is_available():
            raise ValueError("executor: devices are of kind 'cuda', and CuPy finds no GPU and driver")
        count: int = runtime.getDeviceCount()
        self._count, self._is_checked = count, is_checked
        self.xp = _Arrays(self)
        self._blas: dict[int, Cublas] = {}
        self._lt: dict[int, CublasLt] = {}
        self._cudnn: dict[int, Cudnn | None] = {}
        self._kernels = KernelTable(_load_kernel)
        self._current: _Stream | None = None

    def gpu(self, device: int) -> int:
        """The GPU of a device."""
        return gpu_of(device, self._count)

    def name(self, device: int) -> str:
        found: str = runtime.getDeviceProperties(self.gpu(device))["name"].decode()
        return found

    # -- streams ---------------------------------------------------------------------------------------------------

    def make_stream(self, device: int, name: str) -> _Stream:
        gpu = self.gpu(device)
        with cupy.cuda.Device(gpu):
            return _Stream(gpu, cupy.cuda.Stream(non_blocking=True))

    def make_event(self, timed: bool = False) -> Any:
        return cupy.cuda.Event(disable_timing=not timed)

    def run(self, stream: _Stream, call: Call) -> None:
        previous, self._current = self._current, stream
        try:
            with cupy.cuda.Device(stream.gpu), stream.stream:
                call()
        finally:
            self._current = previous

    def record(self, stream: _Stream, event: Any) -> None:
        runtime.eventRecord(event.ptr, stream.stream.ptr)

    def wait(self, stream: _Stream, event: Any) -> None:
        runtime.streamWaitEvent(stream.stream.ptr, event.ptr)

    def synchronize(self, event: Any) -> None:
        runtime.eventSynchronize(event.ptr)

    def seconds_between(self, first: Any, second: Any) -> float:
        return float(runtime.eventElapsedTime(first.ptr, second.ptr)) * 1e-3

    # -- memory ----------------------------------------------------------------------------------------------------

    def zeros(self, device: int, size_bytes: int) -> Array:
        if not size_bytes:
            return cupy.empty(0, np.uint8)  # type: ignore[no-any-return]
        with cupy.cuda.Device(self.gpu(device)):
            memory = cupy.cuda.MemoryPointer(_malloc(size_bytes), 0)
            array: Array = cupy.ndarray((size_bytes,), np.uint8, memptr=memory)
            memory.memset(0, size_bytes)
            runtime.deviceSynchronize()
        return array

    def memory(self, device: int) -> tuple[int, int]:
        with cupy.cuda.Device(self.gpu(device)):
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def library_bytes(self, device: int) -> Mapping[str, int]:
        return {WORKSPACE: WORKSPACE_BYTES} if self.gpu(device) in self._blas else {}

    def pinned(self, size_bytes: int) -> Array:
        found: Array = cupyx.zeros_pinned((size_bytes,), np.uint8)
        return found

    def copy(self, target: Array, source: Array) -> Call:
        pointers = pointer(target), pointer(source)
        size = source.nbytes
        if size != target.nbytes:
            raise InternalError(f"a copy of {size} bytes to {target.nbytes}")
        if not size:
            return lambda: None

        def call() -> None:
            runtime.memcpyAsync(*pointers, size, _ANY_DIRECTION, cupy.cuda.get_current_stream().ptr)

        call.arrays = target, source  # type: ignore[attr-defined]  # kept alive
        return call

    def read(self, array: Array) -> Array:
        runtime.deviceSynchronize()
        return np.array(cupy.asnumpy(array))

    def write(self, array: Array, value: Array) -> None:
        runtime.deviceSynchronize()
        with cupy.cuda.Device(array.device.id):  # type: ignore[attr-defined]
            array[...] = cupy.asarray(np.ascontiguousarray(value, array.dtype))
            runtime.deviceSynchronize()

    # -- other ranks -----------------------------------------------------------------------------------------------

    def rank_gpu(self, device: int) -> RankGpu:
        return rank_gpu_of(self.gpu(device))

    def shared_zeros(self, device: int, size_bytes: int, ranks: Transport) -> list[Array] | None:
        arrays, failure = share(self.zeros(device, max(size_bytes, 1)), self.gpu(device), ranks)
        if failure:
            _log.warning("CUDA IPC: %s", failure)
        return arrays

    def signal(self, there: Array, sent: Array) -> Call:
        return partial(self.launch, FLAGS, "signal_flag", 1, (there, sent), 1)

    def awaits(self, here: Array, awaited: Array) -> Call:
        return partial(self.launch, FLAGS, "await_flag", 1, (here, awaited), 1)

    def communicators(
        self, device: int, groups: Sequence[tuple[int, ...]], ranks: Transport, most_bytes: int
    ) -> dict[tuple[int, ...], Communicator]:
        return make_communicators(self.gpu(device), groups, ranks)

    def communicator_bytes(self, peers: int) -> int:
        return communicator_bytes(peers)

    # -- kernels ---------------------------------------------------------------------------------------------------

    def kernel(self, source: str, name: str) -> Callable[[int, int, Sequence[Any]], object]:
        gpu = self._current.gpu if self._current else 0
        function = self._kernels.find(source, name, gpu, self.is_capturing)

        def launch(threads: int, block: int, args: Sequence[Any]) -> None:
            function((-(-threads // block),), (block,), tuple(map(_argument, args)))

        return launch

    def blas(self) -> Cublas:
        """cuBLAS with the current stream of the current device."""
        current = self._current
        if current is None:
            raise InternalError("a matrix product outside of a stream")
        if current.gpu not in self._blas:
            if self.is_capturing:
                raise NotCapturable("a handle of cuBLAS is made")
            self._blas[current.gpu] = Cublas(partial(_malloc, purpose=WORKSPACE))
        blas = self._blas[current.gpu]
        blas.uses_tf32 = self.uses_tf32
        blas.use(current.stream.ptr)
        return blas

    def product(self, a: Array, b: Array, out: Array, epilogue: str, bias: Array | None, aux: Array | None) -> bool:
        """A matrix product by cuBLASLt on the current stream; False where it cannot do it."""
        workspace, current = self.blas().workspace, self._current
        assert current is not None, "blas() has checked it"
        if current.gpu not in self._lt:
            if self.is_capturing:
                raise NotCapturable("a handle of cuBLASLt is made")
            self._lt[current.gpu] = CublasLt(load_library(), workspace, pointer)
        return self._lt[current.gpu].matmul(
            current.stream.ptr,
            a,
            b,
            out,
            epilogue,
            bias=bias,
            aux=aux,
            uses_tf32=self.uses_tf32,
            may_plan=not self.is_capturing,
        )

    def library_plan(
        self, operation: str, inputs: Sequence[Array], outputs: Sequence[Array], options: Mapping[str, Any]
    ) -> CudnnPlan | None:
        current = self._current
        assert current is not None, "kernels run on a stream"
        if not self.uses_cudnn:
            return None
        if current.gpu not in self._cudnn:
            self._cudnn[current.gpu] = find_cudnn(pointer)
        cudnn, flags = self._cudnn[current.gpu], (self.uses_tf32, not self.is_capturing)
        stream = current.stream.ptr
        return None if cudnn is None else cudnn.plan(stream, operation, inputs, outputs, options, *flags)

    # -- graphs ----------------------------------------------------------------------------------------------------

    def capture(self, lead: _Stream, issue: Call) -> Call:
        pool = cupy.cuda.MemoryPool()
        stream, graph, refusal = lead.stream, None, None
        with cupy.cuda.Device(lead.gpu), cupy.cuda.using_allocator(pool.malloc):
            stream.begin_capture()
            self.is_capturing = True
            try:
                issue()
            except _REFUSALS as error:
                refusal = error
            finally:
                self.is_capturing = False
                try:
                    graph = stream.end_capture()
                except runtime.CUDARuntimeError as error:
                    refusal = refusal or error
        if graph is None or refusal is not None:
            raise NotCapturable(str(refusal)) from refusal

        def launch() -> None:
            graph.launch(stream)

        launch.memory = pool  # type: ignore[attr-defined]  # what kernels allocated is at fixed addresses of the graph
        return launch

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        nvtx.RangePush(name)
        try:
            yield
        finally:
            nvtx.RangePop()

    @contextmanager
    def warm_step(self) -> Iterator[None]:
        if not self._is_checked:
            yield
            return
        with cupyx.allow_synchronize(False), cupy.cuda.using_allocator(_refuse_memory):
            yield


def _load_kernel(source: str, name: str) -> Any:
    return cupy.RawModule(code=source, options=_OPTIONS).get_function(name)


def _malloc(size_bytes: int, purpose: str = "memory") -> Any:
    """A block of its own, of no pool."""
    try:
        return cupy.cuda.Memory(size_bytes)
    except runtime.CUDARuntimeError as error:
        if error.status != _NO_MEMORY:
            raise
        raise NoRoom(size_bytes, purpose) from error


def _argument(value: object) -> object:
    """Kernels take 64-bit integers and doubles."""
    if isinstance(value, bool | int | np.integer):
        return np.int64(value)
    return np.float64(value) if isinstance(value, float) else value


def _refuse_memory(size: int) -> Any:
    raise RuntimeError(f"a kernel allocates {size} bytes in a step; take them from ctx.scratch")


# -- what there is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """A GPU by its own account; rates are peaks, in flop/s of float32 and in bytes/s."""

    name: str
    memory_bytes: int
    flops_per_second: float
    memory_bandwidth: float


@cache
def find_gpus() -> tuple[Gpu, ...]:
    """The GPUs of this host; none where there is no driver."""
    if not cupy.cuda.is_available():
        return ()
    return tuple(_gpu(k) for k in range(runtime.getDeviceCount()))


def _gpu(number: int) -> Gpu:
    facts, ask = runtime.getDeviceProperties(number), runtime.deviceGetAttribute
    lanes = 64 if (facts["major"], facts["minor"]) in ((7, 0), (7, 5), (8, 0)) else 128  # of a multiprocessor
    clock = ask(runtime.cudaDevAttrClockRate, number) * 1e3
    memory_clock = ask(runtime.cudaDevAttrMemoryClockRate, number) * 1e3
    width = ask(runtime.cudaDevAttrGlobalMemoryBusWidth, number) / 8
    return Gpu(
        facts["name"].decode(),
        int(facts["totalGlobalMem"]),
        2.0 * lanes * facts["multiProcessorCount"] * clock,
        2.0 * memory_clock * width,
    )


def compile_nothing() -> str:
    """What is wrong with the compiler of CUDA sources; empty where it compiles one."""
    try:
        cupy.RawModule(code='extern "C" __global__ void nothing() {}').compile()
    except Exception as error:  # CuPy's own, NVRTC's, or that of a library that is not found
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
