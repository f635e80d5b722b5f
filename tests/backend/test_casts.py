"""Casts of many arrays in one launch, as C++ against NumPy."""

import numpy as np
import pytest

from taskflow.backend.sources import CASTS
from tests import shim

PAIRS = [
    ("float32", "float16"),
    ("float32", "bfloat16"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
]
PART = 4096


def dtype_of(name):
    return (
        np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
        if name == "bfloat16"
        else np.dtype(name)
    )


@pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("source, target", PAIRS)
def test_arrays_of_any_size_and_alignment(source, target):
    random = np.random.default_rng(0)
    given = [
        random.normal(size=n + k).astype(dtype_of(source))[k:]
        for n, k in ((5000, 0), (7, 1), (4096, 0), (1, 0))
    ]
    made = [np.zeros(x.shape, dtype_of(target)) for x in given]
    rows = [[x.ctypes.data, y.ctypes.data, x.size] for x, y in zip(given, made)]
    parts = [(k, begin) for k, x in enumerate(given) for begin in range(0, x.size, PART)]
    tables = [np.array(table, np.int64).reshape(-1) for table in (rows, parts)]
    shim.ShimStreams().launch(
        CASTS, f"cast_{source}_{target}", len(parts) * 32, (*tables, PART), 32
    )
    for x, y in zip(given, made):
        expected = x.astype(np.float32).astype(y.dtype)
        np.testing.assert_array_equal(y.view(np.uint8), expected.view(np.uint8))
