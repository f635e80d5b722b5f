"""The stub finds what is wrong: one wrong program for each rule that other tests rely on."""

import contextlib
import ctypes

import cupy
import numpy as np
import pytest
from cupy.cuda import runtime

from taskflow.backend.cuda.arrays import Arrays
from taskflow.backend.cuda.cublas import Cublas
from taskflow.backend.cuda.queues import CudaStream, malloc
from tests.backend.test_parameters import SOURCE
from tests.stub import stub
from tests.stub.runs import HeldStreams

TEXT = 'extern "C" __global__ void add(float* x, long long n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }'
WIDE = """extern "C" __global__ void wide(float* x) {
  __shared__ float s[12000];
  s[threadIdx.x] = *x;
  __syncthreads();
  *x = s[11999 - threadIdx.x];
}"""


@pytest.fixture(autouse=True)
def first_gpu():
    stub.take_faults()
    with cupy.cuda.Device(0):
        yield
    assert not stub.take_faults(), "a test takes what it has done"


def the_only_fault():
    (found,) = set(stub.take_faults())
    return found


def kernel(text=TEXT, name="add"):
    return cupy.RawModule(code=text).get_function(name)


def launch(stream, array, block=32, add=None):
    with stream:
        (add or kernel())((1,), (block,), (array, 1))


def stream():
    return cupy.cuda.Stream(non_blocking=True)


def on_gpu(gpu, make):
    with cupy.cuda.Device(gpu):
        return make()


def floats(count=32):
    memory = malloc(4 * count)
    return cupy.ndarray((count,), "float32", cupy.cuda.MemoryPointer(memory, 0))


def test_a_right_program_has_none():
    launch(stream(), floats())
    assert stub.take_faults() == []


def test_an_event_on_a_stream_of_another_device():
    event, other = cupy.cuda.Event(), on_gpu(1, stream)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidResourceHandle"):
        runtime.eventRecord(event.ptr, other.ptr)
    assert the_only_fault() == "an event of device 0 is recorded on a stream of device 1"


def test_memory_of_another_device_without_access():
    launch(stream(), on_gpu(1, floats))
    assert the_only_fault().startswith(
        "memory of device 1 on device 0 without access: kernel 0 1 32 add"
    )


def test_memory_that_is_gone():
    array = floats()
    address = array.data.ptr
    del array
    kernel()((1,), (32,), (address, 1), stream=stream())
    assert the_only_fault().startswith(f"memory that is gone, or never was: {address:#x} in kernel")


def test_too_many_threads():
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        launch(stream(), floats(), 2048)
    assert the_only_fault() == "kernel add of 1 x 2048 threads: too many threads in a block"


def test_too_much_shared_memory():
    wide = kernel(WIDE, "wide")
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        wide((1,), (32,), (floats(),), shared_mem=4096, stream=stream())
    assert the_only_fault().endswith("too much shared memory")


def test_work_on_the_default_stream_during_a_step():
    array, add = floats(), kernel()
    with stub.warm_steps():
        add((1,), (32,), (array, 1))
    assert the_only_fault() == "in a warm step: work on a default stream"


@pytest.mark.parametrize(
    "call, what",
    [
        (lambda: malloc(512), "memory is taken"),
        (runtime.deviceSynchronize, "the host waits for a device"),
        (stream, "a stream is made"),
        (cupy.cuda.Event, "an event is made"),
    ],
)
def test_what_a_warm_step_must_not_do(call, what):
    with stub.warm_steps():
        made = call()
    assert the_only_fault() == f"in a warm step: {what}"
    del made


def captured(issue, lead):
    """Why a capture of what is issued fails."""
    lead.begin_capture()
    with contextlib.suppress(runtime.CUDARuntimeError):
        issue()
    with pytest.raises(runtime.CUDARuntimeError) as error:
        lead.end_capture()
    return str(error.value).split(":")[0]


def fork(lead, other):
    event = cupy.cuda.Event(disable_timing=True)
    runtime.eventRecord(event.ptr, lead.ptr)
    runtime.streamWaitEvent(other.ptr, event.ptr)


def test_a_stream_that_is_not_joined():
    lead, other, array, add = stream(), stream(), floats(), kernel()

    def issue():
        fork(lead, other)
        launch(other, array, add=add)

    assert captured(issue, lead) == "cudaErrorStreamCaptureUnjoined"
    assert the_only_fault() == "a stream is not joined at the end of a capture"


def test_an_event_from_outside_of_a_capture():
    lead, event = stream(), cupy.cuda.Event(disable_timing=True)
    runtime.eventRecord(event.ptr, lead.ptr)
    assert (
        captured(lambda: runtime.streamWaitEvent(lead.ptr, event.ptr), lead)
        == "cudaErrorStreamCaptureInvalidated"
    )
    assert the_only_fault() == "a capture ends by: a wait for an event from outside of it"


def test_a_host_that_waits_during_a_capture():
    lead = stream()
    assert captured(runtime.deviceSynchronize, lead) == "cudaErrorStreamCaptureInvalidated"
    assert the_only_fault() == "a capture ends by: the host waits for a device"


