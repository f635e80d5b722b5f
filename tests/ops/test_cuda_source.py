"""Kernels made from expressions: arrays of any layout and dtype, sums and maxima of any size, and sources for GPUs."""

from collections import defaultdict

import numpy as np
import pytest

from ops.expressions import cuda_source
from ops.expressions.expression import Expression
from ops.expressions.passes import evaluate
from ops.expressions.program import result_of
from taskflow import CudaSource
from tests import shim
from tests.test_docs import ROOT, load
from tests.traced import TracedStreams

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
TEXT = (
    "exp(x) + expm1(y) - log(max(x, 0.5)) * log1p(abs(y)) + sin(x) / (1 + cos(y) ** 2) + tanh(x) * sqrt(abs(y)) "
    "+ sign(x) + min(x, a) * (x < y) + (x >= a) + (x == y) + (x != a) + fmod(x, y)"
)


class Context:
    """What generated kernels need of a context, on the CPU."""

    is_cuda, xp = True, np

    def __init__(self):
        self.launched = []

    def scratch(self, slot, shape, dtype):
        return np.full(shape, np.nan, dtype)

    def launch(self, source, name, threads, *args, block=256):
        self.launched.append((source, threads))
        shim.ShimStreams().launch(source, name, threads, args, block)


class OnCpu(Context):
    is_cuda = False


def numbers(shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def expected(text, values, shape):
    out = np.empty(shape)
    evaluate(OnCpu(), Expression.parse(text), values, out)
    return out


@needs_compiler
def test_every_function_in_one_kernel():
    values = {"x": numbers((5, 7)), "y": numbers((5, 7), 1), "a": 0.25}
    ctx, out = Context(), np.empty((5, 7))
    cuda_source.evaluate(ctx, Expression.parse(TEXT), values, out)
    np.testing.assert_allclose(out, expected(TEXT, values, (5, 7)), rtol=1e-13, atol=1e-13)
    assert len(ctx.launched) == 1


@needs_compiler
@pytest.mark.parametrize("layout", ["turned", "parts", "repeated", "backwards", "scalar"])
def test_arrays_of_any_layout(layout):
    x, y, out = numbers((4, 5, 6)), numbers((4, 5, 6), 1), np.empty((4, 5, 6))
    if layout == "turned":
        x, out = numbers((6, 5, 4)).T, np.empty((5, 4, 6)).transpose(1, 0, 2)
    elif layout == "parts":
        x, out = numbers((4, 9, 6))[:, 2:7], np.empty((4, 5, 8))[..., 1:7]
    elif layout == "repeated":
        x, y = numbers((5, 1)), numbers((4, 1, 6))
    elif layout == "backwards":
        x = numbers((4, 5, 6))[:, ::-1, ::2].repeat(2, axis=2)[::-1]
    else:
        y = np.array(3.0)
    cuda_source.evaluate(Context(), Expression.parse("x * y + 1"), {"x": x, "y": y}, out)
    np.testing.assert_allclose(out, x * y + 1)


@needs_compiler
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_sums_and_maxima_over_any_axes(axes, kind):
    x, y = numbers((4, 5, 6)).transpose(1, 0, 2), numbers((6,), 1)
    out = np.empty([1 if k in axes else n for k, n in enumerate(x.shape)])
    cuda_source.reduce(Context(), Expression.parse("x * y"), {"x": x, "y": y}, out, axes, kind, 2.0)
    np.testing.assert_allclose(
        out, getattr(np, kind)(x * y, axis=axes, keepdims=True) / 2, atol=1e-12
    )


@needs_compiler
def test_a_long_sum_is_shared_among_blocks_and_is_always_the_same():
    x, found = numbers(50_000, dtype="float32"), []
    for _ in range(2):
        ctx, out = Context(), np.empty(1, np.float32)
        cuda_source.reduce(ctx, Expression.parse("x"), {"x": x}, out, (0,))
        found.append(out[0])
    assert ctx.launched[0][1] == 12 * 256
    assert found[0] == found[1] and abs(found[0] - x.sum(dtype=np.float64)) < 1e-2


@needs_compiler
@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize(
    "shape, axes, blocks",
    [
        ((40, 3), (0,), 1),
        ((9, 70), (0,), 3),
        ((5000, 33), (0,), 2 * 39),
        ((4, 9, 5, 16), (0, 1, 2), 1),
        ((4, 300, 20), (1,), 3 * 2),
        ((6, 50), (1,), 6),  # what is summed lies beside each other
    ],
)
def test_columns_are_summed_side_by_side(shape, axes, blocks, kind):
    """What lies beside each other is read by threads beside each other."""
    x, ctx = np.random.default_rng(0).normal(size=shape), Context()
    out = np.full([1 if k in axes else n for k, n in enumerate(shape)], np.nan)
    cuda_source.reduce(ctx, Expression.parse("x * 2"), {"x": x}, out, axes, kind)
    wanted = (x * 2).sum(axes, keepdims=True) if kind == "sum" else (x * 2).max(axes, keepdims=True)
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)
    assert ctx.launched[0][1] == blocks * 256


