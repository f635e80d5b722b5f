"""Kernels over rows as C++, on arrays of their own: rows that begin anywhere, sorted indices, sums in chunks."""

import numpy as np
import pytest

import ops
from ops.cuda import rows, tables
from ops.cuda.flash import flash_source
from ops.cuda.implicit import kernel_source
from taskflow import Executor, Graph, MachineModel, Rect, lower, single_device
from tests import shim
from tests.ops.launches import Launches
from tests.ops.ptx import compile_to_ptx, kernels_that_divide_in_loops, loops
from tests.ops.test_gpu import SOURCES
from tests.sampling import IS_THOROUGH

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
DTYPES = "float32", "bfloat16"
TOLERANCE = {"float32": 1e-6, "float64": 1e-13, "float16": 1e-3}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width, classes", [(1, 1), (7, 7), (1003, 1003), (1024, 1003), (301, 5)])
def test_cross_entropy_of_rows_that_begin_anywhere(width, classes, dtype):
    """Rows of an odd width begin at other places of 16 bytes; what is padded may hold anything."""
    rng, wide = np.random.default_rng(0), np.float64 if dtype == "float64" else np.float32
    y, t = (3 * rng.normal(size=(9, width))).astype(dtype), rng.integers(0, classes, 9)
    y[:, classes:] = np.nan
    y[0, : classes // 2] = -np.inf
    t[0] = classes - 1
    loss, levels, gy = np.empty((), wide), np.empty(9, wide), np.full_like(y, np.nan)
    options = {"classes": classes, "count": 9}
    rows.cross_entropy.function(Launches(), y, t, loss, levels, **options)
    rows.cross_entropy_gradient.function(Launches(), np.array(2, wide), y, levels, t, gy, **options)
    again, both = np.empty((), wide), np.full_like(y, np.nan)
    arrays = y, t, np.array(2, wide), again, both
    rows.cross_entropy_and_gradient.function(Launches(), *arrays, **options)
    assert np.array_equal(both, gy) and again == pytest.approx(loss, rel=1e-6)
    expected = softmax(y[:, :classes].astype(np.float64))
    right = expected[np.arange(9), t]
    assert float(loss) == pytest.approx(-np.log(right).mean(), rel=1e-6)
    expected[np.arange(9), t] -= 1
    np.testing.assert_allclose(gy[:, :classes], expected * 2 / 9, atol=TOLERANCE[dtype])
    assert not gy[:, classes:].any()


@needs_compiler
@pytest.mark.parametrize("width", [3, 2300])  # more columns than a thread keeps sums of
def test_gradients_of_a_norm_at_once_are_those_one_by_one(width):
    rng = np.random.default_rng(0)
    gy, x, more = rng.normal(size=(3, 5, width))
    mean, scale, weight = x.mean(axis=1), 1 / x.std(axis=1), rng.normal(size=width)
    known, gx, both = (gy, x, mean, scale), np.empty_like(x), np.empty_like(x)
    sums, together = np.empty((2, width)), np.empty((2, width))
    rows.gradient_rows.function(Launches(), *known, weight, gx)
    rows.row_sums.function(Launches(), *known, *sums)
    arrays = *known, weight, more, both, *together
    rows.gradient_rows_sum.function(Launches(), *arrays, is_first=False)
    np.testing.assert_allclose(both, gx + more, rtol=1e-12)
    np.testing.assert_allclose(together, sums, rtol=1e-12)
    np.testing.assert_allclose(sums[1], gy.sum(axis=0), rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_softmax_of_rows_that_do_not_begin_alike(dtype, offset):
    rng = np.random.default_rng(0)
    memory = np.zeros(5 * 77 + 3, dtype)
    x, y = memory[offset : offset + 5 * 77].reshape(5, 77), np.empty((5, 77), dtype)
    x[...] = rng.normal(size=x.shape)
    rows.softmax.function(Launches(), x, y, dim=1)
    expected = softmax(x.astype(np.float64))
    np.testing.assert_allclose(y, expected, atol=TOLERANCE[dtype])
    g, gx = rng.normal(size=x.shape).astype(dtype), np.empty_like(y)
    x[...] = y
    rows.softmax_gradient.function(Launches(), g, x, gx, dim=1)
    g, y = g.astype(np.float64), y.astype(np.float64)
    np.testing.assert_allclose(
        gx, (g - (g * y).sum(axis=1, keepdims=True)) * y, atol=TOLERANCE[dtype]
    )


class Look(Launches):
    """A context of a task that has the rows of a table from `lo` on."""

    def __init__(self, lo):
        super().__init__([Rect((0,), (1,))])
        self._lo = lo

    def interval(self, axis):
        return self._lo, None


@needs_compiler
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    "count, high, bag, launches",
    [
        (1, 3, 1, 2),
        (31, 4, 1, 2),
        (33, 1, 1, 3),
        (1000, 7, 5, 3),
        (5000, 2000, 1, 4),
        (70_000, 300_000, 2, 5),
    ],
)
def test_the_gradient_of_a_look_up_sums_sorted_indices(count, high, bag, launches, dtype):
    """Of one run, of several, and of more than are merged at once; indices of other tasks, and such as are none."""
    rng, width = np.random.default_rng(0), 3
    index = rng.integers(-1, high, (count // bag, bag)).astype(dtype)
    lo, size = high // 3, max(high // 2, 1)
    index[: len(index) // 4] = lo  # one that many chunks have
    gy = rng.normal(size=(len(index), width)).astype(np.float32)
    table = np.ones((size, width), np.float32)
    expected = table.astype(np.float64)
    local = index.reshape(-1).astype(np.int64) - lo
    is_mine = (local >= 0) & (local < size)
    np.add.at(expected, local[is_mine], gy.astype(np.float64).repeat(bag, axis=0)[is_mine])
    found = []
    for _ in range(2):
        context, sums = Look(lo), table.copy()
        tables.scatter_add(context, gy, index, lo, sums, bag)
        assert len(context.names) == launches
        found.append(sums)
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=1e-4)
    np.testing.assert_array_equal(found[0], found[1])


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(tables, "_MOST_KEYS", 4)
    with pytest.raises(
        ValueError, match="an embedding on a GPU: 5 rows and 2 indices of a tile, more than 4"
    ):
        tables.scatter_add(Look(0), np.ones((2, 3)), np.zeros(2, int), 0, np.ones((5, 3)))


@needs_compiler
def test_too_many_windows_are_refused():
    graph = Graph()
    graph.output("y", ops.adaptive_avg_pool2d(graph.input("x", (1, 1, 1, 50_000)), (1, 50_000)))
    machine = MachineModel.uniform(1).with_rates(kind="cuda")
    task_graph = lower(graph, single_device(graph, machine), machine)
    with pytest.raises(
        ValueError, match="50000 windows over 50000 points are more than kernels count"
    ):
        Executor(task_graph, backend=shim.ShimStreams()).__enter__()


# -- PTX ---------------------------------------------------------------------------------------------------------------

CHECKS = "check.cu"  # looks at arrays with any steps, outside of a step
MADE = [flash_source("float32", 64), flash_source("bfloat16", 64)]
MADE += [
    kernel_source(k, d, 64, 32)
    for k in ("convolve", "slopes_of_image", "slopes_of_weight")
    for d in DTYPES
]
READ = [s for s in [*SOURCES, *MADE[:: 1 if IS_THOROUGH else 4]] if s.path.name != CHECKS]


@pytest.mark.parametrize("source", READ, ids=lambda s: f"{s.path.name} {s.generated}".strip())
def test_no_kernel_divides_by_64_bits_in_a_loop(source):
    """Such a division takes some 70 instructions, what it finds the place of takes one."""
    assert not kernels_that_divide_in_loops(compile_to_ptx(source.text))


def test_a_division_in_a_loop_is_found():
    text = """extern "C" __global__ void divides(long long* x, long long n) {
      for (long long k = 0; k < n; ++k) x[k] = x[k] / n;
    }
    extern "C" __global__ void divides_once(long long* x, long long n) {
      long long each = x[0] / n;
      for (long long k = 0; k < n; ++k) x[k] += each;
    }"""
    ptx = compile_to_ptx(text)
    assert kernels_that_divide_in_loops(ptx) == ["divides"]
    assert {name for name, _ in loops(ptx)} == {"divides", "divides_once"}
