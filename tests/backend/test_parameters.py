"""What is launched is held to the kernel's parameters: read from sources, converted, or refused."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import taskflow
from taskflow import CudaSource, Executor, Graph, Kernel, MachineModel, lower
from taskflow.backend.parameters import NOTHING
from tests import shim
from tests.fake_gpu.streams import FakeStreams

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "ops").rglob("*.cu"), *(ROOT / "taskflow").rglob("*.cu")])
COMMON = ROOT / "ops/cuda/common.cu"
needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def types_of(text, kernel):
    return [(p.name, p.type, p.dtype) for p in NOTHING.and_of(text).signatures[kernel].parameters]


# -- reading -----------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "flags.cu"], ids=lambda p: p.name)
def test_every_kernel_of_ours_is_read_as_a_compiler_reads_it(path):
    source = CudaSource(path)
    for name, kinds in shim.kernels_in(source.text).items():
        read = source.signature(name).parameters
        assert [p.is_pointer for p in read] == [kind is shim.ctypes.c_void_p for kind in kinds], (
            name
        )
        assert all(p.dtype for p in read), name
        for parameter, kind in zip(read, kinds):
            size = shim.ctypes.sizeof(kind)
            assert parameter.is_pointer or np.dtype(parameter.dtype).itemsize == size, (
                name,
                parameter,
            )


def test_parameters_behind_macros_and_names_of_types():
    text = """
    typedef unsigned long long u64;  // a comment, with (parentheses)
    using Index = long long;
    #define SHAPE(p) Index p##_rows, Index p##_columns
    #define MAKE(T, name) \\
      extern "C" __global__ void __launch_bounds__(128) fill_##name(T* __restrict__ out, \\
          const u64 *keys, SHAPE(n), float s) {                                              \\
        if (s > 0) { out[0] = s; } \\
      }
    MAKE(double, float64)
    """
    assert types_of(text, "fill_float64") == [
        ("out", "double*", "float64"),
        ("keys", "const u64*", "uint64"),
        ("n_rows", "Index", "int64"),
        ("n_columns", "Index", "int64"),
        ("s", "float", "float32"),
    ]


def test_kernels_of_one_linkage_block_and_types_of_their_own():
    text = """extern "C" {
    struct Pair { float a, b; };
    __global__ void first(Pair* pairs, unsigned int n, size_t m) { if (n) { pairs->a = 0; } }
    __global__ void second(const __half* x, const float* const y, short int k, unsigned char c) {}
    }"""
    assert types_of(text, "first") == [
        ("pairs", "Pair*", ""),
        ("n", "unsigned int", "uint32"),
        ("m", "size_t", "uint64"),
    ]
    assert [dtype for *_, dtype in types_of(text, "second")] == [
        "float16",
        "float32",
        "int16",
        "uint8",
    ]


def test_a_kernel_that_is_not_there():
    with pytest.raises(
        ValueError,
        match=r"^CUDA kernel 'nothing': casts.cu has no kernel of that name; it has cast_bf",
    ):
        taskflow.backend.sources.CASTS.signature("nothing")


# -- holding -----------------------------------------------------------------------------------------------------------

TEXT = """
extern "C" __global__ void scale_float32(const float* x, float* y, double s, long long n) {
  if (THREAD < n) y[THREAD] = (float)(x[THREAD] * s);
}
extern "C" __global__ void scale_float16(const float16* x, float16* y, double s, long long n) {
  if (THREAD < n) y[THREAD] = (float)(x[THREAD] * s);
}
extern "C" __global__ void count(int* y, int n, unsigned char small, float s) { if (THREAD < n) y[THREAD] = small; }
"""
SOURCE = CudaSource(COMMON, TEXT)
X, HALF = np.ones(4, np.float32), np.ones(4, np.float16)
SIGNATURE, COUNT = SOURCE.signature("scale_float32"), SOURCE.signature("count")


@pytest.mark.parametrize(
    "number",
    [3, np.float32(3), np.int64(3), np.float16(3), Fraction(3), True, np.bool_(True)],
    ids=repr,
)
def test_numbers_become_what_the_kernel_takes(number):
    *_, s, n = SIGNATURE.hold([X, X, number, np.uint8(4)])
    assert type(s) is np.float64 and s == float(number)
    assert type(n) is np.int64 and n == 4


def test_a_null_pointer():
    x, *_ = SIGNATURE.hold([0, X, 1.0, 4])
    assert x == 0 and x.nbytes == 8


WHERE = "CUDA kernel 'scale_float32': parameter "
REFUSED = [
    (
        SIGNATURE,
        (HALF, X, 1.0, 4),
        WHERE + "'x' is const float*, and the argument is an array of float16",
    ),
    (
        SIGNATURE,
        (X, HALF, 1.0, 4),
        WHERE + "'y' is float*, and the argument is an array of float16",
    ),
    (SIGNATURE, (X, X, X, 4), WHERE + "'s' is double, and the argument is an array of float32"),
    (SIGNATURE, (X, X, "1", 4), WHERE + "'s' is double, and the argument is the str '1'"),
    (SIGNATURE, (X, X, None, 4), WHERE + "'s' is double, and the argument is the NoneType None"),
    (SIGNATURE, (X, X, 1j, 4), WHERE + "'s' is double, and the argument is the complex 1j"),
    (SIGNATURE, (X, X, 1.0, 4.5), WHERE + "'n' is long long, and the argument is the float 4.5"),
    (SIGNATURE, (X, X, 1.0, 4.0), WHERE + "'n' is long long, and the argument is the float 4.0"),
    (
        SIGNATURE,
        (X, X, 1.0, 1 << 63),
        WHERE + "'n' is long long, and 9223372036854775808 does not fit",
    ),
    (SIGNATURE, (7, X, 1.0, 4), WHERE + "'x' is const float*, and the argument is the int 7"),
    (
        SIGNATURE,
        (X, X, 1.0),
        "CUDA kernel 'scale_float32': it takes 4 arguments (x, y, s, n), not 3: 'n' is missing",
    ),
    (
        SIGNATURE,
        (X, X, 1.0, 4, 5),
        "CUDA kernel 'scale_float32': it takes 4 arguments (x, y, s, n), not 5",
    ),
    (
        COUNT,
        (X.view(np.int32), (1 << 31) + 8, 1, 1.0),
        "CUDA kernel 'count': parameter 'n' is int, and 2147483656 does not fit",
    ),
    (
        COUNT,
        (X.view(np.int32), 1, 256, 1.0),
        "CUDA kernel 'count': parameter 'small' is unsigned char, and 256 does not fit",
    ),
    (
        COUNT,
        (X.view(np.int32), 1, 1, 1e39),
        "CUDA kernel 'count': parameter 's' is float, and 1e+39 does not fit",
    ),
    (
        COUNT,
        (X, 1, 1, 1.0),
        "CUDA kernel 'count': parameter 'y' is int*, and the argument is an array of float32",
    ),
]


@pytest.mark.parametrize(
    "signature, args, message", REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_a_kernel_cannot_take_is_refused(signature, args, message):
    with pytest.raises((TypeError, ValueError)) as error:
        signature.hold(args)
    assert str(error.value) == message


def test_more_blocks_than_a_gpu_has():
    with pytest.raises(
        ValueError,
        match=r"^CUDA kernel 'scale_float32': 2147483648 blocks of 256 threads; GPUs have at",
    ):
        FakeStreams().launch(SOURCE, "scale_float32", 1 << 39, (X, X, 1.0, 1 << 39))
    with pytest.raises(
        ValueError,
        match=r"^CUDA kernel 'scale_float32': 1 blocks of 2048 threads; GPUs have at most",
    ):
        FakeStreams().launch(SOURCE, "scale_float32", 4, (X, X, 1.0, 4), 2048)


# -- the stand-in ------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize(
    "args, what",
    [
        ((X, X, 1, np.int64(4)), "'s' is double, and gets the int 1"),
        ((X, X, np.float32(1), np.int64(4)), "'s' is double, and gets float32"),
        ((X, X, np.int64(1), np.int64(4)), "'s' is double, and gets int64"),
        ((X, HALF, np.float64(1), np.int64(4)), "'y' is float*, and gets float16"),
        ((HALF, X, np.float64(1), np.int64(4)), "'x' is const float*, and gets float16"),
        ((X, X, np.float64(1)), "scale_float32: 3 arguments"),
    ],
)
def test_the_stand_in_is_no_kinder_than_a_gpu(args, what):
    with pytest.raises(AssertionError) as error:
        shim.ShimStreams().kernel(SOURCE, "scale_float32")(1, 32, args)
    assert what in str(error.value)


@needs_compiler
def test_a_gpu_reads_bits():
    """Of an integer that nobody converted: what a GPU makes of it, which converting would hide."""
    (found,) = np.frombuffer(shim.bits_of(np.int64(1)))
    assert found == np.int64(1).view(np.float64) != 1.0


def scaled(number, dtype="float32", **half):
    """A custom operator with a kernel of its own, which passes what the user gave."""

    def on_gpu(ctx, x, y):
        ctx.launch(SOURCE, f"scale_{y.dtype}", x.size, x, y, number, x.size)

    def kernel(ctx, x, y):
        ctx.xp.multiply(x, number, out=y)

    graph = Graph()
    x = graph.input("x", (4,), dtype)
    y = graph.launch("scale", "b -> b", [x], kernel=Kernel(kernel, cuda=Kernel(on_gpu, **half)))
    graph.output("y", y)
    return graph


def run(graph):
    machine = MachineModel.uniform(1).with_rates(kind="cuda")
    rows = lower(graph, taskflow.single_device(graph, machine), machine)
    with Executor(rows, backend=shim.ShimStreams(), record=False) as step:
        return step({"x": np.arange(4, dtype=np.float32)})["y"]


@needs_compiler
@pytest.mark.parametrize("number", [3, 3.0, np.float32(3), np.float64(3), np.int32(3)], ids=repr)
def test_a_custom_operator_gets_the_number_that_its_user_gave(number):
    np.testing.assert_array_equal(run(scaled(number)), [0, 3, 6, 9])


@needs_compiler
@pytest.mark.parametrize("half", [{}, {"takes_half": True}], ids=str)
def test_a_custom_operator_reads_a_feed_in_half_precision(half):
    """The feed stays float32 and the result is float16: it gets both in float32."""
    graph = taskflow.precision(scaled(3.0, **half), "float16")
    np.testing.assert_array_equal(run(graph), [0, 3, 6, 9])


@needs_compiler
def test_one_that_says_that_it_takes_both_is_held_to_that():
    graph = taskflow.precision(scaled(3.0, takes_mixed=True), "float16")
    with pytest.raises(
        TypeError,
        match="'scale_float16': parameter 'x' is const float16\\*, and the argument is an array of float32",
    ):
        run(graph)
