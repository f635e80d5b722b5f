"""Compiled kernels are found by their source, not by their name alone."""

from pathlib import Path

import numpy as np
import pytest

from taskflow.backend import CudaSource, NotCapturable
from taskflow.backend.cuda.kernels import KernelTable
from tests import shim

FOLDER = Path(__file__).parents[2] / "ops" / "expressions"
KERNEL = 'extern "C" __global__ void scale_float64(double* x, long long n) {{ if (THREAD < n) x[THREAD] *= {}; }}'


def sources():
    """Two that have a kernel of one name."""
    return [CudaSource(FOLDER / "cuda_source.cu", KERNEL.format(factor)) for factor in (2, 3)]


def loading():
    """Kernels that are pairs of source and name, and a list of those that were loaded."""
    loaded = []
    return KernelTable(lambda *each: loaded.append(each) or each), loaded


def test_sources_with_kernels_of_one_name_have_one_each():
    kernels, loaded = loading()
    for _ in range(2):
        for source in (each.text for each in sources()):
            assert kernels.find(source, "scale_float64", 0, is_capturing=False) == (
                source,
                "scale_float64",
            )
    assert len(loaded) == 2


def test_every_gpu_loads_its_own():
    kernels, loaded = loading()
    for gpu in (0, 1, 0):
        kernels.find("text", "name", gpu, is_capturing=False)
    assert len(loaded) == 2


def test_nothing_is_compiled_while_a_graph_is_captured():
    kernels, _ = loading()
    with pytest.raises(NotCapturable, match="kernel 'name' is compiled"):
        kernels.find("text", "name", 0, is_capturing=True)
    kernels.find("text", "name", 0, is_capturing=False)
    assert kernels.find("text", "name", 0, is_capturing=True) == ("text", "name")
    with pytest.raises(NotCapturable):
        kernels.find("another text", "name", 0, is_capturing=True)


@pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
def test_the_stand_in_for_gpus_finds_them_so_too():
    backend, x = shim.ShimStreams(), np.ones(5)
    for source in sources():
        backend.launch(source, "scale_float64", 5, (x, 5), 32)
    np.testing.assert_array_equal(x, 6)
