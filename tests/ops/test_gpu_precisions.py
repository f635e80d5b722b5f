"""Every operator in every precision by its CUDA kernels as C++, against NumPy; see `precisions`."""

import pytest
from hypothesis import settings

from tests import shim
from tests.ops.precisions import BOUNDS, PRECISIONS, assert_near, on_device, reference, subjects

IS_THOROUGH = settings().max_examples > 100
SUBJECTS = subjects()

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def chosen():
    """Each model in one precision after the other, two of them in turn; all of them by HYPOTHESIS_PROFILE=thorough."""
    for k, subject in enumerate(SUBJECTS):
        turn = (k // len(PRECISIONS) + k % len(PRECISIONS)) % len(PRECISIONS)
        if IS_THOROUGH or turn in (0, 2):
            yield subject


@pytest.mark.parametrize("subject", list(chosen()), ids=str)
def test_a_gpu_gives_the_numbers_of_numpy(subject):
    if subject.precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model = subject.make()
    if not model.graph.operators:
        pytest.skip("nothing to run")
    assert_near(on_device(subject, backend=shim.ShimStreams()), reference(subject), BOUNDS[subject.precision])
