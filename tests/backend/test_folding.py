"""Folds on GPUs: their kernels compile, and as C++ give the bits of the CPU's folds."""

import numpy as np
import pytest

from taskflow.backend.cuda.launches import fold_source
from taskflow.execute.fold import fold
from tests import shim

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool")


def dtype_of(name):
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name)


@pytest.mark.parametrize("dtype, architecture", shim.architectures_of(DTYPES))
def test_a_fold_compiles_for_gpus(dtype, architecture):
    for combine, parts, ndim in (("sum", 4, 1), ("max", 2, 3)):
        source, name = fold_source(combine, dtype, parts, ndim)
        assert len(shim.compile_for(source.text, architecture)) > 0, name


@needs_compiler
@pytest.mark.parametrize("combine", ["sum", "max"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fold_has_the_bits_of_the_cpu(dtype, combine):
    random = np.random.default_rng(0)
    whole = (random.standard_normal((5, 4, 6, 8)) * 10).astype(dtype_of(dtype))
    if whole.dtype.kind not in "ib":
        whole[1, 0, 2, 3], whole[2, 1, 1, 1] = np.nan, np.inf
    for parts in ([*whole[:4]], [*whole[:3, 1:, :, ::2]], [whole[0]]):
        expected, found = parts[0].copy(), parts[0].copy()
        ufunc = np.maximum if combine == "max" else np.add
        with np.errstate(invalid="ignore"):
            fold(ufunc, expected, [expected, *parts[1:]], ())
        shim.ShimStreams().fold(combine, found, [found, *parts[1:]])()
        np.testing.assert_array_equal(
            *(a.astype(np.float64) for a in (found, expected))
        )  # bfloat16 knows no NaN


@needs_compiler
def test_a_target_apart_from_its_parts_and_one_of_nothing():
    a, b = np.arange(6.0), np.ones(6)
    out = np.empty(6)
    shim.ShimStreams().fold("sum", out, [a, b])()
    np.testing.assert_array_equal(out, a + b)
    shim.ShimStreams().fold("sum", out[:0], [a[:0], b[:0]])()