@needs_compiler
def test_numbers_of_half_size_are_rounded_once():
    x, y = numbers((3, 40), dtype="float16"), numbers((3, 40), 1, "float16")
    out, total = np.empty((3, 40), np.float16), np.empty((3, 1), np.float32)
    cuda_source.evaluate(Context(), Expression.parse("x * y + x"), {"x": x, "y": y}, out)
    wide = x.astype("f4") * y.astype("f4") + x.astype("f4")
    np.testing.assert_array_equal(out, wide.astype(np.float16))
    cuda_source.reduce(Context(), Expression.parse("x * y + x"), {"x": x, "y": y}, total, (1,))
    np.testing.assert_allclose(total, wide.sum(axis=1, keepdims=True), rtol=1e-5)


@needs_compiler
def test_integers_booleans_and_not_a_number():
    t, x, out = np.array([1, 2, 3], np.int32), np.array([1.0, np.nan, 5.0]), np.empty(3, bool)
    cuda_source.evaluate(Context(), Expression.parse("x == t"), {"x": x, "t": t}, out)
    np.testing.assert_array_equal(out, [True, False, False])
    most = np.empty(1)
    cuda_source.reduce(Context(), Expression.parse("x"), {"x": x}, most, (0,), "max")
    assert np.isnan(most[0])
    chosen = np.empty(3)
    cuda_source.evaluate(
        Context(), Expression.parse("where(c, x, 0)"), {"c": t > 1, "x": x}, chosen
    )
    np.testing.assert_array_equal(chosen, [0, np.nan, 5])


@pytest.mark.parametrize(
    "dtypes, architecture",
    shim.architectures_of([("float32", "int64"), ("float64", "bool"), ("float16", "bfloat16")]),
)
def test_sources_compile_for_gpus(dtypes, architecture):
    names = (("a", ""), ("x", dtypes[0]), ("y", dtypes[1]))
    for source, _ in (
        cuda_source._map(result_of(Expression.parse(TEXT)), (*names, ("out", dtypes[0])), 3),
        cuda_source._reduction(Expression.parse(TEXT), names, dtypes[0], 2, 2, "sum"),
        cuda_source._reduction(Expression.parse("x"), names[1:2], dtypes[0], 0, 1, "max"),
    ):
        assert len(shim.compile_for(source.text, architecture)) > 0


@pytest.fixture
def made_for_operators(monkeypatch):
    """Text of the table of what operators and models run on GPUs, and name -> source of the kernels made for it."""
    found, kernel = {}, TracedStreams.kernel

    def noted(self, source, name):
        if name.startswith("generated_"):
            found[name.removesuffix("_end")] = source
        return kernel(self, source, name)

    monkeypatch.setattr(TracedStreams, "kernel", noted)
    table = load("cuda_operators")
    return table.text() + table.LAUNCHES, found


def test_the_table_is_up_to_date_and_its_kernels_compile_for_gpus(made_for_operators):
    """All of one dtype to compute in, and what they share once, are one program."""
    text, sources = made_for_operators
    assert (ROOT / "docs" / "cuda_operators.md").read_text(encoding="utf-8").startswith(text), (
        "run `make docs`"
    )
    common, programs = CudaSource(cuda_source._COMMON).text, defaultdict(list)
    for source in (each.text for each in sources.values()):
        assert source.startswith(common)
        programs[source.removeprefix(common).split(";")[0].strip()].append(
            source.removeprefix(common)
        )
    assert set(programs) == {"typedef double A", "typedef float A"}
    assert sum(map(len, programs.values())) > 100
    for (wide, kernels), architecture in zip(
        sorted(programs.items()), ("sm_80", "sm_90"), strict=True
    ):
        text = "\n".join([common, *kernels])
        assert len(shim.compile_for(text, architecture)) > 0, wide
