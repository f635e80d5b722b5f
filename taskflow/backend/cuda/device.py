"""GPUs through CuPy: streams, events, memory and CUDA graphs; `cuda_ranks` has what lies between ranks.

Facts that shape it (CuPy 14.2, measured on an H200 where a figure is given):

* CuPy refuses cuBLAS on a capturing stream, so matrix products are called here (`taskflow.backend.cuda.cublas`).
* CuPy's memory pools know no streams: a block that is dropped while another stream uses it is handed out again. So
  instances and scratch memory are slabs from cudaMalloc that live as long as the program. What a kernel allocates
  nevertheless is used on its one stream only, and within a graph it comes from a pool that the graph keeps.
* A device without a stream of its own in this thread would use the legacy stream, which waits for all others: every
  stream here is non-blocking, and nothing runs without one.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import cupy
import cupyx
import numpy as np
from cupy.cuda import nvtx, runtime

from taskflow.backend.context import Array, is_resident, pointer
from taskflow.backend.cuda.arrays import Arrays, from_dlpack
from taskflow.backend.cuda.cublas import WORKSPACE, WORKSPACE_BYTES, Cublas
from taskflow.backend.cuda.cudnn import Cudnn, CudnnPlan, find_cudnn
from taskflow.backend.cuda.kernels import KernelTable
from taskflow.backend.cuda.mapped import bytes_at, mapped_memory
from taskflow.backend.cuda.queues import CudaStream, malloc, reach, synchronize
from taskflow.backend.cuda.ranks import FLAGS, communicator_bytes, make_communicators, rank_gpu_of
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.backend.streams import Call, Launcher, NotCapturable, StreamBackend
from taskflow.comm.transport import Transport
from taskflow.core.errors import InternalError
from taskflow.core.system import gpu_of

_ANY_DIRECTION = 4  # cudaMemcpyDefault
_REFUSALS = (NotCapturable, NotImplementedError, RuntimeError, TypeError)
_OPTIONS = ("--std=c++17",)

_log = logging.getLogger(__name__)


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
            raise ValueError(
                "executor: devices are of kind 'cuda', and CuPy finds no GPU and driver"
            )
        count: int = runtime.getDeviceCount()
        self._count = count
        self._is_checked = is_checked
        self.xp = Arrays(self)
        self._gpus: set[int] = set()  # that were used so far
        self._streams = weakref.WeakSet[CudaStream]()
        self._cudnn: dict[int, Cudnn | None] = {}
        self._kernels = KernelTable(_load_kernel)
        self._current: CudaStream | None = None

    def gpu(self, device: int) -> int:
        """The GPU of a device."""
        return gpu_of(device, self._count)

    def clock(self, device: int) -> int:
        return self.gpu(device)

    def name(self, device: int) -> str:
        name: str = runtime.getDeviceProperties(self.gpu(device))["name"].decode()
        return name

    def l2_bytes(self, device: int) -> int:
        return int(runtime.getDeviceProperties(self.gpu(device))["l2CacheSize"])

    # -- streams ---------------------------------------------------------------------------------------------------

    def make_stream(self, device: int, name: str) -> CudaStream:
        with cupy.cuda.Device(self._use(device)) as gpu:
            made = CudaStream(gpu.id)
        self._streams.add(made)
        return made

    def _use(self, device: int) -> int:
        """The GPU of a device, which can reach all that were used before."""
        return self._use_gpu(self.gpu(device))

    def _use_gpu(self, gpu: int) -> int:
        if gpu not in self._gpus:
            reach(self._gpus, gpu)
            self._gpus.add(gpu)
        return gpu

    def make_event(self, device: int, timed: bool = False) -> Any:
        with cupy.cuda.Device(self.gpu(device)):
            return cupy.cuda.Event(disable_timing=not timed)

    def run(self, stream: CudaStream, call: Call) -> None:
        previous = self._current
        self._current = stream
        try:
            with cupy.cuda.Device(stream.gpu), stream.stream:
                call()
        finally:
            self._current = previous

    def record(self, stream: CudaStream, event: Any) -> None:
        runtime.eventRecord(event.ptr, stream.stream.ptr)

    def wait(self, stream: CudaStream, event: Any) -> None:
        runtime.streamWaitEvent(stream.stream.ptr, event.ptr)

    def synchronize(self, event: Any) -> None:
        runtime.eventSynchronize(event.ptr)

    def seconds_between(self, first: Any, second: Any) -> float:
        return float(runtime.eventElapsedTime(first.ptr, second.ptr)) * 1e-3

    # -- memory ----------------------------------------------------------------------------------------------------

    def zeros(self, device: int, size_bytes: int) -> Array:
        if not size_bytes:
            return cupy.empty(0, np.uint8)  # type: ignore[no-any-return]
        with cupy.cuda.Device(self._use(device)):
            memory = cupy.cuda.MemoryPointer(malloc(size_bytes), 0)
            array: Array = cupy.ndarray((size_bytes,), np.uint8, memptr=memory)
            memory.memset(0, size_bytes)
            runtime.deviceSynchronize()
        return array

    def memory(self, device: int) -> tuple[int, int]:
        with cupy.cuda.Device(self.gpu(device)):
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def library_bytes(self, device: int) -> Mapping[str, int]:
        holders = sum(s.gpu == self.gpu(device) and s.has_workspace for s in self._streams)
        return {WORKSPACE: holders * WORKSPACE_BYTES} if holders else {}

    def pinned(self, size_bytes: int) -> Array:
        pinned: Array = cupyx.zeros_pinned((size_bytes,), np.uint8)
        return pinned

    def mapped(self, device: int, size_bytes: int) -> Array:
        pinned = self.pinned(size_bytes)
        return bytes_at(pinned.ctypes.data, size_bytes, pinned, self._use(device))

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
        synchronize(self._gpus)
        return np.array(cupy.asnumpy(array))

    def write(self, array: Array, value: Array) -> None:
        synchronize(self._gpus)
        with cupy.cuda.Device(array.device.id):  # type: ignore[attr-defined]
            array[...] = cupy.asarray(np.ascontiguousarray(value, array.dtype))
            runtime.deviceSynchronize()

    # -- other ranks -----------------------------------------------------------------------------------------------

    def rank_gpu(self, device: int) -> RankGpu:
        return rank_gpu_of(self.gpu(device))

    def shared_zeros(self, device: int, size_bytes: int, ranks: Transport) -> list[Array] | None:
        arrays, failure = mapped_memory().share(size_bytes, self._use(device), ranks)
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

    def kernel(self, source: CudaSource, name: str) -> Launcher:
        gpu = self._current.gpu if self._current else 0
        function = self._kernels.find(source.text, name, gpu, self.is_capturing)

        def launch(blocks: int, block: int, args: Sequence[Array | np.generic]) -> None:
            function((blocks,), (block,), tuple(args))

        return launch

    def blas(self) -> Cublas:
        """cuBLAS for the current stream."""
        if self._current is None:
            raise InternalError("a matrix product outside of a stream")
        blas = self._current.blas(self.is_capturing)
        blas.uses_tf32 = self.uses_tf32
        return blas

    def product(
        self, a: Array, b: Array, out: Array, epilogue: str, bias: Array | None, aux: Array | None
    ) -> bool:
        """A matrix product by cuBLASLt on the current stream; False where it cannot do it."""
        current = self._current
        if current is None:
            raise InternalError("a matrix product outside of a stream")
        lt = current.lt(self.is_capturing)
        return lt.matmul(
            current.ptr,
            a,
            b,
            out,
            epilogue,
            bias=bias,
            aux=aux,
            uses_tf32=self.uses_tf32,
            may_plan=not self.is_capturing,
        )

    def find_plan(
        self,
        operation: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        options: Mapping[str, Any],
    ) -> CudnnPlan | None:
        current = self._current
        assert current is not None, "kernels run on a stream"
        if not self.uses_cudnn:
            return None
        if current.gpu not in self._cudnn:
            self._cudnn[current.gpu] = find_cudnn(pointer)
        cudnn = self._cudnn[current.gpu]
        flags = (self.uses_tf32, not self.is_capturing)
        if cudnn is None:
            return None
        current.plans_with(cudnn)
        return cudnn.plan(current.ptr, operation, inputs, outputs, options, *flags)

    # -- graphs ----------------------------------------------------------------------------------------------------

    def capture(self, lead: CudaStream, issue: Call) -> Call:
        pool = cupy.cuda.MemoryPool()
        stream, graph, refusal, collects = lead.stream, None, None, gc.isenabled()
        gc.disable()  # what it would find may be memory and handles, whose end no capture survives
        with cupy.cuda.Device(lead.gpu), cupy.cuda.using_allocator(pool.malloc):
            stream.begin_capture()
            self.is_capturing = True
            try:
                issue()
            except _REFUSALS as error:
                refusal = error
            finally:
                self.is_capturing = False
                if collects:
                    gc.enable()
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

    def resident(self, stream: CudaStream, value: Any) -> Array | None:
        if not is_resident(value):
            return None
        array = from_dlpack(value, stream.ptr)
        self._use_gpu(array.device.id)
        return array  # type: ignore[no-any-return]

    @contextmanager
    def warm_step(self) -> Iterator[None]:
        if not self._is_checked:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "cupyx.allow_synchronize"
            )  # CuPy says that it may miss some
            refused = cupyx.allow_synchronize(False)
        with refused, cupy.cuda.using_allocator(_refuse_memory):
            yield


def _load_kernel(source: str, name: str) -> Any:
    return cupy.RawModule(code=source, options=_OPTIONS).get_function(name)


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
    facts = runtime.getDeviceProperties(number)
    ask = runtime.deviceGetAttribute
    lanes = (
        64 if (facts["major"], facts["minor"]) in ((7, 0), (7, 5), (8, 0)) else 128
    )  # of a multiprocessor
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