def gemm(where, m, n, k, arrays, types=(0, 0, 0), leading=None, compute=68):
    """A product of cuBLAS on a stream, its operands as they are told; its status."""
    blas, one = Cublas(malloc, where.ptr), ctypes.c_float(1)
    (a, b, c), (lda, ldb, ldc) = arrays, leading or (m, k, m)
    sides = [(x.data.ptr, t, ld, 0) for x, t, ld in zip((a, b, c), types, (lda, ldb, ldc))]
    address = ctypes.addressof(one)
    call = blas._library.cublasGemmStridedBatchedEx
    return call(
        blas._handle,
        0,
        0,
        m,
        n,
        k,
        address,
        *sides[0],
        *sides[1],
        address,
        *sides[2],
        1,
        compute,
        -1,
    )


def test_products():
    arrays = [floats(64) for _ in range(3)]
    assert gemm(stream(), 8, 8, 8, arrays) == 0
    assert gemm(stream(), 8, 9, 8, arrays) == 7
    assert "B runs over the end of its memory" in the_only_fault()
    assert gemm(stream(), 8, 8, 8, arrays, leading=(4, 8, 8)) == 7
    assert "A has 8 rows and a leading dimension of 4" in the_only_fault()
    assert gemm(stream(), 4, 4, 4, arrays, types=(0, 14, 0)) == 15
    assert "types 0, 14 to 0" in the_only_fault()


def test_a_handle_on_another_device():
    assert gemm(on_gpu(1, stream), 4, 4, 4, [floats()] * 3) == 7
    assert "a handle is used on another device than its own" in the_only_fault()


def test_a_workspace_of_two_streams():
    first, second, shared = stream(), stream(), malloc(32 << 20)
    arrays = [floats(64) for _ in range(3)]
    for where in (first, second):
        blas = Cublas(lambda size: shared, where.ptr)
        blas.matmul(*(a.reshape(8, 8) for a in arrays), cupy)
    assert the_only_fault() == "a workspace is used by two streams"


def test_a_copy_from_memory_that_is_not_pinned():
    array, host = floats(), bytearray(128)
    address = ctypes.addressof(ctypes.c_char.from_buffer(host))
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.memcpyAsync(array.data.ptr, address, 128, 4, stream().ptr)
    assert "memory that is not pinned" in the_only_fault()


def test_streams_that_wait_for_the_default_stream():
    cupy.cuda.Stream()
    assert the_only_fault() == "a stream that waits for the default stream"


def test_our_streams_wait_for_no_other():
    launch(CudaStream(0).stream, floats())
    assert stub.take_faults() == []


def launched(args, kernel="scale_float32", source=SOURCE):
    backend = HeldStreams()
    backend.run(
        backend.make_stream(0, "compute"), lambda: backend.launch(source, kernel, 4, args, 32)
    )


@pytest.mark.parametrize("number", [1, 1.0, np.float32(1), np.int64(1)], ids=repr)
def test_numbers_are_converted_to_what_a_kernel_takes(number):
    launched((floats(), floats(), number, np.int32(4)))
    assert stub.take_faults() == []


@pytest.mark.parametrize(
    "args, what",
    [
        (
            lambda: (floats().astype("float16"), floats(), 1.0, 4),
            "'x' is const float*, and the argument is an array of float16",
        ),
        (
            lambda: (floats(), floats().astype("float16"), 1.0, 4),
            "'y' is float*, and the argument is an array of float16",
        ),
        (
            lambda: (floats(), floats(), 1.0),
            "it takes 4 arguments (x, y, s, n), not 3: 'n' is missing",
        ),
        (
            lambda: (floats(), floats(), floats(), 4),
            "'s' is double, and the argument is an array of float32",
        ),
        (
            lambda: (floats(), floats(), 1.0, 0.5),
            "'n' is long long, and the argument is the float 0.5",
        ),
    ],
)
def test_what_a_kernel_cannot_take(args, what):
    with pytest.raises(TypeError) as error:
        launched(args())
    assert str(error.value).startswith("CUDA kernel 'scale_float32': ") and what in str(error.value)
    stub.take_faults()  # of CuPy's own streams, on which the seeds were made


@pytest.mark.parametrize("number", [1, np.float32(1)], ids=repr)
def test_what_nobody_converted(number):
    """The stub is no kinder than a GPU, which would read other bits."""
    backend = HeldStreams()
    with pytest.raises(AssertionError, match="'s' is double, and gets"):
        backend.kernel(SOURCE, "scale_float32")(1, 32, (floats(), floats(), number, np.int64(4)))
    stub.take_faults()


def test_more_elements_than_32_bits_count():
    many = (1 << 31) + 8
    with pytest.raises(ValueError, match=f"'n' is int, and {many} does not fit"):
        launched((floats().view("int32"), many, 1, 1.0), "count")
    large = cupy.broadcast_to(floats(1), (many,))
    with pytest.raises(ValueError, match=f"cupy.argmax: argument 1 has {many} elements"):
        Arrays(None).argmax(large)
    stub.take_faults()
